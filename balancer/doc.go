// Package balancer is the control plane: it turns what is known of the
// engines into the next route.Table and publishes it.
//
// The policy here is capacity: every class's weight on an engine is in
// proportion to the engine's capacity, x_j = C_j / sum_k C_k over the engines
// that take traffic. Tables are built by pure functions (Build); Loop is the
// only impure file.
package balancer
