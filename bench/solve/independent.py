"""Optima of problem files by solvers that have nothing to do with Penstock."""

import math

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from problem import Problem


def highs(p: Problem, width=1e-8, rounds=150):
    """Lower and upper bound by linear programs: costs of loads and sheds are the largest of tangents, which are added where the
    last solution is until the bracket is closed. Also the loads of the best solution."""
    rate = sum(row["rate"] for row in p.rows) or 1.0
    arcs = [(c, j) for c, row in enumerate(p.rows) for j in row["cost"] if row["rate"] > 0 and p.engines[j]["capacity"] > 0]
    rows, engines = len(p.rows), len(p.engines)
    # Columns: shares of arcs, shed fractions, moved shares, cost of each load, cost of each shed.
    shed0, moved0 = len(arcs), len(arcs) + rows
    cost0 = moved0 + len(arcs)
    shedcost0 = cost0 + engines
    columns = shedcost0 + rows
    objective = np.zeros(columns)
    equal, right = [], np.ones(rows)
    below, most = [], []

    def add(row, entries, limit):
        below.extend((row, k, v) for k, v in entries)
        most.append(limit)

    loads = [[] for _ in range(engines)]  # (column, load per share)
    for k, (c, j) in enumerate(arcs):
        row = p.rows[c]
        objective[k] = row["rate"] * row["cost"][j]
        equal.append((c, k, 1.0))
        loads[j].append((k, row["rate"] * row["work"]))
        if row["was"] is not None and p.move_price > 0:
            objective[moved0 + k] = row["rate"] * p.move_price
            add(len(most), [(k, 1.0), (moved0 + k, -1.0)], row["was"][j])
    unit = []  # of the cost of a load: its value at or near the capacity
    for c, row in enumerate(p.rows):
        equal.append((c, shed0 + c, 1.0))
        objective[shedcost0 + c] = row["rate"] * row["pi"]
    for j, e in enumerate(p.engines):
        full = p.congestion(j, e["capacity"])
        unit.append(full if math.isfinite(full) else p.congestion(j, 0.9 * e["capacity"]))
        objective[cost0 + j] = unit[j]
        if e["capacity"] > 0:
            add(len(most), [(k, v / e["capacity"]) for k, v in loads[j]], 1.0)

    total = max(1e-300, rate * 100.0)  # the scale of the objective, improved by the first bound

    def tangent(j, y):
        slope = p.slope(j, y)
        at = p.congestion(j, y)
        if math.isfinite(at) and slope > 0 and loads[j]:
            size = max(slope * max(v for _, v in loads[j]), unit[j])
            add(len(most), [(k, slope * v / size) for k, v in loads[j]] + [(cost0 + j, -unit[j] / size)], (slope * y - at) / size)

    def shed_tangent(c, z):
        add(len(most), [(shed0 + c, 1 + p.kappa * z), (shedcost0 + c, -1.0)], p.kappa * z * z / 2)

    for j, e in enumerate(p.engines):
        limit = e["capacity"]
        for rho in [0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0]:
            tangent(j, rho * limit)
        for point in e["latency"].get("points", []):
            if 0 < point[0] <= limit:
                tangent(j, point[0] * (1 - 1e-12))
                tangent(j, min(point[0] * (1 + 1e-12), limit))
    for c in range(rows):
        for z in [0, 0.05, 0.2, 0.5, 1] if p.kappa > 0 else [0]:
            shed_tangent(c, z)
    lower, upper, best_loads, best = -math.inf, math.inf, None, None
    equal_matrix = coo_matrix(([v for _, _, v in equal], ([r for r, _, _ in equal], [k for _, k, _ in equal])), shape=(rows, columns))
    for _ in range(rounds):
        matrix = coo_matrix(([v for _, _, v in below], ([r for r, _, _ in below], [k for _, k, _ in below])), shape=(len(most), columns))
        result = linprog(objective / total, A_ub=matrix.tocsr(), b_ub=np.array(most), A_eq=equal_matrix.tocsr(), b_eq=right, bounds=(0, None),
                         method="highs", options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10})
        if result.status != 0:
            raise RuntimeError(f"HiGHS: {result.message}")
        lower = max(lower, result.fun * total)
        x = result.x
        shares = [x[:len(arcs)], best] if best is not None else [x[:len(arcs)]]
        # The solution itself, and the middle between it and the best so far.
        for s in [shares[0]] + ([(shares[0] + shares[1]) / 2] if best is not None else []):
            flows, shed, y = [{} for _ in p.rows], [], [0.0] * engines
            for k, (c, j) in enumerate(arcs):
                flows[c][j] = p.rows[c]["rate"] * max(0.0, s[k])
                y[j] += flows[c][j] * p.rows[c]["work"]
            for c, row in enumerate(p.rows):
                z = 1 - sum(flows[c].values()) / row["rate"] if row["rate"] > 0 else 0.0
                shed.append(min(max(z, 0.0), 1.0))
                shed_tangent(c, shed[-1])
            for j in range(engines):
                if y[j] > 0:
                    tangent(j, min(y[j], p.engines[j]["capacity"]))
            value, _ = p.objective(flows, shed)
            if value < upper and all(v <= e["capacity"] * (1 + 1e-9) for v, e in zip(y, p.engines)):
                upper, best_loads, best = value, y, s.copy()
        if upper - lower <= width * abs(upper):
            break
        total = max(abs(lower), 1e-300)
    return lower, upper, best_loads


def clarabel(p: Problem):
    """The optimum by cvxpy and Clarabel, None where they are not installed or do not finish."""
    try:
        import cvxpy as cp
    except ImportError:
        return None
    rate = sum(row["rate"] for row in p.rows) or 1.0
    served = [row for row in p.rows if row["rate"] > 0]
    if not served:
        return 0.0
    usable = [j for j, e in enumerate(p.engines) if e["capacity"] > 0]
    share = {c: cp.Variable(len(usable), nonneg=True) for c in range(len(served))}
    z = cp.Variable(len(served), nonneg=True)
    load = {j: 0 for j in usable}
    cost, limits = 0, []
    for c, row in enumerate(served):
        limits.append(cp.sum(share[c]) + z[c] == 1)
        d = row["rate"] / rate
        for k, j in enumerate(usable):
            if j not in row["cost"]:
                limits.append(share[c][k] == 0)
                continue
            cost += d * row["cost"][j] * share[c][k]
            load[j] += d * row["work"] * share[c][k]
            if row["was"] is not None and p.move_price > 0:
                cost += d * p.move_price * cp.pos(share[c][k] - row["was"][j])
        cost += d * row["pi"] * (z[c] + p.kappa / 2 * cp.square(z[c]))
    for j in usable:
        e, l = p.engines[j], p.engines[j]["latency"]
        capacity = e["capacity"] / rate
        rho = load[j] / capacity  # of the capacity
        limits.append(rho <= 1)
        if "points" in l:
            pieces, points = [], l["points"]
            for a, b in zip(points, points[1:]):
                s = (b[1] - a[1]) / (b[0] - a[0]) * e["capacity"]
                # y (T - T0) on the segment, as a quadratic of rho; their largest is the curve.
                pieces.append(capacity * (s * cp.square(rho) + (a[1] - points[0][1] - s * a[0] / e["capacity"]) * rho))
            if pieces:
                cost += cp.maximum(*pieces) if len(pieces) > 1 else pieces[0]
        elif l["slope_ms"] > 0:
            part = e["capacity"] / l["limit"]
            cost += l["slope_ms"] * capacity / part * (cp.inv_pos(1 - part * rho) - 1 - part * rho)
    problem = cp.Problem(cp.Minimize(cost), limits)
    try:
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    except cp.SolverError:
        return None
    return problem.value * rate if problem.status in ("optimal", "optimal_inaccurate") else None
