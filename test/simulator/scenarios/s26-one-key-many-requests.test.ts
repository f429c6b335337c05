/** S26: one idempotency key, used at the same instant, with another body, and for another command. */
import { expect, test } from "vitest";
import { FLUSHED_MS, formed } from "./stage.ts";
import { codeOf, idempotency, put } from "./vocabulary.ts";

test("ten equal requests at one instant through five nodes are one write and ten equal answers (S26)", () => {
  const stage = formed();
  const nodes = [...stage.ids, ...stage.ids];
  const calls = nodes.map((node) => stage.write(node, put("k", 1), { idempotency: idempotency("same") }));
  stage.until("all are answered", () => calls.every((call) => codeOf(call) !== null));
  const outcomes = calls.map(({ answer }) => {
    if (answer?.ok !== true) throw new Error(JSON.stringify(answer));
    return { revision: answer.revision, result: answer.result };
  });
  expect(new Set(outcomes.map((outcome) => JSON.stringify(outcome))).size).toBe(1);
  expect(calls.filter(({ answer }) => answer?.ok === true && answer.replayed === true)).toHaveLength(9);
  stage.settle();
  for (const id of stage.ids) expect(stage.status(id).revision).toBe(1);
  expect(stage.readNow(1, { kind: "get", key: "k" })).toMatchObject({ result: { record: { version: 1 } } });
});

test("ten equal requests while the leader dies are one write, and all that are answered are equal (S26)", () => {
  const stage = formed();
  const [leader, ...others] = stage.cast();
  const nodes = [...others, ...others];
  const options = { idempotency: idempotency("same"), timeoutMs: 5000 };
  const calls = nodes.map((node) => stage.write(node, put("k", 1), options));
  stage.run(1.2); // some are appended, none is answered
  expect(calls.map(codeOf)).toEqual(nodes.map(() => null));
  stage.crash(leader);
  stage.until("all are answered", () => calls.every((call) => codeOf(call) !== null));
  expect(calls.map(codeOf)).toEqual(nodes.map(() => "ok"));
  stage.start(leader);
  stage.settle();
  expect(stage.status(leader).revision).toBe(1);
});

test("another body under the same key conflicts on every node and writes nothing (S26)", () => {
  const stage = formed();
  stage.written(1, put("k", 1), { idempotency: idempotency("key", "one") });
  for (const node of stage.ids) {
    const other = stage.written(node, put("k", 2), { idempotency: idempotency("key", "two") });
    expect(other).toMatchObject({ ok: false, revision: 1, error: { code: "idempotency_conflict" } });
    const grant = { kind: "lease_grant", ttl_s: 60 } as const;
    const another = stage.written(node, grant, { idempotency: idempotency("key", "three") });
    expect(another).toMatchObject({ ok: false, error: { code: "idempotency_conflict" } });
  }
  expect(stage.value(5, "k")).toBe(1);
  stage.settle();
  expect(stage.status(3).revision).toBe(1);
});

test("of two bodies under one key at the same instant one runs and the other conflicts, the same for all (S26)", () => {
  const stage = formed();
  const calls = stage.ids.map((node) => {
    const hash = node % 2 === 0 ? "even" : "odd";
    return stage.write(node, put("k", hash), { idempotency: idempotency("key", hash) });
  });
  stage.until("all are answered", () => calls.every((call) => codeOf(call) !== null));
  const won = stage.value(1, "k");
  expect(["even", "odd"]).toContain(won);
  for (const [position, call] of calls.entries()) {
    const hash = (position + 1) % 2 === 0 ? "even" : "odd";
    expect(codeOf(call)).toBe(hash === won ? "ok" : "idempotency_conflict");
  }
});

test("the same key of another principal is another request, and a result outlives the restart of every node (S26)", () => {
  const stage = formed();
  const key = idempotency("key");
  stage.written(1, put("k", 1), { idempotency: key });
  const other = stage.written(2, put("k", 2), { idempotency: { ...key, scope: "other" } });
  expect(other).toMatchObject({ ok: true, revision: 2 });
  stage.run(FLUSHED_MS);
  stage.crash(...stage.ids);
  stage.start(...stage.ids);
  stage.settle();
  expect(stage.written(4, put("k", 1), { idempotency: key })).toMatchObject({ ok: true, replayed: true, revision: 1 });
  expect(stage.value(4, "k")).toBe(2);
});
