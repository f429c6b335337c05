/** Simulated time: the order in which things happen, and that what is due now happens by itself. */
import { expect, test } from "vitest";
import { Timeline } from "../../src/testing/timeline.ts";

function recorded() {
  const timeline = new Timeline();
  const seen: string[] = [];
  const at = (atMs: number, name: string) => timeline.at(atMs, () => seen.push(`${name} at ${timeline.nowMs}`));
  const runUntil = (atMs: number) => {
    while (timeline.nextAtMs <= atMs) {
      timeline.jumpTo(timeline.nextAtMs);
      timeline.runDue();
    }
    timeline.jumpTo(atMs);
  };
  return { timeline, seen, at, runUntil };
}

test("things happen in order of time, then of asking", () => {
  const { seen, at, runUntil } = recorded();
  at(20, "b");
  at(10, "a");
  at(20, "c");
  runUntil(15);
  expect(seen).toEqual(["a at 10"]);
  runUntil(20);
  expect(seen).toEqual(["a at 10", "b at 20", "c at 20"]);
});

test("what was taken back does not happen", () => {
  const { seen, at, runUntil } = recorded();
  const cancel = at(10, "a");
  at(10, "b");
  cancel();
  cancel();
  runUntil(10);
  expect(seen).toEqual(["b at 10"]);
});

test("what is asked for while things happen comes after all that was due", () => {
  const { timeline, seen, at, runUntil } = recorded();
  timeline.at(10, () => at(10, "later"));
  at(10, "a");
  runUntil(10);
  expect(seen).toEqual(["a at 10", "later at 10"]);
});

test("what is due now happens in a microtask, and the past is now", async () => {
  const { timeline, seen, at, runUntil } = recorded();
  runUntil(50);
  at(10, "late");
  at(50, "now");
  at(51, "not yet");
  expect(seen).toEqual([]);
  await Promise.resolve();
  expect(seen).toEqual(["late at 50", "now at 50"]);
  expect(timeline.nextAtMs).toBe(51);
});

test("time neither goes back nor passes over what is due", () => {
  const { timeline, at, runUntil } = recorded();
  runUntil(50);
  at(60, "a");
  expect(() => timeline.jumpTo(49)).toThrow("back");
  expect(() => timeline.jumpTo(61)).toThrow("passes over");
});
