// Package problem is the routing problem as data, and the proof of how well a
// plan solves it. It knows no solver: the certificate is computed from the
// problem, the plan's flows and a price per engine, so it holds for any plan.
//
// # The problem in symbols
//
// A row c is the demand of one class at one source: d_c requests/s (rate), of
// w_c units of work each. nu_c is its distance weight, pi_c its shed price per
// unit of work, kappa the shed curvature, m the move price. Engine j has load
// y_j in units/s, at most cap_j, and latency T_j(y); T_j(0) is its zero-load
// latency, G_j(y) = y (T_j(y) - T_j(0)) the congestion part. Times are in ms.
// With flows f_cj >= 0, shed flows u_c >= 0, z_c = u_c/d_c and the weights
// xprev of the last table:
//
//	minimise   sum_cj f_cj (nu_c rtt_cj + w_c T_j(0)) + sum_j G_j(y_j)
//	         + sum_c d_c w_c pi_c (z_c + kappa z_c^2 / 2)
//	         + m sum_c sum_j max(0, f_cj - d_c xprev_cj)
//	subject to sum_j f_cj + u_c = d_c,  y_j = sum_c w_c f_cj <= cap_j
//
// T is either base + slope/(1 - y/limit), for which with b = slope and
// rho = y/limit
//
//	G'(y) = b/(1-rho)^2 - b,   G*(v) = limit b (sqrt(1 + v/b) - 1)^2
//
// or linear between points, for which G is quadratic between them. G is convex
// in both, so the problem is.
//
// # The certificate
//
// At any prices lambda_j >= 0 per unit of load, the dual value
//
//	D = sum_c min { cost of d_c with C_cj = nu_c rtt_cj + w_c (T_j(0) + lambda_j) in place of latency }
//	  - sum_j G*_j(lambda_j),   G*_j(v) = max over 0 <= y <= cap_j of v y - G_j(y)
//
// is a lower bound of the optimum. (P - D)/P is therefore a proof of how far a
// plan with objective P can be from the optimum. The row's minimum is exact:
// serve at the least C_cj (kept flow d_c xprev_cj at C_cj, more at C_cj + m)
// or shed at the marginal cost w_c pi_c (1 + kappa z).
//
// The class differences of an engine at zero load are exact; under load all
// classes see its congestion in proportion to their work. That keeps the
// problem convex: the true sum of latencies of several classes on one engine is
// not.
package problem
