/** S24: the first try was committed, its reply was lost, and somebody else has written since. */
import { expect, test } from "vitest";
import type { Command } from "../../../src/kv/command.ts";
import { formed, type Stage } from "./stage.ts";
import { codeOf, idempotency, put } from "./vocabulary.ts";

const FOUR: Command = {
  kind: "txn",
  compare: [{ target: "value", key: "k", op: "==", value: { json: 1 } }],
  success: [{ type: "put", key: "k", value: { json: 4 } }],
  failure: [{ type: "get", selector: { key: "k" } }],
};

/** Commits the compare-and-set through `through`; its reply is lost, by the leader's crash or on the way to the node. */
function loseReply(stage: Stage, loss: "leader crashes" | "reply dropped", key: string | null): string | null {
  const [leader, through] = stage.cast();
  stage.written(leader, put("k", 1));
  stage.rules = [({ to, body }) => (to === through && body.kind === "forward_reply" ? "drop" : undefined)];
  const options = key === null ? {} : { idempotency: idempotency(key) };
  const first = stage.write(through, FOUR, { ...options, timeoutMs: 100 });
  stage.run(20);
  expect(codeOf(first)).toBeNull();
  if (loss === "leader crashes") stage.crash(leader);
  stage.run(100);
  stage.heal();
  return codeOf(first);
}

const LOSSES = ["leader crashes", "reply dropped"] as const;

test.each(LOSSES)("a retry under the same key through another node gets the first outcome (S24, %s)", (loss) => {
  const stage = formed();
  const [, , other, writer] = stage.cast();
  expect(loseReply(stage, loss, "cas")).toBe("timeout");
  stage.until("a leader", () => stage.leader() !== null);
  expect(stage.written(writer, put("k", 2)).ok).toBe(true);
  const retried = stage.written(other, FOUR, { idempotency: idempotency("cas") });
  expect(retried).toMatchObject({ ok: true, revision: 2, replayed: true, result: { succeeded: true, revision: 2 } });
  expect(stage.value(other, "k")).toBe(2);
});

test.each(LOSSES)("without a key the outcome is unknown, and nobody repeats the txn (S24, %s)", (loss) => {
  const stage = formed();
  const [, , other, writer] = stage.cast();
  expect(loseReply(stage, loss, null)).toBe("timeout");
  stage.until("a leader", () => stage.leader() !== null);
  expect(stage.written(writer, put("k", 1)).ok).toBe(true); // it would succeed again now
  stage.run(3000);
  expect(stage.value(other, "k")).toBe(1);
  const revisions = stage.ids.filter((id) => stage.host(id).live !== null).map((id) => stage.status(id).revision);
  expect(new Set(revisions)).toEqual(new Set([3]));
});

test("a node that repeats a forwarded call by itself, under its key, runs it once and answers the first outcome (S24)", () => {
  const stage = formed();
  const [leader, through] = stage.cast();
  stage.written(leader, put("k", 1));
  let replies = 0;
  stage.rules = [
    ({ to, body }) => {
      if (to !== through || body.kind !== "forward_reply") return undefined;
      replies += 1;
      return replies === 1 ? "drop" : "pass";
    },
  ];
  const outcome = stage.written(through, FOUR, { idempotency: idempotency("cas"), timeoutMs: 5000 });
  expect(replies).toBe(2);
  expect(outcome).toMatchObject({ ok: true, revision: 2, result: { succeeded: true } });
  expect(stage.status(leader).revision).toBe(2);
});
