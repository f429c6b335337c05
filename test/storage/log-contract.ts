/** The part of the storage contract about the log: its base, and what is dropped below it. */
import { describe, expect, test } from "vitest";
import type { SnapshotPosition } from "../../src/node-object/ports.ts";
import type { Entry } from "../../src/raft/types.ts";
import { opened, type Storage, type TestDisk, type WithDisk } from "./storage-contract.ts";

const MEMBERSHIP = '{"voters":[1,2,3],"learners":[]}';

export function entry(index: number, term: number, kind: Entry["kind"] = "command"): Entry {
  const payload = kind === "membership" ? MEMBERSHIP : `payload ${index}`;
  return { index, term, timeMs: 1_000_000 + index, kind, payload, payloadBytes: payload.length };
}

export function run(from: number, to: number, term: number): Entry[] {
  return Array.from({ length: to - from + 1 }, (_, position) => entry(from + position, term));
}

export function position(index: number, term = 1): SnapshotPosition {
  const membership = { voters: [1, 2, 3], learners: [4], extra: "kept beside" };
  return { index, term, timeMs: 1_000_000 + index, membership };
}

export function readAll(storage: Storage): Entry[] {
  return storage.readLog(1, 1_000_000, Number.MAX_SAFE_INTEGER);
}

/** Three rows where a storage has rows. */
function twelve(disk: TestDisk): Storage {
  const storage = opened(disk);
  for (const from of [1, 5, 9]) disk.turn("kept", () => storage.write({ append: run(from, from + 3, 1) }));
  return storage;
}

/** A turn of an instance that was made before it. */
function turnOf(disk: TestDisk, storage: Storage, outcome: "kept" | "undone", work: (storage: Storage) => void): void {
  disk.turn(outcome, () => work(storage));
}

export function logContract(name: string, withDisk: WithDisk): void {
  test(`${name}: the index from which on the log holds so many bytes never says more than that`, () =>
    withDisk((disk) => {
      const storage = twelve(disk);
      const bytes = storage.readLog(1, 12, Number.MAX_SAFE_INTEGER).map(({ payloadBytes }) => payloadBytes);
      const all = bytes.reduce((sum, one) => sum + one, 0);
      expect(storage.logIndexWithin(all)).toBe(1);
      expect(storage.logIndexWithin(0)).toBe(13);
      for (let bytesMax = 0; bytesMax <= all; bytesMax += 1) {
        const index = storage.logIndexWithin(bytesMax);
        expect(bytes.slice(index - 1).reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(bytesMax);
      }
    }));

  test(`${name}: the note of a sleeping leader is kept, replaced and taken away`, () =>
    withDisk((disk) => {
      const note = { missed: [2, 4], probeAfterMs: 4000, dueAtWallMs: null };
      const storage = disk.open();
      storage.load();
      for (const sleep of [note, { ...note, missed: [2], dueAtWallMs: 1.5 }, null]) {
        disk.turn("kept", () => storage.write({ sleep }));
        expect(disk.open().load().sleep).toEqual(sleep);
      }
      disk.turn("undone", () => storage.write({ sleep: note }));
      expect(disk.open().load().sleep).toBeNull();
    }));

  describe(`${name}: the base of the log`, () => {
    test("a new log has none and begins with entry 1", () =>
      withDisk((disk) => {
        const storage = disk.open();
        expect(storage.load()).toMatchObject({ base: null, lastIndex: 0, memberships: [] });
        expect(() => storage.write({ append: [entry(2, 1)] })).toThrow();
      }));

    for (let through = 1; through <= 12; through += 1) {
      test(`entries up to ${through} of three batches are dropped, and the rest stays`, () =>
        withDisk((disk) => {
          const storage = twelve(disk);
          disk.turn("kept", () => storage.write({ dropThrough: position(through) }));
          for (const instance of [storage, disk.open()]) {
            const loaded = instance.load();
            expect(loaded).toMatchObject({
              base: position(through),
              lastIndex: 12,
              lastTerm: 1,
              lastTimeMs: 1_000_012,
            });
            expect(readAll(instance)).toEqual(run(through + 1, 12, 1));
            expect(instance.readLog(1, through, 1000)).toEqual([]);
            expect(instance.readLog(through, 12, 1)).toEqual(run(through + 1, 12, 1).slice(0, 1));
          }
          disk.turn("kept", () => storage.write({ append: run(13, 14, 2) }));
          disk.turn("kept", () => storage.write({ dropThrough: position(13, 2) }));
          expect(readAll(storage)).toEqual([entry(14, 2)]);
          expect(readAll(opened(disk))).toEqual([entry(14, 2)]);
        }));
    }

    test("a log without entries goes on behind its base", () =>
      withDisk((disk) => {
        const storage = twelve(disk);
        disk.turn("kept", () => storage.write({ dropThrough: position(12) }));
        expect(disk.open().load()).toMatchObject({ lastIndex: 12, lastTerm: 1, lastTimeMs: 1_000_012 });
        turnOf(disk, opened(disk), "undone", (storage) =>
          expect(() => storage.write({ append: run(14, 14, 1) })).toThrow(),
        );
        turnOf(disk, opened(disk), "kept", (storage) => storage.write({ append: run(13, 15, 1) }));
        expect(readAll(opened(disk))).toEqual(run(13, 15, 1));
      }));

    test("truncation stops at the base, whose term is then the last", () =>
      withDisk((disk) => {
        const storage = twelve(disk);
        disk.turn("kept", () => storage.write({ dropThrough: position(6) }));
        disk.turn("kept", () => storage.write({ truncateFrom: 7 }));
        expect(disk.open().load()).toMatchObject({
          base: { index: 6 },
          lastIndex: 6,
          lastTerm: 1,
          lastTimeMs: 1_000_006,
        });
        disk.turn("kept", () => storage.write({ append: run(7, 8, 3) }));
        expect(readAll(opened(disk))).toEqual(run(7, 8, 3));
        turnOf(disk, opened(disk), "undone", (storage) => expect(() => storage.write({ truncateFrom: 6 })).toThrow());
      }));

    test("one batch truncates, appends and drops, in this order", () =>
      withDisk((disk) => {
        const storage = twelve(disk);
        disk.turn("kept", () =>
          storage.write({ truncateFrom: 7, append: run(7, 9, 2), dropThrough: position(8, 2), fence: 1 }),
        );
        expect(readAll(storage)).toEqual([entry(9, 2)]);
        expect(readAll(opened(disk))).toEqual([entry(9, 2)]);
      }));

    test("a turn that drops and is undone leaves the log as it was", () =>
      withDisk((disk) => {
        const storage = twelve(disk);
        const before = storage.load();
        disk.turn("undone", () => storage.write({ dropThrough: position(6) }));
        const after = opened(disk);
        expect(after.load()).toEqual(before);
        expect(readAll(after)).toEqual(run(1, 12, 1));
      }));

    test("the base never goes back, nor beyond the end", () =>
      withDisk((disk) => {
        turnOf(disk, twelve(disk), "kept", (storage) => storage.write({ dropThrough: position(6) }));
        turnOf(disk, opened(disk), "kept", (storage) => storage.write({ dropThrough: position(6) }));
        for (const index of [5, 13]) {
          turnOf(disk, opened(disk), "undone", (storage) =>
            expect(() => storage.write({ dropThrough: position(index) })).toThrow(),
          );
        }
        expect(readAll(opened(disk))).toEqual(run(7, 12, 1));
      }));
  });

  describe(`${name}: memberships in the log`, () => {
    test("are listed, and go with their entries from either end", () =>
      withDisk((disk) => {
        const storage = opened(disk);
        const entries = run(1, 20, 1).map((one) => (one.index % 5 === 0 ? entry(one.index, 1, "membership") : one));
        const listed = () =>
          disk
            .open()
            .load()
            .memberships.map(({ index }) => index);
        disk.turn("kept", () => storage.write({ append: entries.slice(0, 12) }));
        disk.turn("kept", () => storage.write({ append: entries.slice(12) }));
        expect(disk.open().load().memberships).toEqual([5, 10, 15, 20].map((index) => entry(index, 1, "membership")));
        disk.turn("kept", () => storage.write({ dropThrough: position(5) }));
        expect(listed()).toEqual([10, 15, 20]);
        disk.turn("kept", () => storage.write({ truncateFrom: 16, append: [entry(16, 2, "membership")] }));
        expect(listed()).toEqual([10, 15, 16]);
        disk.turn("undone", () => storage.write({ truncateFrom: 10 }));
        expect(listed()).toEqual([10, 15, 16]);
        turnOf(disk, opened(disk), "kept", (storage) => storage.write({ truncateFrom: 15, dropThrough: position(10) }));
        expect(listed()).toEqual([]);
      }));
  });
}
