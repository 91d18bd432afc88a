// Package solve finds the plan that package problem certifies. It is pure: a
// problem goes in, a plan with its certificate comes out, and nothing else is
// read, kept or started. Its parts, in the order in which a problem passes them:
//
//   - grouping.go, component.go: equal engines and rows are taken together
//     without loss, the rest splits into connected components; each becomes a
//     net (net.go) of rows, groups, arcs and members (member.go).
//   - A method brings the flow near the optimum: the projected gradient
//     (gradient.go, simplex.go, response.go) from the last table, the
//     interior-point method (interior.go, schur.go) from nothing. coarse.go
//     makes large nets smaller for them.
//   - forest.go, pivot.go, root.go: from there a walk over forests of arcs ends
//     at the optimum of the net itself, to rounding, with flows of at most one
//     arc per row and group and prices that prove it. Both methods end in it:
//     it is their purification, and what resolves kinks, ties, capacities and
//     loads next to their limit, where methods that approach smoothly stop
//     beside the optimum.
//   - spread.go: back to the rows and engines of the problem.
//
// # In units of work
//
// With q = w_c f_cj the flow of work, D_c = w_c d_c and v_c = w_c u_c, the
// problem of package problem reads
//
//	minimise   sum_cj p_cj q_cj + sum_j H_j(y_j) + sum_c D_c pi_c (z_c + kappa z_c^2 / 2)
//	         + sum_c m/w_c sum_j max(0, q_cj - D_c xprev_cj)
//	subject to sum_j q_cj + v_c = D_c,   y_j = sum_c q_cj <= cap_j
//
//	p_cj = nu_c rtt_cj / w_c,   H_j(y) = y T_j(y),   z_c = v_c / D_c
//
// which is a flow from rows over arcs to engines with costs that are linear on
// arcs and convex in loads and sheds. Kept flow is a second arc beside the one
// that pays the move price, with the bound D_c xprev_cj. The derivative of H_j
// is the engine's marginal cost; lambda of a net is that of a group, so the
// price of engine j in a plan is lambda - T_j(0), or 0 where it takes nothing.
package solve
