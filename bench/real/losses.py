"""What clients see as engines freeze, die and come back, and as the gateway itself stops."""

import json
import signal
import threading
import time
import urllib.request

import openai

from checks import check, at_once, good, is_complete, user
from client import ENDLESS, Streaming, chat, opening
from fleet import SLOTS, STALL, get, sample, until

SECRET = "the password of the harbour master is zanzibar-4711"


class Visitors:
    """New conversations one after the other, as long as the block runs; none of them may fail."""

    def __init__(self, world):
        self.world, self.served, self.errors = world, [], []
        self.leave = threading.Event()
        self.thread = threading.Thread(target=self.visit)

    def visit(self) -> None:
        client = self.world.client()
        while not self.leave.is_set():
            try:
                self.served.append(chat(client, user(opening()), max_tokens=1).engine)
            except Exception as e:
                self.errors.append(e)

    def __enter__(self) -> "Visitors":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.leave.set()
        self.thread.join()

    def met(self, name: str) -> bool:
        return name in self.served


def lose_engine_in_mid_stream(world, name: str, number: int) -> str:
    """One engine gets the signal while it streams: that stream raises, nobody else notices, the engine comes back."""
    victim, other = world.engine(name), world.other(name)
    texts = world.take_opened_on(name, 3)
    with Streaming(world.client(), user(texts[0]), 700, extra_body=ENDLESS) as s:
        assert s.read(5).engine == victim.name, s.engine
        victim.stop(number)
        begin = time.monotonic()
        try:
            a = s.rest()
            raise AssertionError(f"a broken stream ended as if complete: finish {a.finish}, {len(a.at)} chunks")
        except openai.APIError as e:
            raised, ended = e, time.monotonic()
        assert s.answer.finish is None and s.answer.usage is None, s.answer
        assert getattr(raised, "code", None) == "stream_interrupted", f"{type(raised).__name__}: {raised}"
    with Visitors(world) as visitors:
        for text in texts:  # conversations of the lost engine, at once and later
            for _ in range(2):
                a = chat(world.client(), user(text), stream=True, max_tokens=4)
                assert is_complete(a) and a.engine == other.name, a
        victim.gone()
        time.sleep(1)
        assert not visitors.errors and not visitors.met(victim.name), (visitors.errors, visitors.served)
        victim.start()
        back = time.monotonic()
        until(lambda: visitors.met(victim.name) or visitors.errors, 120, f"{victim.name} used again after its restart")
        back = time.monotonic() - back
    assert not visitors.errors, visitors.errors
    return (f"the stream raised {type(raised).__name__} {raised.code} after {ended - begin:.1f} s; "
            f"{len(visitors.served)} new and {2 * len(texts)} follow-up requests served meanwhile, no error; used again {back:.1f} s after its restart")


@check("a full engine that answers no health probe is not taken for dead")
def blocked_health(world):
    """Some builds of llama.cpp answer /health with the threads that requests hold. Here it is stopped, for as long as three probes take."""
    a1, crowd, tokens = world.engine("a1"), SLOTS + 2, 500

    def unanswered() -> float:
        return sample(get(world.gateway.admin + "/metrics")[1], 'penstock_probes_total{engine="a1",result="excused"}', absent=0)

    def in_flight() -> int:
        return world.gateway.engines()["a1"]["in_flight"]

    streams, done = [], []
    late = [threading.Thread(target=lambda: done.append(chat(world.client(), user(opening()), stream=True, max_tokens=4))) for _ in range(crowd - SLOTS)]
    order(world, "b1", "cordon")
    try:
        for _ in range(SLOTS):
            streams.append(Streaming(world.client(), user(opening()), tokens, extra_body=ENDLESS))
        for s in streams:
            assert s.read(2).engine == "a1", s.engine
        a1.stop(signal.SIGSTOP)
        try:
            begin, before = time.monotonic(), unanswered()
            assert in_flight() == SLOTS, f"{in_flight()} streams run, wanted {SLOTS}"
            for t in late:
                t.start()
            until(lambda: in_flight() == crowd, 30, f"{crowd} requests in flight")
            states, health = set(), get(a1.url + "/health", 2)[0]

            def three_probes() -> bool:
                states.add(world.gateway.engines()["a1"]["state"])
                return unanswered() - before >= 3 or states != {"ready"}
            until(three_probes, 50, "three probes without an answer", every=0.25)
            stopped_for = time.monotonic() - begin
        finally:
            a1.stop(signal.SIGCONT)
        answers = [s.rest() for s in streams]
        for t in late:
            t.join()
    finally:
        for s in streams:
            s.stream.close()
        order(world, "b1", "uncordon")
    assert health == 0 and states == {"ready"}, (health, states)
    assert all(is_complete(a) and a.usage.completion_tokens == tokens for a in answers), answers
    assert len(done) == crowd - SLOTS and all(is_complete(a) for a in done), done
    return f"three probes unanswered in {stopped_for:.0f} s, {crowd} requests at {SLOTS} slots: {states.pop()} all the time, all complete"


def order(world, name: str, what: str) -> None:
    request = urllib.request.Request(f"{world.gateway.admin}/engines/{name}/{what}", b"", method="POST")
    with urllib.request.urlopen(request, timeout=60) as r:
        assert r.status == 200, r.status


@check("an engine killed in mid-stream")
def killed(world):
    return lose_engine_in_mid_stream(world, "a1", signal.SIGKILL)


@check("an engine terminated in mid-stream")
def terminated(world):
    return lose_engine_in_mid_stream(world, "b1", signal.SIGTERM)


class Arrivals:
    """A new conversation every second, whatever became of those before, but no more at a time than one engine holds; what each saw."""

    def __init__(self, world):
        self.world, self.seen, self.errors = world, [], []  # seen: (when it was sent, after how many seconds it was answered, by which engine)
        self.leave = threading.Event()
        self.threads = [threading.Thread(target=self.come)]

    def come(self) -> None:
        while not self.leave.wait(1):
            if sum(t.is_alive() for t in self.threads[1:]) < SLOTS + 2:
                self.threads.append(threading.Thread(target=self.ask))
                self.threads[-1].start()

    def ask(self) -> None:
        sent = time.monotonic()
        try:
            a = chat(self.world.client(), user(opening()), stream=True, max_tokens=2)
            assert is_complete(a), a
            self.seen.append((sent, time.monotonic() - sent, a.engine))
        except Exception as e:
            self.errors.append(f"{type(e).__name__} {e} after {time.monotonic() - sent:.1f} s")

    def __enter__(self) -> "Arrivals":
        self.threads[0].start()
        return self

    def __exit__(self, *_) -> None:
        self.leave.set()
        for t in self.threads:
            t.join()


@check("an engine stopped in mid-stream, and continued")
def stopped(world):
    """It accepts connections and says nothing: no signal of its own tells that it has stopped."""
    victim, other = world.engine("a1"), world.other("a1")
    texts = world.take_opened_on("a1", 3)
    with Streaming(world.client(), user(texts[0]), 700, extra_body=ENDLESS) as s, Arrivals(world) as arrivals:
        assert s.read(5).engine == victim.name, s.engine
        victim.stop(signal.SIGSTOP)
        begin = time.monotonic()
        try:
            until(lambda: world.gateway.engines()[victim.name]["state"] != "ready", 60, f"{victim.name} out of service")
            out = time.monotonic()
            state = world.gateway.engines()[victim.name]
            for text in texts[1:]:
                a = chat(world.client(), user(text), max_tokens=4)
                assert is_complete(a) and a.engine == other.name, a
            time.sleep(6)  # beyond the gateway's first probe of it
        finally:
            victim.stop(signal.SIGCONT)
            cont = time.monotonic()
        until(lambda: any(e == victim.name and at > cont for at, _, e in arrivals.seen), 120, f"{victim.name} used again")
        arrivals.leave.set()
        stream = paused(s, cont - begin)
    assert not arrivals.errors, arrivals.errors
    on_the_way = 3  # s at most from a client's call to the gateway: who comes once the engine is back may be sent there
    astray = [at for at, _, e in arrivals.seen if e == victim.name and out < at < cont - on_the_way]
    assert not astray, f"sent to {victim.name} while it was out, after {[f'{at - begin:.1f}' for at in astray]} s"
    meanwhile = [took for at, took, _ in arrivals.seen if begin < at < cont]
    hung = [took for at, took, e in arrivals.seen if e == victim.name and begin < at < out]
    back = min(at for at, _, e in arrivals.seen if e == victim.name and at > cont) - cont
    return (f"out after {out - begin:.1f} s ({state['reason']}), continued after {cont - begin:.1f} s; its stream {stream}; "
            f"of {len(meanwhile)} new conversations {len(hung)} waited for it, {max(hung, default=0):.1f} s at most, none failed; used again {back:.1f} s after")


def paused(s: Streaming, seconds: float) -> str:
    """What became of a stream whose engine was stopped for so long."""
    try:
        a = s.rest()
    except openai.APIError as e:
        assert e.code == "stream_stalled" and seconds > STALL - 5 and s.answer.finish is None, (e, seconds)
        return "ended as stream_stalled"
    assert is_complete(a) and a.usage.completion_tokens == 700, (a.finish, a.usage)
    return f"paused for {max(y - x for x, y in zip(a.at, a.at[1:])):.1f} s and is complete"


@check("an engine killed while it works on answers in one piece")
def killed_before_answer(world):
    victim, other = world.engine("b1"), world.other("b1")
    world.homes.clear()  # conversations of before may have settled elsewhere while it was out
    texts = until(lambda: settled_on(world, victim.name), 60, f"two conversations that {victim.name} keeps")
    once, again, tokens = world.client(), world.client(retries=2), 900

    def kill():
        until(lambda: victim.busy() == 2, 30, "both requests at the engine", every=0.01)
        time.sleep(0.5)  # beyond what could pass for an idle connection that closed as the request came
        assert victim.busy() == 2, "the requests ended before the engine could be killed"
        victim.stop(signal.SIGKILL)
    plain, persistent, killing = at_once(
        lambda: chat(once, user(texts[0]), max_tokens=tokens, extra_body=ENDLESS),
        lambda: chat(again, user(texts[1]), max_tokens=tokens, extra_body=ENDLESS),
        kill)
    good([killing, persistent])
    good([plain])  # nothing of it was sent, and doing it twice harms nobody: another engine had it
    assert is_complete(plain) and plain.engine == other.name and plain.headers["x-penstock-attempts"] == "2", plain
    assert is_complete(persistent) and persistent.engine == other.name, persistent
    return f"both were answered by {other.name} in a second attempt"


def settled_on(world, name: str) -> list[str]:
    """Two conversations whose second turn came to the named engine too; empty: not those that were tried."""
    texts = world.take_opened_on(name, 2)
    served = {chat(world.client(), user(text), max_tokens=1).engine for text in texts}
    return texts if served == {name} else []


@check("no engine at all is an error at once, and passes")
def none_left(world):
    for e in world.engines:
        e.stop(signal.SIGKILL)
        e.gone()
    client = world.client()

    def refused() -> float:
        begin = time.monotonic()
        try:
            chat(client, user(opening()), max_tokens=1)
            raise AssertionError("an answer without an engine")
        except openai.APIStatusError as e:
            took = time.monotonic() - begin
            assert e.status_code == 503 and e.code == "no_healthy_engine", (e.status_code, e.body)
            assert int(e.response.headers["retry-after"]) > 0, dict(e.response.headers)
        assert took < 8, f"a refusal after {took:.1f} s: it waited for an engine"  # who waits, does so for 10 s
        return took
    first = refused()
    until(lambda: get(world.gateway.address + "/readyz")[0] == 503, 120, "readyz 503")
    took = [refused() for _ in range(3)]
    assert get(world.gateway.address + "/livez")[0] == 200
    assert min(took) < 1, f"refusals took {took} s"
    world.engines[0].start()
    until(lambda: get(world.gateway.address + "/readyz")[0] == 200, 120, "readyz 200 with one engine back")
    assert is_complete(chat(client, user(opening())))
    return f"503 no_healthy_engine with Retry-After, the first in {first * 1000:.0f} ms, then {min(took) * 1000:.0f} ms; served again with one engine back"


@check("SIGTERM lets a running stream finish, then exit 0")
def drain(world):
    client, another, gateway = world.client(), world.client(), world.gateway
    homes = {}
    for text in [opening() for _ in range(40)]:
        if len(homes) == 8:
            break
        a = chat(client, user(text), max_tokens=1)
        record = json.loads(get(f"{gateway.admin}/requests/{a.headers['x-request-id']}")[1])
        if record["why"] == "slot":  # where others were placed, for the load of a moment, the process alone remembers
            homes[text] = a.engine
    assert len(homes) == 8, f"{len(homes)} of 40 new conversations are where their slot is"
    with Streaming(world.client(), user(opening()), 450, extra_body=ENDLESS) as s:
        s.read(5)
        gateway.process.signal(signal.SIGTERM)
        until(lambda: get(gateway.admin + "/readyz")[0] == 503, 4, "readyz 503 on the admin listener after SIGTERM", every=0.01)
        assert is_complete(chat(another, user(opening()), max_tokens=1)), "a request just after SIGTERM"
        a = s.rest()
    assert is_complete(a) and a.usage.completion_tokens == 450, (a.finish, a.usage)
    status = gateway.process.wait(60)
    assert status == 0, f"exit {status}"
    gateway.start()
    until(lambda: gateway.in_use([e.name for e in world.engines]), 60, "both engines ready after the gateway's restart")
    client = world.client()
    moved = {t: home for t, home in homes.items() if chat(client, user(t), max_tokens=1).engine != home}
    assert not moved, f"{len(moved)} of {len(homes)} conversations moved by a restart of the gateway: {moved}"
    return f"450 tokens complete, exit 0; after a restart {len(homes)} conversations on their engines"


@check("logs hold no prompt")
def secrets(world):
    chat(world.client(), user(SECRET), max_tokens=4)
    try:
        world.client().chat.completions.create(model="no-such-model", messages=user(SECRET))
    except openai.NotFoundError:
        pass
    log = world.gateway.log.read_text()
    assert SECRET not in log and "zanzibar" not in log
    lines = [json.loads(line) for line in log.splitlines()]
    return f"{len(lines)} lines of JSON"
