"""An engine that fails in known ways, byte by byte. Each row of ROWS is one way and is served under a model name of its own."""

import asyncio
import json
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

JSON, EVENTS = "application/json", "text/event-stream; charset=utf-8"
WORDS = ("A ", "river ", "runs ", "down ", "to ", "the ", "sea.")
KEY = re.compile(rb"ask=([\w./-]+)")  # in the prompt: which job of which client this is
PAUSE = 0.02  # seconds between events, so that each arrives by itself
DIED = {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        "type": "InternalServerError", "param": None, "code": 500}
BROKEN = {"message": "This request cannot be served.", "type": "invalid_request_error", "param": "messages", "code": "bad_messages"}
HTML = "<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center></body></html>"


def event(data, name: str = "") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


class Chat:
    """What /v1/chat/completions says; the classes below say the same in the words of their API."""
    path = "/v1/chat/completions"
    done = event("[DONE]")

    def __init__(self, model: str):
        self.base = {"id": "chatcmpl-1", "created": 1700000000, "model": model}
        self.usage = {"prompt_tokens": 9, "completion_tokens": len(WORDS), "total_tokens": 9 + len(WORDS)}

    def chunk(self, delta: dict, finish=None, **more) -> bytes:
        return event({**self.base, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})

    def opening(self) -> bytes:
        return self.chunk({"role": "assistant", "content": ""})

    def content(self, word: str) -> bytes:
        return self.chunk({"content": word})

    def finish(self) -> bytes:
        return self.chunk({}, "stop") + event({**self.base, "object": "chat.completion.chunk", "choices": [], "usage": self.usage})

    def error(self, error: dict) -> bytes:
        return event({"error": error})

    def whole(self) -> dict:
        return {**self.base, "object": "chat.completion", "usage": self.usage,
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "".join(WORDS)}, "finish_reason": "stop"}]}

    def refusal(self, error: dict) -> dict:
        return {"error": error}


class Messages(Chat):
    path = "/v1/messages"
    done = b""

    def __init__(self, model: str):
        super().__init__(model)
        self.message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None,
                        "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 0}}

    def say(self, kind: str, **more) -> bytes:
        return event({"type": kind, **more}, kind)

    def opening(self) -> bytes:
        return self.say("message_start", message=self.message) + self.say(
            "content_block_start", index=0, content_block={"type": "text", "text": ""})

    def content(self, word: str) -> bytes:
        return self.say("content_block_delta", index=0, delta={"type": "text_delta", "text": word})

    def finish(self) -> bytes:
        return self.say("content_block_stop", index=0) + self.say(
            "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": len(WORDS)})

    @property
    def end(self) -> bytes:
        return self.say("message_stop")

    def whole(self) -> dict:
        return {**self.message, "content": [{"type": "text", "text": "".join(WORDS)}], "stop_reason": "end_turn",
                "usage": {"input_tokens": 9, "output_tokens": len(WORDS)}}

    def refusal(self, error: dict) -> dict:
        return {"type": "error", "error": {"type": error["type"], "message": error["message"]}}


class Responses(Chat):
    path = "/v1/responses"
    done = b""

    def __init__(self, model: str):
        super().__init__(model)
        self.number = 0

    def response(self, status: str, output: list) -> dict:
        return {"id": "resp_1", "object": "response", "created_at": 1700000000, "model": self.base["model"], "status": status,
                "output": output, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "error": None,
                "incomplete_details": None, "instructions": None, "metadata": {}, "temperature": 1.0, "top_p": 1.0,
                "usage": {"input_tokens": 9, "output_tokens": len(WORDS), "total_tokens": 9 + len(WORDS),
                          "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}}

    def item(self, status: str, text: str | None) -> dict:
        content = [] if text is None else [{"type": "output_text", "text": text, "annotations": []}]
        return {"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": content}

    def say(self, kind: str, **more) -> bytes:
        self.number += 1
        return event({"type": kind, "sequence_number": self.number, **more}, kind)

    def opening(self) -> bytes:
        return self.say("response.created", response=self.response("in_progress", [])) + self.say(
            "response.output_item.added", output_index=0, item=self.item("in_progress", None)) + self.say(
            "response.content_part.added", item_id="msg_1", output_index=0, content_index=0,
            part={"type": "output_text", "text": "", "annotations": []})

    def content(self, word: str) -> bytes:
        return self.say("response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta=word, logprobs=[])

    def finish(self) -> bytes:
        return self.say("response.output_text.done", item_id="msg_1", output_index=0, content_index=0, text="".join(WORDS),
                        logprobs=[]) + self.say("response.output_item.done", output_index=0, item=self.item("completed", "".join(WORDS)))

    @property
    def end(self) -> bytes:
        return self.say("response.completed", response=self.whole())

    def error(self, error: dict) -> bytes:
        return event({"type": "error", **error, "sequence_number": 99}, "error")

    def whole(self) -> dict:
        return self.response("completed", [self.item("completed", "".join(WORDS))])


APIS = {api.path: api for api in (Chat, Messages, Responses)}


class Broken(Exception):
    """The play has closed the connection itself."""


@dataclass
class Delivery:
    """One request that reached an engine."""
    at: float
    headers: dict = field(default_factory=dict)
    port: int = 0  # the engine's
    refused: float = 0  # when it was, as full


class Answer:
    """What a play writes with: one response on one connection."""

    def __init__(self, writer: asyncio.StreamWriter, api: Chat, stream: bool, number: int, delivery: Delivery, unit: "Unit"):
        self.writer, self.api, self.stream, self.number, self.delivery, self.unit = writer, api, stream, number, delivery, unit

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def head(self, status: int, kind: str, *lines: str) -> None:
        self.send("\r\n".join((f"HTTP/1.1 {status} X", "content-type: " + kind, *lines, "", "")).encode())

    def refuse(self, status: int, error: dict, *lines: str, kind: str = JSON, page: str = "") -> None:
        if status in (429, 503):
            self.delivery.refused = time.monotonic()
        body = page or json.dumps(self.api.refusal(error))
        self.head(status, kind, f"content-length: {len(body)}", *lines)
        self.send(body.encode())

    def whole(self) -> None:
        body = json.dumps(self.api.whole())
        self.head(200, JSON, f"content-length: {len(body)}")
        self.send(body.encode())

    def begin(self) -> None:
        self.head(200, EVENTS, "transfer-encoding: chunked")

    async def piece(self, data: bytes) -> None:
        self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self.writer.drain()
        await asyncio.sleep(PAUSE)

    async def contents(self, words=WORDS[:5]) -> None:
        await self.piece(self.api.opening())
        for word in words:
            await self.piece(self.api.content(word))

    async def close_of_stream(self, done: bool = True) -> None:
        await self.piece(self.api.finish() + getattr(self.api, "end", b"") if done else self.api.finish())
        if done and self.api.done:
            await self.piece(self.api.done)
        self.last()

    def last(self) -> None:
        self.send(b"0\r\n\r\n")

    async def complete(self) -> None:
        if not self.stream:
            return self.whole()
        self.begin()
        await self.contents(WORDS)
        await self.close_of_stream()

    async def cut(self, reset: bool) -> None:
        await self.writer.drain()
        if reset:
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        self.writer.close()
        raise Broken


# The rows. What must be seen of each stands in expect.py.

def refuse(status: int, error: dict, *lines: str, **more):
    async def play(a: Answer) -> None:
        a.refuse(status, error, *lines, **more)
    return play


def before(reset: bool):
    async def play(a: Answer) -> None:
        await asyncio.sleep(0.3)  # beyond what could pass for an idle connection that closed as the request came
        await a.cut(reset)
    return play


def broken_off(reset: bool):
    async def play(a: Answer) -> None:
        a.begin()
        await a.contents()
        await a.cut(reset)
    return play


def with_error(make, clean: bool):
    async def play(a: Answer) -> None:
        a.begin()
        await a.contents()
        await a.piece(make(a.api))
        if not clean:
            await a.cut(reset=False)
        if a.api.done:
            await a.piece(a.api.done)
        a.last()
    return play


async def no_end(a: Answer) -> None:
    a.begin()
    await a.contents()
    a.last()


async def no_done(a: Answer) -> None:
    a.begin()
    await a.contents(WORDS)
    await a.close_of_stream(done=False)


async def comments(a: Answer) -> None:
    a.begin()
    await a.piece(b": ping\n\n")
    await a.contents(WORDS[:3])
    await a.piece(b": ping\n\n")
    for word in WORDS[3:]:
        await a.piece(a.api.content(word))
    await a.close_of_stream()


async def pause(a: Answer) -> None:
    a.begin()
    await a.contents(WORDS[:3])
    await asyncio.sleep(3)
    for word in WORDS[3:]:
        await a.piece(a.api.content(word))
    await a.close_of_stream()


async def error_first(a: Answer) -> None:
    a.begin()
    await a.piece(b": ping\n\n")
    await a.piece(a.api.error(DIED))
    a.last()


async def body_cut(a: Answer) -> None:
    body = json.dumps(a.api.whole())
    a.head(200, JSON, f"content-length: {len(body)}")
    a.send(body[:len(body) // 2].encode())
    await a.cut(reset=False)


def later(number: int):
    """Full at first: the request is served as it comes for that time."""
    async def play(a: Answer) -> None:
        if a.number < number:
            a.refuse(429, BUSY, "retry-after-ms: 200")
        else:
            await a.complete()
    return play


async def two_places(a: Answer) -> None:
    """Full for the first two seconds, with work of others, then it takes two requests at a time."""
    now = time.monotonic()
    a.unit.begun = a.unit.begun or now
    if a.unit.busy == 2 or now < a.unit.begun + 2:
        return a.refuse(429, BUSY, "retry-after: 2")
    a.unit.busy += 1
    try:
        a.begin()
        await a.contents(WORDS)
    finally:
        a.unit.busy -= 1
    await a.close_of_stream()


async def stalls(a: Answer) -> None:
    a.begin()
    await a.contents()
    for _ in range(120):
        await asyncio.sleep(0.5)
        await a.piece(b": ping\n\n")  # signs of life that are no progress


async def silent(a: Answer) -> None:
    await asyncio.sleep(60)


async def fine(a: Answer) -> None:
    await a.complete()


BUSY = {"message": "queue full", "type": "rate_limit_error", "param": None, "code": "queue_full"}
FULL = {"message": "no slot", "type": "unavailable_error", "param": None, "code": 503}
GATE = {"message": "bad gateway", "type": "server_error", "param": None, "code": "bad_gateway"}
FLAT = {"object": "error", "message": "out of memory", "type": "InternalServerError", "param": None, "code": 500}


@dataclass
class Row:
    key: str
    title: str
    play: object
    stream: bool = True
    retries: int = 2  # that the client may make of its own
    alone: bool = False  # each client has engines of its own: what one of them learns of its engine holds for all that ask for it
    engines: int = 1

    def model(self, sdk: str) -> str:
        return f"{self.key}.{sdk}" if self.alone else self.key


@dataclass
class Unit:
    """The engines of one model."""
    row: Row
    model: str
    ports: list[int] = field(default_factory=list)
    begun: float = 0  # when the first request came
    busy: int = 0


ROWS = [
    Row("fine", "no fault", fine),
    Row("a", "429, Retry-After: 1", refuse(429, BUSY, "retry-after: 1"), alone=True),
    Row("b", "429, retry-after-ms: 200", refuse(429, BUSY, "retry-after-ms: 200"), alone=True),
    Row("a121", "429, Retry-After: 121", refuse(429, BUSY, "retry-after: 121"), alone=True),
    Row("c", "503, x-should-retry: false", refuse(503, FULL, "x-should-retry: false"), alone=True),
    Row("d", "502, JSON", refuse(502, GATE)),
    Row("d-html", "502, HTML page", refuse(502, GATE, kind="text/html", page=HTML)),
    Row("e", "connection closed before any answer", before(reset=False)),
    Row("e-rst", "connection reset before any answer", before(reset=True)),
    Row("f", "stream ends cleanly, no finish, no [DONE]", no_end),
    Row("f2", "finish, but no [DONE] (message_stop, response.completed)", no_done),
    Row("g", "reset in mid-stream", broken_off(reset=True)),
    Row("g-fin", "closed in mid-stream, no final chunk", broken_off(reset=False)),
    Row("h", "data: {error}, then cut", with_error(lambda api: event({"error": DIED}), clean=False)),
    Row("h-clean", "data: {error}, [DONE], clean end", with_error(lambda api: event({"error": DIED}), clean=True)),
    Row("i", "event: error with {\"error\": ...}, clean end", with_error(lambda api: event({"type": "error", "error": DIED}, "error"), clean=True)),
    Row("i-flat", "event: error with a flat object, clean end", with_error(lambda api: event(FLAT, "error"), clean=True)),
    Row("j", ": ping comments", comments),
    Row("k", "3 s without an event", pause),
    Row("l", "400", refuse(400, BROKEN)),
    Row("l-retry", "400, x-should-retry: true", refuse(400, BROKEN, "x-should-retry: true")),
    Row("n", "200, a comment, then an error as the first event", error_first),
    Row("o", "whole answer, body cut short", body_cut, stream=False),
    Row("m", "429 twice, then the answer: headers on retries", later(3), alone=True),
    Row("m-two", "429 once, with another engine beside it", later(2), alone=True, engines=2),
    Row("m-crowd", "429 for two seconds, then room for two; all clients at once", two_places),
    Row("p", "silent for ever in mid-stream, but for comments", stalls),
    Row("q", "the request is never answered", silent, retries=0),
]


RESPONSES_ROWS = [row for row in ROWS if row.key in ("fine", "f", "f2", "g", "g-fin", "h", "i", "i-flat", "k", "n", "p")]  # that end a stream


class Site:
    """The engines of all rows, one port each, served by one thread."""

    def __init__(self, sdks: list[str]):
        self.deliveries: dict[str, list[Delivery]] = {}  # key of the job -> what arrived for it
        self.units = {row.model(sdk): Unit(row, row.model(sdk)) for row in ROWS for sdk in sdks}
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self) -> "Site":
        self.thread.start()
        assert self.ready.wait(60), "the faulty engines listen"
        return self

    def __exit__(self, *_) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    def forget(self) -> None:
        """What an engine does in the time after its first request, it does again."""
        for unit in self.units.values():
            unit.begun = 0

    def url(self, row: Row, sdk: str) -> str:
        return f"http://127.0.0.1:{self.units[row.model(sdk)].ports[0]}"

    def run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self.listen())
        self.ready.set()
        self.loop.run_forever()
        tasks = asyncio.all_tasks(self.loop)
        for t in tasks:
            t.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    async def listen(self) -> None:
        for unit in self.units.values():
            for _ in range(unit.row.engines):
                server = await asyncio.start_server(lambda r, w, unit=unit: self.serve(unit, r, w), "127.0.0.1", 0)
                unit.ports.append(server.sockets[0].getsockname()[1])

    async def serve(self, unit: Unit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if ": " in line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self.answer(unit, method, path, headers, body, writer)
                await writer.drain()
        except (Broken, asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass  # the play, the client or the end of the run closed it
        finally:
            writer.close()

    async def answer(self, unit: Unit, method: str, path: str, headers: dict, body: bytes, writer) -> None:
        if method == "GET":
            page = json.dumps({"object": "list", "data": [{"id": unit.model, "object": "model", "created": 1, "owned_by": "faults"}]})
            status = 200 if path in ("/health", "/v1/models") else 404
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: {JSON}\r\ncontent-length: {len(page)}\r\n\r\n{page}".encode())
            return
        key = KEY.search(body)
        seen = self.deliveries.setdefault(key[1].decode() if key else "?", [])
        seen.append(Delivery(time.monotonic(), headers, writer.get_extra_info("sockname")[1]))
        asked = json.loads(body)
        await unit.row.play(Answer(writer, APIS[path](asked["model"]), bool(asked.get("stream")), len(seen), seen[-1], unit))
