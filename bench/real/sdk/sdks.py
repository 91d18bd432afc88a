"""The official SDKs against the gateway: what they can do with real engines, and what they see of engines that fail."""

import argparse
import re
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from drive import ORDER, Client, programs  # noqa: E402
from expect import LEFT_ALONE, WANT, cell, faults_of, left_alone  # noqa: E402
from faults import RESPONSES_ROWS, ROWS, Messages, Row, Site  # noqa: E402
from features import FEATURES, Real, decoded, start_real  # noqa: E402
from fleet import Gateway, Process, get, until  # noqa: E402
from table import Table  # noqa: E402

LIMIT_SECONDS = 1500  # of the whole run: beyond it something hangs
ROWS_AT_ONCE = 9
FAULT_SECONDS = 150  # for the rows that run at the same time
WAIT_SECONDS = 8     # from a request's arrival: a client that obeys a Retry-After of a minute is known by then


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def report(self, title: str, note: str, bad: list[str]) -> None:
        if bad:
            self.failed += 1
            print(f"FAIL  {title}: {'; '.join(bad)} [{note}]", flush=True)
        else:
            self.passed += 1
            print(f"ok    {title}: {note}", flush=True)

    def skip(self, title: str, reason: str) -> None:
        self.skipped += 1
        print(f"SKIP  {title}: {reason}", flush=True)


def start_clients(args, tally: Tally) -> list[Client]:
    clients = []
    for p in programs(args.node, args.scripts, args.go):
        if p.missing:
            tally.skip(p.sdk, p.missing)
        elif not args.sdk or p.sdk in args.sdk:
            clients.append(Client(p, args.work / f"client-{p.sdk}.log"))
    for c in clients:
        print(f"{c.sdk} {c.version}, {c.runtime}", flush=True)
    return clients


def serves(address: str, path: str) -> bool:
    """Whether the gateway has that path: a POST to one that it has is no 404."""
    return get(address + path)[0] == 405


class Faulty:
    """One faulty engine as the gateway's configuration sees it."""

    def __init__(self, name: str, port: int):
        self.name, self.url = name, f"http://127.0.0.1:{port}"


def job_of(sdk: str, row: Row, base: str, key: str, api: str) -> dict:
    if api == "responses":
        return {"api": api, "base": base, "retries": 0, "timeout": 120, "body": {"model": row.model(sdk), "input": f"Tell me of a river. ask={key}", "stream": True}}
    body = {"model": row.model(sdk), "messages": [{"role": "user", "content": f"Tell me of a river. ask={key}"}]}
    if row.stream:
        body["stream"] = True
    more = {"base": base, "retries": row.retries, "timeout": 120}
    if sdk == "anthropic-python":
        return {"api": "messages", "body": {**body, "max_tokens": 64}, **more}
    return {"api": "chat", "body": body, **more}


def fault_rows(args, clients: list[Client], tally: Tally, table: Table) -> None:
    """Every row to every SDK through the gateway; with args.direct also without it, which shows what the SDK makes of it alone."""
    with Site([c.sdk for c in clients]) as site:
        engines = [Faulty(f"f-{unit.model}-{i}", port) for unit in site.units.values() for i, port in enumerate(unit.ports)]
        gateway = Gateway(args.penstock, engines, args.work, '[limits]\nstall = "12s"\nfirst_content = "12s"\nqueue_wait = "60s"\n')
        gateway.start()
        until(lambda: gateway.weighs([e.name for e in engines]), 120, "all faulty engines in the table")
        able = [c for c in clients if c.sdk != "anthropic-python" or serves(gateway.address, Messages.path)]
        if len(able) < len(clients):
            tally.skip("faults / anthropic-python", "this gateway does not serve " + Messages.path)
        rows = [row for row in ROWS if re.fullmatch(args.rows, row.key)]
        for at_once in (rows[i:i + ROWS_AT_ONCE] for i in range(0, len(rows), ROWS_AT_ONCE)):
            for sdk, row, seen, deliveries in rows_of("penstock", at_once, able, site, lambda row, sdk: gateway.address):
                text = cell(seen, deliveries)
                table.put("penstock", row.key, sdk, text)
                tally.report(f"fault {row.key} / {sdk}", text, faults_of(sdk, row.key, seen, deliveries))
            for row in at_once:
                if row.key in LEFT_ALONE:
                    together = [d for c in able for d in site.deliveries.get(f"penstock/{row.key}/{c.sdk}", [])]
                    tally.report(f"fault {row.key}, the engine", *left_alone(together, LEFT_ALONE[row.key]))
            if args.direct:
                for sdk, row, seen, deliveries in rows_of("direct", at_once, clients, site, site.url):
                    table.put("direct", row.key, sdk, cell(seen, deliveries))
        response_rows(clients, tally, table, site, gateway.address, args.rows)
        gateway.process.end()


def response_rows(clients: list[Client], tally: Tally, table: Table, site: Site, address: str, only: str) -> None:
    """The faults of streams once more with /v1/responses, whose error events have another form."""
    able = [c for c in clients if c.sdk != "anthropic-python"]
    if not serves(address, "/v1/responses"):
        tally.skip("faults of /v1/responses", "not served by this gateway")
        return
    for sdk, row, seen, deliveries in rows_of("responses", [row for row in RESPONSES_ROWS if re.fullmatch(only, row.key)], able, site, lambda row, sdk: address):
        text = cell(seen, deliveries)
        table.put("responses", row.key, sdk, text)
        tally.report(f"fault {row.key} of responses / {sdk}", text, faults_of(sdk, row.key, seen, deliveries, "responses"))


def rows_of(way: str, rows: list[Row], clients: list[Client], site: Site, base):
    """Runs those rows with those clients at the same time; what each saw, and what reached the engine."""
    begin, jobs = time.monotonic(), []
    site.forget()
    for row in rows:
        for c in clients:
            key = f"{way}/{row.key}/{c.sdk}"
            jobs.append((row, c, key, c.ask(job_of(c.sdk, row, base(row, c.sdk), key, way))))
    for row, c, key, pending in jobs:
        waits = WANT[row.key].of(c.sdk).end == "waiting" or way == "direct" and row.key in ("p", "q")
        deadline = begin + FAULT_SECONDS
        if waits:
            until(lambda: key in site.deliveries, FAULT_SECONDS, f"a request for {key} at its engine")
            deadline = site.deliveries[key][0].at + WAIT_SECONDS
        seen = pending.wait(deadline)
        yield c.sdk, row, seen, site.deliveries.get(key, [])


def feature_rows(real: Real, clients: list[Client], tally: Tally, table: Table, headers: dict | None = None, features: list = FEATURES) -> None:
    for feature in features:
        pending, before = {}, decoded(real)
        for c in clients:
            title = f"{feature.title} / {c.sdk}"
            if not feature.has(c.sdk):
                continue
            path = feature.path(c.sdk)
            if path and not serves(real.gateway.address, path):
                tally.skip(title, f"this gateway does not serve {path}")
                table.put("feature", feature.title, c.sdk, "-")
                continue
            pending[c.sdk] = feature.start(real, c, headers)
        for sdk, p in pending.items():
            seen = p.wait(time.monotonic() + 130)
            note, bad = feature.judge(real, sdk, seen)
            table.put("feature", feature.title, sdk, "**" + bad[0] + "**" if bad else note)
            tally.report(f"{feature.title} / {sdk}", note, bad)
        if feature.settle and pending:
            tally.report(f"{feature.title}, afterwards", "", feature.settle(real, before))


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--penstock", type=Path, required=True, help="the gateway's binary")
    flags.add_argument("--work", type=Path, required=True, help="directory for logs and the configuration")
    flags.add_argument("--node", type=Path, help="Node 22 or newer; without it the JavaScript clients are left out")
    flags.add_argument("--scripts", type=Path, help="directory of the JavaScript clients with their node_modules")
    flags.add_argument("--go", type=Path, help="the built Go client; without it that client is left out")
    flags.add_argument("--sdk", action="append", choices=ORDER, help="only this client (may be given again)")
    flags.add_argument("--part", choices=("faults", "features"), help="only this part")
    flags.add_argument("--rows", default=".*", help="of the faults, only the rows whose letters match this regular expression")
    flags.add_argument("--direct", action="store_true", help="also what the SDKs see of the faults without a gateway")
    flags.add_argument("--table", type=Path, help="write the tables there, as Markdown")
    args = flags.parse_args()

    def too_long(*_):
        raise TimeoutError(f"the suite took longer than {LIMIT_SECONDS} s")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_SECONDS)
    tally = Tally()
    try:
        clients = start_clients(args, tally)
        table = Table(clients)
        if args.part != "faults":
            real = start_real(args.penstock, args.work)
            feature_rows(real, clients, tally, table)
            real.end()
        if args.part != "features":
            fault_rows(args, clients, tally, table)
        if args.table:
            args.table.write_text(table.markdown())
    finally:
        Client.end_all()
        Process.end_all()
    skipped = f", {tally.skipped} skipped" if tally.skipped else ""
    print(f"{tally.passed} passed, {tally.failed} failed{skipped}")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
