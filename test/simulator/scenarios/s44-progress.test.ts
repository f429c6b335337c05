/** S44: progress is told neither too early, while events are still under way, nor never, to those who watch what is quiet. */
import { expect, test } from "vitest";
import { endOf } from "../../../src/kv/position.ts";
import { Spectator } from "./audience.ts";
import { formed, type Stage } from "./stage.ts";
import { put } from "./vocabulary.ts";

/** So little credit that a hundred events do not fit it. */
const NARROW = { creditPerWatchBytes: 4096, frameBytesMax: 1024, frameBytesTarget: 512 };

function write(stage: Stage, node: number, key: string, count: number): void {
  const pending = Array.from({ length: count }, (_, at) => stage.write(node, put(key, at)));
  for (const one of pending) expect(stage.answerTo(one).ok).toBe(true);
}

test("a slow watcher that asks how far it is hears it behind every event that it says (S44)", () => {
  const stage = formed({ hubLimits: NARROW });
  const [leader, follower] = stage.cast();
  const audience = new Spectator(stage, { prefix: "busy" }).watch(follower, "now");
  stage.run(10);
  audience.stopReading();
  write(stage, leader, "busy", 100);
  stage.settle();
  audience.askProgress();
  stage.run(100);
  expect(audience.ofKind("progress")).toEqual([]);
  audience.readOn();
  stage.run(500);
  // That no event stood behind its progress was checked with each frame.
  expect(audience.seen).toHaveLength(100);
  const last = audience.ofKind("progress").pop();
  expect(last?.revision).toBe(100);
  expect(audience.frames.indexOf(last as never)).toBeGreaterThan(
    audience.frames.lastIndexOf(audience.ofKind("events").pop() as never),
  );
});

test("who watches what is quiet is told before history goes, and resumes from there (S44)", () => {
  const stage = formed();
  const [leader, follower, other] = stage.cast();
  write(stage, leader, "busy", 8);
  const told = new Spectator(stage, { prefix: "quiet" }).watch(follower, { from: 9 });
  stage.run(10);
  write(stage, leader, "busy", 100);
  expect(stage.written(leader, { kind: "compact", revision: 100 }).ok).toBe(true);
  stage.settle();
  stage.run(20);
  expect(told.position).toEqual(endOf(108));
  told.resume(other);
  stage.run(20);
  write(stage, leader, "quiet", 1);
  stage.run(20);
  expect(told.seen).toEqual(["109 quiet=0"]);
  expect(told.ofKind("compacted")).toEqual([]);
});

test("who was away and was told nothing hears that history is gone, lists, and goes on behind the list (S44)", () => {
  const stage = formed();
  const [leader, follower, other] = stage.cast();
  write(stage, leader, "busy", 8);
  const away = new Spectator(stage, { prefix: "quiet" }).watch(follower, { from: 9 });
  stage.run(10);
  away.leave();
  write(stage, leader, "busy", 100);
  expect(stage.written(leader, { kind: "compact", revision: 100 }).ok).toBe(true);
  stage.settle();
  away.resume(other);
  stage.run(20);
  expect(away.frames.pop()).toMatchObject({ kind: "compacted", compactRevision: 100 });
  // A watch from the compacted revision itself, without a list, would be refused just as well.
  const hasty = new Spectator(stage, { prefix: "quiet" }).watch(other, { from: 100 });
  stage.run(20);
  expect(hasty.frames.pop()).toMatchObject({ kind: "compacted" });
  const list = { kind: "list", selector: { prefix: "quiet" }, limit: 10, order: "asc", keys_only: false } as const;
  const listed = stage.readNow(other, { ...list, count_only: false });
  expect(listed).toMatchObject({ ok: true, revision: 108 });
  away.watch(other, { from: listed.revision + 1 });
  write(stage, leader, "quiet", 1);
  stage.run(20);
  expect(away.seen).toEqual(["109 quiet=0"]);
});

test("who watches what is quiet in a cluster that sleeps is told when it asks, and wakes nobody (S44)", () => {
  const stage = formed({ quiesceAfterMs: 1000 });
  const [leader, follower] = stage.cast();
  const audience = new Spectator(stage, { prefix: "quiet" }).watch(follower, "now");
  write(stage, leader, "busy", 3);
  stage.until("sleep", () => stage.world.sleep.cluster);
  const { messages } = stage.world.sleep;
  audience.askProgress();
  stage.run(100);
  expect(audience.ofKind("progress").pop()?.revision).toBe(3);
  expect(stage.world.sleep.messages).toBe(messages);
  expect(stage.world.sleep.cluster).toBe(true);
});
