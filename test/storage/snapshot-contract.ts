/** The part of the storage contract about a pinned state that is read while writes go on. */
import { describe, expect, test } from "vitest";
import { createRandom, nextInteger, type Random } from "../../src/base/random.ts";
import type { SealedRow } from "../../src/node-object/ports.ts";
import { position } from "./log-contract.ts";
import { type Model, randomChanges, sealedRowsOf, sumsOf, write } from "./state-model.ts";
import { opened, type Storage, type TestDisk, type WithDisk } from "./storage-contract.ts";

const SEEDS = [1, 2, 3, 4, 5, 6, 7, 8];

/** Everything behind `after`, in chunks; `between` runs before each. */
function readFrom(storage: Storage, after: string | null, bytesMax: () => number, between = () => {}): SealedRow[] {
  const rows: SealedRow[] = [];
  let cursor = after;
  for (let calls = 0; calls < 10_000; calls += 1) {
    between();
    const chunk = storage.snapshot.read(cursor, bytesMax());
    if (chunk === null) throw new Error("nothing is pinned");
    expect(chunk.after).toBe(cursor);
    rows.push(...chunk.rows);
    cursor = chunk.rows.at(-1)?.[0] ?? cursor;
    if (chunk.last) return rows;
  }
  throw new Error("the read never ends");
}

function filled(disk: TestDisk, random: Random): { readonly storage: Storage; readonly model: Model } {
  const storage = opened(disk);
  const model: Model = new Map();
  for (let round = 0; round < 4; round += 1) write(disk, storage, model, randomChanges(random, 300, 400));
  return { storage, model };
}

export function snapshotContract(name: string, withDisk: WithDisk): void {
  describe(`${name}: a pinned state`, () => {
    test("is read in the order of keys, in chunks, and says what it is", () =>
      withDisk((disk) => {
        const { storage, model } = filled(disk, createRandom(1));
        expect(storage.snapshot.read(null, 1000)).toBeNull();
        expect(storage.snapshot.begin(position(9, 3))).toEqual({ position: position(9, 3), ...sumsOf(model) });
        const first = storage.snapshot.read(null, 1000);
        expect(first).toMatchObject({ index: 9, term: 3, after: null, last: false });
        expect(first?.rows).toEqual(sealedRowsOf(model).slice(0, first?.rows.length));
        expect(readFrom(storage, null, () => 1000)).toEqual(sealedRowsOf(model));
        storage.snapshot.end();
        expect(storage.snapshot.read(null, 1000)).toBeNull();
      }));

    test("may have no rows", () =>
      withDisk((disk) => {
        const storage = opened(disk);
        expect(storage.snapshot.begin(position(1))).toMatchObject({ rowsCount: 0, hash: 0 });
        write(disk, storage, new Map(), [["a", "1"]]);
        expect(storage.snapshot.read(null, 1000)).toMatchObject({ rows: [], last: true });
      }));

    test("ends with the instance", () =>
      withDisk((disk) => {
        const { storage, model } = filled(disk, createRandom(2));
        storage.snapshot.begin(position(1));
        write(
          disk,
          storage,
          model,
          [...model.keys()].map((key) => [key, null] as const),
        );
        const next = opened(disk);
        expect(next.snapshot.read(null, 1000)).toBeNull();
        next.snapshot.begin(position(2));
        expect(readFrom(next, null, () => 1000)).toEqual([]);
        while (disk.turn("kept", () => next.cleanUp()));
        expect(readFrom(next, null, () => 1000)).toEqual([]);
      }));

    test("gives up one row at least, however large, and about as many bytes as were asked for", () =>
      withDisk((disk) => {
        const storage = opened(disk);
        const model: Model = new Map();
        const large = (key: string, units: number) => [key, "x".repeat(units)] as const;
        write(disk, storage, model, [large("a", 10), large("b", 700_000), large("c", 200_000), large("d", 200_000)]);
        write(disk, storage, model, [large("e", 200_000), large("f", 10)]);
        storage.snapshot.begin(position(1));
        const read = (after: string | null) => storage.snapshot.read(after, 450_000)?.rows.map(([key]) => key);
        expect(read(null)).toEqual(["a"]);
        expect(read("a")).toEqual(["b"]);
        expect(read("b")).toEqual(["c", "d"]);
        expect(read("d")).toEqual(["e", "f"]);
        expect(read("f")).toEqual([]);
      }));

    test("is found behind many rows that have come since", () =>
      withDisk((disk) => {
        const storage = opened(disk);
        const model: Model = new Map([]);
        write(disk, storage, model, [
          ["a", "1"],
          ["z", "2"],
        ]);
        storage.snapshot.begin(position(1));
        const pinned = sealedRowsOf(model);
        const news = Array.from({ length: 5000 }, (_, at) => [`m${at}`, "new"] as const);
        write(disk, storage, model, news);
        expect(readFrom(storage, null, () => 1000)).toEqual(pinned);
        expect(readFrom(storage, "a", () => 1000)).toEqual(pinned.slice(1));
        write(
          disk,
          storage,
          model,
          news.map(([key]) => [key, null] as const),
        );
        expect(readFrom(storage, null, () => 1000)).toEqual(pinned);
      }));

    for (const seed of SEEDS) {
      test(`is what it was, whatever is written and from wherever it is read (seed ${seed})`, () =>
        withDisk((disk) => {
          const random = createRandom(seed);
          const { storage, model } = filled(disk, random);
          const scribble = () => {
            if (nextInteger(random, 0, 2) > 0) write(disk, storage, model, randomChanges(random, 100, 400));
          };
          const bytesMax = () => nextInteger(random, 1, 4000);
          for (let pin = 1; pin <= 2; pin += 1) {
            storage.snapshot.begin(position(pin));
            const pinned = sealedRowsOf(model);
            expect(readFrom(storage, null, bytesMax, scribble)).toEqual(pinned);
            for (let receiver = 0; receiver < 3; receiver += 1) {
              const from = nextInteger(random, 0, pinned.length - 1);
              expect(readFrom(storage, pinned[from]?.[0] ?? "", bytesMax, scribble)).toEqual(pinned.slice(from + 1));
            }
            if (pin === 1 && seed % 2 === 0) storage.snapshot.end();
            disk.turn("kept", () => storage.cleanUp());
          }
          expect(storage.stateHash).toBe(sumsOf(model).hash);
        }));
    }
  });
}
