/**
 * A row is another one than was written, or is gone. The node that finds out halts, and names the row; nobody takes
 * anything of it in; with an empty disk it comes back by itself, and all have the same rows again.
 */
import { expect, test } from "vitest";
import { createRandom } from "../../../src/base/random.ts";
import type { NodeId } from "../../../src/raft/types.ts";
import { changeRow, loseRow } from "../damage.ts";
import {
  baseOf,
  buildAnew,
  expectEqualRows,
  isChunk,
  leaveBehind,
  SHORT_LOG,
  soundOf,
  writeMany,
} from "./newcomers.ts";
import { FLUSHED_MS, formed, type Stage } from "./stage.ts";
import { codeOf, put } from "./vocabulary.ts";

const HOUSEKEEPING_MS = 1000;
/** Two passes through a small state, and some. */
const FOUND_MS = 3 * HOUSEKEEPING_MS;

function written(): Stage {
  const stage = formed({ ...SHORT_LOG, housekeepingMs: HOUSEKEEPING_MS });
  const [leader] = stage.cast();
  writeMany(stage, leader, 20);
  stage.settle();
  stage.run(FLUSHED_MS);
  return stage;
}

function rowOf(stage: Stage, node: NodeId, beginning: string): string {
  const key = stage.host(node).disk.keys.find((one) => one.startsWith(beginning));
  if (key === undefined) throw new Error(`no row ${beginning}`);
  return key;
}

function expectRepaired(stage: Stage, ...nodes: readonly NodeId[]): void {
  for (const node of nodes) {
    buildAnew(stage, node);
    expectEqualRows(stage, soundOf(stage));
  }
  expectEqualRows(stage);
}

test("a row that has changed is found by whoever reads it first, or in passing: it is never served", () => {
  const stage = written();
  const [leader, node, other] = stage.cast();
  const random = createRandom(7);
  changeRow(stage.host(node).disk, rowOf(stage, node, "r"), random);
  changeRow(stage.host(other).disk, rowOf(stage, other, "ck3"), random);
  const answer = stage.read(other, { kind: "get", key: "k3" }, { local: true });
  stage.until("both have halted", () => stage.halted.has(node) && stage.halted.has(other), FOUND_MS);
  expect(codeOf(answer)).not.toBe("ok");
  for (const id of [node, other]) expect(stage.halted.get(id)).toMatch(/^state "/);
  expect(stage.written(leader, put("k3", "new")).ok).toBe(true);
  expectRepaired(stage, node, other);
});

test("a row that is gone is found within a pass through the rows, also by the leader, and another one leads", () => {
  const stage = written();
  const [leader, ...others] = stage.cast();
  loseRow(stage.host(leader).disk, rowOf(stage, leader, "k"));
  stage.until("it has halted", () => stage.halted.has(leader), FOUND_MS);
  expect(stage.halted.get(leader)).toMatch(/^state: \d+ rows .* instead of \d+/);
  stage.until("another leads", () => others.includes(stage.leader() ?? 0));
  expect(stage.written(others[0] ?? 0, put("x", 1)).ok).toBe(true);
  expectRepaired(stage, leader);
});

test("an entry of the log that is gone or has changed halts the node that needs it, not the ones that it is sent to", () => {
  const stage = written();
  const [leader, first, second] = stage.cast();
  for (const [node, kind] of [
    [first, "lostEntries"],
    [second, "changedEntries"],
  ] as const) {
    const { disk } = stage.host(node);
    const index = stage.status(node).last_index + 1;
    expect(stage.written(leader, put("k", index)).ok).toBe(true);
    expect(stage.written(leader, put("k", index + 1)).ok).toBe(true);
    stage.settle(stage.ids.filter((id) => !stage.halted.has(id)));
    // Applied, and not written out: it is read again after the restart.
    disk.damage[kind].add(index);
    stage.crash(node);
    stage.start(node);
    stage.ask(node);
    stage.until("it has halted", () => stage.halted.has(node));
    expect(stage.halted.get(node)).toContain(`log ${index}`);
  }
  expect([...stage.halted.keys()].sort()).toEqual([first, second].sort());
  expectRepaired(stage, first, second);
});

test("a snapshot of a leader whose rows have changed is not taken in by anybody; the next leader's is", () => {
  const stage = written();
  const [leader, , , , node] = stage.cast();
  leaveBehind(stage, node);
  stage.run(FLUSHED_MS);
  const before = baseOf(stage, node);
  changeRow(stage.host(leader).disk, rowOf(stage, leader, "r"), createRandom(3));
  let chunks = 0;
  stage.rules = [
    (envelope) => {
      if (envelope.from === leader && isChunk(envelope)) chunks += 1;
      return undefined;
    },
  ];
  stage.mend([node], stage.ids);
  stage.until("it has halted", () => stage.halted.has(leader), FOUND_MS);
  expect(chunks).toBeGreaterThan(0);
  expect(baseOf(stage, node)).toBe(before);
  const rest = stage.ids.filter((id) => id !== leader);
  stage.settle(rest);
  expect(baseOf(stage, node)).toBeGreaterThan(before);
  expectEqualRows(stage, rest);
  expectRepaired(stage, leader);
});

test("rows that do not fit together any more halt a node, which would stumble over them at every start", () => {
  const stage = written();
  const [leader, node] = stage.cast();
  const { disk } = stage.host(node);
  const record = rowOf(stage, node, "ck3");
  // As if it had been written so: with a seal of its own, which nobody can find fault with.
  disk.rows.set(record, disk.rows.get(record)?.slice(0, -1) ?? "");
  expect(stage.written(leader, put("k3", "next")).ok).toBe(true);
  stage.until("it has halted", () => stage.halted.has(node), FOUND_MS);
  expect(stage.halted.get(node)).toMatch(/can not be applied/);
  expectRepaired(stage, node);
});
