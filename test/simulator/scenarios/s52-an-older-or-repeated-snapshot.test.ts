/**
 * S52: a snapshot that contradicts the log, that is older than what the node has, that comes twice, or of which parts
 * come out of order. What is committed never goes back, and what was in the way is gone.
 */
import { expect, test } from "vitest";
import type { PeerEnvelope } from "../../../src/node-object/ports.ts";
import {
  baseOf,
  buildAnew,
  chunkOf,
  expectEqualRows,
  isChunk,
  leaveBehind,
  offerOf,
  SHORT_LOG,
  writeMany,
} from "./newcomers.ts";
import { formed, type Stage } from "./stage.ts";
import { codeOf, put } from "./vocabulary.ts";

/** Everything that a leader has said of snapshots to this node. */
function noteSnapshots(stage: Stage, to: number): PeerEnvelope[] {
  const noted: PeerEnvelope[] = [];
  stage.rules.push((envelope) => {
    if (envelope.to === to && (isChunk(envelope) || offerOf(envelope) !== null)) noted.push(envelope);
    return undefined;
  });
  return noted;
}

test("entries of an abandoned leader go with the snapshot that has others in their place, and appends follow (S52)", () => {
  const stage = formed(SHORT_LOG);
  const [old, ...others] = stage.cast();
  writeMany(stage, old, 20);
  stage.settle();
  stage.isolate(old);
  const lost = Array.from({ length: 30 }, (_, at) => stage.write(old, put(`lost${at}`, at), { timeoutMs: 200 }));
  stage.until("another leads", () => others.includes(stage.leader() ?? 0));
  leaveBehind(stage, old, 35);
  const { last_index } = stage.status(old);
  stage.heal();
  stage.settle();
  // Its log ended within what the snapshot covers, and beyond where the logs parted.
  expect(baseOf(stage, old)).toBeGreaterThan(last_index - 30);
  expect(new Set(lost.map(codeOf))).not.toContain("ok");
  expect(stage.value(old, "lost7")).toBeNull();
  writeMany(stage, others[0] ?? 0, 3, "after");
  stage.settle();
  expect(stage.value(old, "after2")).toBe(2);
  expectEqualRows(stage);
});

test("offers and chunks that come again, in any order, change nothing (S52)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, , , , node] = stage.cast();
  const noted = noteSnapshots(stage, node);
  leaveBehind(stage, node);
  stage.mend([node], stage.ids);
  stage.settle();
  const early = [...noted];
  expect(early.filter(isChunk).length).toBeGreaterThan(2);
  const base = baseOf(stage, node);
  writeMany(stage, leader, 40);
  stage.settle();
  const before = stage.status(node);
  for (const envelope of [...early, ...early.toReversed()]) stage.deliver(envelope);
  stage.run(200);
  const after = stage.status(node);
  expect(after).toMatchObject({
    commit_index: before.commit_index,
    last_index: before.last_index,
    digest: before.digest,
  });
  expect(baseOf(stage, node)).toBeGreaterThanOrEqual(base);
  expect(stage.host(node).disk.snapshots.staging.state()).toBeNull();
  expectEqualRows(stage);
});

test("the older one of two that comes late, whole or in part, is not taken for the newer (S52)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, next, , , node] = stage.cast();
  leaveBehind(stage, node);
  stage.mend([node], stage.ids);
  // The first chunk of the older one arrives, the others are under way for long.
  let count = 0;
  stage.rules = [
    (envelope) => {
      if (envelope.to !== node || !isChunk(envelope)) return undefined;
      count += 1;
      return count > 1 ? "hold" : undefined;
    },
  ];
  stage.until("the second chunk is under way", () => stage.held.length > 0);
  const older = stage.held.map(({ envelope }) => chunkOf(envelope).position.index);
  stage.isolate(node);
  stage.rules = [];
  stage.lead(next, false);
  writeMany(stage, next, 60, "n");
  stage.run(3000);
  stage.mend([node], stage.ids);
  const newer: number[] = [];
  let released = 0;
  stage.rules = [
    (envelope) => {
      if (envelope.to !== node || !isChunk(envelope)) return undefined;
      newer.push(chunkOf(envelope).position.index);
      // Between the chunks of the newer one comes what is left of the older.
      if (newer.length === 2) released = stage.release();
      return undefined;
    },
  ];
  stage.until("it has caught up", () => stage.agree());
  expect(released).toBeGreaterThan(0);
  expect(Math.min(...newer)).toBeGreaterThan(Math.max(...older));
  expect(baseOf(stage, node)).toBe(newer.at(-1));
  expect(stage.host(leader).disk.rows.size).toBeGreaterThan(0);
  expectEqualRows(stage);
});

test("a node that serves a snapshot while it needs one itself lets go of its own (S52)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, , third, fourth, node] = stage.cast();
  leaveBehind(stage, node);
  stage.mend([node], stage.ids);
  stage.rules = [(envelope) => (envelope.to === node && isChunk(envelope) ? "hold" : undefined)];
  stage.until("it serves", () => stage.held.length > 0);
  // It is cut off in the middle, with what it serves; the others go on without it.
  stage.heal();
  stage.isolate(leader, node);
  stage.until("another leads", () => (stage.leader() ?? leader) !== leader && stage.leader() !== node);
  const newLeader = stage.leader() ?? 0;
  writeMany(stage, newLeader, 60, "n");
  stage.until("the log does not reach back", () => baseOf(stage, newLeader) > stage.status(leader).last_index);
  const before = baseOf(stage, leader);
  stage.heal();
  stage.settle();
  stage.release();
  expect(baseOf(stage, leader)).toBeGreaterThan(before);
  expectEqualRows(stage);
  // And it can serve again.
  stage.lead(leader);
  buildAnew(stage, newLeader === third ? fourth : third);
  expectEqualRows(stage);
});

test("a node that got there by its log meanwhile does not go back to the snapshot that it fetched (S52)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, , , , node] = stage.cast();
  leaveBehind(stage, node);
  stage.mend([node], stage.ids);
  const held: PeerEnvelope[] = [];
  stage.rules = [
    (envelope) => {
      if (envelope.to !== node || !isChunk(envelope) || !chunkOf(envelope).chunk.last) return undefined;
      held.push(envelope);
      return held.length === 1 ? "drop" : undefined;
    },
  ];
  stage.until("it has caught up by the last chunk that came again", () => stage.agree());
  writeMany(stage, leader, 5);
  stage.settle();
  const { commit_index } = stage.status(node);
  for (const envelope of held) stage.deliver(envelope);
  stage.run(50);
  expect(stage.status(node).commit_index).toBe(commit_index);
  expectEqualRows(stage);
});
