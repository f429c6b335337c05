/**
 * S41: a watched node gets a snapshot. Its revision jumps without events; a watcher still sees every change once and in
 * order, read from the history that came with the snapshot, or is told that it must list.
 */
import { expect, test } from "vitest";
import { Spectator } from "./audience.ts";
import { baseOf, leaveBehind, SHORT_LOG, writeMany } from "./newcomers.ts";
import { formed } from "./stage.ts";

function revisionsOf(spectator: Spectator): number[] {
  return spectator.seen.map((seen) => Number(seen.split(" ")[0]));
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, at) => from + at);
}

test("a watcher that stays connected gets what the snapshot brought, once and in order (S41)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, follower] = stage.cast();
  writeMany(stage, leader, 50);
  stage.settle();
  const watcher = new Spectator(stage).watch(follower, { from: 51 });
  stage.run(10);
  const before = baseOf(stage, follower);
  leaveBehind(stage, follower, 200);
  expect(watcher.seen).toEqual([]);
  stage.heal();
  stage.settle();
  stage.run(100);
  expect(baseOf(stage, follower)).toBeGreaterThan(before + 190);
  expect(watcher.connected).toBe(true);
  expect(revisionsOf(watcher)).toEqual(range(51, 250));
  // And what comes after it comes as always.
  writeMany(stage, leader, 3);
  stage.settle();
  stage.run(50);
  expect(revisionsOf(watcher)).toEqual(range(51, 253));
});

test("one that has seen a part of it before goes on where it is, one that waits for later waits on (S41)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, follower] = stage.cast();
  writeMany(stage, leader, 30);
  stage.settle();
  const past = new Spectator(stage).watch(follower, { from: 1 });
  const narrow = new Spectator(stage, { key: "k3" }).watch(follower, { from: 1 });
  const future = new Spectator(stage).watch(follower, { from: 70 });
  const beyond = new Spectator(stage).watch(follower, { from: 95 });
  stage.run(50);
  expect(revisionsOf(past)).toEqual(range(1, 30));
  leaveBehind(stage, follower);
  stage.heal();
  stage.settle();
  stage.run(100);
  expect(revisionsOf(past)).toEqual(range(1, 90));
  expect(revisionsOf(future)).toEqual(range(70, 90));
  expect(beyond.seen).toEqual([]);
  expect(narrow.seen.length).toBe(past.seen.filter((seen) => seen.includes(" k3=")).length);
  writeMany(stage, leader, 10);
  stage.settle();
  stage.run(50);
  expect(revisionsOf(beyond)).toEqual(range(95, 100));
});

test("a reader that has stopped meanwhile finds the rest when it reads on (S41)", () => {
  const narrow = { frameBytesMax: 512, frameBytesTarget: 256, creditPerWatchBytes: 2048, creditPerNodeBytes: 8192 };
  const stage = formed({ ...SHORT_LOG, hubLimits: narrow });
  const [leader, follower] = stage.cast();
  writeMany(stage, leader, 30);
  stage.settle();
  const watcher = new Spectator(stage).watch(follower, { from: 1 });
  watcher.stopReading();
  stage.run(50);
  leaveBehind(stage, follower);
  stage.heal();
  stage.settle();
  stage.run(100);
  expect(watcher.seen).toEqual([]);
  watcher.readOn();
  stage.run(500);
  expect(revisionsOf(watcher)).toEqual(range(1, 90));
});

test("a watcher whose place was compacted away in the snapshot is told to list, and goes on from there (S41)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, follower, other] = stage.cast();
  writeMany(stage, leader, 20);
  stage.settle();
  const watcher = new Spectator(stage).watch(follower, { from: 1 });
  stage.run(50);
  expect(watcher.seen).toHaveLength(20);
  leaveBehind(stage, follower);
  expect(stage.written(other, { kind: "compact", revision: 60 }).ok).toBe(true);
  writeMany(stage, leader, 30);
  stage.run(2000);
  stage.heal();
  stage.settle();
  stage.run(100);
  expect(watcher.frames.at(-1)).toMatchObject({ kind: "resync" });
  expect(watcher.seen).toHaveLength(20);
  const list = {
    kind: "list",
    selector: { prefix: "" },
    limit: 1,
    order: "asc",
    keys_only: true,
    count_only: false,
  } as const;
  const { revision } = stage.readNow(follower, list);
  expect(revision).toBe(110);
  const again = new Spectator(stage).watch(follower, { after: { revision, opIndex: 99_999 } });
  writeMany(stage, leader, 5);
  stage.settle();
  stage.run(50);
  expect(revisionsOf(again)).toEqual(range(111, 115));
});
