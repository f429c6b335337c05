/** A server that answers by a script, and a clock that moves only when the client sleeps. */
import type { ClientClock, ConnectOptions } from "../../src/client/index.ts";
import { Concord } from "../../src/client/index.ts";

/** What happens to one request. */
export type Step =
  /** The answer; `revision` and `cluster` become its headers. */
  | { readonly status: number; readonly body?: unknown; readonly revision?: number; readonly cluster?: string }
  /** The connection breaks. */
  | "break"
  /** No answer ever; the attempt's deadline passes. */
  | "silence";

export interface Received {
  readonly method: string;
  readonly path: string;
  readonly parameters: URLSearchParams;
  readonly headers: Headers;
  readonly body: unknown;
}

export class ScriptedServer {
  readonly received: Received[] = [];
  readonly slept: number[] = [];
  readonly clusterChanges: { readonly from: string; readonly to: string }[] = [];
  nowMs = 1_000;
  readonly #steps: Step[];
  readonly #timers: { atMs: number; callback: () => void }[] = [];

  constructor(steps: readonly Step[]) {
    this.#steps = [...steps];
  }

  get isDone(): boolean {
    return this.#steps.length === 0;
  }

  readonly clock: ClientClock = {
    nowMs: () => this.nowMs,
    sleep: async (delayMs) => {
      this.slept.push(delayMs);
      this.nowMs += delayMs;
    },
    after: (delayMs, callback) => {
      const timer = { atMs: this.nowMs + delayMs, callback };
      this.#timers.push(timer);
      return () => {
        const position = this.#timers.indexOf(timer);
        if (position >= 0) this.#timers.splice(position, 1);
      };
    },
  };

  readonly fetch = async (request: Request): Promise<Response> => {
    const url = new URL(request.url);
    const text = await request.text();
    this.received.push({
      method: request.method,
      path: url.pathname,
      parameters: url.searchParams,
      headers: request.headers,
      body: text === "" ? null : JSON.parse(text),
    });
    const step = this.#steps.shift();
    if (step === undefined) throw new Error(`the script has no answer to ${request.method} ${request.url}`);
    if (step === "break") throw new TypeError("fetch failed");
    if (step === "silence") return await this.#passDeadline();
    const headers = new Headers({ "concord-cluster": step.cluster ?? "c-1" });
    if (step.revision !== undefined) headers.set("concord-revision", String(step.revision));
    if (step.body === undefined) return new Response("gateway", { status: step.status, headers });
    headers.set("content-type", step.status < 400 ? "application/json" : "application/problem+json");
    return new Response(JSON.stringify(step.body), { status: step.status, headers });
  };

  #passDeadline(): Promise<Response> {
    const due = this.#timers.splice(0);
    for (const { atMs, callback } of due) {
      this.nowMs = Math.max(this.nowMs, atMs);
      callback();
    }
    return new Promise(() => {});
  }
}

export function connect(steps: readonly Step[], options: Partial<ConnectOptions> = {}) {
  const server = new ScriptedServer(steps);
  const concord = Concord.connect({
    url: "http://server.example",
    fetch: server.fetch,
    clock: server.clock,
    random: () => 0.5,
    onClusterChanged: (change) => server.clusterChanges.push(change),
    ...options,
  });
  return { server, concord };
}

/** A problem document of the server, and the reply that carries it. */
export function problem(status: number, code: string, retry: string, more: object = {}): Step {
  return {
    status,
    body: { type: "urn:x", title: "T", status, detail: "It is so.", code, retry, ...more },
    revision: 0,
  };
}
