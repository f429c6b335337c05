/**
 * Results kept by (scope, key), so that a repeated request gets the first answer instead of a second effect
 * (design 01 §2). In the state, not in a leader's memory: it is decided when the entry is applied (S27).
 *
 * I1. Every outcome of a command that ran is kept: success, failed compare, and apply errors (the same request gets the
 * same answer). Not kept: a conflict or an expired key, which did not run.
 * I2. Results leave strictly in the order in which they came; when one leaves depends on the log alone: it is both
 * IDEMPOTENCY_KEPT_MS_MIN of log time and IDEMPOTENCY_KEPT_REVISIONS_MIN revisions old, or the table is over its
 * count or bytes.
 * I3. `idemFloor` only grows. A request under an evicted key has `since` < idemFloor: the floor is one above the
 * revision before the evicted command, so it is also above the `since` of a command that moved no revision.
 */
import { bytesFromText, utf8Length } from "../base/bytes.ts";
import {
  IDEMPOTENCY_BYTES_MAX,
  IDEMPOTENCY_ENTRIES_MAX,
  IDEMPOTENCY_KEPT_MS_MIN,
  IDEMPOTENCY_KEPT_REVISIONS_MIN,
  IDEMPOTENCY_RESULT_BYTES_MAX,
} from "../base/limits.ts";
import type { CommandResult, Idempotency, KeyRecord, OperationResult, Outcome, TxnResult } from "./command.ts";
import { resultOrderRow, resultRow } from "./rows.ts";
import type { Draft, Meta } from "./state.ts";
import type { OrderedStore } from "./store.ts";

/** At most so many results leave by age per command, so that the first command after a quiet hour is not a pause. */
const EVICTIONS_BY_AGE_PER_COMMAND = 100;

/** Charged per result beside its texts: the order row and the row keys. */
const RESULT_OVERHEAD_BYTES = 64;

interface StoredResult {
  readonly hash: string;
  readonly outcome: Outcome<CommandResult>;
}

/** Order row: what eviction needs to know of a result. */
export type OrderTuple = readonly [row: string, revisionBefore: number, timeMs: number, bytes: number];

function rowOf(scope: string, key: string): string {
  return resultRow(bytesOf(scope), bytesOf(key));
}

/** Text without a UTF-8 form (a lone surrogate) is refused at admission; here it only must not throw. */
function bytesOf(text: string): string {
  return bytesFromText(text) ?? JSON.stringify(text);
}

/** The stored result's row is the hash, a line break, and the outcome as JSON. */
export function readResult(store: OrderedStore, scope: string, key: string): StoredResult | null {
  const row = store.get(rowOf(scope, key));
  if (row === undefined) return null;
  const hashEnd = row.indexOf("\n");
  return { hash: row.slice(0, hashEnd), outcome: JSON.parse(row.slice(hashEnd + 1)) };
}

/** The answer that makes running the command unnecessary or impossible; null = run it. */
export function answerWithoutRunning(draft: Draft, idempotency: Idempotency): Outcome<CommandResult> | null {
  const { revision, idemFloor } = draft.meta;
  const stored = readResult(draft.store, idempotency.scope, idempotency.key);
  if (stored !== null) {
    if (stored.hash === idempotency.hash) {
      return stored.outcome.ok ? { ...stored.outcome, replayed: true } : stored.outcome;
    }
    return {
      ok: false,
      revision,
      error: { code: "idempotency_conflict", detail: "The idempotency key was used for another request." },
    };
  }
  if (idempotency.since !== undefined && idempotency.since < idemFloor) {
    return {
      ok: false,
      revision,
      error: {
        code: "idempotency_expired",
        detail: `Results from before revision ${idemFloor} are gone; whether this request ever ran is unknown.`,
        revision: idemFloor,
      },
    };
  }
  return null;
}

export function storeResult(
  draft: Draft,
  idempotency: Idempotency,
  outcome: Outcome<CommandResult>,
  revisionBefore: number,
): void {
  const row = rowOf(idempotency.scope, idempotency.key);
  const text = `${idempotency.hash}\n${outcomeText(outcome)}`;
  const bytes = resultBytes(row, text);
  const order: OrderTuple = [row, revisionBefore, draft.timeMs, bytes];
  draft.store.put(row, text);
  draft.store.put(resultOrderRow(draft.meta.idemNext), JSON.stringify(order));
  draft.meta.idemNext += 1;
  draft.meta.idemBytes += bytes;
}

/** What a result weighs in `idemBytes`. */
export function resultBytes(row: string, text: string): number {
  return row.length + utf8Length(text) + RESULT_OVERHEAD_BYTES;
}

/** The order row of a result that is taken to have been stored at `timeMs`, by a command behind `revisionBefore`. */
export function rebasedOrder(text: string, revisionBefore: number, timeMs: number): string {
  const [row, , , bytes]: OrderTuple = JSON.parse(text);
  const order: OrderTuple = [row, revisionBefore, timeMs, bytes];
  return JSON.stringify(order);
}

/** The oldest result, remembered between commands so that a command that evicts nothing reads nothing. */
export interface OldestResult {
  sequence: number;
  order: OrderTuple | null;
}

/** `revision` is the cluster's revision after the command. */
export function evictResults(draft: Draft, oldest: OldestResult, revision: number): void {
  const { meta, store } = draft;
  for (let evictions = 0; meta.idemHead < meta.idemNext; evictions += 1) {
    const order = oldestOrder(store, meta, oldest);
    const [row, revisionBefore, timeMs, bytes] = order;
    const old =
      draft.timeMs - timeMs >= IDEMPOTENCY_KEPT_MS_MIN && revision - revisionBefore > IDEMPOTENCY_KEPT_REVISIONS_MIN;
    const over = meta.idemNext - meta.idemHead > IDEMPOTENCY_ENTRIES_MAX || meta.idemBytes > IDEMPOTENCY_BYTES_MAX;
    if (!over && (!old || evictions >= EVICTIONS_BY_AGE_PER_COMMAND)) return;
    store.delete(row);
    store.delete(resultOrderRow(meta.idemHead));
    meta.idemHead += 1;
    meta.idemBytes -= bytes;
    meta.idemFloor = Math.max(meta.idemFloor, revisionBefore + 1);
  }
}

function oldestOrder(store: OrderedStore, meta: Meta, oldest: OldestResult): OrderTuple {
  if (oldest.order === null || oldest.sequence !== meta.idemHead) {
    const order: OrderTuple = JSON.parse(store.get(resultOrderRow(meta.idemHead)) ?? "");
    oldest.order = order;
    oldest.sequence = meta.idemHead;
  }
  return oldest.order;
}

/** The outcome as kept: over the limit without values, and if keys alone are over it, without records. */
function outcomeText(outcome: Outcome<CommandResult>): string {
  const whole = JSON.stringify(outcome);
  if (!isOver(whole) || !outcome.ok || outcome.result.kind !== "txn") return whole;
  const withoutValues = JSON.stringify(dropFrom(outcome.revision, outcome.result, withoutValue));
  if (!isOver(withoutValues)) return withoutValues;
  return JSON.stringify(dropFrom(outcome.revision, outcome.result, null));
}

function isOver(text: string): boolean {
  return text.length > IDEMPOTENCY_RESULT_BYTES_MAX || utf8Length(text) > IDEMPOTENCY_RESULT_BYTES_MAX;
}

function withoutValue(record: KeyRecord): KeyRecord {
  return { ...record, value: { json: null }, metadata: {} };
}

/** `keep` null drops the records; counts and keys of puts stay. */
function dropFrom(
  revision: number,
  result: TxnResult & { readonly kind: "txn" },
  keep: ((record: KeyRecord) => KeyRecord) | null,
): Outcome<CommandResult> {
  const responses = result.responses.map((response): OperationResult => {
    if (response.type === "get") return { ...response, kvs: keep === null ? [] : response.kvs.map(keep) };
    if (response.type === "delete" && response.prev_kvs !== undefined) {
      return { ...response, prev_kvs: keep === null ? [] : response.prev_kvs.map(keep) };
    }
    if (response.type === "put" && response.prev_kv !== undefined && response.prev_kv !== null) {
      if (keep === null) return { type: "put", key: response.key };
      return { ...response, prev_kv: keep(response.prev_kv) };
    }
    return response;
  });
  return { ok: true, revision, result: { ...result, responses, values_dropped: true } };
}
