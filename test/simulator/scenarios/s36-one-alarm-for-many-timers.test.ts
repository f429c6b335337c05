/**
 * S36, S37: each object has one alarm. A sleeping cluster has it at the earliest of all that is due; an alarm that is late,
 * lost, or dies in its handler loses nothing, because every other node has one as well.
 */
import { describe, expect, test } from "vitest";
import { WALL_EPOCH_MS } from "../clock.ts";
import { alive, evict, grant, untilAsleep, untilGone } from "./owners.ts";
import { ELECTION_MS_MAX, formed, type Stage } from "./stage.ts";

const QUIESCE_MS = 1000;
/** From the moment at which a lease is due until it has ended, if the leader is there: one step of a second, and a round. */
const ENDS_WITHIN_MS = 1300;
/** A new leader gives a grace first, and may round up to a step once more. */
const CHANGE_MS = 2 * ELECTION_MS_MAX + 1000;
/** Each further node waits so much longer before it does the work of the one before it. */
const RANK_MS = 2000;
const MINUTES_MS = 60_000;

/** A formed cluster in which leases of 4 s and 12 s hold one key each, asleep; when they were granted. */
function asleepWithTwoLeases(): { readonly stage: Stage; readonly leader: number; readonly grantedAt: number } {
  const stage = formed({ quiesceAfterMs: QUIESCE_MS });
  const [leader] = stage.cast();
  const grantedAt = stage.world.now;
  // The later one first, and then again: a later timer must not take the place of an earlier one.
  grant(stage, leader, 12, ["late"]);
  grant(stage, leader, 4, ["early"]);
  grant(stage, leader, 3600, ["never"]);
  untilAsleep(stage);
  return { stage, leader, grantedAt };
}

function alarmAt(stage: Stage, id: number): number | null {
  const { alarmAtWallMs } = stage.host(id).disk;
  return alarmAtWallMs === null ? null : alarmAtWallMs - WALL_EPOCH_MS;
}

describe("one alarm for many timers (S36)", () => {
  test("it lies at the earliest of all that is due, and each node behind the leader waits its turn", () => {
    const { stage, leader, grantedAt } = asleepWithTwoLeases();
    const due = grantedAt + 4000;
    for (const id of stage.ids) {
      const rank = (id - leader + stage.ids.length) % stage.ids.length;
      const at = alarmAt(stage, id) ?? 0;
      expect(at).toBeGreaterThanOrEqual(due + rank * RANK_MS);
      expect(at).toBeLessThanOrEqual(due + rank * RANK_MS + ENDS_WITHIN_MS);
    }
  });

  test("one thing after the other is done on time by a cluster that sleeps in between, evicted each time", () => {
    const { stage, grantedAt } = asleepWithTwoLeases();
    stage.run(600); // their rows are on the disk
    evict(stage, ...stage.ids);
    untilGone(stage, ["early"]);
    expect(stage.world.now - grantedAt).toBeGreaterThanOrEqual(4000);
    expect(stage.world.now - grantedAt).toBeLessThan(4000 + ENDS_WITHIN_MS + CHANGE_MS);
    expect(alive(stage, ["late"])).toBe(1);
    untilAsleep(stage);
    stage.run(600);
    evict(stage, ...stage.ids);
    untilGone(stage, ["late"]);
    expect(stage.world.now - grantedAt).toBeGreaterThanOrEqual(12_000);
    expect(stage.world.now - grantedAt).toBeLessThan(12_000 + ENDS_WITHIN_MS + CHANGE_MS);
    untilAsleep(stage);
    expect(alive(stage, ["never"])).toBe(1);
    expect(alarmAt(stage, stage.leader() ?? 1) ?? 0).toBeGreaterThan(grantedAt + 3_599_000);
  });

  test("a handler that dies is called again, or another node does its work", () => {
    const { stage, leader, grantedAt } = asleepWithTwoLeases();
    stage.run(600);
    stage.onStatement = ({ node }) => (node === leader ? "crash" : undefined);
    stage.host(leader).downUntil = 0;
    stage.until("the leader dies", () => stage.host(leader).live === null, 10_000);
    stage.onStatement = null;
    untilGone(stage, ["early"]);
    expect(stage.world.now - grantedAt).toBeLessThan(4000 + ENDS_WITHIN_MS + RANK_MS + CHANGE_MS);
    untilGone(stage, ["late"]);
    expect(stage.world.now - grantedAt).toBeLessThan(12_000 + ENDS_WITHIN_MS + RANK_MS + CHANGE_MS);
  });

  test("a timer of a record (due_at_ms) wakes the cluster and does not hide a lease that is due later", () => {
    const stage = formed({ quiesceAfterMs: QUIESCE_MS });
    const [leader] = stage.cast();
    grant(stage, leader, 9, ["lease"]);
    const due_at_ms = WALL_EPOCH_MS + Math.floor(stage.world.now) + 4000;
    const put = { type: "put", key: "timer", value: { json: 1 }, due_at_ms } as const;
    expect(stage.written(leader, { kind: "txn", compare: [], success: [put], failure: [] }).ok).toBe(true);
    untilAsleep(stage);
    const dueAt = due_at_ms - WALL_EPOCH_MS;
    expect(alarmAt(stage, leader)).toBeLessThanOrEqual(dueAt + 1);
    stage.until("it wakes", () => !stage.world.sleep.cluster);
    expect(stage.world.now).toBeGreaterThanOrEqual(dueAt);
    expect(stage.world.now).toBeLessThan(dueAt + 100);
    untilGone(stage, ["lease"], 12_000);
    // What is overdue wakes nobody again.
    untilAsleep(stage);
    expect(stage.ids.map((id) => alarmAt(stage, id))).toEqual(stage.ids.map(() => null));
  });
});

describe("an alarm that never fires (S37)", () => {
  function loseAlarms(stage: Stage, ...ids: readonly number[]): void {
    for (const id of ids) {
      stage.host(id).disk.alarmAtWallMs = null;
      stage.host(id).alarmEventAt = Number.POSITIVE_INFINITY;
    }
  }

  test("does no harm when another node has one: it does the work in its turn", () => {
    const { stage, leader, grantedAt } = asleepWithTwoLeases();
    loseAlarms(stage, leader);
    untilGone(stage, ["early"]);
    expect(stage.world.now - grantedAt).toBeGreaterThanOrEqual(4000 + RANK_MS);
    expect(stage.world.now - grantedAt).toBeLessThan(4000 + RANK_MS + ENDS_WITHIN_MS);
    untilGone(stage, ["late"]);
    expect(stage.world.now - grantedAt).toBeLessThan(12_000 + ENDS_WITHIN_MS + RANK_MS);
  });

  test("is made up for when the nodes start ten minutes later, without any request", () => {
    const { stage } = asleepWithTwoLeases();
    stage.run(600);
    stage.crash(...stage.ids);
    loseAlarms(stage, ...stage.ids);
    stage.run(10 * MINUTES_MS);
    const startedAt = stage.world.now;
    stage.start(...stage.ids);
    untilGone(stage, ["early", "late"], 5000);
    expect(stage.world.now - startedAt).toBeLessThan(4000);
    expect(alive(stage, ["never"])).toBe(1);
    // Once, and armed again for what is left.
    const ended = stage.world.safety.committed.filter(({ entry }) => entry.payload.includes("lease_expire"));
    expect(ended).toHaveLength(1);
    untilAsleep(stage);
    expect(alarmAt(stage, stage.leader() ?? 1)).not.toBeNull();
  });
});
