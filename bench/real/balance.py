"""Two llama.cpp servers of different size behind the gateway, nothing configured but name and URL: which policy answers soonest?

An open loop of conversations, the same for every policy; the policies take turns, each with a gateway of its own that
knows nothing at first. Latency counts from when a turn was due, so that a client that falls behind hides nothing.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import openai

from client import ENDLESS
from fleet import LLAMA_SERVER, MODEL, XLLAMACPP, DoesNotRun, Engine, Gateway, Process, get, until

SIZES = {"large": 4, "small": 1}  # engine -> slots
TURNS = 4
PAUSE = 1.5  # s from turn to turn, mean
TOKENS = 32
LIMIT = 60  # s for one answer


def endpoint(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=LIMIT)


@dataclass
class Run:
    policy: str
    measured: float  # requests due from here on count (monotonic)
    latency: list[float] = field(default_factory=list)
    by: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    weights: dict[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.latency) if self.latency else float("inf")


async def answer(client: openai.AsyncOpenAI, messages: list) -> tuple[str, str]:
    """The text and the engine of one streamed answer."""
    raw = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=messages, max_tokens=TOKENS, temperature=0, stream=True, extra_body=ENDLESS)
    text = ""
    async for chunk in raw.parse():
        if chunk.choices and chunk.choices[0].delta.content:
            text += chunk.choices[0].delta.content
    return text, raw.headers.get("x-penstock-engine", "")


async def conversation(client: openai.AsyncOpenAI, run: Run, dice: random.Random, number: int) -> None:
    messages, due = [], time.monotonic()
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"Conversation {number}, question {turn + 1}: tell me about the number {dice.randrange(10**6)}."})
        await asyncio.sleep(max(0, due - time.monotonic()))
        try:
            text, engine = await answer(client, messages)
        except openai.OpenAIError:
            run.failed += 1
            return
        if due >= run.measured:
            run.latency.append(time.monotonic() - due)
            run.by[engine] = run.by.get(engine, 0) + 1
        messages.append({"role": "assistant", "content": text})
        due = time.monotonic() + dice.expovariate(1 / PAUSE)


async def load(url: str, run: Run, rate: float, seconds: float, seed: int) -> None:
    """Poisson arrivals of conversations, rate counted in requests/s."""
    dice = random.Random(seed)
    end, number, running = time.monotonic() + seconds, 0, set()
    async with endpoint(url) as client:
        while time.monotonic() < end:
            number += 1
            task = asyncio.create_task(conversation(client, run, random.Random(seed * 10_000 + number), number))
            running.add(task)
            task.add_done_callback(running.discard)
            await asyncio.sleep(dice.expovariate(rate / TURNS))
        await asyncio.gather(*running)


async def capacity(e: Engine, seconds: float) -> float:
    """Requests/s of an engine whose slots are all busy."""
    done, end = 0, time.monotonic() + seconds

    async def worker(client, n):
        nonlocal done
        while time.monotonic() < end:
            await answer(client, [{"role": "user", "content": f"Worker {n}: tell me about the number {done}."}])
            done += 1

    begun = time.monotonic()
    async with endpoint(e.url) as client:
        await asyncio.gather(*(worker(client, n) for n in range(e.slots)))
    return done / (time.monotonic() - begun)


def start_engines(work: Path) -> list[Engine]:
    for build, path in (("llama-server", LLAMA_SERVER), ("xllamacpp", XLLAMACPP)):
        if not path.exists():
            continue
        engines = [Engine(name, build, work, slots=slots) for name, slots in SIZES.items()]
        try:
            for e in engines:
                e.start()
            return engines
        except DoesNotRun as reason:
            print(f"SKIP  engine build {build}: {reason}", flush=True)
    raise SystemExit("FAIL  no installed build of llama.cpp runs on this machine")


def weights(gateway: Gateway) -> dict[str, float]:
    return {w["engine"]: w["weight"] for w in json.loads(get(gateway.admin + "/table")[1])["weights"] or []}


def play(policy: str, seed: int, rate: float, args, engines: list[Engine]) -> Run:
    work = args.work / f"{policy}-{seed}"
    work.mkdir()
    gateway = Gateway(args.penstock, engines, work, more=f'[routing]\npolicy = "{policy}"\n')
    gateway.start()
    until(lambda: gateway.weighs([e.name for e in engines]), 20, "both engines in the table")
    run = Run(policy, time.monotonic() + args.warm)
    asyncio.run(load(gateway.address, run, rate, args.warm + args.measure, seed))
    run.weights = weights(gateway)
    gateway.process.end()
    until(lambda: not any(e.busy() for e in engines), 30, "engines idle after a run")
    return run


def shares(of: dict) -> str:
    total = sum(of.values()) or 1
    return "  ".join(f"{name} {of.get(name, 0) / total:4.0%}" for name in SIZES)


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--penstock", type=Path, required=True)
    flags.add_argument("--work", type=Path, required=True)
    flags.add_argument("--policies", default="optimal,round-robin,least-request")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--warm", type=float, default=25, help="s of load before latency counts")
    flags.add_argument("--measure", type=float, default=25, help="s in which it counts")
    flags.add_argument("--load", type=float, default=0.7, help="of what both engines carry together")
    args = flags.parse_args()
    try:
        engines = start_engines(args.work)

        async def both() -> list[float]:  # at once: they share the machine, here as in the runs
            return await asyncio.gather(*(capacity(e, 6) for e in engines))

        carried = dict(zip(SIZES, asyncio.run(both())))
        rate = args.load * sum(carried.values())
        print("requests/s with all slots busy: " + ", ".join(f"{n} {c:.2f}" for n, c in carried.items()) + f"; offered: {rate:.2f}", flush=True)
        print(f"shares by what they carry:  {shares(carried)}\n", flush=True)
        runs: dict[str, list[Run]] = {p: [] for p in args.policies.split(",")}
        for seed in range(1, args.rounds + 1):
            for policy in runs:
                r = play(policy, seed, rate, args, engines)
                runs[policy].append(r)
                p95 = sorted(r.latency)[int(len(r.latency) * 0.95)] if r.latency else float("inf")
                print(f"round {seed}  {policy:14} {len(r.latency):4} answers, {r.failed} failed, mean {r.mean * 1000:6.0f} ms, p95 {p95 * 1000:6.0f} ms, "
                      f"by {shares(r.by)}, weights {shares(r.weights)}", flush=True)
        middle = {p: statistics.median(r.mean for r in rs) for p, rs in runs.items()}
        print("\nmedian of the rounds' means: " + ", ".join(f"{p} {m * 1000:.0f} ms" for p, m in middle.items()))
        failed = sum(r.failed for rs in runs.values() for r in rs)
        best = middle.get("optimal", 0)
        wrong = [p for p, slack in (("round-robin", 1.0), ("least-request", 1.05)) if p in middle and best > slack * middle[p]]
        if failed or wrong:
            print(f"FAIL  {failed} requests failed; optimal is slower than: {', '.join(wrong) or 'none'}")
            return 1
        print("PASS  optimal is faster than round-robin and no slower than least-request")
        return 0
    finally:
        Process.end_all()


if __name__ == "__main__":
    sys.exit(main())
