"""The official openai client, with what the checks ask of each answer kept beside its text."""

import itertools
import time
from dataclasses import dataclass, field

import openai

from fleet import MODEL

SEED = itertools.count(1)
RIVERS = ("Rhine", "Danube", "Loire", "Ebro", "Tagus", "Elbe", "Oder", "Vistula", "Thames", "Shannon", "Po", "Neva")

# Keeps a small model talking until max_tokens.
ENDLESS = {"ignore_eos": True}


def new_client(address: str, retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(base_url=address + "/v1", api_key="none", max_retries=retries, timeout=300)


def opening() -> str:
    """The first user text of a conversation that the run has not had yet."""
    n = next(SEED)
    return f"Question {n}: what is the {RIVERS[n % len(RIVERS)]} known for?"


@dataclass
class Answer:
    text: str = ""
    finish: str | None = None
    usage: object = None
    headers: object = None
    at: list[float] = field(default_factory=list)  # monotonic time of each content chunk

    @property
    def engine(self) -> str:
        return self.headers["x-penstock-engine"]

    @property
    def cached(self) -> int:
        return self.usage.prompt_tokens_details.cached_tokens


def chat(client, messages: list, stream: bool = False, max_tokens: int = 24, **more) -> Answer:
    if stream:
        with Streaming(client, messages, max_tokens, **more) as s:
            return s.rest()
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=messages, max_tokens=max_tokens, temperature=0, **more)
    completion = raw.parse()
    choice = completion.choices[0]
    return Answer(choice.message.content, choice.finish_reason, completion.usage, raw.headers, [time.monotonic()])


class Streaming:
    """One streamed chat completion that a check can stop in mid-stream, act, and go on reading."""

    def __init__(self, client, messages: list, max_tokens: int, **more):
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=messages, max_tokens=max_tokens, temperature=0, stream=True,
            stream_options={"include_usage": True}, **more)
        self.answer = Answer(headers=raw.headers)
        self.stream = raw.parse()

    def __enter__(self) -> "Streaming":
        return self

    def __exit__(self, *_) -> None:
        self.stream.close()

    @property
    def engine(self) -> str:
        return self.answer.engine

    def read(self, contents: int) -> "Streaming":
        """Reads until that many content chunks are there, or the stream ends."""
        for chunk in self.stream:
            if chunk.usage:
                self.answer.usage = chunk.usage
            for choice in chunk.choices:
                self.answer.finish = choice.finish_reason or self.answer.finish
                if choice.delta.content:
                    self.answer.text += choice.delta.content
                    self.answer.at.append(time.monotonic())
            if len(self.answer.at) >= contents:
                break
        return self

    def rest(self) -> Answer:
        return self.read(1 << 30).answer
