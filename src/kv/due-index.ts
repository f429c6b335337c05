/**
 * The due index: a timer that the database keeps with a record (`due_at_ms`, design 01 §2), and the next moment at which
 * the state wants somebody awake (design 02 §3). Entries leave it when their record is written again or deleted; that an
 * entry is due changes nothing by itself.
 */
import { assert } from "../base/assert.ts";
import type { DueEntry, Query, QueryResult } from "./command.ts";
import { type LeaseSource, nextLeaseExpiry } from "./lease-expiry.ts";
import { readCurrent } from "./records.ts";
import { dueBounds, dueLaterBounds, partsOfDueRow } from "./rows.ts";
import type { OrderedStore } from "./store.ts";

/** Earliest first, equal times by key; every prefix alike: who serves which is not the database's business. */
export function readDue(store: OrderedStore, query: Query & { readonly kind: "due" }): QueryResult {
  const rows = store.scan({ ...dueBounds(query.after ?? null, query.at_ms), limit: query.limit + 1 });
  const entries = rows.slice(0, query.limit).map(([row]): DueEntry => {
    const [dueAtMs, key] = partsOfDueRow(row);
    const current = readCurrent(store, key);
    assert(current?.dueAtMs === dueAtMs, `the record of a due entry at ${dueAtMs} does not name it`);
    return { due_at_ms: dueAtMs, key, mod_revision: current.revision };
  });
  return { kind: "due", entries, more: rows.length > query.limit };
}

/** Time of the first due entry behind `afterMs`; null without one. */
export function nextDueEntry(store: OrderedStore, afterMs: number): number | null {
  const [first] = store.scan({ ...dueLaterBounds(afterMs), limit: 1 });
  return first === undefined ? null : partsOfDueRow(first[0])[0];
}

/**
 * The earlier of the next effective lease expiry and the next due entry behind `nowMs`: what the alarm is set to. An
 * overdue entry wakes nobody again: who serves its prefix was told, or nobody does. Reads two rows.
 * @param leaseStepMs as of `nextLeaseExpiry`.
 */
export function nextDue(source: LeaseSource, nowMs: number, leaseStepMs = 1): number | null {
  if (source.isRestoring) return null;
  const lease = nextLeaseExpiry(source, leaseStepMs);
  const entry = nextDueEntry(source.store, nowMs);
  if (lease === null) return entry;
  return Math.min(lease, entry ?? Number.POSITIVE_INFINITY);
}
