// Package engine is one inference server as Penstock knows it: its identity,
// the live counters of the traffic Penstock sends it, what it last told about
// itself (models, load, health), and the loops that ask.
//
// Ownership. A *Engine is immutable: it is what the configuration says. Its
// *Live outlives it: a reload that changes an engine's labels makes a new
// *Engine around the same *Live, so in-flight counts and health are never
// lost. The hot path touches Live through atomics only; the poller is the one
// writer of state, sample, models and dialect.
package engine
