"""What a user of the gateway is promised, each promise tried with the official client on real engines."""

import json
import subprocess
import threading
import time

import openai

from client import ENDLESS, Answer, Streaming, chat, opening
from fleet import MODEL, SLOTS, get, post, sample, until

CHECKS = []


def check(title: str):
    def add(function):
        CHECKS.append((title, function))
        return function
    return add


def user(text: str) -> list:
    return [{"role": "user", "content": text}]


def is_complete(answer: Answer) -> bool:
    return bool(answer.text) and answer.finish in ("stop", "length") and answer.usage is not None


def at_once(*functions) -> list:
    """Runs the functions at the same time; returns their values, an exception in place of one that raised."""
    values: list = [None] * len(functions)

    def call(i: int) -> None:
        try:
            values[i] = functions[i]()
        except Exception as e:
            values[i] = e

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return values


def good(values: list) -> list:
    for v in values:
        if isinstance(v, Exception):
            raise v
    return values


@check("the gateway is up and knows its engines")
def up(world):
    for path in ("/health", "/livez", "/readyz"):
        assert get(world.gateway.address + path)[0] == 200, f"GET {path} on the listener"
    for path in ("/livez", "/readyz"):
        assert get(world.gateway.admin + path)[0] == 200, f"GET {path} on the admin listener"
    engines = world.gateway.engines()
    assert sorted(engines) == ["a1", "b1"], engines
    for e in world.engines:
        assert engines[e.name]["url"].rstrip("/") == e.url and MODEL in engines[e.name]["models"], engines[e.name]
    return "both ready"


@check("models.list is what the engines serve, with their fields")
def models(world):
    [model] = world.client().models.list().data
    own = json.loads(get(world.engines[0].url + "/v1/models")[1])["data"][0]
    mine = model.to_dict()
    lost = {k: v for k, v in own.items() if k != "created" and mine.get(k) != v}
    assert not lost, f"lost or changed: {lost}; got {mine}"
    return f"{model.id}, {len(own)} fields"


@check("an answer in one piece")
def one_piece(world):
    a = chat(world.client(), user(opening()))
    assert is_complete(a) and a.usage.completion_tokens > 0, a
    h = a.headers
    assert h["x-request-id"] and h["x-penstock-attempts"] == "1" and h["x-penstock-affinity"] != "none", dict(h)
    return f"engine {a.engine}, affinity {h['x-penstock-affinity']}, {a.usage.completion_tokens} tokens"


@check("a streamed answer arrives token by token")
def token_by_token(world):
    """A client that gets no processor reads several chunks at a time, so that one stream of five is enough; through a buffer none is."""
    for stream in range(1, 6):
        a = chat(world.client(), user(opening()), stream=True, max_tokens=48, extra_body=ENDLESS)
        assert is_complete(a) and a.usage.completion_tokens == 48, a
        assert len(a.at) >= 40, f"{len(a.at)} content chunks for 48 tokens"
        gaps = [b - a for a, b in zip(a.at, a.at[1:])]
        apart = sum(g > 0.002 for g in gaps)
        if apart > len(gaps) / 2:
            return f"{len(a.at)} chunks in {a.at[-1] - a.at[0]:.2f} s, longest gap {max(gaps) * 1000:.0f} ms, in stream {stream}"
    raise AssertionError(f"only {apart} of {len(gaps)} chunks came apart from the one before, and no more in four other streams: buffered")


@check("text completions, streamed and not")
def completions(world):
    client = world.client()
    whole = client.completions.create(model=MODEL, prompt="The longest river of Europe is", max_tokens=12, temperature=0)
    parts = list(client.completions.create(model=MODEL, prompt="The longest river of Europe is", max_tokens=12, temperature=0, stream=True))
    streamed = "".join(p.choices[0].text for p in parts if p.choices)
    assert whole.choices[0].text and streamed == whole.choices[0].text, (whole.choices[0].text, streamed)
    return f"{len(parts)} chunks, the same text"


@check("turns of a conversation stay on one engine and hit its prefix cache")
def prefix_cache(world):
    client = world.client()
    before = {e.name: e.counter("prompt_tokens_cached_total") for e in world.engines}
    cached, turns = {e.name: 0 for e in world.engines}, []
    for _ in range(3):
        messages = [{"role": "system", "content": "You are a patient teacher of geography and answer in short sentences."}]
        messages += user(opening())
        home, last_prompt = None, 0
        for turn in range(4):
            a = chat(client, messages, stream=turn % 2 == 1, max_tokens=12)
            assert is_complete(a), a
            assert home in (None, a.engine), f"turn {turn + 1} on {a.engine}, the turns before on {home}"
            assert a.cached >= last_prompt // 2, f"turn {turn + 1}: {a.cached} of {last_prompt} tokens of the turn before cached"
            home, last_prompt = a.engine, a.usage.prompt_tokens
            cached[a.engine] += a.cached
            if turn:
                turns.append((a.cached, a.usage.prompt_tokens))
            messages += [{"role": "assistant", "content": a.text}] + user("Tell me one thing more.")

    def counted():
        return {e.name: e.counter("prompt_tokens_cached_total") - before[e.name] for e in world.engines}
    until(lambda: counted() == cached, 30, f"the engines' own counters at {cached}, they are {counted()}")
    hit = sum(c for c, _ in turns) / sum(p for _, p in turns)
    return f"3 conversations x 4 turns, {hit:.0%} of the prompt tokens of follow-up turns cached, as the engines count them too"


@check("conversations spread over the engines")
def spread(world):
    client, counts = world.client(), {e.name: 0 for e in world.engines}
    while sum(counts.values()) < 10 or not all(counts.values()):  # one in 500 runs has the first ten on one engine
        assert sum(counts.values()) < 40, counts
        text = opening()
        world.homes[text] = chat(client, user(text), max_tokens=1).engine
        counts[world.homes[text]] += 1
    return f"{sum(counts.values())} new conversations: {counts}"


@check("the shape of a request does not move its conversation")
def shapes(world):
    client = world.client()
    for e in world.engines:
        [text] = world.opened_on(e.name, 1)
        parts = chat(client, [{"role": "user", "content": [{"type": "text", "text": text}]}], max_tokens=1)
        streamed = chat(client, user(text), stream=True, max_tokens=1, seed=7)
        status, headers, _ = post(world.gateway.address, json.dumps(
            {"max_tokens": 1, "messages": [{"content": text, "role": "user"}], "model": MODEL}, indent=2).encode())
        seen = {"parts": parts.engine, "stream": streamed.engine, "members reordered": headers["x-penstock-engine"]}
        assert status == 200 and set(seen.values()) == {e.name}, f"first on {e.name}, then {seen}"
    return "text as parts, streamed, members reordered: the same engine, on both"


@check("x-penstock-key keeps unlike requests together")
def own_key(world):
    client = world.client()
    seen = {chat(client, user(opening()), max_tokens=1, extra_headers={"x-penstock-key": "batch-9"}).engine for _ in range(5)}
    assert len(seen) == 1, seen
    return f"5 requests on {seen.pop()}"


@check("two clients at once")
def two_clients(world):
    begin = threading.Barrier(2, timeout=60)

    def talk():
        client, messages, engines, spans = world.client(), user(opening()), set(), []
        chat(client, user(opening()), max_tokens=1)  # it has loaded all that it needs
        begin.wait()
        for _ in range(3):
            a = chat(client, messages, stream=True, max_tokens=48, extra_body=ENDLESS)
            assert is_complete(a), a
            engines.add(a.engine)
            spans.append((a.at[0], a.at[-1]))
            messages += [{"role": "assistant", "content": a.text}] + user("Go on.")
        assert len(engines) == 1, f"one conversation on {engines}"
        return spans
    mine, yours = good(at_once(talk, talk))
    overlap = sum(max(0, min(b, d) - max(a, c)) for a, b in mine for c, d in yours)
    assert overlap > 0, "the clients took turns"
    return f"3 streamed turns each, {overlap:.1f} s of them at the same time"


@check("eight streams at once use both engines")
def eight(world):
    """Streams so long that the first goes on as the last begins."""
    streams = good(at_once(*[lambda: Streaming(world.client(), user(opening()), 150, extra_body=ENDLESS)] * (2 * SLOTS)))
    answers = [s.rest() for s in streams]
    assert all(is_complete(a) for a in answers), answers
    counts = {e.name: sum(a.engine == e.name for a in answers) for e in world.engines}
    assert min(counts.values()) > 0, counts
    return f"{counts}"


@check("a client that leaves in mid-stream frees the engine")
def cancel(world):
    took = []
    for _ in range(3):
        with Streaming(world.client(), user(opening()), 700, extra_body=ENDLESS) as s:
            s.read(5)
            engine = world.engine(s.engine)
            assert engine.busy() == 1, f"{engine.name} has {engine.busy()} busy slots in mid-stream"
            begin, before = time.monotonic(), engine.counter("n_decode_total")
        until(lambda: engine.busy() == 0, 30, "the engine's slot idle", every=0.002)
        took.append(time.monotonic() - begin)
        more = engine.counter("n_decode_total") - before
        assert more < 350, f"{engine.name} made {more:g} tokens more: of 700 it should have been spared most"
        assert engine.counter("requests_processing") == 0
    before = engine.counter("n_decode_total")
    time.sleep(0.3)
    assert engine.counter("n_decode_total") == before, "the engine goes on decoding"
    until(lambda: all(e["in_flight"] == 0 for e in world.gateway.engines().values()), 30, "in_flight 0 at the gateway")
    return f"slot idle after {', '.join(f'{t * 1000:.0f}' for t in took)} ms"


@check("an unknown model is a NotFoundError and reaches no engine")
def unknown_model(world):
    before = [e.counter("n_decode_total") for e in world.engines]
    for stream in (False, True):
        try:
            world.client(retries=2).chat.completions.create(model="no-such-model", messages=user("Hello"), stream=stream)
        except openai.NotFoundError as e:
            assert e.code == "model_not_found" and "no-such-model" in e.message, (e.code, e.message)
            assert "x-penstock-engine" not in e.response.headers, dict(e.response.headers)
        else:
            raise AssertionError("no error")
    assert [e.counter("n_decode_total") for e in world.engines] == before
    return "code model_not_found"


@check("the engine's refusals pass through")
def refusals(world):
    client = world.client()
    try:
        client.embeddings.create(model=MODEL, input="a river")
        raise AssertionError("embeddings: no error")
    except openai.APIStatusError as e:
        assert e.status_code == 501 and e.body["type"] == "not_supported_error", (e.status_code, e.body)
    for stream in (False, True):
        try:
            client.chat.completions.create(model=MODEL, messages=user("word " * 2000), stream=stream)
            raise AssertionError("context overflow: no error")
        except openai.BadRequestError as e:
            assert e.body["type"] == "exceed_context_size_error" and e.body["n_ctx"] == 1024, e.body
    try:
        client.chat.completions.create(model=MODEL, messages=user("Hello"), temperature="hot")
        raise AssertionError("bad parameter: no error")
    except openai.BadRequestError as e:
        assert "temperature" in e.message, e.message
    assert world.gateway.in_use([e.name for e in world.engines]), "a refusal counted against the engine"
    return "501 for embeddings, 400 for context overflow and for a bad parameter"


@check("what is no request never reaches an engine")
def no_request(world):
    before = [e.counter("n_decode_total") for e in world.engines]
    address = world.gateway.address
    for body in (b'{"model": "smol", "messages": [', b'{"model": "smol", "model": "smol", "messages": []}', b"[]", b""):
        status, _, answer = post(address, body)
        assert status == 400 and answer["error"]["code"] == "invalid_request", (body, status, answer)
    status, _, answer = post(address, b"{}", "/v1/nothing")
    assert status == 404 and answer["error"]["code"] == "invalid_request", (status, answer)
    status, headers, answer = post(address, None, method="GET")
    assert status == 405 and headers["allow"] == "POST" and answer["error"]["code"] == "invalid_request", (status, dict(headers))
    assert [e.counter("n_decode_total") for e in world.engines] == before
    return "broken JSON, duplicate member, no object, empty: 400; unknown path 404; GET 405"


@check("requests as the engines close idle connections lose nothing")
def idle_race(world):
    keep_alive = 5.0  # seconds, of both engines' HTTP server
    clients = [world.client() for _ in range(4)]
    for c in clients:
        chat(c, user(opening()), max_tokens=1)

    def after(client, seconds):
        time.sleep(seconds)
        return chat(client, user(opening()), max_tokens=1)
    good(at_once(*[lambda c=c, i=i: after(c, keep_alive - 0.1 + 0.05 * i) for i, c in enumerate(clients)]))
    return "4 requests after 4.90 to 5.05 s of silence"


@check("the record of a request says which engine and why")
def explain(world):
    a = chat(world.client(), user(opening()), max_tokens=1)
    request = a.headers["x-request-id"]
    status, body = get(f"{world.gateway.admin}/requests/{request}")
    assert status == 200 and json.loads(body)["engine"] == a.engine, (status, body)
    assert get(f"{world.gateway.admin}/requests/no-such-id")[0] == 404
    for command in (["explain", request], ["engines"]):
        asked = subprocess.run([world.gateway.binary, *command, "--admin", world.gateway.admin.removeprefix("http://")],
                               capture_output=True, text=True, timeout=60)
        assert asked.returncode == 0 and a.engine in asked.stdout, (command, asked)
    page = get(world.gateway.admin + "/metrics")[1]
    attempts = {e.name: sample(page, f'penstock_attempts_total{{engine="{e.name}",outcome="ok"}}') for e in world.engines}
    return f"{len(json.loads(body))} fields; attempts so far {attempts}"
