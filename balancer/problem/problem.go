package problem

// Problem is one routing problem. Indices stand for names: Demand.Class is an
// index of Classes, and so on. It is read-only for everything that takes it.
type Problem struct {
	Name    string
	Sources []string
	Engines []Engine
	Classes []Class
	Demand  []Demand

	// RTT is the round trip in ms by source and place (Engine.Place); NaN where
	// none is known, which is legal where no demand needs it.
	RTT [][]float64

	ShedPrice     [Priorities]float64 // ms per unit of work
	ShedCurvature float64
	Previous      []Previous // the last table, at most one row per source and class; solvers also begin from it
	MovePrice     float64    // ms per request moved
}

// Engine is what the problem needs to know of one.
type Engine struct {
	Name     string
	Cluster  string
	Place    int     // column of RTT: engines of one cluster share theirs, unless one has round trips of its own
	Capacity float64 // hard bound of the load, units/s; 0 takes none
	Latency  Latency
}

// Class is what rows of demand have in common.
type Class struct {
	Name           string
	Priority       Priority
	DistanceWeight float64
	Work           float64 // units of load per request
	All            bool    // every engine may serve it
	Engines        []int   // those that may, ascending, where not All
}

// Demand is one row: the requests/s of a class at a source.
type Demand struct {
	Source, Class int
	Rate          float64
}

// Previous is one row of the last table: flow beyond Rate * Weight pays the move
// price. Weights are in the order of engines that the class may use; one that
// is absent had weight 0.
type Previous struct {
	Source, Class int
	Weights       []Share
}

// Share is the part of a row's demand on one engine.
type Share struct {
	Engine int
	Weight float64
}

// Priority orders classes for shedding.
type Priority uint8

const (
	Critical Priority = iota
	Standard
	Sheddable

	Priorities = 3
)

var priorityNames = [Priorities]string{"critical", "standard", "sheddable"}

func (p Priority) String() string { return priorityNames[p] }

// What a problem file may leave out.
var defaultShedPrice = [Priorities]float64{Critical: 1_000_000, Standard: 300_000, Sheddable: 100_000}

const defaultShedCurvature = 0.5

// Allows reports whether the class may use an engine.
func (c *Class) Allows(engine int) bool {
	if c.All {
		return true
	}
	low, high := 0, len(c.Engines)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if c.Engines[mid] < engine {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(c.Engines) && c.Engines[low] == engine
}
