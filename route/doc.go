// Package route is the one thing that the control plane and the request path
// both know: the immutable Table and the single atomic pointer to it.
//
// A Table answers, without a lock and without work proportional to the number
// of engines: which engines may serve this class (Class), which engine does
// this slot belong to (Pool.Slot), draw me an engine by weight (Pool.Draw).
// A table is built aside, published once and never edited; a reader that
// holds one keeps a consistent picture until it lets go.
package route
