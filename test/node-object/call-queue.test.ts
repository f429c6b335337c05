/** The order and the bounds of calls that wait for their batch. */
import { describe, expect, test } from "vitest";
import {
  createCallQueue,
  enqueue,
  isEmpty,
  isOverdue,
  removeCalls,
  takeAll,
  takeBatch,
} from "../../src/node-object/call-queue.ts";
import type { Call } from "../../src/node-object/runtime-state.ts";

function call(id: number, more: Partial<Call> = {}): Call {
  return {
    id,
    payload: "",
    payloadBytes: 10,
    repeat: "once",
    isUrgent: false,
    deadlineMs: 1000,
    respond() {},
    exposed: false,
    forwards: 0,
    phase: { kind: "unrouted", retryAtMs: 0 },
    ...more,
  };
}

const idsOf = (calls: readonly Call[]) => calls.map(({ id }) => id);

describe("a queue of calls", () => {
  test("gives out in order of arrival, urgent ones first", () => {
    const queue = createCallQueue();
    enqueue(queue, call(1), 0);
    enqueue(queue, call(2, { isUrgent: true }), 0);
    enqueue(queue, call(3), 0);
    enqueue(queue, call(4, { isUrgent: true }), 0);
    expect(idsOf(takeBatch(queue))).toEqual([2, 4, 1, 3]);
    expect(isEmpty(queue)).toBe(true);
  });

  test("gives out at most 1024 calls at a time, and no urgent one is left behind an ordinary one", () => {
    const queue = createCallQueue();
    for (let id = 1; id <= 1500; id += 1) enqueue(queue, call(id, { isUrgent: id % 2 === 0 }), 0);
    const first = takeBatch(queue);
    expect(first).toHaveLength(1024);
    expect(first.slice(0, 750).every(({ isUrgent }) => isUrgent)).toBe(true);
    expect(takeBatch(queue)).toHaveLength(476);
  });

  test("gives out what fits a row of the log, and always one call", () => {
    const queue = createCallQueue();
    for (const id of [1, 2, 3]) enqueue(queue, call(id, { payloadBytes: 1_500_000 }), 0);
    expect([1, 2, 3].map(() => idsOf(takeBatch(queue)))).toEqual([[1], [2], [3]]);
    expect(takeBatch(queue)).toEqual([]);
  });

  test("takes no more once its head has waited for more than a second; urgent calls do not count", () => {
    const queue = createCallQueue();
    enqueue(queue, call(1, { isUrgent: true }), 0);
    expect(isOverdue(queue, 5000)).toBe(false);
    enqueue(queue, call(2), 1000);
    expect([isOverdue(queue, 2000), isOverdue(queue, 2001)]).toEqual([false, true]);
  });

  test("forgets the calls that are over", () => {
    const queue = createCallQueue();
    const over = call(2);
    for (const one of [call(1), over, call(3, { isUrgent: true })]) enqueue(queue, one, 0);
    removeCalls(queue, new Set([over]));
    expect(idsOf(takeAll(queue))).toEqual([3, 1]);
    expect(isEmpty(queue)).toBe(true);
  });
});
