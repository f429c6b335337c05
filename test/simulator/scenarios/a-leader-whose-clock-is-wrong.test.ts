/** A leader whose clock runs at another speed than the others' gives way before leases notice (design 02 §3). */
import { expect, test } from "vitest";
import { SKEW_MS_MAX } from "../../../src/base/limits.ts";
import { logTimeMs } from "../../../src/raft/state.ts";
import { monotonicMs, WALL_EPOCH_MS } from "../clock.ts";
import { setClockRate } from "../world.ts";
import { formed, type Stage } from "./stage.ts";
import { put } from "./vocabulary.ts";

/** By how much the log's time is ahead of the clock of a node whose clock is right. */
function skewMs(stage: Stage): number {
  const leader = stage.leader() ?? 0;
  const { raft, clock } = stage.instance(leader);
  const time = raft === null ? null : logTimeMs(raft, monotonicMs(clock, stage.world.now));
  if (time === null) throw new Error(`node ${leader} does not lead`);
  return time - (WALL_EPOCH_MS + stage.world.now);
}

test.each([
  ["fast", 1.3],
  ["slow", 0.7],
] as const)("a leader whose clock is %s hands over; the log's time stays near the others' clocks", (_how, rate) => {
  const stage = formed();
  const [leader] = stage.cast();
  setClockRate(stage.world, stage.host(leader), rate);
  const tookMs = stage.until("another leads", () => ![null, leader].includes(stage.leader()), 20_000);
  expect(tookMs).toBeGreaterThan(SKEW_MS_MAX / 0.3); // it was within the bound until then
  expect(stage.written(leader, put("x", 1)).ok).toBe(true);
  stage.run(20_000);
  expect(stage.leader()).not.toBe(leader);
  expect(Math.abs(skewMs(stage))).toBeLessThan(2 * SKEW_MS_MAX);
});
