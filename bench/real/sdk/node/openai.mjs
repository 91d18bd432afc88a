// The official openai client for JavaScript.
import OpenAI from "openai";
import { serve, versionOf } from "./pipe.mjs";

const counts = (u) => u && ({
  prompt: u.prompt_tokens ?? u.input_tokens, answer: u.completion_tokens ?? u.output_tokens,
  cached: (u.prompt_tokens_details ?? u.input_tokens_details)?.cached_tokens ?? null,
});
const engine = (response) => response.headers.get("x-penstock-engine");

async function chat(client, job, seen) {
  const { data, response } = await client.chat.completions.create(job.body).withResponse();
  seen.engine = engine(response);
  if (!job.body.stream) {
    const [choice] = data.choices;
    seen.add(choice.message.content);
    seen.finish = choice.finish_reason;
    seen.usage = counts(data.usage);
    seen.calls = (choice.message.tool_calls ?? []).map((c) => [c.function.name, c.function.arguments]);
    return;
  }
  for await (const chunk of data) {
    seen.usage = counts(chunk.usage) ?? seen.usage;
    for (const choice of chunk.choices) {
      seen.finish = choice.finish_reason ?? seen.finish;
      seen.add(choice.delta.content);
      for (const part of choice.delta.tool_calls ?? []) {
        const call = (seen.calls[part.index] ??= ["", ""]);
        call[0] += part.function?.name ?? "";
        call[1] += part.function?.arguments ?? "";
      }
    }
    if (seen.chunks === job.leave_after) break; // aborts the request
  }
}

async function completions(client, job, seen) {
  const { data, response } = await client.completions.create(job.body).withResponse();
  seen.engine = engine(response);
  for await (const part of job.body.stream ? data : [data]) {
    for (const choice of part.choices) {
      seen.add(choice.text);
      seen.finish = choice.finish_reason ?? seen.finish;
    }
  }
}

async function embeddings(client, job, seen) {
  const { data, response } = await client.embeddings.create(job.body).withResponse();
  seen.engine = engine(response);
  seen.value = data.data.map((d) => d.embedding);
  seen.usage = counts(data.usage);
}

async function models(client, job, seen) {
  seen.value = [];
  for await (const model of client.models.list()) seen.value.push(model.id);
}

async function responses(client, job, seen) {
  const { data, response } = await client.responses.create(job.body).withResponse();
  seen.engine = engine(response);
  if (!job.body.stream) {
    answered(data, seen);
    seen.add(seen.value.text);
    return;
  }
  for await (const event of data) {
    if (event.type === "response.output_text.delta") seen.add(event.delta);
    if (["response.completed", "response.incomplete", "response.failed"].includes(event.type)) answered(event.response, seen);
    if (seen.chunks === job.leave_after) break;
  }
}

function answered(response, seen) {
  const text = response.output_text ?? response.output.flatMap((o) => o.content ?? []).map((c) => c.text ?? "").join("");
  seen.finish = response.status;
  seen.usage = counts(response.usage);
  seen.value = { id: response.id, text };
  seen.calls = response.output.filter((o) => o.type === "function_call").map((o) => [o.name, o.arguments]);
}

async function retrieve(client, job, seen) {
  const { data, response } = await client.responses.retrieve(job.response).withResponse();
  seen.engine = engine(response);
  answered(data, seen);
  seen.add(seen.value.text);
}

const apis = { chat, completions, embeddings, models, responses, retrieve };

serve("openai-node", versionOf("openai"), (job, seen) => {
  const client = new OpenAI({
    baseURL: job.base + "/v1", apiKey: job.key ?? "none", maxRetries: job.retries ?? 2, timeout: (job.timeout ?? 60) * 1000,
    defaultHeaders: job.headers,
  });
  return apis[job.api](client, job, seen);
});
