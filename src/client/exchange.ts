/**
 * One attempt: a request out, a reply or an error in.
 *
 * X1. Every failure becomes a ConcordError. If no answer came, the code is `timeout`: the request may have been carried
 *     out. Nothing is concluded from the text of an error.
 * X2. An attempt ends at its deadline even if the `fetch` ignores the signal.
 */
import { ConcordError, ERROR_CODES, type ErrorBody, type ErrorCode } from "../base/errors.ts";
import type { ResolvedOptions } from "./options.ts";

export interface Attempt {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Path and query behind the client's base. */
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
}

export interface Reply {
  readonly status: number;
  /** Parsed JSON; null for an empty body. */
  readonly body: unknown;
  readonly clusterId: string | null;
  readonly revision: number | null;
}

export type Exchange = { readonly reply: Reply | null; readonly error: ConcordError | null };

export async function exchange(options: ResolvedOptions, attempt: Attempt): Promise<Exchange> {
  if (attempt.signal?.aborted === true) return aborted();
  const controller = new AbortController();
  const ended = Promise.withResolvers<"late" | "aborted">();
  const end = (how: "late" | "aborted") => {
    ended.resolve(how);
    controller.abort();
  };
  const onAbort = () => end("aborted");
  const cancel = options.clock.after(attempt.timeoutMs, () => end("late"));
  attempt.signal?.addEventListener("abort", onAbort, { once: true });
  try {
    const outcome = await Promise.race([send(options, attempt, controller.signal), ended.promise]);
    if (outcome === "late") return failed("timeout", "late", `No answer within ${attempt.timeoutMs} ms.`);
    if (outcome === "aborted") return aborted();
    return { reply: outcome, error: outcome.status < 400 ? null : errorOf(outcome) };
  } catch (cause) {
    return failed("timeout", "connection", "The connection broke before an answer came.", cause);
  } finally {
    cancel();
    attempt.signal?.removeEventListener("abort", onAbort);
  }
}

function aborted(): Exchange {
  return failed("timeout", "aborted", "The caller gave the call up.");
}

function failed(code: ErrorCode, reason: string, detail: string, cause?: unknown): Exchange {
  return { reply: null, error: new ConcordError({ code, reason, detail }, { cause }) };
}

async function send(options: ResolvedOptions, attempt: Attempt, signal: AbortSignal): Promise<Reply> {
  const { method, body } = attempt;
  const headers = new Headers(attempt.headers);
  headers.set("accept", "application/json");
  if (options.token !== null) headers.set("authorization", `Bearer ${options.token}`);
  if (body !== null) headers.set("content-type", "application/json");
  const init = body === null ? { method, headers, signal } : { method, headers, signal, body };
  const response = await options.fetch(new Request(options.base + attempt.target, init));
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

function errorOf(reply: Reply): ConcordError {
  const problem = reply.body;
  if (typeof problem === "object" && problem !== null && "code" in problem && typeof problem.code === "string") {
    return new ConcordError(bodyOf(problem as Problem));
  }
  return new ConcordError({
    code: codeOfStatus(reply.status),
    reason: "no_problem_document",
    detail: `Something on the way answered with status ${reply.status}.`,
  });
}

/** A problem document of this version or a later one. */
type Problem = Omit<ErrorBody, "code"> & { readonly code: string; readonly retry?: unknown };

function bodyOf(problem: Problem): ErrorBody {
  const { reason, leader, revision, compact_revision } = problem;
  const known = isKnown(problem.code);
  return {
    code: known ?? codeOfRetry(problem.retry),
    detail: String(problem.detail),
    ...(known === null ? { reason: problem.code } : reason === undefined ? {} : { reason }),
    ...(leader === undefined ? {} : { leader }),
    ...(revision === undefined ? {} : { revision }),
    ...(compact_revision === undefined ? {} : { compact_revision }),
  };
}

function isKnown(code: string): ErrorCode | null {
  return Object.hasOwn(ERROR_CODES, code) ? (code as ErrorCode) : null;
}

/** A code of a later version keeps its meaning for retries; its name becomes the reason. */
function codeOfRetry(retry: unknown): ErrorCode {
  if (retry === "yes") return "overloaded";
  return retry === "same-request" ? "internal" : "invalid_request";
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
