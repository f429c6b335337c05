/** What the nemesis will do is known from the seed, has every kind, and never takes a majority for long. */
import { expect, test } from "vitest";
import { HOLD_MS_MAX, isLink, LINK_FAULTS, PROCESS_FAULTS, type Round, scheduleOf } from "./schedule.ts";

const NODES = [1, 2, 3, 4, 5];

function rounds(seed: number, count: number, wipes = false): Round[] {
  const schedule = scheduleOf({ seed, nodes: NODES, wipes });
  return Array.from({ length: count }, () => schedule.next().value);
}

test("the same seed gives the same schedule, another one another", () => {
  expect(rounds(1, 50)).toEqual(rounds(1, 50));
  expect(rounds(1, 50)).not.toEqual(rounds(2, 50));
});

test("each kind comes once before any comes again; nodes are wiped only on request", () => {
  const kinds = [...PROCESS_FAULTS, ...LINK_FAULTS];
  const first = rounds(3, kinds.length).map(({ faults }) => faults[0]?.kind);
  expect(first.sort()).toEqual([...kinds].sort());
  const all = rounds(3, 200).flatMap(({ faults }) => faults.map(({ kind }) => kind));
  expect(all).not.toContain("wipe");
  const wiping = rounds(3, kinds.length + 1, true).map(({ faults }) => faults[0]?.kind);
  expect(wiping.sort()).toEqual([...kinds, "wipe"].sort());
});

test("every fault is held for a bounded time, and at most one of processes and one of links at once", () => {
  for (const { faults, holdMs, restMs } of rounds(4, 500, true)) {
    expect(holdMs).toBeLessThanOrEqual(HOLD_MS_MAX);
    expect(restMs).toBeGreaterThan(0);
    expect(faults.length).toBeLessThanOrEqual(2);
    for (const { order } of faults) expect([...order].sort()).toEqual(NODES);
    if (faults.length === 2) expect(faults.filter(({ kind }) => isLink(kind))).toHaveLength(1);
    if (faults.some(({ kind }) => kind === "wipe")) expect(faults).toHaveLength(1);
  }
});
