/**
 * Calls that wait for their batch: on the leader to be proposed, on any other node to be handed over to it.
 *
 * Q1. What keeps or gives up a lease, and the leader's own duties, go before everything else: a burst of writes must not
 *     cost others what they hold.
 * Q2. Else in order of arrival.
 * Q3. A queue whose head has waited for `WAIT_MS_MAX` is longer than what can be worked off in time: it takes no more.
 */
import { LOG_ROW_BYTES_MAX } from "../base/limits.ts";
import type { Call } from "./runtime-state.ts";

export interface CallQueue {
  urgent: Call[];
  ordinary: Call[];
}

const WAIT_MS_MAX = 1000;
const BATCH_ENTRIES_MAX = 1024;
/** JSON around the payload in a log row. */
export const ENTRY_OVERHEAD_BYTES = 256;

export function createCallQueue(): CallQueue {
  return { urgent: [], ordinary: [] };
}

export function isEmpty({ urgent, ordinary }: CallQueue): boolean {
  return urgent.length === 0 && ordinary.length === 0;
}

/** Q3 */
export function isOverdue(queue: CallQueue, nowMs: number): boolean {
  const [head] = queue.ordinary;
  return head !== undefined && head.phase.kind === "queued" && nowMs - head.phase.sinceMs > WAIT_MS_MAX;
}

export function enqueue(queue: CallQueue, call: Call, nowMs: number): void {
  call.phase = { kind: "queued", sinceMs: nowMs };
  (call.isUrgent ? queue.urgent : queue.ordinary).push(call);
}

/** Takes what fits one row of the log, at least one call if there is one. */
export function takeBatch(queue: CallQueue): Call[] {
  const batch: Call[] = [];
  let bytes = 0;
  for (const calls of [queue.urgent, queue.ordinary]) {
    let count = 0;
    for (const call of calls) {
      bytes += call.payloadBytes + ENTRY_OVERHEAD_BYTES;
      if (batch.length > 0 && (bytes > LOG_ROW_BYTES_MAX || batch.length >= BATCH_ENTRIES_MAX)) break;
      batch.push(call);
      count += 1;
    }
    const isAll = count === calls.length;
    calls.splice(0, count);
    if (!isAll) break;
  }
  return batch;
}

/** Empties the queue. */
export function takeAll(queue: CallQueue): Call[] {
  const all = [...queue.urgent, ...queue.ordinary];
  queue.urgent = [];
  queue.ordinary = [];
  return all;
}

/** Removes the calls that are `over`. */
export function removeCalls(queue: CallQueue, over: ReadonlySet<Call>): void {
  queue.urgent = queue.urgent.filter((call) => !over.has(call));
  queue.ordinary = queue.ordinary.filter((call) => !over.has(call));
}
