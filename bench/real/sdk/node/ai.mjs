// Vercel's ai with @ai-sdk/openai. It takes prompts, tools and schemas in its own words: they are made from the body of the job.
import { createOpenAI } from "@ai-sdk/openai";
import { embedMany, generateObject, generateText, jsonSchema, streamObject, streamText, tool } from "ai";
import { serve, versionOf } from "./pipe.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const counts = (u) => u && ({ prompt: u.inputTokens ?? null, answer: u.outputTokens ?? null, cached: u.inputTokenDetails?.cacheReadTokens ?? u.cachedInputTokens ?? null });
const names = (list) => list.map((c) => [c.toolName, JSON.stringify(c.input)]);

function message(m) {
  if (m.role === "tool") {
    return { role: "tool", content: [{ type: "tool-result", toolCallId: m.tool_call_id, toolName: m.name, output: { type: "text", value: m.content } }] };
  }
  if (m.tool_calls) {
    return {
      role: "assistant", content: m.tool_calls.map((c) => (
        { type: "tool-call", toolCallId: c.id, toolName: c.function.name, input: JSON.parse(c.function.arguments) })),
    };
  }
  return { role: m.role, content: m.content };
}

function settings(model, job, signal) {
  const b = job.body;
  const tools = b.tools && Object.fromEntries(b.tools.map((t) => {
    const f = t.function ?? t;
    return [f.name, tool({ description: f.description, inputSchema: jsonSchema(f.parameters) })];
  }));
  return {
    model, tools, toolChoice: b.tool_choice, messages: (b.messages ?? [{ role: "user", content: b.input }]).map(message), temperature: b.temperature,
    maxOutputTokens: b.max_tokens ?? b.max_output_tokens, maxRetries: job.retries ?? 2, abortSignal: signal, headers: job.headers,
    providerOptions: b.logit_bias && { openai: { logitBias: b.logit_bias } },
  };
}

async function text(model, job, seen, limit) {
  const leave = new AbortController();
  const asked = settings(model, job, AbortSignal.any([leave.signal, limit]));
  if (!job.body.stream) {
    const r = await generateText(asked);
    seen.add(r.text);
    seen.finish = r.finishReason;
    seen.usage = counts(r.usage);
    seen.calls = names(r.toolCalls);
    seen.engine = r.response.headers["x-penstock-engine"];
    return;
  }
  const r = streamText({ ...asked, onError: () => {} }); // errors are parts of the stream, and are read there
  for await (const part of r.fullStream) {
    if (part.type === "text-delta") seen.add(part.text);
    if (part.type === "error") seen.fail(part.error);
    if (part.type === "abort" && !leave.signal.aborted) seen.error ??= { class: "abort part", status: null, code: null, type: null, message: "" };
    if (part.type === "tool-call") seen.calls.push(...names([part]));
    if (part.type === "finish") {
      seen.finish = part.finishReason;
      seen.usage = counts(part.totalUsage);
    }
    if (seen.chunks === job.leave_after) leave.abort(); // what has come already is still read
  }
  if (!seen.error && !leave.signal.aborted) seen.engine = (await r.response).headers["x-penstock-engine"];
}

async function object(model, job, seen, limit) {
  const asked = { ...settings(model, job, limit), tools: undefined, toolChoice: undefined, schema: jsonSchema(job.body.response_format.json_schema.schema) };
  if (!job.body.stream) {
    const r = await generateObject(asked);
    seen.value = r.object;
    seen.usage = counts(r.usage);
    seen.finish = r.finishReason;
    seen.engine = r.response.headers["x-penstock-engine"];
  } else {
    const r = streamObject({ ...asked, onError: ({ error }) => seen.fail(error) });
    for await (const part of r.partialObjectStream) seen.chunks++;
    seen.value = await r.object;
    seen.finish = await r.finishReason;
    seen.engine = (await r.response).headers["x-penstock-engine"];
  }
  seen.text = JSON.stringify(seen.value);
}

async function embeddings(provider, job, seen, limit) {
  const r = await embedMany({ model: provider.embedding(job.body.model), values: [].concat(job.body.input), maxRetries: job.retries ?? 2, abortSignal: limit });
  seen.value = r.embeddings;
  seen.usage = { prompt: r.usage.tokens, answer: null, cached: null };
  seen.engine = r.responses?.[0]?.headers?.["x-penstock-engine"];
}

serve("ai", `${versionOf("ai")} + @ai-sdk/openai ${versionOf("@ai-sdk/openai")}`, (job, seen) => {
  const provider = createOpenAI({ baseURL: job.base + "/v1", apiKey: job.key ?? "none" });
  const limit = AbortSignal.timeout((job.timeout ?? 60) * 1000);
  if (job.api === "embeddings") return embeddings(provider, job, seen, limit);
  const model = { chat: provider.chat, completions: provider.completion, responses: provider.responses }[job.api](job.body.model);
  return (job.body.response_format ? object : text)(model, job, seen, limit);
});
