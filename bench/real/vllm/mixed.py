"""vLLM and llama.cpp in one fleet: the SDKs' features on vLLM, then what clients see when an engine says other things than it does."""

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "sdk")]

import sdks  # noqa: E402
from client import new_client  # noqa: E402
from drive import Client  # noqa: E402
from engine import Vllm  # noqa: E402
from features import FEATURES  # noqa: E402
from fleet import LLAMA_SERVER, XLLAMACPP, DoesNotRun, Engine, Gateway, Process, until  # noqa: E402
from suite import World, run  # noqa: E402
from table import Table  # noqa: E402
from truths import TRUTHS, VLLM  # noqa: E402

LIMIT_SECONDS = 5400
CAPACITY = '[routing]\npolicy = "capacity"\n'


class Mixed(World):
    def __init__(self, penstock: Path, work: Path, v1: Vllm, l1: Engine):
        self.v1, self.l1 = v1, l1
        # By capacity: at so little load the optimum is one engine, and the checks are about both.
        gateway = Gateway(penstock, [v1, l1], work, CAPACITY)
        super().__init__(gateway, [v1, l1])
        (work / "strict").mkdir()
        # The same engines behind a second gateway that waits less long.
        self.strict = Gateway(penstock, [v1, l1], work / "strict", CAPACITY + '[limits]\nfirst_content = "6s"\nstall = "6s"\n')
        for g in (self.gateway, self.strict):
            g.start()

    def strict_client(self):
        return new_client(self.strict.address, 0)

    def busy(self) -> int:
        return sum(e.busy() for e in self.engines)

    def in_flight(self) -> int:
        return sum(e["in_flight"] for e in self.gateway.engines().values())

    def settle(self) -> None:
        for e in self.engines:
            if not e.alive():
                e.start()
        for g in (self.gateway, self.strict):
            until(lambda: g.in_use(["v1", "l1"]) and g.weighs(["v1", "l1"]), 60, "both engines in use")
        until(lambda: self.busy() == 0, 60, "engines idle before the check")


def start(args, v1: Vllm) -> Mixed:
    v1.begin()
    for build, path in (("llama-server", LLAMA_SERVER), ("xllamacpp", XLLAMACPP)):
        l1 = Engine("l1", build, args.work, template=HERE.parent / "template.jinja", more='capacity = 2\nlabels = { kind = "llama" }\n')
        try:
            if path.exists():
                l1.start()
                break
        except DoesNotRun as reason:
            print(f"SKIP  engine build {build}: {reason}", flush=True)
    else:
        raise SystemExit("FAIL  no installed build of llama.cpp runs on this machine")
    v1.ready()
    print(f"engines: v1 vLLM on port {v1.port}, l1 llama.cpp in {build} on port {l1.port}", flush=True)
    return Mixed(args.penstock, args.work, v1, l1)


def features(args, world: Mixed) -> tuple[sdks.Tally, Table]:
    """What the SDKs can do, with vLLM alone as the engine that may serve."""
    tally = sdks.Tally()
    clients = sdks.start_clients(args, tally)
    table = Table(clients)
    sdks.feature_rows(world, clients, tally, table, VLLM, [replace(f, flaws={}) for f in FEATURES if f.title != "embeddings"])
    Client.end_all()
    return tally, table


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--penstock", type=Path, required=True)
    flags.add_argument("--work", type=Path, required=True)
    flags.add_argument("--vllm", type=Path, required=True, help="the vllm program")
    flags.add_argument("--weights", type=Path, required=True, help="directory of the model that convert.py made")
    flags.add_argument("--node", type=Path)
    flags.add_argument("--scripts", type=Path, help="directory of the JavaScript clients with their node_modules")
    flags.add_argument("--go", type=Path)
    flags.add_argument("--sdk", action="append")
    flags.add_argument("--only", default="", help="only the checks whose title contains this, without the SDKs")
    flags.add_argument("--table", type=Path)
    args = flags.parse_args()

    def too_long(*_):
        raise TimeoutError(f"the suite took longer than {LIMIT_SECONDS} s")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_SECONDS)
    v1 = Vllm("v1", args.vllm, args.weights, args.work, 'capacity = 2\nmax_in_flight = 16\nlabels = { kind = "vllm" }\n')  # more than it runs at once: its own queue is what is looked at
    try:
        world = start(args, v1)
        failed = 0
        if not args.only:
            world.settle()
            tally, table = features(args, world)
            failed = tally.failed
            print(f"features on vLLM: {tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped", flush=True)
            if args.table:
                args.table.write_text(table.markdown())
        status = run(world, args.only, TRUTHS)
        return 1 if failed else status
    except DoesNotRun as reason:
        print(f"FAIL  vLLM starts: {reason}\n0 passed, 1 failed")
        return 1
    finally:
        Client.end_all()
        if v1.process:
            v1.end()
        Process.end_all()


if __name__ == "__main__":
    sys.exit(main())
