/** Nodes that need a snapshot, in the stories: how one comes to need it, and what it must have in the end. */
import { expect } from "vitest";
import type { PeerEnvelope, SnapshotChunk, SnapshotPosition } from "../../../src/node-object/ports.ts";
import type { NodeId } from "../../../src/raft/types.ts";
import { FLUSHED_MS, type Stage, type StageOptions } from "./stage.ts";
import { put } from "./vocabulary.ts";

/** Who misses a few dozen entries gets a snapshot, however lately it was heard, and it comes in several chunks. */
export const SHORT_LOG = { logKeepEntries: 10, logKeepBytes: 2000, chunkBytesMax: 1200 } satisfies StageOptions;

const LAST_COUNT = 5;
/** Several heartbeats. */
const HEARD_MS = 200;

export function writeMany(stage: Stage, node: NodeId, count: number, key = "k"): void {
  const pending = Array.from({ length: count }, (_, at) => stage.write(node, put(`${key}${at % 17}`, at)));
  for (const one of pending) expect(stage.answerTo(one).ok).toBe(true);
}

/** The node is cut off, and the others write until their logs do not reach back to it. It stays cut off. */
export function leaveBehind(stage: Stage, node: NodeId, count = 60): void {
  stage.run(HEARD_MS); // whatever it got lately, the leader knows that it has it
  stage.isolate(node);
  const leader = stage.leader() ?? 0;
  writeMany(stage, leader, count - LAST_COUNT);
  stage.run(FLUSHED_MS); // the log is cut where a write finds it too long, and not behind what is on the disk
  writeMany(stage, leader, LAST_COUNT);
  const last = stage.host(node).disk.log.at(-1)?.index ?? baseOf(stage, node);
  const others = stage.ids.filter((id) => id !== node && stage.host(id).live !== null);
  stage.until("the logs of the others begin behind it", () => others.every((id) => baseOf(stage, id) > last));
}

/** Wiped, and built again from a snapshot alone. */
export function buildAnew(stage: Stage, node: NodeId): void {
  stage.wipe(node);
  stage.start(node);
  const isVoter = () => stage.host(node).live !== null && stage.status(node).member === "voter";
  stage.until("it votes again", () => isVoter() && stage.status(node).state === "formed");
  expect(baseOf(stage, node)).toBeGreaterThan(0);
  stage.settle(soundOf(stage));
}

/** The nodes that run and serve. */
export function soundOf(stage: Stage): NodeId[] {
  return stage.ids.filter((id) => stage.host(id).live !== null && !stage.halted.has(id));
}

export function baseOf(stage: Stage, node: NodeId): number {
  return stage.host(node).disk.base?.index ?? 0;
}

/** The same rows on all disks, once all that was applied has been written. */
export function expectEqualRows(stage: Stage, ids: readonly NodeId[] = stage.ids): void {
  stage.settle(ids);
  stage.run(FLUSHED_MS);
  const [first = 0, ...others] = ids;
  for (const id of others)
    expect([...stage.host(id).disk.rows].sort()).toEqual([...stage.host(first).disk.rows].sort());
}

export function isChunk({ body }: PeerEnvelope): boolean {
  return body.kind === "snapshot_chunk";
}

export function chunkOf({ body }: PeerEnvelope): { chunk: SnapshotChunk; position: SnapshotPosition } {
  if (body.kind !== "snapshot_chunk") throw new Error(`no chunk: ${body.kind}`);
  return { chunk: body.chunk, position: body.manifest.position };
}

export function offerOf({ body }: PeerEnvelope): SnapshotPosition | null {
  return body.kind === "raft" && body.message.kind === "snapshot_offer" ? body.message.snapshot : null;
}
