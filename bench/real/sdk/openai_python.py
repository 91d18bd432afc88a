"""The official openai client for Python."""

import openai

from pipe import Seen, serve


def counts(usage) -> dict | None:
    if usage is None:
        return None
    prompt = getattr(usage, "prompt_tokens", None) or getattr(usage, "input_tokens", None)
    details = getattr(usage, "prompt_tokens_details", None) or getattr(usage, "input_tokens_details", None)
    answer = getattr(usage, "completion_tokens", None) or getattr(usage, "output_tokens", None)
    return {"prompt": prompt, "answer": answer, "cached": getattr(details, "cached_tokens", None)}


def do(job: dict, seen: Seen) -> None:
    client = openai.OpenAI(base_url=job["base"] + "/v1", api_key=job.get("key", "none"), max_retries=job.get("retries", 2),
                           timeout=job.get("timeout", 60), default_headers=job.get("headers"))
    with client:
        DO[job["api"]](client, job, seen)


def chat(client, job: dict, seen: Seen) -> None:
    raw = client.chat.completions.with_raw_response.create(**job["body"])
    seen.engine = raw.headers.get("x-penstock-engine")
    if not job["body"].get("stream"):
        whole(raw.parse(), seen)
        return
    calls = {}
    with raw.parse() as stream:
        for chunk in stream:
            seen.usage = counts(chunk.usage) or seen.usage
            for choice in chunk.choices:
                seen.finish = choice.finish_reason or seen.finish
                seen.add(choice.delta.content)
                for part in choice.delta.tool_calls or []:
                    call = calls.setdefault(part.index, ["", ""])
                    call[0] += part.function.name or ""
                    call[1] += part.function.arguments or ""
            if seen.chunks == job.get("leave_after"):
                break
    seen.calls = list(calls.values())


def whole(completion, seen: Seen) -> None:
    [choice] = completion.choices
    seen.add(choice.message.content)
    seen.finish, seen.usage = choice.finish_reason, counts(completion.usage)
    seen.calls = [[c.function.name, c.function.arguments] for c in choice.message.tool_calls or []]


def completions(client, job: dict, seen: Seen) -> None:
    raw = client.completions.with_raw_response.create(**job["body"])
    seen.engine = raw.headers.get("x-penstock-engine")
    answer = raw.parse()
    for part in answer if job["body"].get("stream") else [answer]:
        for choice in part.choices:
            seen.add(choice.text)
            seen.finish = choice.finish_reason or seen.finish


def embeddings(client, job: dict, seen: Seen) -> None:
    raw = client.embeddings.with_raw_response.create(**job["body"])
    answer = raw.parse()
    seen.engine, seen.value, seen.usage = raw.headers.get("x-penstock-engine"), [d.embedding for d in answer.data], counts(answer.usage)


def models(client, job: dict, seen: Seen) -> None:
    seen.value = [m.id for m in client.models.list()]


def responses(client, job: dict, seen: Seen) -> None:
    raw = client.responses.with_raw_response.create(**job["body"])
    seen.engine = raw.headers.get("x-penstock-engine")
    if not job["body"].get("stream"):
        answered(raw.parse(), seen)
        seen.add(seen.value["text"])
        return
    with raw.parse() as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                seen.add(event.delta)
            elif event.type in ("response.completed", "response.incomplete", "response.failed"):
                answered(event.response, seen)
            if seen.chunks == job.get("leave_after"):
                break


def answered(response, seen: Seen) -> None:
    seen.finish, seen.usage, seen.value = response.status, counts(response.usage), {"id": response.id, "text": response.output_text}
    seen.calls = [[item.name, item.arguments] for item in response.output if item.type == "function_call"]


def retrieve(client, job: dict, seen: Seen) -> None:
    raw = client.responses.with_raw_response.retrieve(job["response"])
    seen.engine = raw.headers.get("x-penstock-engine")
    answered(raw.parse(), seen)
    seen.add(seen.value["text"])


DO = {"chat": chat, "completions": completions, "embeddings": embeddings, "models": models, "responses": responses, "retrieve": retrieve}

if __name__ == "__main__":
    serve("openai-python", openai.__version__, do)
