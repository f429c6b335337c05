/**
 * What every route does around its own work: who calls, how long, under which idempotency key; running a command or a
 * query on the backend; remembering the revision for the reply's headers.
 *
 * C1. A request is validated before the backend sees it: nothing invalid is ever logged.
 * C2. The principal comes from the Worker's internal header or from the host's options, never from the outside.
 */
import type { Context } from "hono";
import { assert } from "../base/assert.ts";
import { ConcordError, type ErrorCode } from "../base/errors.ts";
import { IDEMPOTENCY_KEY_BYTES_MAX } from "../base/limits.ts";
import { canonicalCommand } from "../kv/canonical.ts";
import type { Command, CommandResult, Idempotency, Query, QueryResult } from "../kv/command.ts";
import { admitCommand, admitQuery, type Sugar } from "./admission.ts";
import type { Backend, Consistency, ReadOptions } from "./backend.ts";
import { CALL_TIMEOUT_MS_DEFAULT, CALL_TIMEOUT_MS_MAX } from "./limits.ts";
import { choiceOf, integerOf, type Parameters, readParameters } from "./parameters.ts";
import { refusal } from "./problem.ts";

export type LogLevel = "info" | "warn" | "error";
export type LogFields = Readonly<Record<string, string | number | boolean | null>>;

/** What the routes share. */
export interface ApiContext {
  readonly backend: Backend;
  /** Wall clock, only for the remaining time of leases. */
  readonly nowMs: () => number;
  readonly log: (level: LogLevel, message: string, fields: LogFields) => void;
  /** The caller when no internal header names one; absent: such a request is refused. */
  readonly principal?: string;
}

/** Set by whoever answers from the state machine, for the headers of the reply, be it a result or an error. */
export type ApiEnvironment = { Variables: { revision: number | undefined; etag: string | undefined } };
export type ApiCall = Context<ApiEnvironment>;

/** Set by the Worker, stripped from outside requests: nobody else speaks for a principal or opens internal routes. */
export const PRINCIPAL_HEADER = "x-concord-principal";
export const INTERNAL_HEADER = "x-concord-internal";
/** `{cluster}/{node}`: the object's own name, for runtimes that do not know it. */
export const OBJECT_HEADER = "x-concord-object";

export const WRITE_PARAMETERS = ["timeout_ms"] as const;
export const READ_PARAMETERS = ["consistency", "min_revision", "timeout_ms"] as const;

export function principalOf(context: ApiContext, call: ApiCall): string {
  const principal = call.req.header(PRINCIPAL_HEADER) ?? context.principal;
  if (principal === undefined || principal === "") {
    throw new ConcordError({ code: "unauthenticated", reason: "no_principal", detail: "The request names no caller." });
  }
  return principal;
}

export function parametersOf(call: ApiCall, code: ErrorCode, allowed: readonly string[]): Parameters {
  return readParameters(call.req.url, code, allowed);
}

function timeoutMsOf(parameters: Parameters): number {
  const timeoutMs = integerOf(parameters, "timeout_ms") ?? CALL_TIMEOUT_MS_DEFAULT;
  if (timeoutMs >= 1 && timeoutMs <= CALL_TIMEOUT_MS_MAX) return timeoutMs;
  throw refusal(
    parameters.code,
    "invalid_timeout_ms",
    `timeout_ms must be 1 to ${CALL_TIMEOUT_MS_MAX}, is ${timeoutMs}.`,
  );
}

export function readOptionsOf(context: ApiContext, call: ApiCall, parameters: Parameters): ReadOptions {
  const consistency: Consistency =
    choiceOf(parameters, "consistency", ["linearizable", "serializable"]) ?? "linearizable";
  const minRevision = integerOf(parameters, "min_revision");
  const timeoutMs = timeoutMsOf(parameters);
  if (minRevision === undefined) return { consistency, timeoutMs };
  if (minRevision < 0) throw refusal(parameters.code, "invalid_min_revision", "min_revision must not be negative.");
  checkClusterId(context, call);
  return { consistency, timeoutMs, minRevision };
}

/** A later page on a node that lags behind waits for the revision that its first page was read at. */
export function atLeast(options: ReadOptions, revision: number | undefined): ReadOptions {
  if (revision === undefined || options.consistency === "linearizable") return options;
  return { ...options, minRevision: Math.max(revision, options.minRevision ?? 0) };
}

/** A revision of one cluster means nothing in another: whoever names both must name this one. */
function checkClusterId(context: ApiContext, call: ApiCall): void {
  const named = call.req.header("concord-cluster");
  const { clusterId } = context.backend.position();
  if (named === undefined || clusterId === null || named === clusterId) return;
  throw new ConcordError({
    code: "cluster_changed",
    detail: `min_revision belongs to cluster ${JSON.stringify(named)}, this is ${JSON.stringify(clusterId)}.`,
  });
}

/** Runs a write and answers its result. @throws ConcordError for validation, apply and cluster errors alike. */
export async function execute<Kind extends CommandResult["kind"]>(
  context: ApiContext,
  call: ApiCall,
  command: Command & { readonly kind: Kind },
  options: {
    readonly parameters: Parameters;
    readonly sugar?: Sugar;
  },
): Promise<{ readonly result: Extract<CommandResult, { kind: Kind }>; readonly revision: number }> {
  const principal = principalOf(context, call);
  const timeoutMs = timeoutMsOf(options.parameters);
  const key = idempotencyKeyOf(call);
  admitCommand(command, options.sugar);
  const idempotency = key === null ? null : await idempotencyOf(call, key, principal, command);
  const outcome = await context.backend.execute(command, idempotency, { timeoutMs });
  call.set("revision", outcome.revision);
  if (!outcome.ok) throw new ConcordError({ revision: outcome.revision, ...outcome.error });
  assert(outcome.result.kind === command.kind, `a ${command.kind} answered ${outcome.result.kind}`);
  return { result: outcome.result as Extract<CommandResult, { kind: Kind }>, revision: outcome.revision };
}

/** Runs a read and answers its result. @throws ConcordError as {@link execute}. */
export async function query<Kind extends QueryResult["kind"]>(
  context: ApiContext,
  call: ApiCall,
  asked: Query & { readonly kind: Kind },
  options: ReadOptions,
): Promise<{ readonly result: Extract<QueryResult, { kind: Kind }>; readonly revision: number }> {
  principalOf(context, call);
  admitQuery(asked);
  const outcome = await context.backend.query(asked, options);
  call.set("revision", outcome.revision);
  if (!outcome.ok) throw new ConcordError({ revision: outcome.revision, ...outcome.error });
  const least = options.minRevision ?? 0;
  if (options.consistency === "linearizable" && context.backend.position().revision < least) {
    const detail = `min_revision ${least} lies in the future; the newest revision is ${outcome.revision}.`;
    throw new ConcordError({ code: "revision_in_future", reason: "min_revision", detail, revision: outcome.revision });
  }
  assert(outcome.result.kind === asked.kind, `a query ${asked.kind} answered ${outcome.result.kind}`);
  return { result: outcome.result as Extract<QueryResult, { kind: Kind }>, revision: outcome.revision };
}

/** Null without the header. */
export function idempotencyKeyOf(call: ApiCall): string | null {
  const key = call.req.header("idempotency-key");
  return key === undefined ? null : checkedIdempotencyKey(key);
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

async function idempotencyOf(call: ApiCall, key: string, scope: string, command: Command): Promise<Idempotency> {
  const since = call.req.header("idempotency-since");
  const hash = await sha256Hex(canonicalCommand(command));
  if (since === undefined) return { scope, key, hash };
  const revision = /^[0-9]{1,16}$/.test(since) ? Number(since) : Number.NaN;
  if (!Number.isSafeInteger(revision)) {
    throw refusal("invalid_request", "idempotency_since", "idempotency-since must be a revision.");
  }
  return { scope, key, hash, since: revision };
}

async function sha256Hex(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
