// Package sim is a fleet on virtual time: regions with gateways and engines,
// requests that come at their times, and what becomes of them. It decides
// nothing itself. Where a gateway picks, plans, queues, refuses or repeats, the
// gateway's own code does it (selector, balancer, protect); where an engine
// batches, caches and evicts, enginetest.Batch does. Policies of other products
// (policy_*.go) are written from their public descriptions and run in the same
// place, before the same engines, on the same requests.
//
// Time is an int64 of nanoseconds since the beginning, events are a heap of
// values, and one goroutine does it all: the same input and seed give the same
// result, byte for byte. An engine takes one event for each step in which
// something begins or ends, and one for any number of steps between.
//
//	fleet.go     what there is: regions, engines, distances, faults
//	request.go   what is asked for; traffic.go makes some by chance
//	world.go     the run: events, time, and who is told what
//	engine.go    an engine on virtual time
//	gateway.go   a gateway: cycle.go plans, admit.go lets in, pick.go chooses
//	router.go    what a foreign policy is; policy_*.go are they
//	record.go    what became of each request; summary.go, table.go tell it
package sim
