"""What the user's code must see through the gateway of each row of faults.py, and how it is told in a cell of the table."""

from dataclasses import dataclass, field

from faults import DIED, WORDS, Delivery

SAID = "".join(WORDS[:5])  # what came before a stream broke
WHOLE = "".join(WORDS)

# How each SDK says that a request was refused with a status.
REFUSED = {
    "openai-python": {400: "openai.BadRequestError", 404: "openai.NotFoundError", 429: "openai.RateLimitError", 500: "openai.InternalServerError"},
    "openai-node": {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError", 500: "InternalServerError"},
    "openai-go": {400: "*openai.Error", 404: "*openai.Error", 429: "*openai.Error", 500: "*openai.Error"},
    "anthropic-python": {400: "anthropic.BadRequestError", 404: "anthropic.NotFoundError", 429: "anthropic.RateLimitError",
                         500: "anthropic.InternalServerError", 503: "anthropic.ServiceUnavailableError", 504: "anthropic.GatewayTimeoutError"},
    "ai": {400: "AI_APICallError", 404: "AI_APICallError", 429: "AI_APICallError", 500: "AI_APICallError"},
}
# How each says that a stream broke.
BROKEN = {"openai-python": "openai.APIError", "openai-node": "APIError", "openai-go": "*ssestream.StreamError",
          "anthropic-python": "anthropic.APIStatusError", "ai": "Object"}
NOT_OURS = ("EngineCore", "bad gateway", "<html>", "queue full", "no slot", "out of memory")  # engines' words stay inside


@dataclass
class Want:
    """What must be seen. end: "answer", "refused" (an HTTP error), "broken" (an error within the stream), "waiting" (a retry is due later)."""
    end: str
    status: int = 0
    code: str = ""
    attempts: int = 1  # deliveries to engines
    most: int = 0  # deliveries at most, where their number is left to chance
    engines: int = 1  # that had them
    counts: str = ""  # x-stainless-retry-count of each, as far as the SDK sends it
    gap: float = 0  # seconds at least between attempts
    text: str = ""
    told: str = ""  # header of the refusal, with its value
    finish: bool = False  # a finish reason had come before the stream broke
    own: dict = field(default_factory=dict)  # SDK -> attributes that differ there, each a quirk of that SDK

    def of(self, sdk: str) -> "Want":
        return Want(**{**vars(self), **self.own.get(sdk, {}), "own": {}})


IGNORES = {"ai": {"attempts": 3}}  # ai knows no x-should-retry, and retries what it takes for a fault of the server
WANT = {
    "fine": Want("answer", text=WHOLE),
    "a": Want("refused", 429, "overloaded", attempts=3, gap=0.95, told="retry-after: 1"),
    "b": Want("refused", 429, "overloaded", attempts=3, gap=0.19, told="retry-after-ms: 200"),
    "a121": Want("waiting", own={"ai": {"end": "refused", "status": 429, "code": "overloaded", "attempts": 3}}),  # it obeys less than 60 s
    "c": Want("refused", 503, "overloaded", told="x-should-retry: false", own=IGNORES),
    "d": Want("refused", 502, "engine_error", attempts=3),
    "d-html": Want("refused", 502, "engine_error", attempts=3),
    "e": Want("refused", 502, "engine_error", attempts=3),
    "e-rst": Want("refused", 502, "engine_error", attempts=3),
    "f": Want("broken", code="stream_interrupted", text=SAID),
    "f2": Want("answer", text=WHOLE, own={"anthropic-python": {"end": "broken", "code": "stream_interrupted", "finish": True}}),  # message_stop is its end
    "g": Want("broken", code="stream_interrupted", text=SAID),
    "g-fin": Want("broken", code="stream_interrupted", text=SAID),
    "h": Want("broken", code="stream_interrupted", text=SAID),
    "h-clean": Want("broken", code="stream_interrupted", text=SAID),
    "i": Want("broken", code="stream_interrupted", text=SAID),
    "i-flat": Want("broken", code="stream_interrupted", text=SAID),
    "j": Want("answer", text=WHOLE),
    "k": Want("answer", text=WHOLE),
    "l": Want("refused", 400, "bad_messages"),
    "l-retry": Want("refused", 400, "bad_messages", attempts=3, own={"ai": {"attempts": 1}}),
    "n": Want("broken", code="stream_interrupted", own={"ai": {"end": "refused", "status": 500, "code": "", "attempts": 3}}),
    "o": Want("refused", 502, "engine_error", attempts=3),
    "m": Want("answer", text=WHOLE, attempts=3, counts="012"),
    "m-two": Want("answer", text=WHOLE, attempts=2, engines=2, counts="00"),  # the client never hears of it
    "m-crowd": Want("answer", text=WHOLE, most=3),
    "p": Want("broken", code="stream_stalled", text=SAID),
    "q": Want("refused", 504, "engine_timeout"),
}

# Rows in which all clients ask one engine, and for how long it wants to be left alone once it has said that it is full, s.
LEFT_ALONE = {"m-crowd": 2.0}

# Where /v1/responses differs: its end is response.completed, and without a retry nothing is repeated.
WANT_RESPONSES = {
    "f2": Want("broken", code="stream_interrupted", text=WHOLE),
    "n": Want("broken", code="stream_interrupted", own={"ai": {"end": "refused", "status": 500}}),
}


def faults_of(sdk: str, row: str, seen: dict | None, deliveries: list[Delivery], api: str = "") -> list[str]:
    """What is not as it must be; empty: all is."""
    wants = {**WANT, **WANT_RESPONSES} if api == "responses" else WANT
    want, bad = wants[row].of(sdk), []
    if not want.attempts <= len(deliveries) <= max(want.attempts, want.most):
        bad.append(f"{len(deliveries)} deliveries, not {want.attempts}" + (f" to {want.most}" if want.most else ""))
    bad += [f"tried again after {g:.2f} s, before the {want.gap:g} s that it was told" for g in gaps(deliveries) if g < want.gap][:1]
    if len({d.port for d in deliveries}) != want.engines:
        bad.append(f"{len({d.port for d in deliveries})} engines, not {want.engines}")
    counts = "".join(d.headers.get("x-stainless-retry-count", "?") for d in deliveries)
    if want.counts and counts != want.counts and sdk != "ai":  # which sends none
        bad.append(f"x-stainless-retry-count {counts}, not {want.counts}")
    if (seen is None) != (want.end == "waiting"):
        bad.append("still waits" if seen is None else f"does not wait: {cell(seen, deliveries)}")
    if seen is None or want.end == "waiting":
        return bad
    error = seen["error"]
    if want.end == "answer":
        if error or seen["text"] != want.text or not is_finish(seen["finish"]):
            bad.append(f"no complete answer: {seen['text']!r}, finish {seen['finish']}, error {error}")
        return bad
    if not error:
        return bad + [f"no error: {seen['text']!r}, finish {seen['finish']}"]
    return bad + wrong_error(sdk, want, seen, error)


def left_alone(deliveries: list[Delivery], told: float) -> tuple[str, list[str]]:
    """How often an engine was asked that was full at first; bad: what was sent before the time that it had said."""
    first = min((d.refused for d in deliveries if d.refused), default=0)
    if not first:
        return f"{len(deliveries)} deliveries", ["nobody was refused"]
    under_way, slack = 1.5, 0.05  # s: what was sent before that answer was read, on a machine that has other work; clocks
    early = [d.at - first for d in deliveries if under_way < d.at - first < told - slack]
    refused = sum(d.refused > 0 for d in deliveries)
    note = f"{len(deliveries)} deliveries, {refused} refused; all served after {max(d.at for d in deliveries) - first:.1f} s"
    return note, [f"asked again after {early[0]:.2f} s"] if early else []


def wrong_error(sdk: str, want: Want, seen: dict, error: dict) -> list[str]:
    bad = []
    if seen["text"] != want.text or is_finish(seen["finish"]) != want.finish:
        bad.append(f"text {seen['text']!r}, finish {seen['finish']}")
    told = [word for word in NOT_OURS if word in error["message"]]
    if told:
        bad.append(f"the engine's own words: {error['message']!r}")
    names = REFUSED[sdk] if want.end == "refused" else {500: BROKEN[sdk]}
    name = names.get(want.status, names[500])
    if name not in error["class"]:
        bad.append(f"class {error['class']}, not {name}")
    if want.end == "refused" and error["status"] != want.status:
        bad.append(f"status {error['status']}, not {want.status}")
    if want.told and want.told not in error["told"]:
        bad.append(f"told {error['told']}, not {want.told}")
    if want.code and want.code not in (error["code"], error["type"]) and sdk != "anthropic-python":
        bad.append(f"code {error['code']}, not {want.code}")
    return bad


def is_finish(reason: str | None) -> bool:
    """A finish that says the answer is whole; ai has words of its own for one that is not."""
    return reason not in (None, "error", "other", "unknown")


def gaps(deliveries: list[Delivery]) -> list[float]:
    return [b.at - a.at for a, b in zip(deliveries, deliveries[1:])]


def cell(seen: dict | None, deliveries: list[Delivery]) -> str:
    """What was seen, in the words of the table."""
    times = f"{len(deliveries)}x"
    if gaps(deliveries):
        times += ", " + " + ".join(f"{g:.1f}" for g in gaps(deliveries)) + " s"
    if seen is None:
        return times + ", waits on"
    error = seen["error"]
    if not error:
        return f"{times}; " + ("ok" if is_finish(seen["finish"]) else f"**no error**, finish {seen['finish']}")
    name = error["class"].removeprefix("openai.").removeprefix("anthropic.").replace("Object", "error part")
    code = error["code"] if error["code"] not in (None, "") else error["type"]
    status = f" {error['status']}" if error["status"] else ""
    return f"{times}; {name}{status}" + (f" `{code}`" if code not in (None, "") else "")


assert DIED["message"].startswith(NOT_OURS[0])
