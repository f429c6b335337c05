/**
 * S53: a node ends while it takes in a snapshot: before and after every statement of its storage, behind every chunk, with
 * chunks lost, repeated, and mixed from two leaders. What it starts with is the old state with its log or the new one with
 * its own, never a mix, and in the end it can lead.
 */
import { expect, test } from "vitest";
import { META_ROW } from "../../../src/kv/rows.ts";
import type { NodeId } from "../../../src/raft/types.ts";
import {
  baseOf,
  buildAnew,
  chunkOf,
  expectEqualRows,
  isChunk,
  leaveBehind,
  SHORT_LOG,
  writeMany,
} from "./newcomers.ts";
import { FLUSHED_MS, formed, type Stage } from "./stage.ts";
import type { Statement } from "./storage-faults.ts";
import { put } from "./vocabulary.ts";

/** State, base and membership as they lie on the disk, and whether they can belong together. */
function pairOf(stage: Stage, node: NodeId): { applied: number; base: number; voters: string } {
  const { disk } = stage.host(node);
  const applied: number = JSON.parse(disk.rows.get(META_ROW) ?? '{"index":0}').index;
  const base = baseOf(stage, node);
  const last = base + disk.log.length;
  // The log reaches from the state on: nothing between them is missing, nothing of the state is beyond it.
  expect(applied).toBeGreaterThanOrEqual(base);
  expect(applied).toBeLessThanOrEqual(last);
  return { applied, base, voters: disk.base?.membership.voters.join("") ?? "" };
}

/** A crash at the `count`-th chance; false once the transfer is over before it. */
function crashAt(stage: Stage, node: NodeId, count: number, kinds: readonly Statement["kind"][]): boolean {
  // Without its history the state stays as small as it is.
  const { revision } = stage.status(node);
  expect(stage.written(node, { kind: "compact", revision }).ok).toBe(true);
  leaveBehind(stage, node, 30);
  stage.run(FLUSHED_MS);
  const old = pairOf(stage, node);
  let left = count;
  stage.onStatement = (statement) => {
    if (statement.node !== node || !kinds.includes(statement.kind)) return undefined;
    left -= 1;
    return left === 0 ? "crash" : undefined;
  };
  stage.mend([node], stage.ids);
  stage.until("it crashes or catches up", () => left <= 0 || stage.agree());
  const crashed = left <= 0;
  if (crashed) {
    const found = pairOf(stage, node);
    if (found.base === old.base) expect(found).toEqual(old);
    else expect(found).toMatchObject({ applied: found.base, voters: "12345" });
  }
  stage.onStatement = null;
  stage.settle();
  return crashed;
}

test("a crash at any statement of a transfer leaves the old pair or the new one, and the transfer goes on (S53)", () => {
  const stage = formed({ ...SHORT_LOG, chunkBytesMax: 500 });
  const [leader, , , , node] = stage.cast();
  writeMany(stage, leader, 20);
  let crashes = 0;
  while (crashes < 100 && crashAt(stage, node, crashes + 1, ["begin", "add", "install", "discard"])) crashes += 1;
  expect(crashes).toBeLessThan(100);
  expect(crashes).toBeGreaterThan(15);
  expectEqualRows(stage);
  stage.lead(node);
  expect(stage.written(node, put("x", 1)).ok).toBe(true);
  buildAnew(stage, leader);
  expectEqualRows(stage);
});

test("what has arrived before a crash need not come again (S53)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, , , , node] = stage.cast();
  writeMany(stage, leader, 20);
  leaveBehind(stage, node);
  const sent: (string | null)[] = [];
  stage.rules.push((envelope) => {
    if (envelope.to !== node || !isChunk(envelope)) return undefined;
    sent.push(chunkOf(envelope).chunk.after);
    return undefined;
  });
  const mended = (): void => stage.mend([node], stage.ids);
  mended();
  for (let chunk = 1; chunk <= 6; chunk += 1) {
    stage.until("a chunk has come", () => sent.length >= chunk);
    stage.run(2);
    stage.crash(node);
    stage.start(node);
    stage.ask(node);
  }
  stage.settle();
  // One at a time was under way when the node ended: that one comes again, and no other.
  const distinct = new Set(sent).size;
  expect(sent.length).toBeLessThanOrEqual(distinct + 6);
  expect(sent.filter((after) => after === null).length).toBeLessThanOrEqual(2);
  expectEqualRows(stage);
});

test("chunks that are lost, repeated or late are asked for again, each counts once (S53)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, , , , node] = stage.cast();
  writeMany(stage, leader, 20);
  leaveBehind(stage, node);
  const times = new Map<string | null, number>();
  let lost = 0;
  stage.mend([node], stage.ids);
  stage.rules = [
    (envelope) => {
      if (envelope.to !== node || !isChunk(envelope)) return undefined;
      const { after } = chunkOf(envelope).chunk;
      const time = (times.get(after) ?? 0) + 1;
      times.set(after, time);
      if (time === 1) {
        lost += 1;
        return "hold";
      }
      stage.deliver(envelope);
      stage.deliver(envelope);
      return "pass";
    },
  ];
  stage.until("it has caught up", () => stage.agree(), 60_000);
  expect(lost).toBeGreaterThan(3);
  stage.rules = [];
  stage.release();
  stage.release();
  expectEqualRows(stage);
  stage.lead(node);
});

test("chunks of two leaders are never mixed into one state (S53)", () => {
  const stage = formed(SHORT_LOG);
  const [first, second, , , node] = stage.cast();
  writeMany(stage, first, 20);
  leaveBehind(stage, node);
  stage.mend([node], stage.ids);
  // Half of what the first leader has to say arrives; the other half is under way when the second one leads.
  let come = 0;
  stage.rules = [
    (envelope) => {
      if (envelope.to !== node || envelope.from !== first || !isChunk(envelope)) return undefined;
      come += 1;
      return come > 3 ? "hold" : undefined;
    },
  ];
  stage.until("half of it has come", () => stage.held.length > 0);
  const staged = stage.host(node).disk.snapshots.staging.state();
  expect(staged).toMatchObject({ status: "receiving" });
  stage.isolate(first);
  stage.until("the second one leads", () => ![null, first].includes(stage.leader()));
  const leader = stage.leader() ?? second;
  writeMany(stage, leader, 20, "second");
  let mixed = 0;
  stage.rules = [
    (envelope) => {
      if (envelope.to !== node || !isChunk(envelope)) return undefined;
      for (const { envelope: late } of stage.held) {
        stage.deliver(late);
        mixed += 1;
      }
      return undefined;
    },
  ];
  stage.until("it has caught up", () => stage.agree(stage.ids.filter((id) => id !== first)));
  expect(mixed).toBeGreaterThan(0);
  stage.heal();
  expectEqualRows(stage);
  stage.lead(node);
  expect(stage.written(node, put("x", 1)).ok).toBe(true);
  expectEqualRows(stage);
});

test("a chunk whose rows have changed on the way, or lie wrong at the sender, is not taken in (S53)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, , , , node] = stage.cast();
  writeMany(stage, leader, 20);
  leaveBehind(stage, node);
  stage.mend([node], stage.ids);
  let damaged = 0;
  let requests = 0;
  stage.rules = [
    (envelope) => {
      const { body } = envelope;
      if (envelope.from === node && body.kind === "snapshot_request") requests += 1;
      if (envelope.to !== node || body.kind !== "snapshot_chunk") return undefined;
      if (damaged >= 5) return undefined;
      damaged += 1;
      const rows = body.chunk.rows.map(([key, text], at) => [key, at === 0 ? `${text}!` : text] as const);
      stage.deliver({ ...envelope, body: { ...body, chunk: { ...body.chunk, rows } } });
      return "drop";
    },
  ];
  stage.run(300);
  // It is asked for again now and then, not as fast as the network goes.
  expect(requests).toBe(1);
  stage.settle();
  expect(damaged).toBe(5);
  expectEqualRows(stage);
});

test("a member that dies in the middle of a transfer does not keep the leader's log for ever (S53)", () => {
  const stage = formed(SHORT_LOG);
  const [leader, , , , node] = stage.cast();
  leaveBehind(stage, node);
  stage.mend([node], stage.ids);
  stage.rules = [(envelope) => (envelope.to === node && isChunk(envelope) ? "hold" : undefined)];
  stage.until("a chunk is under way", () => stage.held.length > 0);
  const served = baseOf(stage, leader);
  stage.crash(node);
  writeMany(stage, leader, 60, "later");
  stage.run(10_000);
  // It may be back soon.
  expect(baseOf(stage, leader)).toBeLessThan(served + 30);
  stage.run(120_000);
  writeMany(stage, leader, 5, "last");
  stage.run(FLUSHED_MS);
  expect(baseOf(stage, leader)).toBeGreaterThan(served + 50);
  stage.rules = [];
  stage.start(node);
  stage.ask(node);
  stage.settle();
  expectEqualRows(stage);
});
