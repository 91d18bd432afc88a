"""The official anthropic client for Python."""

import anthropic

from pipe import Seen, serve


def do(job: dict, seen: Seen) -> None:
    client = anthropic.Anthropic(base_url=job["base"], api_key=job.get("key", "none"), max_retries=job.get("retries", 2),
                                 timeout=job.get("timeout", 60), default_headers=job.get("headers"))
    with client:
        DO[job["api"]](client, job, seen)


def messages(client, job: dict, seen: Seen) -> None:
    raw = client.messages.with_raw_response.create(**job["body"])
    seen.engine = raw.headers.get("x-penstock-engine")
    if not job["body"].get("stream"):
        message = raw.parse()
        seen.finish = message.stop_reason
        seen.usage = counts(message.usage)
        for block in message.content:
            if block.type == "text":
                seen.add(block.text)
            elif block.type == "tool_use":
                seen.calls.append([block.name, block.input])
        return
    with raw.parse() as stream:
        for event in stream:
            streamed(event, seen)
            if seen.chunks == job.get("leave_after"):
                break


def streamed(event, seen: Seen) -> None:
    if event.type == "message_start":
        seen.usage = counts(event.message.usage)
    elif event.type == "content_block_start" and event.content_block.type == "tool_use":
        seen.calls.append([event.content_block.name, ""])
    elif event.type == "content_block_delta" and event.delta.type == "text_delta":
        seen.add(event.delta.text)
    elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
        seen.calls[-1][1] += event.delta.partial_json
    elif event.type == "message_delta":
        seen.finish = event.delta.stop_reason or seen.finish
        seen.usage = {**(seen.usage or {}), "answer": event.usage.output_tokens}


def counts(usage) -> dict:
    return {"prompt": usage.input_tokens, "answer": usage.output_tokens, "cached": usage.cache_read_input_tokens}


def count_tokens(client, job: dict, seen: Seen) -> None:
    raw = client.messages.with_raw_response.count_tokens(**job["body"])
    seen.engine, seen.value = raw.headers.get("x-penstock-engine"), raw.parse().input_tokens


DO = {"messages": messages, "count_tokens": count_tokens}

if __name__ == "__main__":
    serve("anthropic-python", anthropic.__version__, do)
