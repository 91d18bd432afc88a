"""Runs the client programs: one process per SDK, jobs in and what was seen of them out, as lines of JSON."""

import json
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ORDER = ("openai-python", "openai-node", "openai-go", "anthropic-python", "ai")


@dataclass
class Program:
    sdk: str
    argv: list
    missing: str = ""  # why it cannot run here


def programs(node: Path | None, scripts: Path | None, go: Path | None) -> list[Program]:
    scripts = scripts or HERE / "node"
    no_node, no_go = "" if node else "no Node 22 or newer with its packages", "" if go else "its module could not be built"
    return [
        Program("openai-python", [sys.executable, HERE / "openai_python.py"]),
        Program("openai-node", [node, scripts / "openai.mjs"], no_node),
        Program("openai-go", [go], no_go),
        Program("anthropic-python", [sys.executable, HERE / "anthropic_python.py"]),
        Program("ai", [node, scripts / "ai.mjs"], no_node),
    ]


class Client:
    """One client program that runs."""

    started: list["Client"] = []

    def __init__(self, program: Program, log: Path):
        self.sdk, self.log = program.sdk, log
        self.answers: dict[int, queue.Queue] = {}
        self.last = 0
        with open(log, "ab") as err:
            self.process = subprocess.Popen([str(a) for a in program.argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True)
        Client.started.append(self)
        hello = self.process.stdout.readline()
        if not hello:
            raise AssertionError(f"{self.sdk} does not start: {self.tail()}")
        hello = json.loads(hello)
        assert hello["sdk"] == self.sdk, hello
        self.version, self.runtime = hello["version"], hello["runtime"]
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            seen = json.loads(line)
            self.answers[seen["id"]].put(seen)

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])

    def ask(self, job: dict) -> "Pending":
        self.last += 1
        job = {**job, "id": self.last}
        self.answers[self.last] = queue.Queue()
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return Pending(self, self.last)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(5)

    @classmethod
    def end_all(cls) -> None:
        for c in cls.started:
            c.end()


@dataclass
class Pending:
    client: Client
    id: int

    def wait(self, deadline: float) -> dict | None:
        """What was seen; None where the user's code still waits at that monotonic time."""
        try:
            return self.client.answers[self.id].get(timeout=max(0.01, deadline - time.monotonic()))
        except queue.Empty:
            if self.client.process.poll() is not None:
                raise AssertionError(f"{self.client.sdk} ended with {self.client.process.returncode}: {self.client.tail()}") from None
            return None
