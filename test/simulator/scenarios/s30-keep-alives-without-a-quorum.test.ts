/** S30: nobody is told that a lease lives unless a majority knows it, and an ended lease never comes back. */
import { expect, test } from "vitest";
import { alive, attach, grant, keepAlive, renewal, untilGone } from "./owners.ts";
import { formed } from "./stage.ts";
import { codeOf } from "./vocabulary.ts";

const KEYS = ["agent"];

test("a leader without its majority renews nothing, and tells so when the lease is over (S30)", () => {
  const stage = formed();
  const [old, ...others] = stage.cast();
  const lease = grant(stage, old, 2, KEYS);
  stage.isolate(old);
  const cutOff = stage.write(old, { kind: "lease_keep_alive", items: [{ id: lease }] }, { timeoutMs: 5000 });
  stage.until("another leads", () => others.includes(stage.leader() ?? 0));
  untilGone(stage, KEYS, 6000);
  expect(codeOf(cutOff)).not.toBe("ok");
  stage.heal();
  stage.settle();
  stage.run(100);
  const answer = stage.answerTo(cutOff);
  // It never took effect, or it came too late; in no case does the lease live.
  expect(answer.ok ? renewal(answer) : answer.error.code).toMatch(/gone|timeout|no_leader/);
  for (const node of stage.ids) expect(keepAlive(stage, node, lease)).toBe("gone");
  expect(stage.readNow(old, { kind: "lease", id: lease })).toMatchObject({ result: { lease: null } });
});

test("of a revoke and a keep-alive at one instant each sees the other or comes first, 200 times (S30)", () => {
  const stage = formed();
  const outcomes = new Set<string>();
  for (let round = 0; round < 200; round += 1) {
    const node = (at: number) => stage.ids[(round + at) % stage.ids.length] ?? 1;
    const lease = grant(stage, node(0), 60, KEYS);
    const revoke = stage.write(node(1 + (round % 3)), { kind: "lease_revoke", id: lease });
    if (round % 4 === 0) stage.run(round / 200);
    const kept = stage.write(node(3 - (round % 2)), { kind: "lease_keep_alive", items: [{ id: lease }] });
    expect(codeOf({ answer: stage.answerTo(revoke), lost: null })).toBe("ok");
    outcomes.add(renewal(stage.answerTo(kept)));
    expect(alive(stage, KEYS)).toBe(0);
    expect(keepAlive(stage, node(4), lease)).toBe("gone");
    const late = stage.written(node(2), {
      kind: "txn",
      compare: [],
      success: [{ type: "put", key: "agent", value: { json: 1 }, lease }],
      failure: [],
    });
    expect(late).toMatchObject({ ok: false, error: { code: "unknown_lease" } });
  }
  expect(outcomes).toEqual(new Set(["alive", "gone"]));
  expect(stage.readNow(1, { kind: "lease_list", limit: 10, anonymous: true })).toMatchObject({
    result: { leases: [] },
  });
});

test("a key that left its lease outlives it, one that joined ends with it (S30)", () => {
  const stage = formed();
  const [leader] = stage.cast();
  const lease = grant(stage, leader, 1, ["leaves", "stays"]);
  stage.written(leader, {
    kind: "txn",
    compare: [],
    success: [{ type: "put", key: "leaves", value: { json: 2 } }],
    failure: [],
  });
  attach(stage, leader, lease, ["joins"]);
  untilGone(stage, ["stays", "joins"], 3500);
  expect(alive(stage, ["leaves"])).toBe(1);
});
