package fleet

import (
	"math"
	"time"

	"penstock/route"
)

// A plan is coded whole, or as what differs from the plan before it (base):
// rows and engines that are as there are said by their number there. Weights
// are exact, so that slots, which follow from them, are the same everywhere;
// the figures beside them have 24 bits.

func codePlan(e *encoder, p, base *route.Plan) {
	var n nameTable
	body := &encoder{}
	body.uint(p.Version)
	body.text(p.Policy)
	body.byte(byte(p.Rule))
	codeCertificate(body, p.Certificate)
	body.count(len(p.Uncalibrated))
	for _, name := range p.Uncalibrated {
		body.uint(n.of(name))
	}
	rows, engines := indexPlan(base)
	body.count(len(p.Engines))
	for i := range p.Engines {
		if at, ok := engines[p.Engines[i].Name]; ok && sameEngine(&p.Engines[i], &base.Engines[at]) {
			body.uint(uint64(at) + 1)
			continue
		}
		body.uint(0)
		codeEngine(body, &n, &p.Engines[i])
	}
	body.count(len(p.Rows))
	for i := range p.Rows {
		row := &p.Rows[i]
		if at, ok := rows[rowKey{row.Source, row.Class}]; ok && sameRow(row, &base.Rows[at]) {
			body.uint(uint64(at) + 1)
			continue
		}
		body.uint(0)
		codeRow(body, &n, row)
	}
	n.code(e)
	e.b = append(e.b, body.b...)
}

func readPlan(d *decoder, base *route.Plan) *route.Plan {
	list := readNames(d)
	p := &route.Plan{Version: d.uint(), Policy: d.text()}
	if rule := route.Rule(d.byte()); rule <= route.RulePrefix {
		p.Rule = rule
	} else {
		d.fail()
	}
	p.Certificate = readCertificate(d)
	for range d.count(1) {
		p.Uncalibrated = append(p.Uncalibrated, d.name(list))
	}
	p.Engines = make([]route.PlanEngine, d.count(1))
	for i := range p.Engines {
		switch at := d.uint(); {
		case at == 0:
			p.Engines[i] = readEngine(d, list)
		case base != nil && at <= uint64(len(base.Engines)):
			p.Engines[i] = base.Engines[at-1]
		default:
			d.fail()
		}
	}
	p.Rows = make([]route.PlanRow, d.count(1))
	for i := range p.Rows {
		switch at := d.uint(); {
		case at == 0:
			p.Rows[i] = readRow(d, list)
		case base != nil && at <= uint64(len(base.Rows)):
			p.Rows[i] = base.Rows[at-1]
		default:
			d.fail()
		}
	}
	return p
}

type rowKey struct {
	source string
	class  route.ClassKey
}

func indexPlan(p *route.Plan) (rows map[rowKey]int, engines map[string]int) {
	rows, engines = make(map[rowKey]int), make(map[string]int)
	if p == nil {
		return rows, engines
	}
	for i := range p.Rows {
		rows[rowKey{p.Rows[i].Source, p.Rows[i].Class}] = i
	}
	for i := range p.Engines {
		engines[p.Engines[i].Name] = i
	}
	return rows, engines
}

// same32 is equal as coded.
func same32(a, b float64) bool { return math.Float32bits(float32(a)) == math.Float32bits(float32(b)) }

func sameEngine(a, b *route.PlanEngine) bool {
	return a.Name == b.Name && same32(a.Load, b.Load) && same32(a.Capacity, b.Capacity) && same32(a.InFlight, b.InFlight) &&
		same32(a.Latency, b.Latency) && same32(a.Price, b.Price) && same32(a.CapacityPrice, b.CapacityPrice) && a.Cost == b.Cost
}

func sameRow(a, b *route.PlanRow) bool {
	if a.Source != b.Source || a.Class != b.Class || a.Guessed != b.Guessed || a.Shed != b.Shed || len(a.Weights) != len(b.Weights) {
		return false
	}
	for i := range a.Weights {
		x, y := &a.Weights[i], &b.Weights[i]
		if x.Engine != y.Engine || x.Weight != y.Weight || !same32(x.InFlight, y.InFlight) {
			return false
		}
	}
	return true
}

func codeEngine(e *encoder, n *nameTable, v *route.PlanEngine) {
	e.uint(n.of(v.Name))
	for _, f := range []float64{v.Load, v.Capacity, v.InFlight, v.Latency, v.Price, v.CapacityPrice} {
		e.figure(f)
	}
	for _, f := range []float32{v.Cost.Alone, v.Cost.PerSeq, v.Cost.PerToken, v.Cost.Slots} {
		e.figure(float64(f))
	}
}

func readEngine(d *decoder, list []string) route.PlanEngine {
	return route.PlanEngine{Name: d.name(list), Load: d.finite32(), Capacity: d.finite32(), InFlight: d.finite32(),
		Latency: d.finite32(), Price: d.finite32(), CapacityPrice: d.finite32(),
		Cost: route.Cost{Alone: float32(d.amount32()), PerSeq: float32(d.amount32()), PerToken: float32(d.amount32()), Slots: float32(d.amount32())}}
}

func codeRow(e *encoder, n *nameTable, r *route.PlanRow) {
	e.uint(n.of(r.Source))
	codeClass(e, r.Class)
	mask := byte(0)
	if r.Guessed {
		mask |= 1
	}
	for k, v := range r.Shed {
		if v > 0 {
			mask |= 2 << k
		}
	}
	e.byte(mask)
	for _, v := range r.Shed {
		if v > 0 {
			e.float(v)
		}
	}
	e.count(len(r.Weights))
	for i := range r.Weights {
		e.uint(n.of(r.Weights[i].Engine))
		e.float(r.Weights[i].Weight)
		e.figure(max(0, r.Weights[i].InFlight))
	}
}

func readRow(d *decoder, list []string) route.PlanRow {
	r := route.PlanRow{Source: d.name(list), Class: readClass(d)}
	mask := d.byte()
	r.Guessed = mask&1 != 0
	for k := range r.Shed {
		if mask&(2<<k) != 0 {
			r.Shed[k] = d.share()
		}
	}
	r.Weights = make([]route.PlanWeight, d.count(13))
	for i := range r.Weights {
		r.Weights[i] = route.PlanWeight{Engine: d.name(list), Weight: d.share(), InFlight: d.amount32()}
	}
	return r
}

// share is a fraction, but for rounding.
func (d *decoder) share() float64 {
	v := d.amount()
	if v > 1+1e-9 {
		d.fail()
	}
	return v
}

func codeCertificate(e *encoder, c *route.Certificate) {
	if c == nil {
		e.byte(0)
		return
	}
	e.byte(1)
	for _, v := range []float64{c.Objective, c.Bound, c.Gap, c.Damping} {
		e.float(v)
	}
	e.text(c.Method)
	e.count(c.Iterations)
	e.uint(uint64(c.Took))
}

func readCertificate(d *decoder) *route.Certificate {
	if d.byte() == 0 {
		return nil
	}
	c := &route.Certificate{Objective: d.finite(), Bound: d.finite(), Gap: d.finite(), Damping: d.finite(), Method: d.text()}
	c.Iterations = int(min(d.uint(), math.MaxInt32))
	c.Took = time.Duration(min(d.uint(), uint64(time.Hour)))
	return c
}
