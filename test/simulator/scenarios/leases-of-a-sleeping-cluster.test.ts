/** Leases end on time, neither early nor late, whatever happens to the nodes and clocks that have to see to it. */
import { expect, test } from "vitest";
import { WALL_EPOCH_MS } from "../clock.ts";
import { jumpWallClock } from "../world.ts";
import { alive, attach, evict, grant, keepAlive, untilAsleep, untilGone } from "./owners.ts";
import { ELECTION_MS_MAX, formed, type Stage } from "./stage.ts";

const TTL_S = 30;
const HOUR_MS = 3_600_000;
const GRACE_MS = 2 * ELECTION_MS_MAX;
const KEYS = Array.from({ length: 101 }, (_, at) => `held/${String(at).padStart(3, "0")}`);

/** A lease of 30 s with 101 keys, and everybody sleeps long before it ends. */
function asleepWithKeys(): { readonly stage: Stage; readonly leader: number; readonly grantedAt: number } {
  const stage = formed({ quiesceAfterMs: 10_000 });
  const [leader] = stage.cast();
  const grantedAt = stage.world.now;
  const lease = grant(stage, leader, TTL_S, []);
  attach(stage, leader, lease, KEYS);
  untilAsleep(stage, 22_000);
  expect(stage.world.now - grantedAt).toBeLessThan(22_000);
  stage.run(600);
  return { stage, leader, grantedAt };
}

function expectGone(stage: Stage, grantedAt: number, seconds: readonly [number, number]): void {
  untilGone(stage, KEYS);
  const after = stage.world.now - grantedAt;
  expect(after).toBeGreaterThanOrEqual(seconds[0] * 1000);
  expect(after).toBeLessThanOrEqual(seconds[1] * 1000);
  const last = stage.world.safety.events[stage.world.safety.events.length - 1] ?? [];
  // All at one revision, in the order of their keys.
  expect(last.map(({ event }) => event.key)).toEqual(KEYS);
  const node = stage.ids.find((id) => stage.host(id).live !== null) ?? 0;
  expect(stage.value(node, KEYS[0] ?? "")).toBeNull();
}

test("a lease with 101 keys ends on time in a sleeping cluster, all at one revision", () => {
  const { stage, grantedAt } = asleepWithKeys();
  expectGone(stage, grantedAt, [TTL_S, TTL_S + 3]);
});

test("a lease ends on time in a sleeping cluster whose nodes have all been evicted", () => {
  const { stage, grantedAt } = asleepWithKeys();
  evict(stage, ...stage.ids);
  expectGone(stage, grantedAt, [TTL_S, TTL_S + 3]);
});

test("a lease ends on time in a sleeping cluster also when the leader that granted it is gone", () => {
  const { stage, leader, grantedAt } = asleepWithKeys();
  stage.crash(leader);
  expectGone(stage, grantedAt, [TTL_S, TTL_S + 6]);
});

test("a lease ends on time when the leader and the node behind it are gone", () => {
  const { stage, leader, grantedAt } = asleepWithKeys();
  stage.crash(leader, (leader % stage.ids.length) + 1);
  expectGone(stage, grantedAt, [TTL_S, TTL_S + 8]);
});

test.each([1, 3])("a lease ends on time in a sleeping cluster of %i, which has few others to rely on", (size) => {
  const stage = formed({ size, quiesceAfterMs: 1000 });
  for (const ttlS of [2, 3, 5]) {
    const grantedAt = stage.world.now;
    grant(stage, 1, ttlS, ["owner"]);
    untilAsleep(stage);
    untilGone(stage, ["owner"], (ttlS + 2) * 1000);
    expect(stage.world.now - grantedAt).toBeGreaterThanOrEqual(ttlS * 1000);
    stage.run(377); // the next one begins at another fraction of a second
  }
});

test("a lease outlives a loss of the leader of two seconds when its owner renews it", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  const lease = grant(stage, leader, 3, ["owner"]);
  stage.run(2000);
  stage.crash(leader);
  stage.world.hosts.forEach((host) => {
    if (host.id !== leader) stage.pause(host.id);
  });
  stage.run(2000); // it is over by now, and nobody could reach anybody
  stage.resume(...stage.ids.filter((id) => id !== leader));
  stage.until("a leader", () => stage.leader() !== null);
  expect(keepAlive(stage, follower, lease)).toBe("alive");
  stage.run(2500);
  expect(alive(stage, ["owner"])).toBe(1);
  untilGone(stage, ["owner"], 3000);
});

test("changes of leader keep a dead owner no longer than a grace each", () => {
  const stage = formed();
  const [first, second] = stage.cast();
  const grantedAt = stage.world.now;
  grant(stage, first, 2, ["owner"]);
  const changes = 4;
  for (let change = 0; change < changes; change += 1) {
    stage.lead(change % 2 === 0 ? second : first);
    stage.run(100);
  }
  untilGone(stage, ["owner"]);
  expect(stage.world.now - grantedAt).toBeLessThanOrEqual(2000 + 1000 + changes * GRACE_MS);
});

test.each([
  ["an hour ahead", HOUR_MS],
  ["an hour behind", -HOUR_MS],
])("a node whose clock is %s neither expires leases nor freezes them, whether it leads or not", (_, skewMs) => {
  for (const wrong of [1, 3, 5]) {
    const stage = formed({ quiesceAfterMs: 2000 });
    jumpWallClock(stage.world, stage.host(wrong), skewMs);
    for (const leads of [true, false]) {
      stage.ask(1);
      stage.lead(leads ? wrong : (wrong % stage.ids.length) + 1);
      const keys = [`${wrong}/${leads}`];
      const grantedAt = stage.world.now;
      grant(stage, wrong, 8, keys);
      const logTime = stage.host(wrong).disk.log.at(-1)?.timeMs ?? 0;
      expect(Math.abs(logTime - WALL_EPOCH_MS - stage.world.now)).toBeLessThan(1000);
      untilAsleep(stage);
      untilGone(stage, keys);
      const after = stage.world.now - grantedAt;
      expect(after).toBeGreaterThanOrEqual(8000 - 1000);
      expect(after).toBeLessThanOrEqual(8000 + 3000 + GRACE_MS);
    }
  }
});

test("a clock that jumps by an hour while its node sleeps makes nothing early, and the others make nothing late", () => {
  for (const jump of [HOUR_MS, -HOUR_MS]) {
    const { stage, leader, grantedAt } = asleepWithKeys();
    jumpWallClock(stage.world, stage.host(leader), jump);
    expectGone(stage, grantedAt, [TTL_S - 1, TTL_S + 6]);
  }
});
