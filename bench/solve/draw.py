"""Random problems of every kind that the format has."""

import math
import random


def draw(seed):
    r = random.Random(seed)
    clusters = [f"r{k}" for k in range(r.randint(1, 6))]
    sources = clusters + ["elsewhere"] * r.randint(0, 1)
    spots = {s: (r.uniform(0, 150), r.uniform(0, 100)) for s in sources}
    trips = {s: {c: 1.0 if s == c else round(2 + math.dist(spots[s], spots[c]), 2) for c in clusters} for s in sources}
    kinds = r.choice([["curve"], ["curve", "capped"], ["points"], ["curve", "capped", "flat", "points"]])
    scale = r.choice([1.0, 1.0, 1e-5, 1e5])
    engines = []
    for j in range(r.randint(len(clusters), 3 * len(clusters) + 1)):
        capacity = round(math.exp(r.uniform(3, 5.3)), 3) * scale
        kind, slope = r.choice(kinds), round(r.uniform(20, 200), 1)
        if kind == "points":
            points, load, time, steep = [[0, round(r.uniform(20, 150), 1)]], 0.0, None, 0.0
            time = points[0][1]
            for _ in range(r.randint(1, 4)):
                step = capacity * r.uniform(0.1, 0.6)
                steep += r.choice([0, 1, 1]) * r.uniform(0, 200) / capacity
                load, time = load + step, time + steep * step
                points.append([load, time])
            latency, capacity = {"points": points}, load * r.choice([1, 0.8])
        else:
            limit = {"curve": 1, "capped": 1 + r.uniform(0.02, 0.4), "flat": 1.2}[kind] * capacity
            latency = {"base_ms": round(r.uniform(0, 30), 1), "slope_ms": 0 if kind == "flat" else slope, "limit": limit}
        engines.append({"name": f"e{j}", "cluster": clusters[j % len(clusters)], "capacity": capacity, "latency": latency})
        if r.random() < 0.15:  # a round trip of its own
            for s in sources:
                trips[s][f"e{j}"] = round(trips[s][clusters[j % len(clusters)]] + r.uniform(0, 5), 2)
    if r.random() < 0.2:
        engines[0]["capacity"] = 0
    classes = [{"name": "chat"}]
    if r.random() < 0.5:
        classes.append({"name": "batch", "priority": "sheddable", "work": r.choice([0.5, 2, 4]), "distance_weight": r.choice([0, 1])})
        names = [e["name"] for e in engines]
        classes.append({"name": "code", "priority": "critical", "distance_weight": 3, "engines": r.sample(names, max(1, len(names) // 2))})
    demand = [{"source": s, "class": c["name"], "rate": math.exp(r.uniform(0, 3)) * (r.random() > 0.05)} for s in sources for c in classes]
    work = sum(d["rate"] * next(c.get("work", 1) for c in classes if c["name"] == d["class"]) for d in demand) or 1.0
    utilisation = r.choice([0.3, 0.6, 0.8, 0.9, 0.95, 1.1, 2])
    total = sum(e["capacity"] for e in engines)
    for d in demand:
        d["rate"] *= utilisation * total / work
    doc = {"name": f"random {seed}: {'+'.join(kinds)}, utilisation {utilisation}", "sources": sources, "engines": engines,
           "classes": classes, "demand": demand, "rtt_ms": trips}
    if r.random() < 0.3:
        doc["move_price_ms"] = r.choice([1, 20, 200])
        doc["previous"] = []
        for d in demand:
            allowed = next(c for c in classes if c["name"] == d["class"]).get("engines", [e["name"] for e in engines])
            chosen = r.sample(allowed, max(1, len(allowed) // 3))
            parts = [r.random() for _ in chosen]
            doc["previous"].append({"source": d["source"], "class": d["class"],
                                    "weights": {name: part / sum(parts) * r.choice([1, 0.9]) for name, part in zip(chosen, parts)} | {"gone": 0.0}})
    if r.random() < 0.2:
        doc["shed_curvature"] = 0
    return doc
