import { describe, expect, test } from "vitest";
import type { Entry } from "../../src/raft/types.ts";
import {
  countStatements,
  createDisk,
  loadDisk,
  readLog,
  scanDisk,
  takeJournal,
  undo,
  writeAlarm,
  writeDisk,
} from "./disk.ts";
import { Violation } from "./violation.ts";

const nothing = (): void => {};

function entry(index: number, term: number): Entry {
  return { index, term, timeMs: index * 10, kind: "command", payload: `p${index}`, payloadBytes: 2 };
}

describe("a disk", () => {
  test("undoes a whole turn, in reverse", () => {
    const disk = createDisk(1);
    writeDisk(
      disk,
      { append: [entry(1, 1), entry(2, 1)], state: [["a", "1"]], hardState: { term: 1, votedFor: 2 } },
      nothing,
    );
    takeJournal(disk);
    writeDisk(
      disk,
      {
        hardState: { term: 2, votedFor: null },
        truncateFrom: 2,
        append: [entry(2, 2), entry(3, 2)],
        fence: 7,
        state: [
          ["a", null],
          ["b", "2"],
          ["b", "3"],
        ],
        halted: "why",
      },
      nothing,
    );
    writeAlarm(disk, 99);
    expect(disk.log.map(({ term }) => term)).toEqual([1, 2, 2]);
    undo(takeJournal(disk));
    expect(disk.log).toEqual([entry(1, 1), entry(2, 1)]);
    expect([...disk.rows]).toEqual([["a", "1"]]);
    expect(disk.keys).toEqual(["a"]);
    expect(loadDisk(disk)).toMatchObject({
      hardState: { term: 1, votedFor: 2 },
      lastIndex: 2,
      lastTerm: 1,
      lastTimeMs: 20,
    });
    expect(disk.fence).toBe(0);
    expect(disk.halted).toBeNull();
    expect(disk.alarmAtWallMs).toBeNull();
  });

  test("keeps what was done before the statement that fails", () => {
    const disk = createDisk(1);
    const batch = { append: [entry(1, 1), entry(2, 1)], state: [["a", "1"]] } as const;
    expect(countStatements(batch)).toBe(3);
    let left = 2;
    const failSecond = (): void => {
      left -= 1;
      if (left === 0) throw new Error("disk error");
    };
    expect(() => writeDisk(disk, batch, failSecond)).toThrow("disk error");
    expect(disk.log).toEqual([entry(1, 1)]);
    undo(takeJournal(disk));
    expect(disk.log).toEqual([]);
  });

  test("refuses a log with a gap", () => {
    const disk = createDisk(1);
    expect(() => writeDisk(disk, { append: [entry(2, 1)] }, nothing)).toThrow(Violation);
  });

  test("scans rows in order, in both directions, within bounds", () => {
    const disk = createDisk(1);
    for (const key of ["c", "a", "d", "b"]) writeDisk(disk, { state: [[key, key]] }, nothing);
    const keys = (range: Parameters<typeof scanDisk>[1]) => scanDisk(disk, range).map(([key]) => key);
    expect(keys({ start: "a", end: "d", limit: 10 })).toEqual(["a", "b", "c"]);
    expect(keys({ start: "a", end: "z", limit: 2 })).toEqual(["a", "b"]);
    expect(keys({ start: "a", end: "d", limit: 2, reverse: true })).toEqual(["c", "b"]);
  });

  test("reads at least one entry, then as many as fit", () => {
    const disk = createDisk(1);
    writeDisk(disk, { append: [entry(1, 1), entry(2, 1), entry(3, 1)] }, nothing);
    expect(readLog(disk, 1, 3, 0)).toEqual([entry(1, 1)]);
    expect(readLog(disk, 2, 9, 4)).toEqual([entry(2, 1), entry(3, 1)]);
  });
});
