/** The part of the storage contract about the hash of all rows, and the pass that verifies them. */
import { describe, expect, test } from "vitest";
import { createRandom, nextInteger } from "../../src/base/random.ts";
import { allRows, type Model, randomChanges, rowsOf, sumsOf, write } from "./state-model.ts";
import { opened, type WithDisk } from "./storage-contract.ts";

export function sumsContract(name: string, withDisk: WithDisk): void {
  describe(`${name}: the hash of the state`, () => {
    test("is 0 without rows, and depends on nothing but the rows", () =>
      withDisk((disk) => {
        const storage = opened(disk);
        expect(storage.stateHash).toBe(0);
        write(disk, storage, new Map(), [
          ["a", "1"],
          ["b", "2"],
        ]);
        const hash = storage.stateHash;
        expect(hash).not.toBe(0);
        write(disk, storage, new Map(), [
          ["b", null],
          ["a", "2"],
          ["a", "3"],
          ["c", null],
          ["c", "4"],
        ]);
        expect(storage.stateHash).not.toBe(hash);
        write(disk, storage, new Map(), [["c", null]]);
        write(disk, storage, new Map(), [
          ["b", "2"],
          ["a", "1"],
          ["never", null],
        ]);
        expect(storage.stateHash).toBe(hash);
      }));

    test("is kept through random writes, turns that are undone, and restarts", () =>
      withDisk((disk) => {
        const random = createRandom(11);
        let storage = opened(disk);
        const model: Model = new Map();
        for (let round = 0; round < 40; round += 1) {
          write(disk, storage, model, randomChanges(random, 50, 60));
          expect(storage.stateHash).toBe(sumsOf(model).hash);
          if (round % 5 > 0) continue;
          disk.turn("undone", () => storage.write({ state: randomChanges(random, 50, 60) }));
          storage = opened(disk);
          expect(storage.stateHash).toBe(sumsOf(model).hash);
        }
        expect(allRows(storage)).toEqual(rowsOf(model));
      }));
  });

  describe(`${name}: a scrub`, () => {
    test("passes all rows in steps and begins again", () =>
      withDisk((disk) => {
        const storage = opened(disk);
        const model: Model = new Map();
        write(disk, storage, model, randomChanges(createRandom(12), 700, 900));
        for (let pass = 0; pass < 2; pass += 1) {
          const first = disk.turn("kept", () => storage.scrub.step(100));
          expect(first).toMatchObject({ afterKey: rowsOf(model)[99]?.[0], rowsCount: 100 });
          let step = first;
          while (step.afterKey !== null) step = disk.turn("kept", () => storage.scrub.step(100));
          expect(step).toEqual({ afterKey: null, ...sumsOf(model) });
        }
      }));

    test("sees nothing wrong in writes that go on, before and behind it", () =>
      withDisk((disk) => {
        const random = createRandom(13);
        const storage = opened(disk);
        const model: Model = new Map();
        write(disk, storage, model, randomChanges(random, 700, 900));
        let passes = 0;
        for (let steps = 0; steps < 150; steps += 1) {
          const { afterKey, ...sums } = disk.turn("kept", () => storage.scrub.step(nextInteger(random, 1, 200)));
          const passed: Model = new Map([...model].filter(([key]) => afterKey === null || key <= afterKey));
          expect(sums).toEqual(sumsOf(passed));
          if (afterKey === null) passes += 1;
          if (nextInteger(random, 0, 1) === 0) write(disk, storage, model, randomChanges(random, 100, 900));
          if (nextInteger(random, 0, 4) === 0)
            storage.snapshot.begin({ index: 1, term: 1, timeMs: 1, membership: { voters: [], learners: [] } });
        }
        expect(passes).toBeGreaterThan(5);
      }));
  });
}
