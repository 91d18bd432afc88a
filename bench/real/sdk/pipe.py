"""What the clients in Python have in common: jobs come as lines of JSON on stdin, each is done in a thread, what was seen goes to stdout."""

import json
import platform
import sys
import threading
import time

TOLD = ("retry-after", "retry-after-ms", "x-should-retry")  # what a refusal says about trying again


class Seen:
    """What the user's code saw of one job."""

    def __init__(self, job: dict):
        self.id, self.begin, self.first = job["id"], time.monotonic(), None
        self.text, self.finish, self.calls, self.usage, self.engine, self.error = "", None, [], None, None, None
        self.chunks, self.value = 0, None

    def add(self, text: str) -> None:
        if text:
            self.first = self.first or time.monotonic() - self.begin
            self.text += text
            self.chunks += 1

    def fail(self, e: Exception) -> None:
        body = getattr(e, "body", None)
        inner = body.get("error", body) if isinstance(body, dict) else {}
        headers = getattr(getattr(e, "response", None), "headers", {})
        told = [f"{name}: {headers[name]}" for name in TOLD if name in headers]
        self.error = {"told": told, "class": type(e).__module__.split(".")[0] + "." + type(e).__name__, "status": getattr(e, "status_code", None),
                      "code": getattr(e, "code", None), "type": getattr(e, "type", None) or (inner or {}).get("type"), "message": str(e)[:300]}

    def line(self) -> str:
        return json.dumps({**vars(self), "seconds": round(time.monotonic() - self.begin, 3)})


def serve(sdk: str, version: str, do) -> None:
    """do(job, seen) does the job; what it raises is the job's error."""
    lock = threading.Lock()

    def say(line: str) -> None:
        with lock:
            print(line, flush=True)

    def work(job: dict) -> None:
        seen = Seen(job)
        try:
            do(job, seen)
        except Exception as e:
            seen.fail(e)
        say(seen.line())

    say(json.dumps({"sdk": sdk, "version": version, "runtime": "Python " + platform.python_version()}))
    for line in sys.stdin:
        threading.Thread(target=work, args=(json.loads(line),), daemon=True).start()
