package balancer

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"penstock/balancer/problem"
	"penstock/balancer/solve"
)

// guard keeps a solver that fails or hangs away from the control cycle: it runs
// on a goroutine of its own, and the cycle waits for it no longer than its
// budget. Of a solver that hangs there is at most one.
type guard struct {
	before atomic.Pointer[func()] // nil: nothing
	budget func() time.Duration

	solver *solve.Solver // keeps its memory from cycle to cycle
	hung   chan struct{} // closed when the solver that was given up returns; nil: none was
}

var errSlow = errors.New("the solver takes too long")

// solveBudget is how long a cycle waits for its solver.
func solveBudget(period time.Duration) time.Duration {
	return min(max(period, 250*time.Millisecond), 2*time.Second)
}

// solve is a solveFunc. It is for one goroutine.
func (g *guard) solve(p *problem.Problem) (*Proof, error) {
	if g.hung != nil {
		select {
		case <-g.hung:
			g.hung = nil
		default:
			return nil, errSlow
		}
	}
	solver := g.solver
	if solver == nil {
		solver = new(solve.Solver)
	}
	g.solver = nil // of a solver that failed nothing is used again
	var proof *Proof
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err = g.prepare(); err == nil {
			proof, err = prove(solver, p)
		}
	}()
	late := time.NewTimer(g.budget())
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		g.hung = done
		return nil, errSlow
	}
	if err == nil {
		g.solver = solver
	}
	return proof, err
}

func (g *guard) prepare() (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("solver: %v", fault)
		}
	}()
	if before := g.before.Load(); before != nil {
		(*before)()
	}
	return nil
}
