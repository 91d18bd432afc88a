"""A vLLM server on this machine's CPU: its processes, its counters, and the signals that make it fail."""

import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from fleet import MODEL, DoesNotRun, Process, free_port, get, until  # noqa: E402

START_SECONDS = 1500  # 45 on two idle cores, but it runs at a low priority
SEQUENCES = 2        # at once; the rest waits inside the engine


class Vllm:
    """One vLLM on a port that survives its restarts."""

    def __init__(self, name: str, program: Path, weights: Path, work: Path, more: str = ""):
        self.name, self.program, self.weights, self.model, self.more = name, program, weights, MODEL, more
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = work / f"engine-{name}.log"
        self.process: Process | None = None
        self.family: list[int] = []  # process ids of the engine's own children, oldest first

    def begin(self) -> None:
        argv = ["nice", "-n", "10", self.program, "serve", self.weights, "--host", "127.0.0.1", "--port", self.port, "--served-model-name", MODEL,
                "--max-model-len", 2048, "--max-num-seqs", SEQUENCES, "--enforce-eager", "--enable-prompt-tokens-details",
                "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--chat-template", HERE.parent / "template.jinja"]
        env = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
               "OMP_NUM_THREADS": "1", "VLLM_ENABLE_RESPONSES_API_STORE": "1",
               "PYTHONDONTWRITEBYTECODE": ""}  # else each start compiles half a gigabyte of Python again
        self.process = Process(argv, self.log, env)

    def start(self) -> None:
        self.begin()
        self.ready()

    def ready(self) -> None:
        until(lambda: self.healthy() or not self.process.alive(), START_SECONDS, f"vLLM {self.name} healthy", every=1)
        if not self.process.alive():
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            raise DoesNotRun(f"exit {self.process.popen.returncode}: {lines[-1][:300] if lines else 'no output'}")
        self.family = descendants(self.process.popen.pid)

    def core(self) -> int:
        """The process that schedules; the API server before it only speaks HTTP."""
        named = [p for p in self.family if "EngineCore" in command_of(p)]
        assert len(named) == 1, {p: command_of(p) for p in self.family}
        return named[0]

    def alive(self) -> bool:
        return self.process is not None and self.process.alive()

    def healthy(self) -> bool:
        return get(self.url + "/health", 2)[0] == 200

    def stop(self, number: int) -> None:
        self.process.signal(number)

    def end(self) -> None:
        """Stops it and waits for the end of all its processes."""
        if self.alive():
            self.family = self.family or descendants(self.process.popen.pid)
            self.stop(signal.SIGTERM)
        self.gone()

    def gone(self, seconds: float = 30) -> None:
        """Waits for the end of all its processes; ends by their ids those that are left."""
        try:
            self.process.wait(seconds)
        except Exception:
            self.process.end()
        deadline = time.monotonic() + 10
        while any(is_its(p) for p in self.family) and time.monotonic() < deadline:
            time.sleep(0.1)
        for p in self.family:
            if is_its(p):
                os.kill(p, signal.SIGKILL)
        self.family = []

    def gauge(self, name: str) -> float:
        """The sum over all series of that name."""
        status, page = get(self.url + "/metrics", 10)
        assert status == 200, f"GET /metrics of {self.name}: {status}"
        values = [float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith((f"vllm:{name}{{", f"vllm:{name} "))]
        assert values, f"no series vllm:{name}"
        return sum(values)

    def busy(self) -> int:
        return int(self.gauge("num_requests_running") + self.gauge("num_requests_waiting"))


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def is_its(pid: int) -> bool:
    """Whether that process still is one of a vLLM's, and not a later one with its number."""
    return any(word in command_of(pid) for word in ("VLLM::", "multiprocessing"))


def command_of(pid: int) -> str:
    """The command line of a process; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
