/** S12: what an entry does depends on the log alone, not on a node's clock, its restarts or its own limits. */
import { expect, test } from "vitest";
import type { Command } from "../../../src/kv/command.ts";
import { validateCommand } from "../../../src/kv/validate.ts";
import { WALL_EPOCH_MS } from "../clock.ts";
import { jumpWallClock } from "../world.ts";
import { FLUSHED_MS, Stage } from "./stage.ts";
import { idempotency, put } from "./vocabulary.ts";

const MINUTE_MS = 60_000;
const SKEWS_MS = [0, 5 * MINUTE_MS, -5 * MINUTE_MS, 90_000, -30_000];

function skewed(): Stage {
  const stage = new Stage();
  for (const [position, host] of stage.world.hosts.entries()) host.wallSkewMs = SKEWS_MS[position] ?? 0;
  stage.form();
  return stage;
}

function expectEqualState(stage: Stage): void {
  stage.settle();
  stage.run(FLUSHED_MS);
  expect(stage.agree()).toBe(true);
  const [first, ...others] = stage.world.hosts.map(({ disk }) => [...disk.rows].sort());
  for (const rows of others) expect(rows).toEqual(first);
}

const WITH_TIME: readonly Command[] = [
  { kind: "lease_grant", ttl_s: 60, id: 5 },
  { kind: "txn", compare: [], success: [{ type: "put", key: "leased", value: { json: 1 }, lease: 5 }], failure: [] },
  { kind: "txn", compare: [], success: [{ type: "put", key: "short", value: { json: 1 }, ttl: 2 }], failure: [] },
  {
    kind: "txn",
    compare: [],
    success: [{ type: "put", key: "s/", value: { json: 1 }, revision_suffix: true }],
    failure: [],
  },
  { kind: "txn", compare: [], success: [{ type: "touch", key: "short", ttl: 100 }], failure: [] },
  {
    kind: "txn",
    compare: [{ target: "ttl", key: "leased", op: "<", value: 60 }],
    success: [{ type: "put", key: "late", value: { json: 1 } }],
    failure: [{ type: "put", key: "early", value: { json: 1 } }],
  },
  { kind: "lease_revoke", id: 5 },
];

test("nodes whose clocks are minutes apart, and jump, have equal rows and digests (S12)", () => {
  const stage = skewed();
  for (const leader of stage.ids) {
    stage.lead(leader);
    for (const [position, command] of WITH_TIME.entries()) {
      const key = `${leader}/${position}`;
      const node = stage.ids[(leader + position) % stage.ids.length] ?? 1;
      expect(stage.written(node, command, { idempotency: idempotency(key) }).ok, key).toBe(true);
      stage.run(700);
    }
    jumpWallClock(stage.world, stage.host(leader), (leader - 3) * MINUTE_MS);
  }
  expectEqualState(stage);
});

test("the time of entries never falls, and one wrong clock alone does not move it, whoever leads (S12)", () => {
  const stage = skewed();
  for (const leader of [2, 3, 2, 3, 1]) {
    stage.lead(leader);
    stage.written(leader, put("k", leader));
  }
  const times = stage.host(1).disk.log.map((entry) => entry.timeMs - WALL_EPOCH_MS);
  expect(times).toEqual([...times].sort((left, right) => left - right));
  // The median of three votes lies between the second lowest and the second highest clock.
  expect(times[0]).toBeGreaterThanOrEqual(-30_000);
  expect(times[times.length - 1]).toBeLessThanOrEqual(90_000 + stage.world.now);
});

test("what one node's lowered limit refuses at its door, it applies when another node has admitted it (S12)", () => {
  const stage = skewed();
  const command = put("k", "x".repeat(2000));
  const lowered = { valueBytesMax: 1999 } as const;
  expect(validateCommand(command, lowered)).toMatchObject({ code: "invalid_kv" });
  expect(validateCommand(command)).toBeNull();
  expect(stage.written(3, command).ok).toBe(true);
  expectEqualState(stage);
  expect(stage.value(1, "k")).toHaveLength(2000);
});

test("a node that restarts between any two entries has the state of one that never did (S12)", () => {
  const stage = skewed();
  const [leader, follower] = stage.cast();
  for (const [position, command] of WITH_TIME.entries()) {
    expect(stage.written(leader, command, { idempotency: idempotency(`${position}`) }).ok).toBe(true);
    if (position % 2 === 0) stage.run(FLUSHED_MS);
    stage.crash(follower);
    stage.start(follower);
  }
  expectEqualState(stage);
});
