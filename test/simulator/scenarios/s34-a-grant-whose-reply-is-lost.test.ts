/** S34: whoever does not hear that a lease was granted asks again, and the lease is there once, also after a restart. */
import { expect, test } from "vitest";
import { formed, type Stage } from "./stage.ts";
import { idempotency } from "./vocabulary.ts";

function leases(stage: Stage, node: number): unknown {
  const listed = stage.readNow(node, { kind: "lease_list", limit: 10, anonymous: true });
  if (!listed.ok || listed.result.kind !== "lease_list") throw new Error(`no list: ${JSON.stringify(listed)}`);
  return listed.result.leases.map(({ id, ttl_s, expires_at_ms }) => ({ id, ttl_s, expires_at_ms }));
}

test("a grant that is asked for again under its key is one lease of one id (S34)", () => {
  const stage = formed();
  const [leader, follower, other] = stage.cast();
  const command = { kind: "lease_grant", ttl_s: 30 } as const;
  const options = { idempotency: idempotency("grant") };
  // The reply of the leader to the follower is lost.
  stage.rules = [({ body }) => (body.kind === "forward_reply" ? "drop" : undefined)];
  const lost = stage.write(follower, command, options);
  stage.run(50);
  expect(lost.answer).toBeNull();
  stage.heal();
  const first = stage.written(other, command, options);
  const second = stage.written(leader, command, options);
  expect(first).toMatchObject({ ok: true, replayed: true });
  expect(second).toMatchObject({ result: (first.ok && first.result) || null });
  expect(leases(stage, leader)).toHaveLength(1);
});

test("all nodes restart right behind a grant: the same leases, with the same keys, and later ones get other ids (S34)", () => {
  const stage = formed();
  const [leader] = stage.cast();
  const granted = stage.written(leader, { kind: "lease_grant", ttl_s: 30 });
  const timed = stage.written(leader, {
    kind: "txn",
    compare: [],
    success: [{ type: "put", key: "timed", value: { json: 1 }, ttl: 40 }],
    failure: [],
  });
  expect(granted.ok && timed.ok).toBe(true);
  const before = leases(stage, leader);
  stage.crash(...stage.ids);
  stage.start(...stage.ids);
  stage.settle();
  for (const node of stage.ids) expect(leases(stage, node)).toEqual(before);
  const next = stage.written(1, { kind: "lease_grant", ttl_s: 30 });
  expect(next).toMatchObject({ ok: true, result: { id: 3 } });
});

test("a grant that was acknowledged right before all nodes reset ends on time, although nobody asks again (S34)", () => {
  const stage = formed({ quiesceAfterMs: 1000 });
  const [leader] = stage.cast();
  const grantedAt = stage.world.now;
  expect(stage.written(leader, { kind: "lease_grant", ttl_s: 5, id: 77 }).ok).toBe(true);
  stage.crash(...stage.ids);
  stage.start(...stage.ids);
  const ended = () => stage.world.safety.committed.some(({ outcome }) => isExpiry(outcome));
  stage.until("the lease ends", ended, 30_000);
  const after = stage.world.now - grantedAt;
  expect(after).toBeGreaterThanOrEqual(5000);
  // Nobody wakes them but the watchdog that they had armed: at most 15 s ahead.
  expect(after).toBeLessThan(17_500);
});

function isExpiry(outcome: Stage["world"]["safety"]["committed"][number]["outcome"]): boolean {
  return outcome?.ok === true && outcome.result.kind === "lease_expire" && outcome.result.expired.includes(77);
}
