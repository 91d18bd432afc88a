"""Problem files of `penstock solve`: what they mean, and how far an answer is from it.

Written from the description of the format alone; nothing here is shared with the Go code.
"""

import math

PRIORITIES = {"critical": 1e6, "standard": 3e5, "sheddable": 1e5}


class Problem:
    """A problem file with its defaults filled in, in units of requests, work and ms."""

    def __init__(self, doc):
        self.doc = doc
        self.engines = doc["engines"]
        classes = {c["name"]: c for c in doc["classes"]}
        prices = {**PRIORITIES, **doc.get("shed_price_ms", {})}
        self.kappa = doc.get("shed_curvature", 0.5)
        self.move_price = doc.get("move_price_ms", 0)
        previous = {(r["source"], r["class"]): r["weights"] for r in doc.get("previous", [])}
        self.rows = []
        for d in doc["demand"]:
            c = classes[d["class"]]
            allowed = set(c.get("engines", [e["name"] for e in self.engines]))
            work, nu = c.get("work", 1), c.get("distance_weight", 1)
            trips = doc["rtt_ms"].get(d["source"], {})
            cost = {}
            for j, e in enumerate(self.engines):
                if e["name"] in allowed:
                    rtt = trips.get(e["name"], trips.get(e["cluster"]))
                    cost[j] = nu * rtt + work * self.latency(j, 0)
            was = previous.get((d["source"], d["class"]))
            if was is not None:
                was = {j: was.get(e["name"], 0) for j, e in enumerate(self.engines)}
            self.rows.append({"key": (d["source"], d["class"]), "rate": d["rate"], "work": work, "cost": cost,
                              "pi": work * prices[c.get("priority", "standard")], "was": was})

    def latency(self, j, y):
        l = self.engines[j]["latency"]
        if "points" in l:
            points = l["points"]
            for a, b in zip(points, points[1:]):
                if y <= b[0]:
                    return a[1] + (b[1] - a[1]) / (b[0] - a[0]) * (y - a[0])
            return points[-1][1]
        if l["slope_ms"] == 0:
            return l["base_ms"] + 0.0
        return l["base_ms"] + l["slope_ms"] / (1 - y / l["limit"]) if y < l["limit"] else (l["base_ms"] + l["slope_ms"] if y == 0 else math.inf)

    def congestion(self, j, y):
        """y (T(y) - T(0)): convex, 0 at 0."""
        l = self.engines[j]["latency"]
        if y <= 0:
            return 0.0
        if "points" in l:
            return y * (self.latency(j, y) - l["points"][0][1])
        if l["slope_ms"] == 0:
            return 0.0
        return y * l["slope_ms"] * y / (l["limit"] - y) if y < l["limit"] else math.inf

    def slope(self, j, y):
        """A derivative of congestion at y (from the left where there are two)."""
        l = self.engines[j]["latency"]
        if y <= 0:
            return 0.0
        if "points" in l:
            points = l["points"]
            for a, b in zip(points, points[1:]):
                if y <= b[0] or b is points[-1]:
                    return a[1] - points[0][1] + (b[1] - a[1]) / (b[0] - a[0]) * (2 * y - a[0])
            return 0.0
        if l["slope_ms"] == 0:
            return 0.0
        idle = (l["limit"] - y) / l["limit"]
        return l["slope_ms"] / idle**2 - l["slope_ms"] if idle > 0 else math.inf

    def conjugate(self, j, v):
        """The largest v y - congestion(y) up to the capacity."""
        e = self.engines[j]
        l, capacity = e["latency"], e["capacity"]
        tries = [capacity]
        if "points" in l:
            for a, b in zip(l["points"], l["points"][1:]):
                s = (b[1] - a[1]) / (b[0] - a[0])
                tries.append(a[0])
                if s > 0:
                    tries.append(min(max((v - a[1] + l["points"][0][1] + s * a[0]) / (2 * s), a[0]), b[0]))
        elif l["slope_ms"] > 0:
            b = l["slope_ms"]
            y = l["limit"] * (1 - math.sqrt(b / (v + b)))
            tries = [min(y, capacity)]
        return max([0.0] + [v * min(y, capacity) - self.congestion(j, min(y, capacity)) for y in tries])

    def objective(self, flows, shed):
        """Of flows[c][j] in requests/s and shed fractions."""
        loads = [0.0] * len(self.engines)
        total = []
        for row, flow, z in zip(self.rows, flows, shed):
            for j, f in flow.items():
                loads[j] += f * row["work"]
                total.append(f * row["cost"][j])
                if row["was"] is not None:
                    total.append(self.move_price * max(0.0, f - row["rate"] * row["was"][j]))
            total.append(row["rate"] * row["pi"] * (z + self.kappa * z * z / 2))
        total += [self.congestion(j, y) for j, y in enumerate(loads)]
        return math.fsum(total), loads

    def row_dual(self, row, prices):
        """The least that one request/s of a row costs at prices of engines."""
        cost = {j: c + row["work"] * prices[j] for j, c in row["cost"].items()}
        move = self.move_price if row["was"] is not None else 0.0
        least = min(cost.values(), default=math.inf) + move
        pieces = []
        if move > 0:
            pieces = sorted((cost[j], w) for j, w in row["was"].items() if j in cost and w > 0 and cost[j] < least)
        pieces.append((least, math.inf))
        served = value = 0.0
        for c, room in pieces:
            z = self.shed_at(row["pi"], c)
            if served + z >= 1:
                break
            take = min(room, 1 - served - z)
            served += take
            value += take * c
            if take < room:
                break
        z = 1 - served
        return value + row["pi"] * (z + self.kappa * z * z / 2)

    def shed_at(self, pi, cost):
        if cost <= pi:
            return 0.0
        if self.kappa == 0 or cost >= pi * (1 + self.kappa):
            return 1.0
        return (cost / pi - 1) / self.kappa

    def judge(self, answer):
        """What is wrong with an answer of `penstock solve --json`, and its recomputed objective and bound."""
        index = {e["name"]: j for j, e in enumerate(self.engines)}
        keys = {row["key"]: c for c, row in enumerate(self.rows)}
        flows, shed = [{} for _ in self.rows], [0.0] * len(self.rows)
        faults, shares = [], [0.0] * len(self.rows)
        for w in answer["weights"]:
            c, j = keys[(w["source"], w["class"])], index[w["engine"]]
            if w["weight"] < 0 or j not in self.rows[c]["cost"]:
                faults.append(f"weight {w}")
            shares[c] += w["weight"]
            flows[c][j] = w["flow"]
        for s in answer["shed"]:
            c = keys[(s["source"], s["class"])]
            shed[c] = s["fraction"]
            shares[c] += s["fraction"]
        faults += [f"row {row['key']} sums to {share!r}" for row, share in zip(self.rows, shares) if abs(share - 1) > 1e-9]
        objective, loads = self.objective(flows, shed)
        for e, y in zip(self.engines, loads):
            if y > e["capacity"] * (1 + 1e-9):
                faults.append(f"{e['name']} has load {y!r} above {e['capacity']!r}")
        prices = [0.0] * len(self.engines)
        for l in answer["loads"]:
            prices[index[l["engine"]]] = l["price_ms"]
        bound = math.fsum([row["rate"] * self.row_dual(row, prices) for row in self.rows if row["rate"] > 0]
                          + [-self.conjugate(j, v) for j, v in enumerate(prices)])
        return faults, objective, bound
