"""One request whose answer is read byte by byte, for what no client library shows: when the header came, and how the bytes ended."""

import json
import re
import socket
import time
from dataclasses import dataclass
from urllib.parse import urlparse

CONTENT = re.compile(rb'"content": ?"[^"]')


@dataclass
class Raw:
    status: int = 0
    body: bytes = b""
    clean: bool = False             # the framing's own end was there
    header_at: float | None = None  # seconds from the request
    first_at: float | None = None   # seconds from the request to the first content
    ended_at: float = 0

    def events(self) -> list[str]:
        return [line[6:] for line in self.body.decode(errors="replace").splitlines() if line.startswith("data: ")]

    def last_error(self) -> str | None:
        """The code of the error that the stream ended with."""
        events = self.events()
        if not events or not events[-1].startswith("{"):
            return None
        error = json.loads(events[-1]).get("error")
        return error["code"] if error else None


def ask(address: str, body: dict, headers: dict | None = None, seconds: float = 120, path: str = "/v1/chat/completions", until=None) -> Raw:
    """until(raw) ends the reading early: the client leaves."""
    url, data, raw = urlparse(address), json.dumps(body).encode(), Raw()
    lines = [f"POST {path} HTTP/1.1", f"host: {url.netloc}", "content-type: application/json", f"content-length: {len(data)}"]
    lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
    begin = time.monotonic()
    with socket.create_connection((url.hostname, url.port), 10) as s:
        s.sendall("\r\n".join([*lines, "", ""]).encode() + data)
        read = b""
        while not raw.clean and time.monotonic() - begin < seconds:
            s.settimeout(max(0.01, seconds - (time.monotonic() - begin)))
            try:
                part = s.recv(65536)
            except (TimeoutError, ConnectionError):
                break
            if not part:
                break
            read += part
            take(raw, read, time.monotonic() - begin)
            if until and until(raw):
                break
    raw.ended_at = time.monotonic() - begin
    return raw


def take(raw: Raw, read: bytes, now: float) -> None:
    head, end, raw.body = read.partition(b"\r\n\r\n")
    if not end:
        return
    if raw.header_at is None:
        raw.header_at, raw.status = now, int(head.split()[1])
    if raw.first_at is None and CONTENT.search(raw.body):
        raw.first_at = now
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    raw.clean = len(raw.body) >= int(length[1]) if length else raw.body.endswith(b"0\r\n\r\n")
