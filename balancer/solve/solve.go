package solve

import "penstock/balancer/problem"

// Method is how a problem is solved.
type Method uint8

const (
	// Auto begins with the gradient where there is a last table to begin from,
	// and takes the interior-point method where there is none or where that did
	// not come to the end.
	Auto Method = iota
	Gradient
	Interior

	methods
)

var methodNames = [methods]string{"auto", "gradient", "interior"}

func (m Method) String() string { return methodNames[m] }

// Enough is the gap at which a plan counts as optimal.
const Enough = 1e-6

// Result is a plan with its proof.
type Result struct {
	Plan        *problem.Plan
	Certificate *problem.Certificate
	Method      Method // the one that made the plan
	Iterations  int    // of the methods
	Pivots      int    // of the forest
}

// Solver solves problems and keeps its memory between them: solving one of the
// same size again allocates nothing. The zero value is ready. It is for one
// goroutine at a time; equal problems have equal results, whatever it solved
// before.
type Solver struct {
	grouping  grouping
	layout    layout
	net       net
	coarse    coarse
	gradient  gradient
	interior  interior
	forest    forest
	spread    spread
	certifier problem.Certifier

	flow       []float64 // by arc of the net
	plan, next problem.Plan
	result     Result
}

// Solve solves a valid problem. The result is good until the next call.
func (s *Solver) Solve(p *problem.Problem, method Method) *Result {
	s.grouping.build(p)
	s.layout.list(&s.grouping)
	s.result = Result{Plan: &s.plan}
	first := method
	if method == Auto {
		first = Interior
		if s.grouping.warm() {
			first = Gradient
		}
	}
	s.result.Method = s.attempt(first, method == Auto, &s.plan)
	s.result.Certificate = s.certifier.Certify(p, &s.plan)
	if gap := s.result.Certificate.Gap; method == Auto && !(gap <= Enough) {
		other := Interior
		if s.result.Method == Interior {
			other = Gradient
		}
		s.attempt(other, false, &s.next)
		if s.certifier.Certify(p, &s.next).Gap < gap {
			s.plan, s.next = s.next, s.plan
			s.result.Method = other
		}
		s.result.Certificate = s.certifier.Certify(p, &s.plan)
	}
	return &s.result
}

// attempt solves all components and returns the method that was needed.
func (s *Solver) attempt(method Method, mayChange bool, plan *problem.Plan) Method {
	used := method
	s.spread.begin(&s.grouping, &s.layout)
	for k := range s.grouping.components {
		if len(s.layout.rows(k)) == 0 {
			continue
		}
		s.layout.build(&s.grouping, k, &s.net)
		pivots := manyPivots
		first := method
		if mayChange && method == Gradient {
			pivots = fewPivots
			if s.net.wide() {
				first, pivots = Interior, manyPivots
			}
		}
		done := s.solveNet(first, k, pivots)
		if !done && pivots == fewPivots {
			first = Interior
			s.solveNet(first, k, manyPivots)
		}
		used = max(used, first) // the gradient's name only where it did all
		s.spread.take(k, &s.net, &s.forest)
	}
	s.spread.finish(plan)
	return used
}

// Pivots allowed per node of the net: few after the gradient where the
// interior-point method can still take over.
const (
	fewPivots  = 4
	manyPivots = 100
)

// solveNet solves the net of a component with at most so many pivots per node,
// and reports whether it came to the end.
func (s *Solver) solveNet(method Method, component, pivots int) bool {
	n := &s.net
	s.flow = zeroed(s.flow, n.arcs())
	switch {
	case n.groups() == 0: // all is shed
	case method == Gradient:
		s.runGradient(n, component)
	default:
		s.runInterior(n)
	}
	s.forest.begin(n, s.flow)
	done := s.forest.improve(pivots * (n.rows() + n.groups()))
	s.result.Pivots += s.forest.pivots
	return done
}

const (
	// nearEnough is the gap, relative to the cost, from which on the forest takes
	// fewer steps to the optimum than a method that stays inside.
	nearEnough = 1e-5
	// roughEnough tells which arcs matter.
	roughEnough = 1e-3
)

func (s *Solver) runInterior(n *net) {
	ip := &s.interior
	if !n.wide() {
		ip.solve(s.coarse.mergeMembers(n), nearEnough)
		s.result.Iterations += ip.iterations
		for a, x := range ip.arc.x {
			s.takeFlow(int32(a), x)
		}
		return
	}
	// Clusters of groups tell which arcs are worth looking at.
	k, radius := s.coarse.clusterGroups(n)
	ip.solve(k, roughEnough)
	s.result.Iterations += ip.iterations
	ip.solve(s.coarse.narrowArcs(n, ip.mu, ip.lambda, radius), nearEnough)
	s.result.Iterations += ip.iterations
	for k, a := range s.coarse.column {
		s.takeFlow(a, ip.arc.x[k])
	}
}

func (s *Solver) runGradient(n *net, component int) {
	most := mostWarm
	if !s.layout.lastFlow(&s.grouping, component, n, s.flow) {
		s.interior.coldFlow(n, s.flow)
		most = mostGradient
	}
	s.gradient.solve(s.coarse.mergeMembers(n), s.flow, roughEnough, most)
	s.result.Iterations += s.gradient.iterations
	for a := range s.flow {
		s.takeFlow(int32(a), s.gradient.x[a])
	}
}

// takeFlow notes the flow of an arc, unless a method has lost itself in it.
func (s *Solver) takeFlow(a int32, flow float64) {
	if flow >= 0 && flow <= s.net.demand[s.net.row[a]] {
		s.flow[a] = flow
	}
}
