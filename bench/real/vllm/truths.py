"""What clients must see of a fleet of vLLM and llama.cpp in the moments when an engine says other things than it does."""

import os
import signal
import threading
import time

import openai

from checks import Visitors, at_once, good, is_complete, user
from client import ENDLESS, Streaming, chat, opening
from engine import SEQUENCES
from fleet import MODEL, SLOTS, get, until
from raw import ask

TRUTHS = []
VLLM, LLAMA = {"x-penstock-require": "kind=vllm"}, {"x-penstock-require": "kind=llama"}


def check(title: str):
    def add(function):
        TRUTHS.append((title, function))
        return function
    return add


def long_stream(tokens: int = 400, **more) -> dict:
    return {"model": MODEL, "messages": user(opening()), "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True, **more}


def refused(call, *statuses: int) -> openai.APIStatusError:
    """The error that the call must end with."""
    try:
        answer = call()
    except openai.APIStatusError as e:
        assert e.status_code in statuses, f"status {e.status_code}, not {statuses}: {e.body}"
        return e
    raise AssertionError(f"no error: {answer}")


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


@check("both kinds of engine in one fleet, each known for what it is")
def kinds(world):
    engines = world.gateway.engines()
    kinds = {name: e["dialect"] for name, e in engines.items()}
    assert kinds == {"v1": "vllm", "l1": "llamacpp"}, kinds
    texts = {e.name: world.opened_on(e.name, 2) for e in world.engines}
    for name, own in texts.items():
        for text in own:
            again = chat(world.client(), user(text), stream=True, max_tokens=4)
            assert again.engine == name and is_complete(again), again
    return f"{kinds}; new conversations on both, follow-ups on the same engine"


@check("follow-up turns hit vLLM's prefix cache")
def prefix_cache(world):
    client, block = world.client(), 128  # tokens, vLLM's on a CPU
    before = world.v1.gauge("prefix_cache_hits_total")
    told, turns = 0, []
    for n in range(2):
        rules = " ".join(f"Rule {n}.{i}: answer in short sentences about rivers, towns and bridges." for i in range(12))
        messages = [{"role": "system", "content": rules}] + user(opening())
        home = None
        for turn in range(3):
            a = chat(client, messages, stream=turn == 1, max_tokens=8, extra_headers=VLLM)
            assert is_complete(a) and home in (None, a.engine), a
            home = a.engine
            told += a.cached or 0
            if turn:
                assert a.cached >= block, f"turn {turn + 1}: {a.cached} of {a.usage.prompt_tokens} tokens cached"
                turns.append((a.cached, a.usage.prompt_tokens))
            messages += [{"role": "assistant", "content": a.text}] + user("Tell me one thing more.")
    counted = world.v1.gauge("prefix_cache_hits_total") - before
    assert counted == told, f"vLLM counts {counted} cached tokens, the clients were told {told}"
    return f"cached of prompt tokens in follow-up turns: {turns}; vLLM's own counter says the same, {counted:.0f}"


@check("queued inside vLLM: its early 200 is not passed on as progress")
def queued(world):
    # One stream more than run at once, to the engine itself and then through the gateway: when does the header come?
    def waits(address: str, headers: dict):
        jobs = [lambda: ask(address, long_stream(60), headers) for _ in range(SEQUENCES + 2)]
        return sorted(good(at_once(*jobs)), key=lambda r: r.first_at or 1e9)
    direct, ours = waits(world.v1.url, {}), waits(world.gateway.address, VLLM)
    for r in direct + ours:
        assert r.status == 200 and r.clean and r.events()[-1] == "[DONE]", (r.status, r.clean, r.body[-200:])
    last, same = ours[-1], direct[-1]
    assert same.first_at > 3 * same.header_at, f"vLLM's header no longer comes early: {same.header_at:.2f} s, content {same.first_at:.2f} s"
    assert last.header_at > 0.8 * last.first_at, f"header after {last.header_at:.2f} s, content after {last.first_at:.2f} s"
    return (f"the last of {SEQUENCES + 2} streams: vLLM alone sends the header after {ms(same.header_at)}, content after {ms(same.first_at)}; "
            f"through the gateway header after {ms(last.header_at)}, content after {ms(last.first_at)}")


@check("queued beyond the limit: a 504, although vLLM had sent 200")
def queued_too_long(world):
    with Streaming(world.client(), user(opening()), 500, extra_body=ENDLESS, extra_headers=VLLM) as a, \
            Streaming(world.client(), user(opening()), 500, extra_body=ENDLESS, extra_headers=VLLM) as b:
        a.read(2), b.read(2)
        direct = ask(world.v1.url, long_stream(8), seconds=3)
        begin = time.monotonic()
        e = refused(lambda: chat(world.strict_client(), user(opening()), stream=True, extra_headers=VLLM), 504)
        took = time.monotonic() - begin
        until(lambda: world.v1.gauge("num_requests_waiting") == 0, 2, "the waiting request gone from vLLM's queue")
    assert direct.status == 200 and not direct.first_at, f"vLLM alone: {direct}"
    assert e.code == "engine_timeout", e.body
    return f"vLLM alone: 200 and nothing for 3 s; through the gateway {type(e).__name__} 504 {e.code} after {took:.1f} s, and vLLM's queue is empty again"


@check("clients that leave free vLLM: streaming, in one piece, queued")
def leave(world):
    took = {}
    with Streaming(world.client(), user(opening()), 600, extra_body=ENDLESS, extra_headers=VLLM) as s:
        s.read(4)
        assert world.v1.busy() == 1, world.v1.busy()
        begin = time.monotonic()
    took["stream"] = idle_after(world, begin)
    begin = time.monotonic()
    try:
        chat(world.client().with_options(timeout=2), user(opening()), max_tokens=600, extra_body=ENDLESS, extra_headers=VLLM)
        raise AssertionError("600 tokens in 2 s")
    except openai.APITimeoutError:
        took["in one piece"] = idle_after(world, time.monotonic())
    with Streaming(world.client(), user(opening()), 600, extra_body=ENDLESS, extra_headers=VLLM) as a, \
            Streaming(world.client(), user(opening()), 600, extra_body=ENDLESS, extra_headers=VLLM) as b:
        a.read(2), b.read(2)
        waiting = threading.Thread(target=ask, args=(world.gateway.address, long_stream(8), VLLM, 2))
        waiting.start()
        until(lambda: world.v1.gauge("num_requests_waiting") == 1, 2, "one request in vLLM's queue")
        waiting.join()  # it has left
        begin = time.monotonic()
        until(lambda: world.v1.gauge("num_requests_waiting") == 0, 2, "vLLM's queue empty", every=0.005)
        took["queued"] = time.monotonic() - begin
    until(lambda: world.in_flight() == 0, 1, "0 in flight at the gateway")
    return "vLLM's own gauges say so after " + ", ".join(f"{ms(t)} ({what})" for what, t in took.items())


def idle_after(world, begin: float) -> float:
    until(lambda: world.v1.busy() == 0, 2, "vLLM idle", every=0.005)
    return time.monotonic() - begin


@check("an answer in one piece whose client left: llama.cpp runs on")
def runs_on(world):
    try:
        chat(world.client().with_options(timeout=1), user(opening()), max_tokens=250, extra_body=ENDLESS, extra_headers=LLAMA)
        raise AssertionError("250 tokens in 1 s")
    except openai.APITimeoutError:
        pass
    time.sleep(1.5)  # the gateway reads the engine's gauges once a second
    seen, busy, begin = world.gateway.engines()["l1"], world.l1.busy(), time.monotonic()
    assert busy == 0 or seen["in_flight"] == seen["abandoned"] == 1, (busy, seen)
    other = chat(world.client(), user(opening()), max_tokens=4, extra_headers=LLAMA)
    assert is_complete(other), other
    until(lambda: world.l1.busy() == 0, 60, "llama.cpp done with what nobody waits for")
    until(lambda: world.in_flight() == 0, 3, "0 in flight at the gateway")
    return (f"1.5 s after the client had left: {busy} slot busy, the gateway says in_flight {seen['in_flight']}, "
            f"abandoned {seen['abandoned']}; another client is served meanwhile; idle {time.monotonic() - begin:.1f} s later")


@check("llama.cpp with a queue full of strangers' requests; nobody sees an error")
def blocked_health(world):
    crowd = SLOTS + 60
    with Streaming(world.client(), user(opening()), 120, extra_body=ENDLESS, extra_headers=LLAMA) as s:
        s.read(2)
        threads = [threading.Thread(target=ask, args=(world.l1.url, long_stream(8))) for _ in range(crowd)]
        for t in threads:
            t.start()
        time.sleep(2)
        begin = time.monotonic()
        status = get(world.l1.url + "/health", 3)[0]
        health = f"{status} after {ms(time.monotonic() - begin)}" if status else "no answer in 3 s"
        states, served = set(), []
        while any(t.is_alive() for t in threads) or len(served) < 4:
            served.append(chat(world.client(), user(opening()), stream=True, max_tokens=4))
            states.add(world.gateway.engines()["l1"]["state"])
        a = s.rest()
        for t in threads:
            t.join()
    assert is_complete(a) and a.usage.completion_tokens == 120, a
    assert all(is_complete(x) for x in served), served
    until(lambda: world.gateway.in_use(["l1", "v1"]), 20, "llama.cpp in use again")
    counts = {e.name: sum(x.engine == e.name for x in served) for e in world.engines}
    return f"{crowd} strangers' requests at its {SLOTS} slots, /health: {health}; the gateway's view: {sorted(states)}; the running stream and {counts} new requests complete"


@check("a response is fetched from the engine that made it")
def bound(world):
    if get(world.gateway.address + "/v1/responses")[0] != 405:
        return "not served by this gateway"
    client = world.client()
    for headers, name in ((VLLM, "v1"),):
        raw = client.responses.with_raw_response.create(model=MODEL, input="Name a river of Spain.", max_output_tokens=16, store=True, extra_headers=headers)
        first = raw.parse()
        assert raw.headers["x-penstock-engine"] == name, dict(raw.headers)
        for _ in range(3):
            got = client.responses.with_raw_response.retrieve(first.id)
            assert got.headers["x-penstock-engine"] == name and got.parse().output_text == first.output_text, dict(got.headers)
        next_turn = client.responses.with_raw_response.create(
            model=MODEL, input="And one of France?", previous_response_id=first.id, max_output_tokens=16, store=True)
        assert next_turn.headers["x-penstock-engine"] == name, dict(next_turn.headers)
        assert next_turn.parse().usage.input_tokens > first.usage.input_tokens, "the turn before is part of the prompt"
    e = refused(lambda: client.responses.retrieve("resp_nobody_has_this"), 404)
    return f"GET and previous_response_id go to {name}; an unknown id is {type(e).__name__} {e.code}"


@check("vLLM's engine core frozen: /health and /metrics still answer")
def frozen(world):
    core, strict = world.v1.core(), world.strict_client()
    with Streaming(strict, user(opening()), 600, extra_body=ENDLESS, extra_headers=VLLM) as s:
        s.read(4)
        os.kill(core, signal.SIGSTOP)
        begin = time.monotonic()
        try:
            pages = {path: get(world.v1.url + path, 3)[0] for path in ("/health", "/metrics")}
            direct = ask(world.v1.url, long_stream(8), seconds=3)
            try:
                s.rest()
                raise AssertionError("the frozen stream ended like a complete one")
            except openai.APIError as e:
                stalled, after = e, time.monotonic() - begin
            late = refused(lambda: chat(strict, user(opening()), stream=True, extra_headers=VLLM), 504)
            whole = refused(lambda: chat(strict, user(opening()), extra_headers=VLLM), 504)
            llama = chat(strict, user(opening()), stream=True, max_tokens=8, extra_headers=LLAMA)
            anywhere = [outcome(lambda: chat(strict, user(opening()), stream=True, max_tokens=4)) for _ in range(6)]
            state = world.strict.engines()["v1"]
        finally:
            os.kill(core, signal.SIGCONT)
    assert pages == {"/health": 200, "/metrics": 200} and direct.status == 200 and not direct.first_at, (pages, direct)
    assert stalled.code == "stream_stalled", stalled
    assert late.code == whole.code == "engine_timeout" and is_complete(llama), (late.body, whole.body, llama)
    assert set(anywhere) <= {"complete on l1", "504 engine_timeout"}, anywhere
    until(lambda: world.v1.busy() == 0, 20, "vLLM idle after it goes on")
    again = chat(world.client(), user(opening()), stream=True, max_tokens=8, extra_headers=VLLM)
    assert is_complete(again) and again.engine == "v1", again
    return (f"vLLM alone: {pages}, a new stream gets 200 and nothing; clients saw {type(stalled).__name__} {stalled.code} after {after:.1f} s in mid-stream, "
            f"504 {late.code} on new requests to it, streamed and not; requests that may go anywhere: {tally(anywhere)}; "
            f"the gateway calls it {state['state']}; after SIGCONT it serves again")


def outcome(call) -> str:
    try:
        a = call()
        return f"complete on {a.engine}" if is_complete(a) else f"incomplete on {a.engine}: {a}"
    except openai.APIStatusError as e:
        return f"{e.status_code} {e.code}"
    except openai.APIError as e:
        return f"in the stream {e.code}"


def tally(words: list[str]) -> str:
    return ", ".join(f"{words.count(w)} {w}" for w in sorted(set(words)))


def lose_vllm(world, lose, what: str) -> str:
    """vLLM goes while it streams, queues and works on answers in one piece; llama.cpp streams on."""
    client, results, seen = world.client(), {}, {}
    # Three turns of the shell: two run, the rest waits inside vLLM.
    def raw_stream():
        results["raw stream"] = ask(world.gateway.address, long_stream(600), VLLM)

    def sdk(name: str, **more):
        def call():
            try:
                a = chat(client, user(opening()), max_tokens=600, extra_body=ENDLESS, extra_headers=VLLM, **more)
                results[name] = a
            except openai.APIError as e:
                results[name] = e
            seen[name] = time.monotonic()
        return call

    with Streaming(world.client(), user(opening()), 200, extra_body=ENDLESS, extra_headers=LLAMA) as other, \
            Streaming(world.client(), user(opening()), 600, extra_body=ENDLESS, extra_headers=VLLM) as running:
        running.read(3), other.read(3)
        first = threading.Thread(target=raw_stream)
        first.start()
        until(lambda: world.v1.gauge("num_requests_running") == SEQUENCES, 20, "the raw stream runs")
        time.sleep(1)
        queue = [threading.Thread(target=sdk("queued stream", stream=True)), threading.Thread(target=sdk("queued, in one piece"))]
        for t in queue:
            t.start()
        until(lambda: world.v1.gauge("num_requests_waiting") == 2, 10, "two requests in vLLM's queue")
        begin = time.monotonic()
        lose()
        try:
            running.rest()
            raise AssertionError("a broken stream ended as if complete")
        except openai.APIError as e:
            broken, after = e, time.monotonic() - begin
        for t in [first, *queue]:
            t.join(60)
        kept = other.rest()
    raw, stream, whole = results["raw stream"], results["queued stream"], results["queued, in one piece"]
    assert broken.code == "stream_interrupted" and running.answer.finish is None, broken
    assert raw.status == 200 and not raw.clean and raw.last_error() == "stream_interrupted" and "[DONE]" not in raw.events(), raw.body[-400:]
    for name, e in (("queued stream", stream), ("queued, in one piece", whole)):
        assert isinstance(e, openai.APIStatusError) and e.status_code >= 500, f"{name}: {e!r}"
        assert "EngineCore" not in str(e), f"{name}: the engine's own words: {e}"
    assert is_complete(kept) and kept.engine == "l1", kept
    world.v1.gone()
    with Visitors(world) as visitors:
        until(lambda: len(visitors.served) > 5 or visitors.errors, 60, "new conversations served")
    assert not visitors.errors and set(visitors.served) == {"l1"}, (visitors.errors, visitors.served)
    none = refused(lambda: chat(client, user(opening()), extra_headers=VLLM), 503)
    return (f"{what}: the running stream raised {type(broken).__name__} {broken.code} after {after:.1f} s; on the wire the error event is the last, no [DONE], unclean end; "
            f"queued: {type(stream).__name__} {stream.status_code} {stream.code} for the stream, {type(whole).__name__} {whole.status_code} {whole.code} in one piece; "
            f"llama.cpp's stream complete, {len(visitors.served)} new conversations on l1, no error; a request that demands vLLM: 503 {none.code}")


@check("vLLM terminated in mid-stream")
def terminated(world):
    return lose_vllm(world, lambda: world.v1.stop(signal.SIGTERM), "SIGTERM")


@check("vLLM comes back and takes its share")
def back(world):
    # settle() has started it again.
    begin = time.monotonic()
    with Visitors(world) as visitors:
        until(lambda: visitors.met("v1") or visitors.errors, 60, "v1 used again")
    assert not visitors.errors, visitors.errors
    return f"served by v1 again {time.monotonic() - begin:.1f} s after it was ready, {len(visitors.served)} requests, no error"


@check("vLLM's engine core killed in mid-stream")
def core_killed(world):
    return lose_vllm(world, lambda: os.kill(world.v1.core(), signal.SIGKILL), "SIGKILL of the engine core")
