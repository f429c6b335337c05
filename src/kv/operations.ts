/**
 * The operations of a txn (design 01 §2), each run on the draft that the earlier ones left (read-your-writes).
 * An operation that cannot be done refuses, and with it the whole txn; it never does half of its work silently.
 */
import { unreachable } from "../base/assert.ts";
import { DELETE_KEYS_MAX, RANGE_LIMIT_MAX, REPLY_BYTES_MAX } from "../base/limits.ts";
import type { KeyRecord, Operation, OperationResult, Selector } from "./command.ts";
import { detachKey, moveLease } from "./leases.ts";
import { checkRevision, listRecords, readRecord } from "./reads.ts";
import { type Current, decodeCurrent, deleteRecord, NO_METADATA, putRecord, readCurrent } from "./records.ts";
import { refuse } from "./refusal.ts";
import { digits16, keyOfCurrentRow, selectorBounds } from "./rows.ts";
import type { Draft, View } from "./state.ts";

/** What the operations of one txn share. */
export interface Budget {
  replyBytes: number;
  /** Deletes of the whole txn count together: one command stays one bounded turn on every node. */
  deletedKeys: number;
}

type Get = Operation & { readonly type: "get" };
type Put = Operation & { readonly type: "put" };
type Delete = Operation & { readonly type: "delete" };
type Touch = Operation & { readonly type: "touch" };

export function runOperation(draft: Draft, operation: Operation, budget: Budget): OperationResult {
  switch (operation.type) {
    case "get":
      return runGet(draft, operation, budget);
    case "put":
      return runPut(draft, operation, budget);
    case "delete":
      return runDelete(draft, operation, budget);
    case "touch":
      return runTouch(draft, operation);
    default:
      return unreachable(operation);
  }
}

export function runGet(view: View, get: Get, budget: Budget): OperationResult {
  if (get.revision !== undefined) checkRevision(view, get.revision);
  const listing = listRecords(view.store, {
    selector: get.selector,
    limit: get.limit ?? RANGE_LIMIT_MAX,
    descending: get.order === "desc",
    keysOnly: get.keys_only === true,
    countOnly: get.count_only === true,
    revision: get.revision ?? null,
    after: null,
    bytesMax: REPLY_BYTES_MAX - budget.replyBytes,
  });
  // A txn has no next page to go on with: what does not fit refuses all of it.
  if (listing.cut) refuseReply();
  spendReply(budget, listing.bytes);
  return { type: "get", kvs: listing.records, count: listing.count, more: listing.more };
}

function runPut(draft: Draft, put: Put, budget: Budget): OperationResult {
  const key = put.revision_suffix === true ? put.key + digits16(draft.revision) : put.key;
  const before = readCurrent(draft.store, key);
  if (before === null && (put.ignore_value === true || put.ignore_lease === true)) {
    refuse("not_found", "ignore_value and ignore_lease need an existing record.", { reason: "nothing_to_keep" });
  }
  const wantsBefore = put.prev_kv === true || put.ignore_value === true;
  const found = wantsBefore && before !== null ? readRecord(draft.store, key, null) : null;
  if (put.prev_kv === true && found !== null) spendReply(budget, found.bytes);
  // With ignore_value, what is not given stays: the content type and metadata belong to the value that is kept.
  const kept = put.ignore_value === true ? (found?.record ?? null) : null;
  const { leaseId, expiresAtMs } = moveLease(draft, key, before?.leaseId ?? 0, put);
  putRecord(draft, key, before, {
    value: put.value ?? kept?.value ?? { json: null },
    leaseId,
    expiresAtMs,
    contentType: put.content_type ?? kept?.content_type ?? null,
    metadata: put.metadata ?? kept?.metadata ?? NO_METADATA,
    dueAtMs: put.due_at_ms ?? (kept === null ? null : (before?.dueAtMs ?? null)),
  });
  return put.prev_kv === true ? { type: "put", key, prev_kv: found?.record ?? null } : { type: "put", key };
}

function runDelete(draft: Draft, operation: Delete, budget: Budget): OperationResult {
  const victims = liveKeys(draft, operation.selector, DELETE_KEYS_MAX - budget.deletedKeys + 1);
  budget.deletedKeys += victims.length;
  if (budget.deletedKeys > DELETE_KEYS_MAX) {
    refuse("too_many_keys", `The txn deletes more than ${DELETE_KEYS_MAX} keys; delete in smaller ranges.`);
  }
  const previous: KeyRecord[] = [];
  for (const [key, current] of victims) {
    if (operation.prev_kv === true) {
      const found = readRecord(draft.store, key, null);
      if (found !== null) {
        spendReply(budget, found.bytes);
        previous.push(found.record);
      }
    }
    if (current.leaseId !== 0) detachKey(draft, key, current.leaseId);
    deleteRecord(draft, key, current);
  }
  const deleted = victims.length;
  return operation.prev_kv === true ? { type: "delete", deleted, prev_kvs: previous } : { type: "delete", deleted };
}

function liveKeys(draft: Draft, selector: Selector, limit: number): (readonly [string, Current])[] {
  if ("key" in selector) {
    const current = readCurrent(draft.store, selector.key);
    return current === null ? [] : [[selector.key, current]];
  }
  const rows = draft.store.scan({ ...selectorBounds("c", selector), limit });
  return rows.map(([row, text]) => [keyOfCurrentRow(row), decodeCurrent(text)]);
}

/** A new version with the same value and a new TTL; an absent key is an answer, not a refusal. */
function runTouch(draft: Draft, touch: Touch): OperationResult {
  const before = readCurrent(draft.store, touch.key);
  const found = before === null ? null : readRecord(draft.store, touch.key, null);
  if (before === null || found === null) return { type: "touch", not_found: true };
  const { leaseId, expiresAtMs } = moveLease(draft, touch.key, before.leaseId, { ttl: touch.ttl });
  const { value, content_type: contentType, metadata } = found.record;
  putRecord(draft, touch.key, before, { value, leaseId, expiresAtMs, contentType, metadata, dueAtMs: before.dueAtMs });
  return { type: "touch", expires_at_ms: expiresAtMs ?? 0 };
}

function spendReply(budget: Budget, bytes: number): void {
  budget.replyBytes += bytes;
  if (budget.replyBytes > REPLY_BYTES_MAX) refuseReply();
}

function refuseReply(): never {
  refuse("result_too_large", `The reply would be over ${REPLY_BYTES_MAX} bytes; ask for less, or for keys only.`);
}
