import fc from "fast-check";
import { expect, test } from "vitest";
import { createQueue, peek, pop, push, type Timed } from "./event-queue.ts";

test("events come out by time, those of one instant in the order in which they went in", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: 200 }), (times) => {
      const queue = createQueue<Timed>();
      for (const at of times) push(queue, { at, seq: 0 });
      const out: Timed[] = [];
      for (let event = pop(queue); event !== undefined; event = pop(queue)) out.push(event);
      const sorted = [...out].sort((left, right) => left.at - right.at || left.seq - right.seq);
      expect(out).toEqual(sorted);
      expect(out).toHaveLength(times.length);
    }),
  );
});

test("an event may be put in while others are taken out", () => {
  const queue = createQueue<Timed>();
  push(queue, { at: 1, seq: 0 });
  push(queue, { at: 5, seq: 0 });
  expect(pop(queue)?.at).toBe(1);
  push(queue, { at: 3, seq: 0 });
  expect(peek(queue)?.at).toBe(3);
  expect(pop(queue)?.at).toBe(3);
  expect(pop(queue)?.at).toBe(5);
  expect(pop(queue)).toBeUndefined();
});
