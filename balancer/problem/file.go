package problem

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Parse reads a problem file. An error is of type Faults and names the fields.
func Parse(data []byte) (*Problem, error) {
	doc := newDocument(data)
	f := file{shedPrice: defaultShedPrice, shedCurvature: defaultShedCurvature}
	if err := f.read(doc); err != nil {
		return nil, err
	}
	if err := doc.end(); err != nil {
		return nil, err
	}
	p, err := f.resolve()
	if err != nil {
		return nil, err
	}
	return p, p.Validate()
}

// file is the document with names where Problem has indices.
type file struct {
	name          string
	sources       []string
	engines       []Engine
	classes       []fileClass
	demand        []fileRow
	rtt           []fileTrips
	shedPrice     [Priorities]float64
	shedCurvature float64
	previous      []fileRow
	movePrice     float64
}

type fileClass struct {
	Class
	engines []string
}

// fileRow is a row of demand, or one of the last table.
type fileRow struct {
	source, class string
	rate          float64
	weights       []named
}

type fileTrips struct {
	source string
	trips  []named
}

type named struct {
	name  string
	value float64
}

func (f *file) read(d *document) error {
	return d.object(
		field{"name", false, func() (err error) { f.name, err = d.text(); return }},
		field{"sources", true, func() error { return readNames(d, &f.sources) }},
		field{"engines", true, func() error { return readList(d, &f.engines, readEngine) }},
		field{"classes", true, func() error { return readList(d, &f.classes, readClass) }},
		field{"demand", true, func() error { return readList(d, &f.demand, readDemand) }},
		field{"rtt_ms", true, func() error {
			return d.members(func(source string) error {
				t := fileTrips{source: source}
				err := readNamed(d, &t.trips)
				f.rtt = append(f.rtt, t)
				return err
			})
		}},
		field{"shed_price_ms", false, func() error {
			var fields []field
			for i := range f.shedPrice {
				fields = append(fields, field{Priority(i).String(), false, func() error { return d.into(&f.shedPrice[i]) }})
			}
			return d.object(fields...)
		}},
		field{"shed_curvature", false, func() error { return d.into(&f.shedCurvature) }},
		field{"previous", false, func() error { return readList(d, &f.previous, readPrevious) }},
		field{"move_price_ms", false, func() error { return d.into(&f.movePrice) }},
	)
}

func readList[T any](d *document, list *[]T, read func(*document, *T) error) error {
	return d.array(func(int) error {
		var item T
		err := read(d, &item)
		*list = append(*list, item)
		return err
	})
}

func readNames(d *document, list *[]string) error {
	*list = []string{}
	return readList(d, list, func(d *document, s *string) (err error) { *s, err = d.name(); return })
}

func readNamed(d *document, list *[]named) error {
	return d.members(func(name string) error {
		v, err := d.number()
		*list = append(*list, named{name, v})
		return err
	})
}

func readEngine(d *document, e *Engine) error {
	return d.object(
		field{"name", true, func() (err error) { e.Name, err = d.name(); return }},
		field{"cluster", false, func() (err error) { e.Cluster, err = d.name(); return }},
		field{"capacity", true, func() error { return d.into(&e.Capacity) }},
		field{"latency", true, func() error { return readLatency(d, &e.Latency) }},
	)
}

func readLatency(d *document, l *Latency) error {
	var curve []string
	points := false
	number := func(name string, v *float64) field {
		return field{name, false, func() error { curve = append(curve, name); return d.into(v) }}
	}
	err := d.object(
		number("base_ms", &l.Base), number("slope_ms", &l.Slope), number("limit", &l.Limit),
		field{"points", false, func() error { points = true; return readList(d, &l.Points, readPoint) }},
	)
	switch {
	case err != nil:
		return err
	case points && len(curve) > 0:
		return d.fault("has points and %s: want either points, or base_ms, slope_ms and limit", strings.Join(curve, ", "))
	case points && len(l.Points) == 0:
		return d.fault("has no points: want [load, ms] pairs from load 0 on")
	case !points && len(curve) < 3:
		return d.fault("want base_ms, slope_ms and limit, or points; there is %s", join(curve))
	}
	return nil
}

func join(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return "only " + strings.Join(names, " and ")
}

func readPoint(d *document, p *Point) error {
	n := 0
	err := d.array(func(i int) error {
		n++
		switch i {
		case 0:
			return d.into(&p.Load)
		case 1:
			return d.into(&p.Time)
		}
		return d.fault("want [load, ms], two numbers")
	})
	if err == nil && n < 2 {
		err = d.fault("want [load, ms], two numbers")
	}
	return err
}

func readClass(d *document, c *fileClass) error {
	c.Class = Class{Priority: Standard, DistanceWeight: 1, Work: 1, All: true}
	return d.object(
		field{"name", true, func() (err error) { c.Name, err = d.name(); return }},
		field{"priority", false, func() error {
			s, err := d.text()
			if err != nil {
				return err
			}
			at := slices.Index(priorityNames[:], s)
			if at < 0 {
				return d.fault("%q is no priority: want %s", s, strings.Join(priorityNames[:], ", "))
			}
			c.Priority = Priority(at)
			return nil
		}},
		field{"distance_weight", false, func() error { return d.into(&c.DistanceWeight) }},
		field{"work", false, func() error { return d.into(&c.Work) }},
		field{"engines", false, func() error { c.All = false; return readNames(d, &c.engines) }},
	)
}

func readDemand(d *document, r *fileRow) error {
	return d.object(
		field{"source", true, func() (err error) { r.source, err = d.text(); return }},
		field{"class", true, func() (err error) { r.class, err = d.text(); return }},
		field{"rate", true, func() error { return d.into(&r.rate) }},
	)
}

func readPrevious(d *document, r *fileRow) error {
	return d.object(
		field{"source", true, func() (err error) { r.source, err = d.text(); return }},
		field{"class", true, func() (err error) { r.class, err = d.text(); return }},
		field{"weights", true, func() error { return readNamed(d, &r.weights) }},
	)
}

// resolve turns names into indices.
func (f *file) resolve() (*Problem, error) {
	var faults Faults
	sources := index(f.sources, "sources[%d]", &faults)
	engineNames := make([]string, len(f.engines))
	for i := range f.engines {
		engineNames[i] = f.engines[i].Name
		if f.engines[i].Cluster == "" {
			f.engines[i].Cluster = f.engines[i].Name
		}
	}
	engines := index(engineNames, "engines[%d].name", &faults)
	p := &Problem{Name: f.name, Sources: f.sources, Engines: f.engines,
		ShedPrice: f.shedPrice, ShedCurvature: f.shedCurvature, MovePrice: f.movePrice}
	classes := f.resolveClasses(p, engines, &faults)
	f.resolveTrips(p, sources, engines, &faults)
	rows := newRows(sources, classes, "demand", &faults)
	for i, r := range f.demand {
		if s, c, ok := rows.find(i, r); ok {
			p.Demand = append(p.Demand, Demand{s, c, r.rate})
		}
	}
	rows = newRows(sources, classes, "previous", &faults)
	for i, r := range f.previous {
		if s, c, ok := rows.find(i, r); ok {
			p.Previous = append(p.Previous, Previous{s, c, f.resolveWeights(p, i, r, c, engines, &faults)})
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return p, nil
}

// index finds names, which are unique in their list.
func index(names []string, field string, faults *Faults) map[string]int {
	at := make(map[string]int, len(names))
	for i, name := range names {
		if first, twice := at[name]; twice {
			faults.addf(fmt.Sprintf(field, i), "%q is the name of number %d already", name, first)
			continue
		}
		at[name] = i
	}
	return at
}

func (f *file) resolveClasses(p *Problem, engines map[string]int, faults *Faults) map[string]int {
	names := make([]string, len(f.classes))
	for i, c := range f.classes {
		names[i] = c.Name
		seen := make(map[string]bool, len(c.engines))
		for k, name := range c.engines {
			j, known := engines[name]
			switch {
			case !known:
				faults.addf(fmt.Sprintf("classes[%d].engines[%d]", i, k), "%q is no engine", name)
			case seen[name]:
				faults.addf(fmt.Sprintf("classes[%d].engines[%d]", i, k), "%q is there twice", name)
			default:
				c.Engines = append(c.Engines, j)
			}
			seen[name] = true
		}
		slices.Sort(c.Engines)
		p.Classes = append(p.Classes, c.Class)
	}
	return index(names, "classes[%d].name", faults)
}

// resolveTrips gives engines their places: one for each cluster, one more for
// each engine that has round trips of its own.
func (f *file) resolveTrips(p *Problem, sources, engines map[string]int, faults *Faults) {
	clusters := make(map[string]bool)
	for _, e := range f.engines {
		clusters[e.Cluster] = true
	}
	trips := make([]map[string]float64, len(f.sources))
	own := make(map[string]bool)
	for _, t := range f.rtt {
		s, known := sources[t.source]
		if !known {
			faults.addf("rtt_ms."+t.source, "%q is not in sources", t.source)
			continue
		}
		trips[s] = make(map[string]float64, len(t.trips))
		for _, n := range t.trips {
			field := "rtt_ms." + t.source + "." + n.name
			_, engine := engines[n.name]
			_, source := sources[n.name]
			if !engine && !source && !clusters[n.name] {
				faults.addf(field, "%q is no engine, no cluster of an engine and no source", n.name)
			}
			faults.notNegative(field, n.value)
			trips[s][n.name] = n.value
			own[n.name] = own[n.name] || engine
		}
	}
	places := make(map[string]int)
	place := func(key string) int {
		at, known := places[key]
		if !known {
			at = len(places)
			places[key] = at
		}
		return at
	}
	for j := range p.Engines {
		e := &p.Engines[j]
		key := "cluster " + e.Cluster
		if own[e.Name] {
			key = "engine " + e.Name
		}
		e.Place = place(key)
	}
	p.RTT = make([][]float64, len(f.sources))
	for s := range p.RTT {
		row := make([]float64, len(places))
		for j := range p.Engines {
			e := &p.Engines[j]
			v, known := trips[s][e.Name]
			if !known {
				v, known = trips[s][e.Cluster]
			}
			if !known {
				v = math.NaN()
			}
			row[e.Place] = v
		}
		p.RTT[s] = row
	}
}

// rows finds the source and class of rows, each pair once.
type rows struct {
	sources, classes map[string]int
	field            string
	seen             map[[2]int]int
	faults           *Faults
}

func newRows(sources, classes map[string]int, field string, faults *Faults) rows {
	return rows{sources, classes, field, make(map[[2]int]int), faults}
}

func (r rows) find(i int, row fileRow) (source, class int, ok bool) {
	source, known := r.sources[row.source]
	if !known {
		r.faults.addf(fmt.Sprintf("%s[%d].source", r.field, i), "%q is not in sources", row.source)
	}
	class, of := r.classes[row.class]
	if !of {
		r.faults.addf(fmt.Sprintf("%s[%d].class", r.field, i), "%q is no class", row.class)
	}
	if !known || !of {
		return 0, 0, false
	}
	if first, twice := r.seen[[2]int{source, class}]; twice {
		r.faults.addf(fmt.Sprintf("%s[%d]", r.field, i), "source %q and class %q are those of number %d already", row.source, row.class, first)
		return 0, 0, false
	}
	r.seen[[2]int{source, class}] = i
	return source, class, true
}

// resolveWeights leaves out engines that are gone or no longer allowed: a
// controller writes what it has published.
func (f *file) resolveWeights(p *Problem, i int, r fileRow, class int, engines map[string]int, faults *Faults) []Share {
	var list []Share
	sum := 0.0
	for _, w := range r.weights {
		faults.notNegative(fmt.Sprintf("previous[%d].weights.%s", i, w.name), w.value)
		sum += w.value
		if j, known := engines[w.name]; known && p.Classes[class].Allows(j) {
			list = append(list, Share{j, w.value})
		}
	}
	if sum > mostPrevious {
		faults.addf(fmt.Sprintf("previous[%d].weights", i), "sum to %v: want at most 1", sum)
	}
	slices.SortFunc(list, func(a, b Share) int { return a.Engine - b.Engine })
	return list
}
