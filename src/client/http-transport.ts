/**
 * Calls over HTTP: one request per attempt. Works wherever there is a `fetch`, also within one process. At most
 * `UNDER_WAY_MAX` requests are under way; the others wait for their turn (turns.ts). Streams are not counted.
 */
import { ConcordError, type ErrorCode } from "../base/errors.ts";
import { queryText, routeOf } from "./http-routes.ts";
import type { ResolvedOptions } from "./options.ts";
import { onAbort } from "./signals.ts";
import { type Attempt, aborted, broken, type Exchange, errorOfProblem, late, type Transport } from "./transport.ts";
import { Turns } from "./turns.ts";

/** What was received, before it is an answer to something. */
interface Received {
  readonly status: number;
  /** Parsed JSON; null for an empty body. */
  readonly body: unknown;
  readonly clusterId: string | null;
  readonly revision: number | null;
}

const UNDER_WAY_MAX = 64;

export class HttpTransport implements Transport {
  readonly #options: ResolvedOptions;
  readonly #turns: Turns;

  constructor(options: ResolvedOptions) {
    this.#options = options;
    this.#turns = new Turns(options.clock, UNDER_WAY_MAX);
  }

  exchange(attempt: Attempt): Promise<Exchange> {
    const { leftMs: waitMs, params, signal } = attempt;
    return new Promise((resolve) => {
      const begin = async (leftMs: number) => {
        const timeoutMs = Math.max(1, Math.ceil(Math.min(attempt.timeoutMs, leftMs)));
        resolve(await this.#exchange({ ...attempt, timeoutMs }));
        this.#turns.leave();
      };
      this.#turns.ask({ chars: params.length, waitMs, signal, begin, refuse: resolve });
    });
  }

  /** Never rejects. */
  async #exchange(attempt: Attempt): Promise<Exchange> {
    const { timeoutMs, signal } = attempt;
    const controller = new AbortController();
    // Settled by whichever comes first; the `fetch` may ignore its signal.
    let end: (how: Exchange) => void = () => {};
    const ended = new Promise<Exchange>((resolve) => {
      end = (how) => {
        resolve(how);
        controller.abort();
      };
    });
    const cancel = this.#options.clock.after(timeoutMs, () => end(late(timeoutMs)));
    const unlisten = onAbort(signal, () => end(aborted()));
    try {
      return await Promise.race([this.#answer(attempt, controller.signal), ended]);
    } catch (cause) {
      return cause instanceof ConcordError ? { reply: null, error: cause } : broken(cause);
    } finally {
      cancel();
      unlisten();
    }
  }

  close(): void {
    // Nothing is held between calls; those under way are aborted by the caller.
  }

  async #answer(attempt: Attempt, signal: AbortSignal): Promise<Exchange> {
    const received = await this.#send(attempt, signal);
    const { clusterId, revision } = received;
    const error = received.status < 400 ? null : errorOf(received);
    if (attempt.method === "kv.get") {
      const result = recordResult(received, error);
      if (result !== null) return { reply: { result, clusterId, revision }, error: null };
    }
    return { reply: { result: received.body, clusterId, revision }, error };
  }

  async #send(attempt: Attempt, signal: AbortSignal): Promise<Received> {
    const { idempotency_key, idempotency_since, cluster_id, ...reading } = attempt.control;
    const { verb, path, query, body, isUntimed } = routeOf(attempt.method, attempt.params);
    const headers = requestHeaders(this.#options, "application/json");
    if (body !== undefined) headers.set("content-type", "application/json");
    if (idempotency_key !== undefined) headers.set("idempotency-key", idempotency_key);
    if (idempotency_since !== undefined) headers.set("idempotency-since", String(idempotency_since));
    if (cluster_id !== undefined) headers.set("concord-cluster", cluster_id);
    const target = path + queryText({ ...query, ...reading, ...(isUntimed ? {} : { timeout_ms: attempt.timeoutMs }) });
    const init = { method: verb, headers, signal, ...(body === undefined ? {} : { body }) };
    const response = await this.#options.fetch(new Request(this.#options.base + target, init));
    return await receive(response);
  }
}

export function requestHeaders(options: ResolvedOptions, accept: string): Headers {
  const headers = new Headers({ accept });
  if (options.token !== null) headers.set("authorization", `Bearer ${options.token}`);
  return headers;
}

/** Reads a reply to its end. */
async function receive(response: Response): Promise<Received> {
  const text = await response.text();
  const isJson = /^application\/(?:problem\+)?json\b/.test(response.headers.get("content-type") ?? "");
  const revision = response.headers.get("concord-revision");
  return {
    status: response.status,
    body: isJson && text !== "" ? JSON.parse(text) : null,
    clusterId: response.headers.get("concord-cluster"),
    revision: revision === null ? null : Number(revision),
  };
}

/** The error of a response that is none of success. Reads it to its end. */
export async function errorOfResponse(response: Response): Promise<ConcordError> {
  return errorOf(await receive(response));
}

function errorOf(received: Received): ConcordError {
  const error = errorOfProblem(received.body);
  if (error !== null) return error;
  const detail = `Something on the way answered with status ${received.status}.`;
  return new ConcordError({ code: codeOfStatus(received.status), reason: "no_problem_document", detail });
}

/** A record, or its absence: a 404 without a reason is about the record; a missing route, or a stranger's, has one. */
function recordResult(received: Received, error: ConcordError | null): object | null {
  const revision = received.revision ?? 0;
  if (error === null) return { record: received.body, revision };
  const isAbsent = error.code === "not_found" && error.body.reason === undefined;
  return isAbsent ? { record: null, revision } : null;
}

/** For replies that no node wrote. A gateway's 502, 503 or 504 does not say what the node has done. */
function codeOfStatus(status: number): ErrorCode {
  switch (status) {
    case 401:
      return "unauthenticated";
    case 403:
      return "forbidden";
    case 404:
      return "not_found";
    case 413:
      return "body_too_large";
    case 429:
      return "overloaded";
    default:
      return status >= 500 ? "timeout" : "invalid_request";
  }
}
