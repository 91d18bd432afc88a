"""Runs the checks of checks.py, then of losses.py, against one gateway in front of two llama.cpp servers; one line per check, then the count."""

import argparse
import signal
import sys
import time
import traceback
from pathlib import Path

import losses  # noqa: F401: its checks follow those of checks
from checks import CHECKS
from client import Answer, chat, new_client, opening
from fleet import LLAMA_SERVER, STALL, XLLAMACPP, DoesNotRun, Engine, Gateway, Process, until

LIMIT_SECONDS = 1500  # of the whole run: beyond it something hangs


class World:
    """What the checks act on: the gateway, its engines, and where each conversation of the run was served."""

    def __init__(self, gateway: Gateway, engines: list[Engine]):
        self.gateway, self.engines = gateway, engines
        self.homes: dict[str, str] = {}  # user text of an opening -> engine that served it first

    def engine(self, name: str) -> Engine:
        return next(e for e in self.engines if e.name == name)

    def other(self, name: str) -> Engine:
        return next(e for e in self.engines if e.name != name)

    def client(self, retries: int = 0):
        return new_client(self.gateway.address, retries)

    def opened_on(self, name: str, count: int) -> list[str]:
        """User texts of new conversations whose first turn the named engine served."""
        client, found = self.client(), [text for text, home in self.homes.items() if home == name]
        for _ in range(40):
            if len(found) >= count:
                return found[:count]
            text = opening()
            answer: Answer = chat(client, [{"role": "user", "content": text}], max_tokens=1)
            self.homes[text] = answer.engine
            if answer.engine == name:
                found.append(text)
        raise AssertionError(f"of 40 new conversations {len(found)} were on {name}, wanted {count}")

    def take_opened_on(self, name: str, count: int) -> list[str]:
        """The same, for a check that makes them move: the run no longer counts on where they are."""
        texts = self.opened_on(name, count)
        for text in texts:
            del self.homes[text]
        return texts

    def settle(self) -> None:
        """Restores the fleet between checks: both engines and the gateway run, both engines take traffic."""
        restarted = [e for e in self.engines if not e.alive()]
        for e in restarted:
            e.start()
        if not self.gateway.alive():
            self.gateway.start()
        until(lambda: self.gateway.in_use([e.name for e in self.engines]), 120, "both engines ready at the gateway")
        until(lambda: not any(e.busy() for e in self.engines), 120, "engines idle before the check")
        # An engine that was killed is trusted with little at first; that it is back shows a moment later.
        if restarted:
            time.sleep(3)
        until(lambda: all(e.get("factor", 1) > 0.95 for e in self.gateway.engines().values()), 120, "both engines trusted again")


def start_engines(work: Path) -> list[Engine]:
    """Both engines of the first llama.cpp build that runs on this CPU."""
    builds = [("llama-server", LLAMA_SERVER), ("xllamacpp", XLLAMACPP)]
    for build, path in builds:
        if not path.exists():
            continue
        engines = [Engine(name, build, work) for name in ("a1", "b1")]
        try:
            for e in engines:
                e.start()
        except DoesNotRun as reason:
            print(f"SKIP  engine build {build}: {reason}", flush=True)
            continue
        print(f"engines: llama.cpp in {build}, ports {', '.join(str(e.port) for e in engines)}", flush=True)
        return engines
    raise SystemExit("FAIL  no installed build of llama.cpp runs on this machine")


def run(world: World, only: str, checks: list) -> int:
    passed = failed = 0
    for title, check in checks:
        if only not in title:
            continue
        begin = time.monotonic()
        try:
            world.settle()
            note = check(world)
        except TimeoutError:
            raise
        except Exception as e:
            failed += 1
            where = traceback.extract_tb(e.__traceback__)[-1]
            print(f"FAIL  {title}: {type(e).__name__}: {str(e)[:600]} ({Path(where.filename).name}:{where.lineno})", flush=True)
        else:
            passed += 1
            print(f"ok    {title}: {note} [{time.monotonic() - begin:.1f} s]", flush=True)
    if failed:
        print("last lines of the gateway's log:\n" + world.gateway.tail(25))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--penstock", type=Path, required=True, help="the gateway's binary")
    flags.add_argument("--work", type=Path, required=True, help="directory for logs and the configuration")
    flags.add_argument("--only", default="", help="run the checks whose title contains this")
    args = flags.parse_args()

    def too_long(*_):
        raise TimeoutError(f"the suite took longer than {LIMIT_SECONDS} s")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_SECONDS)
    try:
        engines = start_engines(args.work)
        gateway = Gateway(args.penstock, engines, args.work, f'[limits]\nstall = "{STALL}s"\n', keeps=True)
        try:
            gateway.start()
        except AssertionError as e:
            print(f"FAIL  the gateway starts: {e}\n0 passed, 1 failed")
            return 1
        return run(World(gateway, engines), args.only, CHECKS)
    finally:
        Process.end_all()


if __name__ == "__main__":
    sys.exit(main())
