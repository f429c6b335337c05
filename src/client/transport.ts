/**
 * What carries calls: the interface of the two transports, and how an answer that is no result becomes an error.
 *
 * T1. Every failure becomes a ConcordError; nothing is concluded from the text of an error.
 * T2. `timeout` says that the request may have been carried out. A request that was never handed to the network ends in
 *     an error that may be repeated freely instead (`overloaded`, reason `not_sent`).
 * T3. An attempt ends at its deadline and at its signal, whatever the network does. Its time runs from when it is sent;
 *     while it waits in this client for its turn, only the time of the whole call does.
 */
import { ConcordError, ERROR_CODES, type ErrorBody, type ErrorCode } from "../base/errors.ts";
import type { Method } from "./operations.ts";

/** What travels beside the parameters of an operation, by its names on the wire. */
export interface Control {
  readonly idempotency_key?: string;
  /** A revision known before the first attempt. */
  readonly idempotency_since?: number;
  readonly consistency?: "serializable";
  readonly min_revision?: number;
  readonly cluster_id?: string;
}

/** One attempt of a call. */
export interface Attempt {
  readonly method: Method;
  /** The parameters as JSON text, fixed before the first attempt: a retry is the same request to the byte. */
  readonly params: string;
  readonly control: Control;
  /** From when it is sent. */
  readonly timeoutMs: number;
  /** The whole call's, from now on. */
  readonly leftMs: number;
  readonly signal: AbortSignal;
  /** 1 for the first one; those that ended by load do not count, for it is no fault of the way that they took. */
  readonly attempt: number;
}

export interface Reply {
  readonly result: unknown;
  readonly clusterId: string | null;
  /** Of the node's state when it answered, or less. */
  readonly revision: number | null;
}

/** An error's reply is what it still told of the cluster. */
export type Exchange = { readonly reply: Reply; readonly error: null } | FailedExchange;

export interface FailedExchange {
  readonly reply: Reply | null;
  readonly error: ConcordError;
  /** Others are answered meanwhile: there are too many of them, and no other way would be better. */
  readonly isOfLoad?: boolean;
}

export interface Transport {
  /** Never rejects. */
  exchange(attempt: Attempt): Promise<Exchange>;
  close(): void;
}

export function failed(code: ErrorCode, reason: string, detail: string, cause?: unknown): FailedExchange {
  return { reply: null, error: new ConcordError({ code, reason, detail }, cause === undefined ? {} : { cause }) };
}

export function notSent(detail: string): Exchange {
  return failed("overloaded", "not_sent", detail);
}

export function failedByLoad(reason: string, detail: string): Exchange {
  return { ...failed("overloaded", reason, detail), isOfLoad: true };
}

export function aborted(): Exchange {
  return failed("timeout", "aborted", "The caller gave the call up.");
}

export function late(timeoutMs: number): FailedExchange {
  return failed("timeout", "late", `No answer within ${timeoutMs} ms.`);
}

export function broken(cause?: unknown): Exchange {
  return failed("timeout", "connection", "The connection broke before an answer came.", cause);
}

/** The error that a problem document says; null for anything that is none. */
export function errorOfProblem(problem: unknown): ConcordError | null {
  if (typeof problem !== "object" || problem === null || !("code" in problem) || typeof problem.code !== "string") {
    return null;
  }
  return new ConcordError(bodyOf(problem as Problem));
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
