// What the clients in JavaScript have in common: jobs come as lines of JSON on stdin, what was seen of each goes to stdout.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

export class Seen {
  constructor(job) {
    Object.assign(this, { id: job.id, first: null, text: "", finish: null, calls: [], usage: null, engine: null, error: null, chunks: 0, value: null });
    this.begin = performance.now();
  }

  add(text) {
    if (!text) return;
    this.first ??= (performance.now() - this.begin) / 1000;
    this.text += text;
    this.chunks++;
  }

  fail(e) {
    if (this.error) { // ai tells an error as a part of the stream, and may throw another after it
      this.error.then = e?.name ?? typeof e;
      return;
    }
    const last = e.lastError ?? e; // ai keeps the last of its tries
    const name = (x) => x?.constructor?.name === "Error" ? x.name : (x?.name?.startsWith("AI_") ? x.name : x?.constructor?.name ?? typeof x);
    let body = last.error ?? last.data?.error ?? {};
    if (typeof last.responseBody === "string") {
      try { body = JSON.parse(last.responseBody).error ?? body; } catch { /* no JSON */ }
    }
    const header = (name) => last.headers?.get?.(name) ?? last.responseHeaders?.[name];
    this.error = {
      told: ["retry-after", "retry-after-ms", "x-should-retry"].filter((name) => header(name) != null).map((name) => `${name}: ${header(name)}`),
      class: last === e ? name(e) : `${name(e)}(${name(last)})`, status: last.status ?? last.statusCode ?? null,
      code: body?.code ?? last.code ?? null, type: body?.type ?? last.type ?? null, message: String(e.message ?? body?.message ?? JSON.stringify(e)).slice(0, 300),
    };
  }

  line() {
    const { begin, ...rest } = this;
    return JSON.stringify({ ...rest, seconds: (performance.now() - begin) / 1000 });
  }
}

export function versionOf(name) {
  const path = createRequire(import.meta.url).resolve.paths(name).map((p) => `${p}/${name}/package.json`);
  for (const p of path) {
    try { return createRequire(import.meta.url)(p).version; } catch { /* the next */ }
  }
  return "?";
}

export function serve(sdk, version, work) {
  const say = (line) => process.stdout.write(line + "\n");
  say(JSON.stringify({ sdk, version, runtime: "Node " + process.versions.node }));
  createInterface({ input: process.stdin }).on("line", async (line) => {
    const job = JSON.parse(line);
    const seen = new Seen(job);
    try {
      await work(job, seen);
    } catch (e) {
      seen.fail(e);
    }
    say(seen.line());
  }).on("close", () => process.exit(0));
}

// A rejection that nobody awaits ends a user's process: it is told, not swallowed.
process.on("unhandledRejection", (e) => {
  process.stderr.write(`unhandled rejection: ${e?.stack ?? e}\n`);
});
