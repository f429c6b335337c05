/**
 * The way of a request into the cluster: what the Worker is for a deployed one, within the process. The leader is asked
 * first, any node where any will do, or the one node that the client is bound to. There is no authentication.
 *
 * W1. Failing to reach a node is what a network does: the promise rejects, and the client decides what that means.
 * W2. A stream is cut when its node ends, when its request is aborted and when its reader cancels it, on both sides.
 */
import type { NodeInstance } from "./node-instance.ts";
import type { Turnstile } from "./turnstile.ts";

export interface GatewayParts {
  readonly turnstile: Turnstile;
  /** Null: the node to ask is down, or all are. */
  readonly pick: (choice: { readonly node: number | null; readonly leaderFirst: boolean }) => NodeInstance | null;
}

export class Gateway {
  readonly #parts: GatewayParts;
  #arriving = 0;

  constructor(parts: GatewayParts) {
    this.#parts = parts;
  }

  /** Whether a request has been made that no node knows of yet. */
  get isBusy(): boolean {
    return this.#arriving > 0 || this.#parts.turnstile.isBusy;
  }

  /** @param node the one to ask; null for a choice. */
  async fetch(request: Request, node: number | null): Promise<Response> {
    const inner = await this.#arrive(request);
    const pass = await this.#parts.turnstile.enter();
    try {
      request.signal.throwIfAborted();
      const instance = this.#parts.pick({ node, leaderFirst: isForLeader(request) });
      if (instance === null) throw new TypeError(node === null ? "no node is up" : `node ${node} is down`);
      return await answerOf(instance, inner, request.signal);
    } finally {
      pass();
    }
  }

  /** The request as its node sees it: whole. */
  async #arrive(request: Request): Promise<Request> {
    this.#arriving += 1;
    try {
      const { method } = request;
      const headers = new Headers(request.headers);
      headers.delete("authorization");
      const body = method === "GET" || method === "HEAD" ? null : await request.arrayBuffer();
      return new Request(request.url, body === null ? { method, headers } : { method, headers, body });
    } finally {
      this.#arriving -= 1;
    }
  }
}

/** Streams, and reads that take the state of any node, spread over all of them. */
function isForLeader(request: Request): boolean {
  const isStream = request.headers.get("accept")?.includes("text/event-stream") === true;
  return !isStream && !request.url.includes("consistency=serializable");
}

async function answerOf(instance: NodeInstance, request: Request, signal: AbortSignal): Promise<Response> {
  const response = await untilAborted(instance.handle(request), signal);
  const isStream = response.headers.get("content-type") === "text/event-stream";
  if (response.body === null || !isStream) return response;
  return new Response(cuttable(response.body, instance, signal), response);
}

function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** W2. Holds nothing back: a chunk is taken from the node when the client asks for one. */
function cuttable(
  source: ReadableStream<Uint8Array>,
  instance: NodeInstance,
  signal: AbortSignal,
): ReadableStream<Uint8Array> {
  const reader = source.getReader();
  let isOpen = true;
  let release: () => void = () => {};
  const end = (): boolean => {
    if (!isOpen) return false;
    isOpen = false;
    release();
    return true;
  };
  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        const cut = (error: unknown): void => {
          if (!end()) return;
          controller.error(error);
          // The node's side learns of it here; an error of its own would say nothing new.
          reader.cancel(error).catch(() => {});
        };
        const forget = instance.onEnd(cut);
        const onAbort = (): void => cut(signal.reason);
        signal.addEventListener("abort", onAbort, { once: true });
        release = () => {
          forget();
          signal.removeEventListener("abort", onAbort);
        };
      },
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (!isOpen) return;
          if (!done) controller.enqueue(value);
          else if (end()) controller.close();
        } catch (error) {
          if (end()) controller.error(error);
        }
      },
      async cancel(reason) {
        end();
        await reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
}
