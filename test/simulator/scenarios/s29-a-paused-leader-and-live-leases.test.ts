/** S29: a leader that slept decides, when it wakes up, that leases are over which others have renewed meanwhile. */
import { expect, test } from "vitest";
import { Spectator } from "./audience.ts";
import { alive, grant, keepAlive } from "./owners.ts";
import { formed } from "./stage.ts";
import { codeOf } from "./vocabulary.ts";

const KEYS = ["agent", "agent/work"];

test("a deposed leader that wakes up decides nothing about leases that were renewed meanwhile (S29)", () => {
  const stage = formed();
  const [old, other] = stage.cast();
  const lease = grant(stage, old, 5, KEYS);
  const audience = new Spectator(stage).watch(other);
  stage.run(4000);
  stage.pause(old);
  stage.until("another leads", () => ![null, old].includes(stage.leader()));
  const next = stage.leader() ?? 0;
  expect(keepAlive(stage, next, lease)).toBe("alive");
  stage.run(3500);
  // It wakes up and hears nobody: it still leads its term, and the lease is over by what it knows. But it knows, too, that
  // it was away, and asks for grace first, which nobody gives it.
  stage.isolate(old);
  stage.resume(old);
  const logged = (kind: string) => stage.host(old).disk.log.some(({ payload }) => payload.includes(kind));
  const decided = () => logged("lease_expire");
  stage.until("the old leader asks for grace", () => logged("lease_floor"), 1000);
  expect(decided()).toBe(false);
  stage.heal();
  stage.settle();
  stage.run(200);
  expect(decided()).toBe(false);
  expect(alive(stage, KEYS)).toBe(2);
  expect(audience.seen.filter((seen) => seen.includes("gone"))).toEqual([]);
  expect(keepAlive(stage, old, lease)).toBe("alive");
});

test("leases outlive a stop of all nodes that changes no leader: owners whose renewals wait are served first (S29)", () => {
  const stage = formed();
  const [leader, ...others] = stage.cast();
  const lease = grant(stage, leader, 5, KEYS);
  stage.pause(leader, ...others);
  stage.run(8000);
  stage.resume(leader, ...others);
  const waiting = stage.write(leader, { kind: "lease_keep_alive", items: [{ id: lease }] });
  stage.until("the renewal is answered", () => waiting.answer !== null);
  expect(codeOf(waiting)).toBe("ok");
  stage.run(2000);
  expect(alive(stage, KEYS)).toBe(2);
  stage.until("the end", () => alive(stage, KEYS) === 0, 5000 + 1000 + 1200 + 200);
});

test("a decision that stands in the log behind a renewal ends nothing (S29)", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  const lease = grant(stage, leader, 5, KEYS);
  const info = stage.readNow(leader, { kind: "lease", id: lease });
  if (!info.ok || info.result.kind !== "lease") throw new Error("no lease");
  const seen = { id: lease, expires_at_ms: info.result.lease?.expires_at_ms ?? 0 };
  stage.run(4900);
  expect(keepAlive(stage, follower, lease)).toBe("alive");
  stage.run(500);
  // As it would come from a leader that did not see the renewal.
  const late = stage.write(leader, { kind: "lease_expire", leases: [seen] });
  const answer = stage.answerTo(late);
  expect(answer.ok && answer.result).toEqual({ kind: "lease_expire", expired: [], deleted: 0 });
  expect(alive(stage, KEYS)).toBe(2);
});

test("a follower never hands a decision about leases to the leader: it ends with the office (S29)", () => {
  const stage = formed();
  const [old] = stage.cast();
  grant(stage, old, 2, KEYS);
  const forwarded: string[] = [];
  stage.rules = [
    ({ body }) => {
      if (body.kind === "forward") forwarded.push(...body.calls.map(({ payload }) => payload));
      return undefined;
    },
  ];
  stage.isolate(old);
  stage.run(4000);
  stage.heal();
  stage.settle();
  stage.run(3000);
  expect(forwarded.filter((payload) => payload.includes("lease_"))).toEqual([]);
  expect(alive(stage, KEYS)).toBe(0);
});

test("an owner that can reach nobody has a grace after the outage, and no more (S29)", () => {
  const stage = formed();
  const [leader, ...others] = stage.cast();
  const lease = grant(stage, leader, 1, KEYS);
  stage.crash(leader, ...others.slice(0, 2));
  stage.run(3000);
  expect(alive(stage, KEYS)).toBe(2);
  stage.start(leader);
  const unheard = stage.write(leader, { kind: "lease_keep_alive", items: [{ id: lease }] });
  stage.until("a leader", () => stage.leader() !== null);
  stage.until("the renewal is answered", () => unheard.answer !== null);
  expect(codeOf(unheard)).toBe("ok");
  expect(alive(stage, KEYS)).toBe(2);
  // Nobody renews it any more.
  stage.until("the end", () => alive(stage, KEYS) === 0, 1000 + 1000 + 1200 + 200);
});
