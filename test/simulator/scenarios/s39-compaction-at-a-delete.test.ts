/** S39: a compaction exactly at the revision of a delete. What it leaves is told as it was, what it takes is refused. */
import { expect, test } from "vitest";
import { Spectator } from "./audience.ts";
import { FLUSHED_MS, formed, type Stage } from "./stage.ts";
import { put, recordValue } from "./vocabulary.ts";

/** Revisions: 1 other; 2..4 k=2..4; 5 k gone; and, unless it ends there, 6 k=6. */
function history(withPut: boolean): Stage {
  const stage = formed();
  const [leader] = stage.cast();
  stage.written(leader, put("other", 1));
  for (const value of [2, 3, 4]) stage.written(leader, put("k", value));
  const gone = { type: "delete", selector: { key: "k" } } as const;
  stage.written(leader, { kind: "txn", compare: [], success: [gone], failure: [] });
  if (withPut) stage.written(leader, put("k", 6));
  return stage;
}

function compact(stage: Stage, revision: number): void {
  expect(stage.written(stage.leader() ?? 1, { kind: "compact", revision }).ok).toBe(true);
  stage.settle();
  stage.run(FLUSHED_MS); // and what can go is gone
  stage.settle();
  expect(stage.world.safety.replay.removalPending).toBe(false);
}

function expectCompacted(stage: Stage, node: number, from: number): void {
  const late = new Spectator(stage, { key: "k" }).watch(node, { from });
  stage.run(20);
  expect(late.frames).toMatchObject([{ kind: "compacted", compactRevision: 5 }]);
}

test("behind it the put comes, with nothing before it; a watch that needs the delete is refused, on every node (S39)", () => {
  const stage = history(true);
  compact(stage, 5);
  for (const node of stage.ids) {
    const audience = new Spectator(stage, { key: "k" }).watch(node, { from: 6 });
    stage.run(20);
    expect(audience.seen).toEqual(["6 k=6"]);
    expect(audience.ofKind("events")[0]?.events[0]?.previous).toBeNull();
    for (const from of [4, 5]) expectCompacted(stage, node, from);
    expect(recordValue(stage.readNow(node, { kind: "get", key: "k", revision: 5 }))).toBeNull();
    expect(stage.readNow(node, { kind: "get", key: "k", revision: 4 })).toMatchObject({ error: { code: "compacted" } });
  }
});

test("when the delete is the last write, twice compacted and restarted it stays deleted, and later writes come (S39)", () => {
  const stage = history(false);
  compact(stage, 5);
  compact(stage, 5);
  stage.crash(...stage.ids);
  stage.start(...stage.ids);
  stage.settle();
  for (const node of stage.ids) {
    expectCompacted(stage, node, 5);
    expect(stage.value(node, "k")).toBeNull();
    expect(recordValue(stage.readNow(node, { kind: "get", key: "k", revision: 5 }))).toBeNull();
    expect(stage.status(node).revision).toBe(5);
  }
  const audience = new Spectator(stage, { key: "k" }).watch(2, { from: 6 });
  stage.written(3, put("k", "again"));
  stage.run(100);
  expect(audience.seen).toEqual(["6 k=again"]);
  expect(audience.ofKind("events")[0]?.events[0]?.event).toMatchObject({ version: 1, create_revision: 6 });
});
