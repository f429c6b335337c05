import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { NodeWake } from "../../src/node-object/wake.ts";

let fired: number[];
let alarms: (number | null)[];
let wake: NodeWake;
let failAlarm: boolean;

beforeEach(() => {
  vi.useFakeTimers({ now: 1000 });
  fired = [];
  alarms = [];
  failAlarm = false;
  wake = new NodeWake({
    nowMs: () => Date.now(),
    setAlarm: async (atWallMs) => {
      alarms.push(atWallMs);
      if (failAlarm) throw new Error("commit failed");
    },
    deleteAlarm: async () => {
      alarms.push(null);
    },
    onTimer: () => fired.push(Date.now()),
  });
});
afterEach(() => void vi.useRealTimers());

test("the timer fires once, at its time", () => {
  wake.setTimer(1050);
  vi.advanceTimersByTime(49);
  expect(fired).toEqual([]);
  vi.advanceTimersByTime(1000);
  expect(fired).toEqual([1050]);
});

test("a later wish replaces an earlier one and keeps the one timeout that is armed", () => {
  wake.setTimer(1050);
  for (let at = 1060; at <= 1300; at += 10) {
    wake.setTimer(at);
    expect(vi.getTimerCount()).toBe(1);
  }
  vi.advanceTimersByTime(299);
  expect(fired).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(fired).toEqual([1300]);
});

test("an earlier wish is armed at once", () => {
  wake.setTimer(1500);
  wake.setTimer(1020);
  expect(vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(20);
  expect(fired).toEqual([1020]);
  vi.advanceTimersByTime(1000);
  expect(fired).toEqual([1020]);
});

test("a time that has passed fires in the next turn, never in the one that asks", () => {
  wake.setTimer(900);
  expect(fired).toEqual([]);
  vi.advanceTimersByTime(0);
  expect(fired).toEqual([1000]);
});

test("a wish made while firing is armed", () => {
  const again = new NodeWake({
    nowMs: () => Date.now(),
    setAlarm: async () => {},
    deleteAlarm: async () => {},
    onTimer: () => {
      fired.push(Date.now());
      if (fired.length < 3) again.setTimer(Date.now() + 10);
    },
  });
  again.setTimer(1010);
  vi.advanceTimersByTime(1000);
  expect(fired).toEqual([1010, 1020, 1030]);
  expect(vi.getTimerCount()).toBe(0);
});

test("the alarm is written only when its time changes or after it has fired", () => {
  wake.setAlarm(5000);
  wake.setAlarm(5000);
  wake.setAlarm(6000);
  wake.alarmFired();
  wake.setAlarm(6000);
  expect(alarms).toEqual([5000, 6000, 6000]);
});

test("no timer and no alarm is a wish like any other; an instance that knows of none may still have to take one off", () => {
  wake.setAlarm(null);
  wake.setAlarm(null);
  wake.setAlarm(5000);
  wake.setAlarm(null);
  expect(alarms).toEqual([null, 5000, null]);
  wake.setTimer(1050);
  wake.setTimer(Number.POSITIVE_INFINITY);
  vi.advanceTimersByTime(1000);
  expect([fired, vi.getTimerCount()]).toEqual([[], 0]);
});

test("a timer 30 days ahead neither fires at once nor spins (S35)", () => {
  const days30Ms = 2_592_000_000;
  wake.setTimer(1000 + days30Ms);
  vi.advanceTimersByTime(60_000);
  expect([fired, vi.getTimerCount()]).toEqual([[], 1]);
  vi.advanceTimersByTime(days30Ms - 60_000);
  expect(fired).toEqual([1000 + days30Ms]);
});

test("a failed alarm write is left to the platform, which resets the object", async () => {
  failAlarm = true;
  wake.setAlarm(5000);
  await Promise.resolve();
  expect(alarms).toEqual([5000]);
});
