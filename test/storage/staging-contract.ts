/** The part of the storage contract about a snapshot that comes in, and takes the place of state and log. */
import { describe, expect, test } from "vitest";
import { createRandom } from "../../src/base/random.ts";
import type { SnapshotChunk } from "../../src/node-object/ports.ts";
import { entry, position, readAll, run } from "./log-contract.ts";
import {
  allRows,
  change,
  type Model,
  randomChanges,
  rowsOf,
  sealedRowsOf,
  snapshotOf,
  sumsOf,
  write,
} from "./state-model.ts";
import { opened, type Storage, type TestDisk, type WithDisk } from "./storage-contract.ts";

const SNAPSHOT = position(8, 2);

function modelOf(seed: number): Model {
  const model: Model = new Map();
  const random = createRandom(seed);
  while (model.size < 150) change(model, randomChanges(random, 100, 400));
  return model;
}

/** A follower with a state and a log of its own. */
function follower(disk: TestDisk): { readonly storage: Storage; readonly model: Model } {
  const storage = opened(disk);
  const model: Model = new Map();
  write(disk, storage, model, randomChanges(createRandom(21), 300, 400));
  disk.turn("kept", () => storage.write({ append: run(1, 5, 1) }));
  disk.turn("kept", () => storage.write({ append: [...run(6, 9, 1), entry(10, 1, "membership")] }));
  return { storage, model };
}

function add(disk: TestDisk, storage: Storage, chunk: SnapshotChunk | undefined) {
  if (chunk === undefined) throw new Error("there is no such chunk");
  return disk.turn("kept", () => storage.staging.add(chunk));
}

function stage(disk: TestDisk, storage: Storage, model: Model, at = SNAPSHOT, rowsPerChunk = 20): void {
  const { manifest, chunks } = snapshotOf(model, at, rowsPerChunk);
  while (disk.turn("kept", () => storage.cleanUp()));
  expect(disk.turn("kept", () => storage.staging.begin(manifest))).toBe(true);
  for (const chunk of chunks) expect(add(disk, storage, chunk)).toBe("taken");
  expect(storage.staging.state()).toMatchObject({ manifest, status: "complete", rowsCount: model.size });
}

function install(disk: TestDisk, storage: Storage, keepsSuffix: boolean, at = SNAPSHOT): void {
  disk.turn("kept", () => storage.write({ install: { snapshot: at, keepsSuffix } }));
}

export function stagingContract(name: string, withDisk: WithDisk): void {
  describe(`${name}: a snapshot on its way in`, () => {
    test("changes nothing of the state until it is installed, then is the state, with its hash and the log's base", () =>
      withDisk((disk) => {
        const { storage, model } = follower(disk);
        const incoming = modelOf(31);
        stage(disk, storage, incoming);
        write(disk, storage, model, [["k1", "written meanwhile"]]);
        expect(allRows(storage)).toEqual(rowsOf(model));
        expect(storage.stateHash).toBe(sumsOf(model).hash);
        install(disk, storage, false);
        for (const instance of [storage, opened(disk)]) {
          expect(allRows(instance)).toEqual(rowsOf(incoming));
          expect(instance.stateHash).toBe(sumsOf(incoming).hash);
          expect(instance.staging.state()).toBeNull();
          expect(readAll(instance)).toEqual([]);
        }
        expect(disk.open().load()).toMatchObject({ base: SNAPSHOT, lastIndex: 8, lastTerm: 2, memberships: [] });
        disk.turn("kept", () => storage.write({ append: run(9, 9, 3) }));
        write(disk, storage, incoming, [["k1", "after"]]);
        expect(allRows(opened(disk))).toEqual(rowsOf(incoming));
      }));

    test("keeps the entries behind it where they agree", () =>
      withDisk((disk) => {
        const { storage } = follower(disk);
        const at = position(8, 1);
        stage(disk, storage, modelOf(32), at);
        install(disk, storage, true, at);
        expect(readAll(opened(disk))).toEqual([entry(9, 1), entry(10, 1, "membership")]);
        expect(disk.open().load()).toMatchObject({ base: at, lastIndex: 10, memberships: [{ index: 10 }] });
      }));

    test("goes in as a leader's pinned state comes out", () =>
      withDisk((disk) => {
        const { storage, model } = follower(disk);
        const manifest = storage.snapshot.begin(SNAPSHOT);
        if (manifest === null) throw new Error("the sums are known");
        const pinned = rowsOf(model);
        expect(disk.turn("kept", () => storage.staging.begin(manifest))).toBe(true);
        for (let last = false; !last; ) {
          write(disk, storage, model, randomChanges(createRandom(33), 100, 400));
          const chunk = storage.snapshot.read(storage.staging.state()?.afterKey ?? null, 2000);
          if (chunk === null) throw new Error("nothing is pinned");
          expect(add(disk, storage, chunk)).toBe("taken");
          last = chunk.last;
        }
        install(disk, storage, false);
        expect(allRows(storage)).toEqual(pinned);
        expect(storage.snapshot.read(null, 1000)).toBeNull();
      }));

    test("takes each chunk once and in its place, over restarts (S53)", () =>
      withDisk((disk) => {
        const { storage: first, model } = follower(disk);
        const incoming = modelOf(34);
        const { manifest, chunks } = snapshotOf(incoming, SNAPSHOT, 30);
        const [one, two, three] = chunks;
        const other = snapshotOf(modelOf(35), position(9, 2), 30).chunks;
        const sameIndex = snapshotOf(modelOf(35), position(8, 3), 30).chunks;
        expect(add(disk, first, one)).toBe("stale");
        disk.turn("kept", () => first.staging.begin(manifest));
        expect(first.staging.state()).toEqual({ manifest, afterKey: null, rowsCount: 0, status: "receiving" });
        expect(add(disk, first, two)).toBe("stale");
        expect(add(disk, first, one)).toBe("taken");
        expect(add(disk, first, one)).toBe("stale");
        disk.turn("undone", () => first.staging.add(two as SnapshotChunk));
        const second = opened(disk);
        expect(second.staging.state()).toEqual({
          manifest,
          afterKey: one?.rows.at(-1)?.[0],
          rowsCount: 30,
          status: "receiving",
        });
        for (const wrong of [one, three, other[0], other[1], sameIndex[0], sameIndex[1]]) {
          expect(add(disk, second, wrong)).toBe("stale");
        }
        expect(add(disk, second, { ...(two as SnapshotChunk), rows: [], last: false })).toBe("taken");
        for (const chunk of chunks.slice(1)) {
          expect(add(disk, second, chunk)).toBe("taken");
          expect(add(disk, second, chunk)).toBe("stale");
        }
        expect(opened(disk).staging.state()).toMatchObject({ status: "complete", rowsCount: incoming.size });
        expect(allRows(second)).toEqual(rowsOf(model));
        install(disk, second, false);
        expect(allRows(second)).toEqual(rowsOf(incoming));
      }));

    test("refuses a chunk with a row that is not what it was, or out of order", () =>
      withDisk((disk) => {
        const { storage } = follower(disk);
        const { manifest, chunks } = snapshotOf(modelOf(36), SNAPSHOT, 30);
        disk.turn("kept", () => storage.staging.begin(manifest));
        add(disk, storage, chunks[0]);
        const before = storage.staging.state();
        const good = chunks[1] as SnapshotChunk;
        const [first, second, ...rest] = good.rows;
        if (first === undefined || second === undefined) throw new Error("the chunk has two rows");
        const flipped = (text: string, at: number) => `${text.slice(0, at)}#${text.slice(at + 1)}`;
        const damaged: SnapshotChunk["rows"][] = [
          [first, [second[0], flipped(second[1], 13)], ...rest],
          [first, [second[0], flipped(second[1], 3)], ...rest],
          [first, [second[0], second[1].toUpperCase()], ...rest],
          [first, [second[0], ""], ...rest],
          [first, [`${second[0]}x`, second[1]], ...rest],
          [second, first, ...rest],
          [first, first, ...rest],
          [...(chunks[0] as SnapshotChunk).rows.slice(-1), ...good.rows],
        ];
        for (const rows of damaged) expect(add(disk, storage, { ...good, rows })).toBe("damaged");
        expect(storage.staging.state()).toEqual(before);
        for (const chunk of chunks.slice(1)) expect(add(disk, storage, chunk)).toBe("taken");
        expect(storage.staging.state()?.status).toBe("complete");
      }));

    test("is not installed when its rows are not those of the manifest, or before all have come", () =>
      withDisk((disk) => {
        const incoming = modelOf(37);
        const { manifest, chunks } = snapshotOf(incoming, SNAPSHOT, 1000);
        const [all] = chunks as [SnapshotChunk];
        const refused = (promised: typeof manifest, chunk: SnapshotChunk, status: string) => {
          const storage = opened(disk);
          while (disk.turn("kept", () => storage.cleanUp()));
          expect(disk.turn("kept", () => storage.staging.begin(promised))).toBe(true);
          expect(add(disk, storage, chunk)).toBe("taken");
          expect(opened(disk).staging.state()?.status).toBe(status);
          const next = opened(disk);
          const write = { install: { snapshot: SNAPSHOT, keepsSuffix: false } };
          disk.turn("undone", () => expect(() => next.write(write)).toThrow());
          const after = opened(disk);
          expect(allRows(after)).toEqual([]);
          disk.turn("kept", () => after.staging.discard());
        };
        refused({ ...manifest, hash: manifest.hash - 1 }, all, "damaged");
        refused({ ...manifest, rowsCount: manifest.rowsCount + 1 }, all, "damaged");
        refused(manifest, { ...all, rows: all.rows.slice(0, -1) }, "damaged");
        refused(manifest, { ...all, rows: all.rows.slice(0, -1), last: false }, "receiving");
      }));

    test("another snapshot than the one that is staged is not installed", () =>
      withDisk((disk) => {
        const { storage } = follower(disk);
        stage(disk, storage, modelOf(38));
        for (const at of [position(7, 2), position(8, 1)]) {
          const instance = opened(disk);
          const write = { install: { snapshot: at, keepsSuffix: false } };
          disk.turn("undone", () => expect(() => instance.write(write)).toThrow());
        }
        install(disk, opened(disk), false);
      }));

    test("brings the whole state: other rows do not go with it", () =>
      withDisk((disk) => {
        const { storage } = follower(disk);
        stage(disk, storage, modelOf(41));
        const both = { install: { snapshot: SNAPSHOT, keepsSuffix: false }, state: [["a", "1"]] as const };
        disk.turn("undone", () => expect(() => storage.write(both)).toThrow());
        install(disk, opened(disk), false);
        expect(allRows(opened(disk))).toEqual(rowsOf(modelOf(41)));
      }));

    test("is begun in an empty place only", () =>
      withDisk((disk) => {
        const { storage, model } = follower(disk);
        const incoming = modelOf(39);
        const { manifest, chunks } = snapshotOf(incoming, SNAPSHOT, 30);
        const begin = () => disk.turn("kept", () => storage.staging.begin(manifest));
        expect(begin()).toBe(true);
        expect(begin()).toBe(true);
        add(disk, storage, chunks[0]);
        expect(begin()).toBe(false);
        expect(storage.staging.state()).toBeNull();
        while (disk.turn("kept", () => storage.cleanUp()));
        expect(begin()).toBe(true);
        for (const chunk of chunks) expect(add(disk, storage, chunk)).toBe("taken");
        install(disk, storage, false);
        expect(begin()).toBe(false);
        while (disk.turn("kept", () => storage.cleanUp()));
        // And back: what was the state at first is the place for the next one.
        stage(disk, storage, model, position(20, 3));
        expect(allRows(storage)).toEqual(rowsOf(incoming));
        install(disk, storage, false, position(20, 3));
        expect(allRows(opened(disk))).toEqual(rowsOf(model));
        expect(disk.open().load()).toMatchObject({ base: { index: 20 }, lastIndex: 20 });
      }));

    test("may have no rows", () =>
      withDisk((disk) => {
        const { storage } = follower(disk);
        stage(disk, storage, new Map());
        install(disk, storage, false);
        expect(allRows(opened(disk))).toEqual([]);
        expect(storage.stateHash).toBe(0);
      }));

    test("leaves all as it was when the turn of its install is undone", () =>
      withDisk((disk) => {
        const { storage, model } = follower(disk);
        stage(disk, storage, modelOf(40));
        const before = disk.open().load();
        disk.turn("undone", () => storage.write({ install: { snapshot: SNAPSHOT, keepsSuffix: false } }));
        const next = opened(disk);
        expect(next.load()).toEqual(before);
        expect(allRows(next)).toEqual(rowsOf(model));
        expect(next.stateHash).toBe(sumsOf(model).hash);
        expect(next.staging.state()?.status).toBe("complete");
        install(disk, next, false);
        expect(sealedRowsOf(new Map(allRows(next)))).toEqual(sealedRowsOf(modelOf(40)));
      }));
  });
}
