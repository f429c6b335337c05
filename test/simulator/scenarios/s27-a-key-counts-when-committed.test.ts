/** S27: an idempotency key counts from the moment its entry is committed, not from the moment it is proposed. */
import { expect, test } from "vitest";
import type { Query } from "../../../src/kv/command.ts";
import { formed } from "./stage.ts";
import { carriesEntries, codeOf, idempotency, put } from "./vocabulary.ts";

const RESULT: Query = { kind: "txn_result", scope: "root", key: "K" };

test("a key whose entry was lost with its leader's term runs once when that node leads again (S27)", () => {
  const stage = formed();
  const [leader, ...others] = stage.cast();
  const { last_index } = stage.status(leader);
  stage.isolate(leader);
  const first = stage.write(leader, put("k", 1), { idempotency: idempotency("K"), timeoutMs: 100 });
  stage.run(10);
  expect(stage.status(leader).last_index).toBe(last_index + 1); // appended, on no other node
  stage.until("another leads for a moment", () => others.includes(stage.leader() ?? 0));
  expect(codeOf(first)).toBe("timeout");
  stage.heal();
  stage.settle();
  stage.lead(leader);
  expect(stage.readNow(leader, RESULT)).toMatchObject({ ok: true, result: { status: "unknown" } });
  const retried = stage.written(leader, put("k", 1), { idempotency: idempotency("K") });
  expect(retried).toMatchObject({ ok: true, revision: 1 });
  expect(retried).not.toHaveProperty("replayed");
  const again = stage.written(others[0] ?? 0, put("k", 1), { idempotency: idempotency("K") });
  expect(again).toMatchObject({ ok: true, revision: 1, replayed: true });
});

test("a retry while the first entry is appended and not committed ends in one write (S27)", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  stage.rules = [(envelope) => (carriesEntries(envelope) ? "drop" : undefined)];
  const first = stage.write(leader, put("k", 1), { idempotency: idempotency("K") });
  stage.run(10);
  const second = stage.write(leader, put("k", 1), { idempotency: idempotency("K") });
  const third = stage.write(follower, put("k", 1), { idempotency: idempotency("K") });
  stage.run(10);
  expect([first, second, third].map(codeOf)).toEqual([null, null, null]); // not refused as duplicates
  stage.heal();
  stage.until("all are answered", () => [first, second, third].every((call) => codeOf(call) === "ok"));
  stage.settle();
  expect(stage.status(follower).revision).toBe(1);
});

test("once anybody was told the outcome, every node resolves the key, whoever leads (S27)", () => {
  const stage = formed();
  const [leader] = stage.cast();
  // The outcome is told before any follower knows the entry to be committed.
  const commit = stage.status(leader).commit_index + 1;
  stage.rules = [
    ({ body }) =>
      body.kind === "raft" && body.message.kind === "append" && body.message.commit >= commit ? "drop" : undefined,
  ];
  expect(stage.written(leader, put("k", 1), { idempotency: idempotency("K") }).ok).toBe(true);
  const asked = stage.ids.map((id) => stage.read(id, RESULT, { timeoutMs: 5000 }));
  stage.crash(leader);
  stage.heal();
  const survivors = stage.ids.filter((id) => id !== leader);
  for (const id of survivors) {
    const answer = stage.answerTo(asked[id - 1] ?? stage.read(id, RESULT));
    expect(answer).toMatchObject({ ok: true, result: { status: "known", outcome: { ok: true, revision: 1 } } });
  }
});

test("an answer `unknown` while the entry can still commit is not final: it names a revision below the write's (S27)", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  stage.rules = [(envelope) => (carriesEntries(envelope) ? "drop" : undefined)];
  const write = stage.write(leader, put("k", 1), { idempotency: idempotency("K") });
  stage.run(10);
  const asked = [leader, follower].map((id) => stage.read(id, RESULT));
  stage.run(200);
  stage.heal();
  stage.until("the write is answered", () => codeOf(write) === "ok");
  for (const read of asked) {
    const answer = stage.answerTo(read);
    if (answer.ok && answer.result.kind === "txn_result" && answer.result.status === "unknown") {
      expect(answer.revision).toBe(0);
    } else expect(answer).toMatchObject({ ok: true, revision: 1 });
  }
  for (const id of stage.ids) expect(stage.readNow(id, RESULT)).toMatchObject({ result: { status: "known" } });
  // Whoever took the first answer for final and tried again under the same key has not written twice.
  expect(stage.written(follower, put("k", 1), { idempotency: idempotency("K") })).toMatchObject({ replayed: true });
});
