"""Compares `penstock solve` with independent solvers: the worked example, and random problems of every kind."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import draw
import independent
from problem import Problem

TOLERANCE = 1e-6  # relative
METHODS = ["auto", "gradient", "interior"]


def solve(penstock, doc, method):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(doc, file)
        file.flush()
        run = subprocess.run([penstock, "solve", "--problem", file.name, "--json", "--method", method], capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        raise SystemExit(f"{doc['name']}: exit {run.returncode}: {run.stderr}")
    return json.loads(run.stdout)


def compare(penstock, doc):
    """Faults of all methods' answers, and a line to print."""
    p = Problem(doc)
    lower, upper, _ = independent.highs(p)
    conic = independent.clarabel(p)
    faults, worst = [], 0.0
    floor = max(abs(upper), 1e-9)
    if not upper - lower <= TOLERANCE / 2 * floor:
        faults.append(f"HiGHS does not close its bracket: {lower!r} to {upper!r}")
    if conic is not None and not lower - 1e-5 * floor <= conic <= upper + 1e-5 * floor:
        faults.append(f"the independent solvers disagree: HiGHS {lower!r} to {upper!r}, Clarabel {conic!r}")
    for method in METHODS:
        answer = solve(penstock, doc, method)
        wrong, objective, bound = p.judge(answer)
        faults += [f"{method}: {w}" for w in wrong]
        scale = max(abs(objective), 1e-9)
        if answer["status"] != "optimal" or objective - bound > TOLERANCE * scale:
            faults.append(f"{method}: status {answer['status']}, objective {objective!r}, bound {bound!r}")
        if abs(objective - answer["objective"]) > 1e-9 * scale or abs(bound - answer["bound"]) > 1e-8 * scale:
            faults.append(f"{method}: prints objective {answer['objective']!r} and bound {answer['bound']!r}, recomputed {objective!r} and {bound!r}")
        if objective > upper + TOLERANCE * scale or objective < lower - TOLERANCE * scale:
            faults.append(f"{method}: objective {objective!r}, HiGHS proves {lower!r} to {upper!r}")
        worst = max(worst, (objective - lower) / scale)
    seen = "-" if conic is None else f"{(conic - lower) / floor:9.1e}"
    return faults, f"{doc['name']:62} {upper:14.7g} {(upper - lower) / floor:9.1e} {seen:>9} {worst:9.1e}"


def worked_example(penstock, root):
    """The three clusters of the worked example, with curves and with flat latencies."""
    faults = []
    for name, mean, loads in [("curves", 472.5674, [89.299, 89.299, 71.401]), ("flat", 53.32, [90, 100, 60])]:
        doc = json.loads((root / f"balancer/testdata/problems/worked-example-{name}.json").read_text())
        p = Problem(doc)
        lower, upper, _ = independent.highs(p, width=1e-10)
        demand = sum(row["rate"] for row in p.rows)
        answer = solve(penstock, doc, "auto")
        got = [l["load"] for l in answer["loads"]]
        print(f"worked example, {name}: HiGHS mean {lower / demand:.6f} to {upper / demand:.6f} ms, "
              f"penstock {answer['mean_latency_ms']:.6f} ms, loads {', '.join(f'{y:.3f}' for y in got)}")
        if abs(answer["mean_latency_ms"] - mean) > 5e-5 or any(abs(a - b) > 5e-4 for a, b in zip(got, loads)):
            faults.append(f"worked example, {name}: want mean {mean} and loads {loads}")
        if not lower * (1 - TOLERANCE) <= answer["objective"] <= upper * (1 + TOLERANCE):
            faults.append(f"worked example, {name}: objective {answer['objective']!r}, HiGHS proves {lower!r} to {upper!r}")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--penstock", required=True)
    parser.add_argument("--problems", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="Solution may be inaccurate")  # it is compared with another
    root = pathlib.Path(__file__).resolve().parents[2]
    faults = worked_example(args.penstock, root)
    try:
        import clarabel  # noqa: F401
        import cvxpy  # noqa: F401
    except ImportError as missing:
        print(f"SKIP  Clarabel: {missing}")
    print(f"\n{'problem':62} {'optimum':>14} {'HiGHS':>9} {'Clarabel':>9} {'penstock':>9}")
    print(f"{'(each as its relative distance from the lower bound of HiGHS)':62} {'ms/s':>14}")
    for seed in range(args.seed, args.seed + args.problems):
        found, line = compare(args.penstock, draw.draw(seed))
        print(line, flush=True)
        faults += [f"seed {seed}: {f}" for f in found]
    for fault in faults:
        print("FAIL ", fault)
    print(f"\n{args.problems} random problems and the worked example: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
