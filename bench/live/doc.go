// Command live measures how well requests are placed: the built gateway as a
// process of its own, in real time, before simulated engines (`penstock sim`)
// of known speeds, which the gateway has to find out by itself: its
// configuration has names, addresses and models. Beside it run other policies
// and a placement that knows the queue, the cache and the answer lengths of
// every engine. All get the same conversations, at the same times.
//
// # Parts
//
//   - scenario.go: the fleets and loads, S1 to S6.
//   - talk.go: who says what when, a function of scenario and seed.
//   - place.go: placements that need no gateway.
//   - virtual.go: the same engines and conversations on virtual time, in no
//     time at all, with a placement: what an undisturbed machine would show.
//   - planned.go: such a placement out of the gateway's own decisions, with all
//     speeds known.
//   - fleet.go: engines, the roads to far ones, and the gateway.
//   - play.go, client.go: the open loop. Latency counts from when a turn was
//     due, whatever held it up.
//   - table.go: what is told.
package main
