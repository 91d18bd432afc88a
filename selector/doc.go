// Package selector decides which engine serves a request. It is on the hot
// path: a pick takes no lock that requests share, allocates nothing, logs
// nothing, and costs the same with ten engines and with ten thousand.
//
// A keyed request goes to the engine that is remembered for its conversation,
// else to its slot's engine, as long as that engine is within its bound; then
// to the slot's alternates; then to the lighter of two draws by weight. The
// bound moves a request, it never refuses one while another candidate has
// room. An unkeyed request takes the lighter of two draws. Whoever is chosen,
// the place is taken in the same step: the Lease is the pick.
package selector
