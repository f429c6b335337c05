/** S03: a new leader may know a lower commit index than the one that its predecessor has answered from. */
import { expect, test } from "vitest";
import { formed, type Stage } from "./stage.ts";
import { carriesEntries, codeOf, put, recordValue } from "./vocabulary.ts";

/** The leader answers k=1 and dies before any follower hears that the entry is committed. */
function successorThatKnowsLess(): { readonly stage: Stage; readonly leader: number; readonly index: number } {
  const stage = formed();
  const [first] = stage.cast();
  const index = stage.status(first).last_index + 1;
  stage.rules = [
    ({ from, body }) => {
      if (from !== first || body.kind !== "raft" || body.message.kind !== "append") return undefined;
      return body.message.commit >= index ? "drop" : undefined;
    },
  ];
  expect(stage.written(first, put("k", 1)).ok).toBe(true);
  stage.crash(first);
  // The successor's first entry reaches nobody for now.
  stage.rules = [(envelope) => (carriesEntries(envelope) ? "drop" : undefined)];
  stage.until("a successor", () => stage.leader() !== null);
  const leader = stage.leader() ?? 0;
  expect(leader).not.toBe(first);
  return { stage, leader, index };
}

test("a read on a new leader waits for its first entry, then sees what its predecessor acknowledged (S03)", () => {
  const { stage, leader, index } = successorThatKnowsLess();
  const read = stage.read(leader, { kind: "get", key: "k" });
  stage.run(250);
  expect(stage.status(leader).role).toBe("leader");
  expect(stage.status(leader).commit_index).toBeLessThan(index);
  expect(read.answer).toBeNull();
  stage.heal();
  stage.until("the read is answered", () => read.answer !== null);
  expect(recordValue(stage.answerTo(read))).toBe(1);
});

test("a read that a follower asks the new leader for waits as well (S03)", () => {
  const { stage, leader, index } = successorThatKnowsLess();
  const follower = stage.ids.find((id) => id !== leader && stage.host(id).live !== null) ?? 0;
  const read = stage.read(follower, { kind: "get", key: "k" });
  stage.run(250);
  expect(stage.status(follower).commit_index).toBeLessThan(index);
  expect(read.answer).toBeNull();
  stage.heal();
  expect(recordValue(stage.answerTo(read))).toBe(1);
});

test("a read whose new leader never commits ends unconfirmed at its deadline, not with an old value (S03)", () => {
  const { stage, leader } = successorThatKnowsLess();
  const read = stage.read(leader, { kind: "get", key: "k" }, { timeoutMs: 400 });
  stage.run(500);
  expect(codeOf(read)).toBe("timeout");
});
