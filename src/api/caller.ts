/**
 * One call of a client, whatever carries it: an HTTP request or a message of a session. Checks what every call may say
 * of itself, runs commands and queries on the backend, and tells the carrier which revision it has seen.
 *
 * C1. A request is validated before the backend sees it: nothing invalid is ever logged.
 * C2. The principal comes from the Worker's internal header or from the host's options, never from the outside.
 *
 * Must not: know of HTTP. The operations (`*-operations.ts`) stand on this file alone.
 */
import { assert } from "../base/assert.ts";
import { ConcordError, type ErrorCode } from "../base/errors.ts";
import { IDEMPOTENCY_KEY_BYTES_MAX } from "../base/limits.ts";
import { canonicalCommand } from "../kv/canonical.ts";
import type { Command, CommandResult, Idempotency, Query, QueryResult, RestoreCommand } from "../kv/command.ts";
import { admitCommand, admitQuery, type Sugar } from "./admission.ts";
import type { Backend, Consistency, ReadOptions } from "./backend.ts";
import { CALL_TIMEOUT_MS_DEFAULT, CALL_TIMEOUT_MS_MAX } from "./limits.ts";
import { refusal } from "./problem.ts";

export type LogLevel = "info" | "warn" | "error";
export type LogFields = Readonly<Record<string, string | number | boolean | null>>;

/** What the surfaces of one node share. */
export interface ApiContext {
  readonly backend: Backend;
  readonly log: (level: LogLevel, message: string, fields: LogFields) => void;
  /** The caller when no internal header names one; absent: such a request is refused. */
  readonly principal?: string;
}

export interface Caller {
  readonly principal: string;
  readonly timeoutMs: number;
  /** Of reads, like `minRevision`; a write that may not name them checks that itself. */
  readonly consistency: Consistency;
  readonly minRevision: number | null;
  /** Null: the write is not under a key. */
  readonly idempotency: CallerIdempotency | null;
  /** Called with the revision of each answer of the state machine, be it a result or an error. */
  noteRevision(revision: number): void;
}

export interface CallerIdempotency {
  readonly key: string;
  readonly since: number | null;
}

/** What a call says of itself, before any check. Absent and undefined are the same. */
export interface CallerWishes {
  readonly principal: string;
  readonly timeoutMs?: number | undefined;
  readonly consistency?: Consistency | undefined;
  readonly minRevision?: number | undefined;
  readonly idempotencyKey?: string | undefined;
  readonly idempotencySince?: number | undefined;
  readonly noteRevision: (revision: number) => void;
}

/** @param code the family of the operation, for errors. @throws ConcordError of that family or `invalid_request`. */
export function createCaller(wishes: CallerWishes, code: ErrorCode): Caller {
  const { principal, timeoutMs = CALL_TIMEOUT_MS_DEFAULT, consistency = "linearizable", minRevision } = wishes;
  if (!Number.isInteger(timeoutMs) || timeoutMs < 1 || timeoutMs > CALL_TIMEOUT_MS_MAX) {
    const detail = `timeout_ms must be 1 to ${CALL_TIMEOUT_MS_MAX}, is ${timeoutMs}.`;
    throw refusal(code, "invalid_timeout_ms", detail);
  }
  if (minRevision !== undefined && !isRevision(minRevision)) {
    throw refusal(code, "invalid_min_revision", "min_revision must be a revision: a whole number from 0.");
  }
  return {
    principal,
    timeoutMs,
    consistency,
    minRevision: minRevision ?? null,
    idempotency: idempotencyWish(wishes.idempotencyKey, wishes.idempotencySince),
    noteRevision: wishes.noteRevision,
  };
}

function idempotencyWish(key: string | undefined, since: number | undefined): CallerIdempotency | null {
  if (since !== undefined && (!isRevision(since) || key === undefined)) {
    const detail = "idempotency-since must be a revision, and comes with an idempotency key alone.";
    throw refusal("invalid_request", "idempotency_since", detail);
  }
  if (key === undefined) return null;
  return { key: checkedIdempotencyKey(key), since: since ?? null };
}

export function checkedIdempotencyKey(key: string): string {
  if (key.length < 1 || key.length > IDEMPOTENCY_KEY_BYTES_MAX) {
    const detail = `An idempotency key has 1 to ${IDEMPOTENCY_KEY_BYTES_MAX} characters; this one has ${key.length}.`;
    throw refusal("invalid_request", "idempotency_key_size", detail);
  }
  // A header cannot carry the rest the same way through every client.
  if (/^[\x20-\x7e]+$/.test(key)) return key;
  throw refusal("invalid_request", "idempotency_key", "An idempotency key is printable ASCII.");
}

function isRevision(number: number): boolean {
  return Number.isSafeInteger(number) && number >= 0;
}

/**
 * Revisions and positions of one cluster mean nothing in another, and its keys may be others': a request that names a
 * cluster is answered by that one alone, whatever it asks.
 */
export function checkClusterId(context: ApiContext, named: string | undefined): void {
  const { clusterId } = context.backend.position();
  if (named === undefined || clusterId === null || named === clusterId) return;
  throw new ConcordError({
    code: "cluster_changed",
    detail: `The request belongs to cluster ${JSON.stringify(named.slice(0, 80))}, this is ${JSON.stringify(clusterId)}.`,
  });
}

/** What clients may have logged; the rest is proposed by leaders alone, from what they know themselves. */
export type ClientCommand = Exclude<
  Command,
  RestoreCommand | { readonly kind: "lease_expire" | "lease_floor" | "compact_remove" }
>;

/** Runs a write and answers its result. @throws ConcordError for validation, apply and cluster errors alike. */
export async function execute<Kind extends ClientCommand["kind"]>(
  context: ApiContext,
  caller: Caller,
  command: ClientCommand & { readonly kind: Kind },
  sugar?: Sugar,
): Promise<{ readonly result: Extract<CommandResult, { kind: Kind }>; readonly revision: number }> {
  admitCommand(command, sugar);
  const idempotency = await idempotencyOf(caller, command);
  const outcome = await context.backend.execute(command, idempotency, { timeoutMs: caller.timeoutMs });
  caller.noteRevision(outcome.revision);
  if (!outcome.ok) throw new ConcordError({ revision: outcome.revision, ...outcome.error });
  assert(outcome.result.kind === command.kind, `a ${command.kind} answered ${outcome.result.kind}`);
  return { result: outcome.result as Extract<CommandResult, { kind: Kind }>, revision: outcome.revision };
}

/**
 * Runs a read and answers its result. @throws ConcordError as {@link execute}.
 * @param options what differs from what the caller asked for.
 */
export async function query<Kind extends QueryResult["kind"]>(
  context: ApiContext,
  caller: Caller,
  asked: Query & { readonly kind: Kind },
  options: ReadOptions = readOptionsOf(caller),
): Promise<{ readonly result: Extract<QueryResult, { kind: Kind }>; readonly revision: number }> {
  admitQuery(asked);
  const outcome = await context.backend.query(asked, options);
  caller.noteRevision(outcome.revision);
  if (!outcome.ok) throw new ConcordError({ revision: outcome.revision, ...outcome.error });
  const least = options.minRevision ?? 0;
  if (options.consistency === "linearizable" && context.backend.position().revision < least) {
    const detail = `min_revision ${least} lies in the future; the newest revision is ${outcome.revision}.`;
    throw new ConcordError({ code: "revision_in_future", reason: "min_revision", detail, revision: outcome.revision });
  }
  assert(outcome.result.kind === asked.kind, `a query ${asked.kind} answered ${outcome.result.kind}`);
  return { result: outcome.result as Extract<QueryResult, { kind: Kind }>, revision: outcome.revision };
}

export function readOptionsOf(caller: Caller): ReadOptions {
  const { consistency, timeoutMs, minRevision } = caller;
  return minRevision === null ? { consistency, timeoutMs } : { consistency, timeoutMs, minRevision };
}

/** A later page on a node that lags behind waits for the revision that its first page was read at. */
export function readAtLeast(caller: Caller, revision: number | undefined): ReadOptions {
  const options = readOptionsOf(caller);
  if (revision === undefined || options.consistency === "linearizable") return options;
  return { ...options, minRevision: Math.max(revision, options.minRevision ?? 0) };
}

async function idempotencyOf(caller: Caller, command: Command): Promise<Idempotency | null> {
  if (caller.idempotency === null) return null;
  const { key, since } = caller.idempotency;
  const hash = await sha256Hex(canonicalCommand(command));
  const idempotency = { scope: caller.principal, key, hash };
  return since === null ? idempotency : { ...idempotency, since };
}

async function sha256Hex(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
