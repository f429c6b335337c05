/** The storage of a test node: what a turn writes, what a turn that ends badly leaves, and what the log gives back. */
import { expect, test } from "vitest";
import type { Entry } from "../../src/raft/types.ts";
import { MemoryDisk } from "../../src/testing/memory-disk.ts";

function entry(index: number, term = 1): Entry {
  return { index, term, timeMs: index, kind: "command", payload: `p${index}`, payloadBytes: 10 };
}

function written(): MemoryDisk {
  const disk = new MemoryDisk();
  disk.write({
    identity: { incarnation: 5, membership: { kind: "empty" } },
    hardState: { term: 1, votedFor: 2 },
    append: [entry(1), entry(2), entry(3)],
    state: [
      ["a", "1"],
      ["b", "2"],
    ],
  });
  disk.setAlarm(1000);
  disk.endTurn("kept");
  return disk;
}

function contents(disk: MemoryDisk) {
  const rows = disk.scan({ start: "", end: "\u{10FFFF}", limit: 100 });
  return { loaded: disk.load(), log: disk.readLog(1, 100, 1000), rows, bytes: disk.bytes, alarm: disk.alarmAtWallMs };
}

test("a new disk is empty", () => {
  expect(contents(new MemoryDisk())).toMatchObject({
    loaded: { identity: null, hardState: { term: 0, votedFor: null }, lastIndex: 0, halted: null },
    ...{ log: [], rows: [], bytes: 0, alarm: null },
  });
});

test("what was written is there when the next instance loads", () => {
  expect(contents(written())).toMatchObject({
    loaded: { identity: { incarnation: 5 }, hardState: { term: 1, votedFor: 2 }, lastIndex: 3, lastTerm: 1 },
    log: [entry(1), entry(2), entry(3)],
    rows: [
      ["a", "1"],
      ["b", "2"],
    ],
    ...{ bytes: 34, alarm: 1000 },
  });
});

test("a turn that is undone leaves nothing", () => {
  const disk = written();
  const before = contents(disk);
  disk.write({ truncateFrom: 2, append: [entry(2, 2), entry(3, 2), entry(4, 2)], hardState: { term: 2, votedFor: 1 } });
  disk.write({
    state: [
      ["a", "other"],
      ["b", null],
      ["c", "new"],
    ],
    ...{ fence: 7, halted: "broken" },
  });
  disk.setAlarm(null);
  expect(contents(disk)).not.toEqual(before);
  disk.endTurn("undone");
  expect(contents(disk)).toEqual(before);
});

test("a truncation cuts the tail, and new entries follow it", () => {
  const disk = written();
  disk.write({ truncateFrom: 3, append: [entry(3, 2)] });
  disk.endTurn("kept");
  expect(disk.load()).toMatchObject({ lastIndex: 3, lastTerm: 2 });
  expect(disk.readLog(2, 3, 1000)).toEqual([entry(2), entry(3, 2)]);
});

test("the log has no gap", () => {
  expect(() => written().write({ append: [entry(5)] })).toThrow("entry 5 written after 3");
});

test("a read of the log is bounded by bytes, but for its first entry", () => {
  const disk = written();
  expect(disk.readLog(1, 3, 20)).toEqual([entry(1), entry(2)]);
  expect(disk.readLog(2, 3, 1)).toEqual([entry(2)]);
  expect(disk.readLog(4, 9, 100)).toEqual([]);
});
