"""Compares `penstock fit` with SciPy on random measurements: no curve a + b/(1 - y/Y) that least_squares finds from
many starts is nearer in relative errors, and no convex piecewise-linear one that nnls finds on the same knots, or,
by much, on all loads as knots."""
import argparse
import json
import subprocess
import sys

import numpy as np
from scipy.optimize import least_squares, nnls


def run(penstock, y, t):
    text = "load,latency\n" + "".join(f"{a!r},{b!r}\n" for a, b in zip(y.tolist(), t.tolist()))
    p = subprocess.run([penstock, "fit", "-", "--json"], input=text, capture_output=True, text=True)
    if p.returncode:
        raise SystemExit(f"penstock fit: {p.stderr}\n{text}")
    return json.loads(p.stdout)


def curve(y, a, b, limit):
    with np.errstate(all="ignore"):  # a start may have the limit at a load
        return a + b / (1 - y / limit)


def best_curve(rng, y, t):
    most = y.max()
    best = np.inf
    for _ in range(12):
        start = [t.min() * rng.uniform(0, 1), t.min() * rng.uniform(0.01, 1), np.log(10 ** rng.uniform(-2, 1))]
        r = least_squares(lambda x: curve(y, x[0], x[1], most * (1 + np.exp(x[2]))) / t - 1, start,
                          bounds=([0, 0, np.log(1e-6)], [np.inf, np.inf, np.log(99)]), xtol=1e-13, ftol=1e-13, gtol=1e-13, max_nfev=4000)
        best = min(best, 2 * r.cost)
    return best


def best_points(y, t, knots):
    rows = np.column_stack([np.ones_like(y)] + [np.maximum(0, y - k) for k in knots]) / t[:, None]
    _, off = nnls(rows, np.ones_like(y), maxiter=10000)
    return off**2


def interpolated(r, y):
    points = np.array(r["latency"]["points"])
    return np.interp(y, points[:, 0], points[:, 1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--penstock", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sets", type=int, default=60)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    forms, faults = {"curve": 0, "points": 0}, []
    for i in range(args.sets):
        n = int(rng.integers(5, 30))
        limit = 10 ** rng.uniform(-2, 3)
        y = np.sort(rng.uniform(0, 0.95, n)) * limit
        kind = i % 3
        if kind < 2:
            t = curve(y, 10 ** rng.uniform(0, 3), 10 ** rng.uniform(0, 3), limit)
        else:  # flat, then a bend
            t = 100 + rng.uniform(10, 1000) * np.maximum(0, y / limit - 0.6) ** 1.0
        t = t * np.exp(rng.normal(0, [0, 0.05, 0.01][kind], n))
        r = run(args.penstock, y, t)
        forms[r["form"]] += 1
        if r["form"] == "curve":
            got = curve(y, r["latency"]["base_ms"], r["latency"]["slope_ms"], r["latency"]["limit"])
            want, slack = best_curve(rng, y, t), 1e-5
        else:
            got = interpolated(r, y)
            want, slack = best_points(y, t, [0] + sorted(y)), 0.25
            same = best_points(y, t, [p[0] for p in r["latency"]["points"][:-1]])
            mine = float(np.sum((got / t - 1) ** 2))
            if mine > same * (1 + 1e-6) + 1e-9:
                faults.append(f"set {i}: points are off by {mine:.8g}, on the same knots nnls by {same:.8g}")
        mine = float(np.sum((got / t - 1) ** 2))
        if mine > want * (1 + slack) + 1e-9 * n:
            faults.append(f"set {i} ({r['form']}): off by {mine:.8g}, SciPy by {want:.8g}")
        if abs(r["mape"] - np.mean(np.abs(got / t - 1))) > 1e-6:
            faults.append(f"set {i}: mape {r['mape']} is {np.mean(np.abs(got / t - 1))}")
    for f in faults:
        print("FAIL  fit:", f)
    print(f"{'FAIL' if faults else 'ok  '}  fit: {args.sets} sets, {forms['curve']} curves and {forms['points']} with points, beside SciPy's least squares")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
