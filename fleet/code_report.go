package fleet

import "penstock/route"

// Report is what one gateway tells the leader: its demand, or that it goes.
type Report struct {
	Demand *route.Demand
	Leaves bool
}

// maxReplicas is that of gateway.replicas.
const maxReplicas = 1000

func (r *Report) encode() []byte {
	var e encoder
	if r.Leaves {
		e.byte(1)
		return e.b
	}
	e.byte(0)
	d := r.Demand
	e.text(d.Source)
	e.count(d.Replicas)
	e.count(len(d.Rows))
	for i := range d.Rows {
		row := &d.Rows[i]
		codeClass(&e, row.Class)
		e.byte(row.Priority)
		for _, v := range []float64{row.Rate, row.Retries, row.Prompt, row.Cached, row.Output} {
			e.float(v)
		}
		for _, l := range row.Lately {
			e.float32(l.Requests)
			e.float32(l.Expected)
			e.float32(l.Variance)
		}
	}
	e.count(len(d.Engines))
	for i := range d.Engines {
		s := &d.Engines[i]
		e.text(s.Engine)
		for _, v := range []float64{s.RTT, s.InFlight, s.Factor, s.Held, s.Speed.Step, s.Speed.PerSeq, s.Speed.PerToken, s.Speed.Slots, s.Speed.Held, s.Speed.Answers} {
			e.float32(v)
		}
		for _, v := range s.Speed.Doubt {
			e.float32(v)
		}
	}
	return e.b
}

// decodeReport reads a report. Its demand is of no instant yet: whoever
// receives it says when.
func decodeReport(from string, body []byte) (*Report, bool) {
	d := &decoder{b: body}
	if d.byte() == 1 {
		return &Report{Leaves: true}, d.done()
	}
	demand := &route.Demand{Gateway: from, Source: d.text(), Replicas: int(min(d.uint(), maxReplicas+1))}
	if demand.Source == "" || demand.Replicas < 1 || demand.Replicas > maxReplicas {
		d.fail()
	}
	demand.Rows = make([]route.DemandRow, d.count(5*8+5+route.LatelyWindows*3*4))
	for i := range demand.Rows {
		row := &demand.Rows[i]
		row.Class = readClass(d)
		if row.Priority = d.byte(); row.Priority >= route.Priorities {
			d.fail()
		}
		row.Rate, row.Retries, row.Prompt, row.Cached, row.Output = d.amount(), d.amount(), d.amount(), d.amount(), d.amount()
		for w := range row.Lately {
			row.Lately[w] = route.Lately{Requests: d.amount32(), Expected: d.amount32(), Variance: d.amount32()}
		}
	}
	demand.Engines = make([]route.Sighting, d.count(16*4+1))
	for i := range demand.Engines {
		s := &demand.Engines[i]
		s.Engine = d.text()
		s.RTT, s.InFlight = d.measure32(), d.amount32()
		if s.Factor = d.amount32(); s.Factor > 1 {
			d.fail()
		}
		s.Held = d.amount32()
		s.Speed = route.Speed{Step: d.amount32(), PerSeq: d.amount32(), PerToken: d.amount32(), Slots: d.amount32(), Held: d.amount32(), Answers: d.amount32()}
		for i := range s.Speed.Doubt {
			s.Speed.Doubt[i] = d.finite32()
		}
	}
	return &Report{Demand: demand}, d.done()
}

func codeClass(e *encoder, k route.ClassKey) {
	e.text(k.Model)
	e.uint(uint64(k.Caps))
	e.byte(k.Tier)
	e.text(k.Require)
}

func readClass(d *decoder) (k route.ClassKey) {
	k.Model = d.text()
	setNumber(&k.Caps, d.uint())
	k.Tier = d.byte()
	k.Require = d.text()
	return k
}

// setNumber sets a field whose type belongs to a room that this one does not
// know.
func setNumber[T ~uint64](to *T, v uint64) { *to = T(v) }
