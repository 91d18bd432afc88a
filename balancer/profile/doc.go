// Package profile knows how the latency of an engine grows with its load. It is
// pure: what was measured goes in, curves and speeds come out.
//
// # An engine that works in steps
//
// One step computes a token for each of n sequences, and p tokens of prompts
// beside them. It takes
//
//	tau(n, p) = alpha + beta n + gamma p
//
// A request of o output tokens and u = prompt - cached prompt tokens is there
// for L = o + 1/2 steps: one, of which it misses half, computes its prompt, the
// others a token each. At y requests/s prompts stretch all steps by 1/d,
// d = 1 - gamma u y. So n sequences finish at the rate
//
//	mu(n) = min(n, S) d / (L (alpha + beta min(n, S)))
//
// with S slots, and with Poisson arrivals the number of sequences is a
// birth-death chain (occupancy.go). Its mean does not depend on how output
// lengths are distributed as long as no slot is short. Without that bound
//
//	T(y) = T(0) / (1 - y/Y),  T(0) = L (alpha + beta) + gamma u,  1/Y = beta o + gamma u
//
// and with it the latency grows without bound already where all slots are busy
// all the time:
//
//	1/Ys = o (alpha/S + beta) + gamma u
//
// Curve makes a + b/(1 - y/Y) of it, which has the chain's T(0), and its
// marginal cost d(y T)/dy at two loads. Simulated engines agree with the chain
// within 1 % up to 0.8 Ys (curve_test.go).
//
// # Where the numbers come from
//
//   - Learner (learner.go, regression.go): alpha, beta and gamma of a running
//     engine, from the answers that it gives.
//   - Fit (fit.go): a curve of measured pairs of load and latency.
package profile
