"""What users do with an SDK, each tried with every SDK that has it, on real engines behind the gateway."""

import itertools
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from expect import REFUSED
from fleet import HERE, LLAMA_SERVER, MODEL, XLLAMACPP, DoesNotRun, Engine, Gateway, get, post, until

EMBED_MODEL, EMBED_SIZE = "smol-embed", 576
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
EOS = "2"  # the model's end-of-turn token
ENDLESS = {"logit_bias": {EOS: -100}}
LEFT_TOKENS = 700  # of a stream that is left after a few
TOWNS = ("Basel", "Budapest", "Nantes", "Zaragoza", "Lisbon", "Hamburg", "Wroclaw", "Warsaw", "London", "Limerick", "Turin")
SEED = itertools.count(1)
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"], "additionalProperties": False}
PLACE = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "country": {"type": "string", "maxLength": 20}},
         "required": ["city", "country"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": WEATHER}}


class Real:
    """Two engines of one model, one for embeddings, and a gateway in front."""

    def __init__(self, penstock: Path, work: Path, engines: list):
        self.engines = engines
        self.gateway = Gateway(penstock, engines, work)
        self.gateway.start()
        until(lambda: self.gateway.weighs([e.name for e in engines]), 120, "all engines in the table")

    def busy(self) -> int:
        return sum(e.busy() for e in self.engines)

    def in_flight(self) -> int:
        return sum(e["in_flight"] for e in self.gateway.engines().values())

    def end(self) -> None:
        for p in [self.gateway.process, *(e.process for e in self.engines)]:
            p.end()


def start_real(penstock: Path, work: Path) -> Real:
    template = HERE / "template.jinja"
    for build, path in (("llama-server", LLAMA_SERVER), ("xllamacpp", XLLAMACPP)):
        if not path.exists():
            continue
        engines = [Engine("a1", build, work, template=template), Engine("b1", build, work, template=template),
                   Engine("e1", build, work, EMBED_MODEL, embeds=True)]
        try:
            for e in engines:
                e.start()
        except DoesNotRun:
            continue
        return Real(penstock, work, engines)
    raise SystemExit("FAIL  no installed build of llama.cpp runs on this machine")


@dataclass
class Feature:
    title: str
    job: object            # sdk -> its job without the base, None where the SDK has no such thing
    check: object          # (real, seen) -> what is not as it must be
    note: object = None    # seen -> the cell's text
    fails: bool = False    # an error is what must be seen; check looks at it
    settle: object = None  # (real, decoded as it began) -> what is not as it must be once all SDKs are done
    flaws: dict = field(default_factory=dict)  # SDK -> the error that it has with this engine, also without a gateway

    def has(self, sdk: str) -> bool:
        return self.job(sdk) is not None

    def path(self, sdk: str) -> str:
        return {"messages": MESSAGES, "count_tokens": MESSAGES + "/count_tokens", "responses": RESPONSES, "embeddings": "/v1/embeddings",
                "completions": "/v1/completions", "chat": CHAT}.get(self.job(sdk)["api"], "")

    def start(self, real: Real, client, headers: dict | None = None):
        return client.ask({"retries": 0, "timeout": 120, **self.job(client.sdk), "base": real.gateway.address, "headers": headers or {}})

    def judge(self, real: Real, sdk: str, seen: dict | None) -> tuple[str, list[str]]:
        if seen is None:
            return "", ["no end in two minutes"]
        if sdk in self.flaws:
            name = seen["error"]["class"] if seen["error"] else "no error"
            return f"{name}, as without the gateway", [] if name == self.flaws[sdk] else [f"{name}, where the engine alone gives {self.flaws[sdk]}"]
        if seen["error"] and not self.fails:
            return "", [f"{seen['error']['class']}: {seen['error']['message']}"]
        return (self.note or (lambda s: "ok"))(seen), self.check(real, {**seen, "sdk": sdk})


def user(text: str) -> list:
    return [{"role": "user", "content": text}]


def opening() -> str:
    n = next(SEED)
    return f"Question {n}: what is {TOWNS[n % len(TOWNS)]} known for?"


def by_chat(sdk: str, text: str = "", stream: bool = False, tokens: int = 24, **more) -> dict:
    """A job that talks: chat completions, for anthropic messages."""
    body = {"model": MODEL, "messages": user(text or opening()), "max_tokens": tokens, **more}
    if stream:
        body["stream"] = True
    if sdk == "anthropic-python":  # knows no temperature any more
        return {"api": "messages", "body": {**body, "extra_body": {"temperature": 0, **more.get("extra_body", {})}}}
    body["temperature"] = 0
    if stream and sdk != "ai":
        body["stream_options"] = {"include_usage": True}
    return {"api": "chat", "body": body}


def by_openai(api: str, sdk: str, *without: str, **body) -> dict | None:
    return None if sdk == "anthropic-python" or sdk in without else {"api": api, "body": {"model": MODEL, **body}}


def endless(sdk: str, stream: bool, tokens: int) -> dict:
    if sdk != "anthropic-python":
        return by_chat(sdk, stream=stream, tokens=tokens, **ENDLESS)
    return by_chat(sdk, "Write down the numbers from 1 to 1000, one a line.", stream, tokens, extra_body={"ignore_eos": True})


def talks(least: int):
    def check(real, seen) -> list[str]:
        bad = []
        if not seen["text"] or seen["finish"] not in ("stop", "length", "end_turn", "max_tokens", "completed", "incomplete"):
            bad.append(f"text {seen['text']!r}, finish {seen['finish']}")
        if seen["chunks"] < least:
            bad.append(f"{seen['chunks']} chunks")
        usage = seen["usage"]
        if not usage or not usage["prompt"] or not usage["answer"]:
            bad.append(f"usage {usage}")
        if not seen["engine"]:
            bad.append("no x-penstock-engine")
        return bad
    return check


def tokens_note(seen: dict) -> str:
    pieces = f" in {seen['chunks']} chunks" if seen["chunks"] > 1 else ""
    return f"ok, {(seen['usage'] or {}).get('answer')} tokens{pieces}"


def had_weather(sdk: str) -> list:
    """Turns in which the model has called the tool: a small model does what was done before."""
    messages = []
    for n, (city, weather) in enumerate((("Rome", "22 degrees, sunny"), ("Oslo", "3 degrees, snow"))):
        messages += called(sdk, f"call_{n}", city, weather) + [{"role": "assistant", "content": f"{city}: {weather}."}]
    return messages


def called(sdk: str, call: str, city: str, weather: str) -> list:
    question = user(f"What is the weather in {city}?")
    if sdk == "anthropic-python":
        return question + [
            {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "get_weather", "input": {"city": city}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": weather}]}]
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    result = {"role": "tool", "tool_call_id": call, "content": weather}
    if sdk == "ai":
        result["name"] = "get_weather"
    return question + [{"role": "assistant", "content": None, "tool_calls": [{"id": call, "type": "function", "function": function}]}, result]


def tools(sdk: str, choice: str) -> dict:
    if sdk == "anthropic-python":
        tool = {"name": "get_weather", "description": "Weather of a city", "input_schema": WEATHER}
        return {"tools": [tool], "tool_choice": {"type": "any" if choice == "required" else choice}}
    return {"tools": [TOOL], "tool_choice": choice}


def with_tool(sdk: str, stream: bool) -> dict:
    messages = had_weather(sdk) + user("What is the weather in Paris?")
    return by_chat(sdk, stream=stream, tokens=48, messages=messages, **tools(sdk, "required"))


def calls_tool(real, seen) -> list[str]:
    try:
        [(name, arguments)] = seen["calls"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError as e:
        return [f"calls {seen['calls']}: {e}"]
    bad = [] if name == "get_weather" and isinstance(arguments.get("city"), str) else [f"calls {seen['calls']}"]
    return bad + ([] if seen["finish"] in ("tool_calls", "tool_use", "tool-calls", "stop") else [f"finish {seen['finish']}"])


def tool_result(sdk: str) -> dict:
    """The second half of a call: what the tool said goes back, the model answers in words."""
    more = {} if sdk == "anthropic-python" else tools(sdk, "none")  # llama.cpp's /v1/messages takes "none" for "auto"
    return by_chat(sdk, messages=called(sdk, f"call_{next(SEED)}", "Paris", "18 degrees, light rain"), **more)


def structured(sdk: str, stream: bool) -> dict | None:
    if sdk == "anthropic-python":
        return None
    schema = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": PLACE}}
    return by_chat(sdk, f"{next(SEED)}: Name the capital of France and its country, as JSON.", stream, 96, response_format=schema)


def is_place(real, seen) -> list[str]:
    try:
        place = json.loads(seen["text"])
    except ValueError:
        return [f"no JSON: {seen['text']!r}"]
    return [] if set(place) == {"city", "country"} else [f"not of the schema: {place}"]


def same_vectors(real, seen) -> list[str]:
    """What the SDK decoded is what the engine says when asked without a gateway."""
    [e1] = [e for e in real.engines if e.model == EMBED_MODEL]
    own = post(e1.url, json.dumps({"model": EMBED_MODEL, "input": ["a river", "a town"]}).encode(), "/v1/embeddings")[2]
    own = [d["embedding"] for d in own["data"]]
    far = max((abs(a - b) for x, y in zip(own, seen["value"]) for a, b in zip(x, y)), default=1)
    sizes = [len(v) for v in seen["value"]]
    return [] if sizes == [EMBED_SIZE] * 2 and far < 1e-3 and seen["engine"] == "e1" else [f"sizes {sizes}, off by {far}, on {seen['engine']}"]


def left(real, seen) -> list[str]:
    return [] if seen["chunks"] == 5 and not seen["error"] else [f"{seen['chunks']} chunks, error {seen['error']}"]


def decoded(real) -> dict[str, float]:
    """How many steps each llama.cpp has made."""
    return {e.name: e.counter("n_decode_total") for e in real.engines if isinstance(e, Engine)}


def freed(real, before: dict) -> list[str]:
    """After streams that were left: the engines are idle long before they had made what was asked for, and the gateway knows."""
    begin = time.monotonic()
    try:
        until(lambda: real.busy() == 0 and real.in_flight() == 0, 60, f"engines idle, {real.busy()} slots busy, {real.in_flight()} in flight")
    except AssertionError as e:
        return [str(e)]
    steps = {name: n - before[name] for name, n in decoded(real).items()}
    print(f"      engines idle and 0 in flight {1000 * (time.monotonic() - begin):.0f} ms after the last client had left, with {steps} steps", flush=True)
    return [f"steps {steps}: no stream of {LEFT_TOKENS} tokens was cut"] if any(n > LEFT_TOKENS - 100 for n in steps.values()) else []


def timed_out(real, seen) -> list[str]:
    name = seen["error"]["class"] if seen["error"] else "no error"
    return [] if any(word in name for word in ("Timeout", "deadline", "Abort", "DOMException")) else [name + ": " + str(seen["error"])]


def runs_on(real, _) -> list[str]:
    """llama.cpp does not notice that a client of an answer in one piece has left: the places must stay taken until it is done."""
    llamas = [e for e in real.engines if isinstance(e, Engine)]
    begin, most, bad = time.monotonic(), (0, 0), []
    while True:
        known = real.gateway.engines()
        in_flight, busy = sum(known[e.name]["in_flight"] for e in llamas), sum(e.busy() for e in llamas)
        most = max(most, (busy, in_flight))
        if in_flight < busy:
            bad = [f"{busy} slots busy, {in_flight} in flight at the gateway"]
        if busy == 0:
            break
        time.sleep(0.2)
    took = time.monotonic() - begin
    until(lambda: real.busy() == 0 and real.in_flight() == 0, 60, f"engines idle, {real.busy()} busy, {real.in_flight()} in flight")
    if most[0]:
        print(f"      after all clients had left: {most[0]} slots busy at the engines, {most[1]} in flight at the gateway; "
              f"both 0 after {took:.1f} s", flush=True)
    return bad


def unknown(real, seen) -> list[str]:
    e = seen["error"] or {"class": "no error", "status": None, "code": None, "message": ""}
    bad = [] if REFUSED[seen["sdk"]][404] in e["class"] and e["status"] == 404 else [f"{e}"]
    if seen["sdk"] != "anthropic-python" and e["code"] != "model_not_found":
        bad.append(f"code {e['code']}")
    return bad


def error_note(seen: dict) -> str:
    e = seen["error"] or {"class": "no error", "status": "", "code": ""}
    return " ".join(str(v) for v in (e["class"], e["status"], f"`{e['code'] or e['type']}`" if e["code"] or e["type"] else "") if v)


def in_words(real, seen) -> list[str]:
    return talks(1)(real, seen)


FEATURES = [
    Feature("answer in one piece", lambda sdk: by_chat(sdk), talks(1), tokens_note),
    Feature("streamed answer", lambda sdk: by_chat(sdk, stream=True), talks(8), tokens_note),
    Feature("tool call", lambda sdk: with_tool(sdk, False), calls_tool),
    Feature("tool call, streamed", lambda sdk: with_tool(sdk, True), calls_tool),
    Feature("tool result", tool_result, talks(1), tokens_note),
    Feature("structured output", lambda sdk: structured(sdk, False), is_place),
    Feature("structured output, streamed", lambda sdk: structured(sdk, True), is_place),
    Feature("text completion", lambda sdk: by_openai("completions", sdk, "ai", prompt=opening(), max_tokens=12, **ENDLESS), lambda real, seen: [] if seen["text"] else ["no text"]),
    Feature("text completion, streamed", lambda sdk: by_openai("completions", sdk, "ai", prompt=opening(), max_tokens=12, stream=True, **ENDLESS),
            lambda real, seen: [] if seen["chunks"] > 3 and seen["finish"] else [f"{seen['chunks']} chunks, finish {seen['finish']}"]),
    Feature("embeddings", lambda sdk: by_openai("embeddings", sdk, model=EMBED_MODEL, input=["a river", "a town"]), same_vectors),
    Feature("list of models", lambda sdk: by_openai("models", sdk, "ai"),
            lambda real, seen: [] if sorted(seen["value"]) == sorted({e.model for e in real.engines}) else [f"{seen['value']}"]),
    Feature("responses", lambda sdk: by_openai("responses", sdk, input=opening(), max_output_tokens=24), talks(1), tokens_note),
    Feature("responses, streamed", lambda sdk: by_openai("responses", sdk, input=opening(), max_output_tokens=24, stream=True), talks(8), tokens_note,
            flaws={"ai": "AI_TypeValidationError"}),  # llama.cpp's response.created has no created_at and no model
    Feature("count_tokens", lambda sdk: {"api": "count_tokens", "body": {"model": MODEL, "messages": user("Hello")}} if sdk == "anthropic-python" else None,
            lambda real, seen: [] if seen["value"] and seen["value"] > 3 else [f"{seen['value']}"]),
    Feature("unknown model", lambda sdk: {**by_chat(sdk, stream=True), "body": {**by_chat(sdk, stream=True)["body"], "model": "no-such-model"}},
            unknown, error_note, fails=True),
    Feature("leaving a stream", lambda sdk: {**endless(sdk, True, LEFT_TOKENS), "leave_after": 5}, left, settle=freed),
    Feature("giving up on an answer in one piece", lambda sdk: {**endless(sdk, False, 400), "timeout": 1}, timed_out, error_note, fails=True, settle=runs_on),
]
