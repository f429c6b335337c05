/**
 * S10: a crash after every single storage statement of one txn that writes two keys, moves a lease and keeps an
 * idempotency result, at the leader and at a follower: while it is appended, and while its rows are flushed.
 */
import { expect, test } from "vitest";
import type { Command } from "../../../src/kv/command.ts";
import { FLUSHED_MS, formed, type Stage } from "./stage.ts";
import { codeOf, idempotency } from "./vocabulary.ts";

const LEASE = 7;
const TXN: Command = {
  kind: "txn",
  compare: [{ target: "exists", key: "a", op: "==", value: false }],
  success: [
    { type: "put", key: "a", value: { json: 1 }, lease: LEASE },
    { type: "put", key: "b", value: { json: 2 } },
  ],
  failure: [],
};

interface Story {
  readonly stage: Stage;
  readonly victim: number;
  readonly crashed: boolean;
  readonly kinds: readonly string[];
}

/** Runs the txn while `role` crashes after its `count`-th statement (0 = never). */
function play(role: "leader" | "follower", count: number): Story {
  const stage = formed();
  const [leader, follower, other] = stage.cast();
  const victim = role === "leader" ? leader : follower;
  stage.written(leader, { kind: "lease_grant", ttl_s: 600, id: LEASE });
  stage.settle();
  stage.run(FLUSHED_MS);
  const kinds: string[] = [];
  stage.onStatement = ({ node, kind, when }) => {
    if (node !== victim || when !== "after" || kind === "fence") return undefined;
    kinds.push(kind);
    return kinds.length === count ? "crash" : undefined;
  };
  const write = stage.write(other, TXN, { idempotency: idempotency("txn"), timeoutMs: 5000 });
  stage.until("the txn is answered", () => codeOf(write) !== null);
  expect(codeOf(write), `${role}, statement ${count}`).toBe("ok");
  stage.run(FLUSHED_MS);
  const crashed = count > 0 && kinds.length >= count;
  stage.onStatement = null;
  // Whatever was in memory is lost as well: the node has its disk and the log, nothing else.
  stage.crash(victim);
  stage.start(victim);
  stage.settle();
  stage.run(FLUSHED_MS);
  return { stage, victim, crashed, kinds };
}

function check({ stage, victim }: Story, what: string): void {
  const healthy = stage.ids.find((id) => id !== victim) ?? 0;
  expect(stage.agree(), what).toBe(true);
  for (const id of stage.ids) expect(stage.status(id).revision, what).toBe(1);
  // Rows, not only digests: nothing is left over and nothing is missing.
  expect([...stage.host(victim).disk.rows].sort(), what).toEqual([...stage.host(healthy).disk.rows].sort());
  for (const [key, value] of [
    ["a", 1],
    ["b", 2],
  ] as const) {
    const answer = stage.readNow(victim, { kind: "get", key });
    expect(answer, what).toMatchObject({ result: { record: { value: { json: value }, version: 1, mod_revision: 1 } } });
  }
  expect(stage.readNow(victim, { kind: "lease", id: LEASE }), what).toMatchObject({
    result: { lease: { keys: ["a"] } },
  });
  const again = stage.written(victim, TXN, { idempotency: idempotency("txn") });
  expect(again, what).toMatchObject({ ok: true, replayed: true, revision: 1, result: { succeeded: true } });
}

test.each(["leader", "follower"] as const)(
  "after a crash at any statement of a txn the %s has all of it, once (S10)",
  (role) => {
    const whole = play(role, 0);
    check(whole, `${role}, no crash`);
    // One statement for the entry, and one for each row: two keys with their history, the lease, the result, the position.
    expect(whole.kinds.filter((kind) => kind === "append").length).toBeGreaterThanOrEqual(1);
    expect(whole.kinds.filter((kind) => kind === "state").length).toBeGreaterThanOrEqual(8);
    let count = 1;
    for (;;) {
      const story = play(role, count);
      if (!story.crashed) break;
      check(story, `${role}, statement ${count} (${story.kinds[count - 1]})`);
      count += 1;
    }
    expect(count).toBeGreaterThan(whole.kinds.length);
  },
);
