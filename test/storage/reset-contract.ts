/** The part of the storage contract about giving up everything: afterwards the storage is as good as new, but not ownerless. */
import { describe, expect, test } from "vitest";
import { createRandom } from "../../src/base/random.ts";
import type { Identity, LoadedState } from "../../src/node-object/ports.ts";
import { entry, position, readAll, run } from "./log-contract.ts";
import { allRows, type Model, randomChanges, rowsOf, snapshotOf, write } from "./state-model.ts";
import { opened, type Storage, type TestDisk, type WithDisk } from "./storage-contract.ts";

const BEFORE: Identity = { incarnation: 7, membership: { kind: "formed", clusterId: "c", members: [] } };
const AFTER: Identity = { incarnation: 8, membership: { kind: "lost", clusterId: "c" } };

/** A node with something of everything: a log behind a base, rows, a vote, half a snapshot, a reason to halt. */
function full(disk: TestDisk, halted: string | null): { readonly storage: Storage; readonly model: Model } {
  const storage = opened(disk);
  const model: Model = new Map();
  const turn = (work: () => void) => disk.turn("kept", work);
  turn(() => storage.write({ identity: BEFORE, hardState: { term: 5, votedFor: 2 } }));
  turn(() => storage.write({ sleep: { missed: [3], probeAfterMs: 5, dueAtWallMs: 9 } }));
  turn(() => storage.write({ append: [...run(1, 5, 1), entry(6, 2, "membership")] }));
  write(disk, storage, model, randomChanges(createRandom(3), 200, 300));
  turn(() => storage.write({ dropThrough: position(3) }));
  turn(() => void storage.snapshot.begin(position(6)));
  write(disk, storage, model, randomChanges(createRandom(4), 200, 300));
  const { manifest, chunks } = snapshotOf(model, position(9, 2), 20);
  const [first] = chunks;
  if (first === undefined) throw new Error("the snapshot has no rows");
  turn(() => void storage.staging.begin(manifest));
  turn(() => void storage.staging.add(first));
  turn(() => void storage.spool.begin());
  turn(() => storage.spool.write([["k", "v"]]));
  if (halted !== null) turn(() => storage.write({ halted }));
  return { storage, model };
}

function loaded(disk: TestDisk): LoadedState {
  const storage = disk.open();
  return disk.turn("kept", () => storage.load());
}

export function resetContract(name: string, withDisk: WithDisk): void {
  describe(`${name}: a reset`, () => {
    test.each([false, true])("leaves nothing but the new identity (in a new instance: %s)", (isHalted) =>
      withDisk((disk) => {
        const { storage } = full(disk, isHalted ? "a row was wrong" : null);
        // A node that halted is loaded no further than the reason.
        const before = isHalted ? opened(disk) : storage;
        disk.turn("kept", () => before.write({ reset: AFTER }));
        for (const after of [before, opened(disk)]) {
          expect(allRows(after)).toEqual([]);
          expect(readAll(after)).toEqual([]);
          expect(after.stateHash).toBe(0);
          expect(after.staging.state()).toBeNull();
          expect(after.snapshot.read(null, 1000)).toBeNull();
          expect(after.spool.get("k")).toBeUndefined();
        }
        expect(loaded(disk)).toEqual({
          identity: AFTER,
          hardState: { term: 0, votedFor: null },
          base: null,
          lastIndex: 0,
          lastTerm: 0,
          lastTimeMs: 0,
          memberships: [],
          sleep: null,
          halted: null,
        });
      }),
    );

    test("that is undone has changed nothing", () =>
      withDisk((disk) => {
        const { storage, model } = full(disk, null);
        const before = loaded(disk);
        disk.turn("undone", () => storage.write({ reset: AFTER }));
        expect(loaded(disk)).toEqual(before);
        expect(before).toMatchObject({ identity: BEFORE, hardState: { term: 5, votedFor: 2 }, lastIndex: 6 });
        const after = opened(disk);
        expect(allRows(after)).toEqual(rowsOf(model));
        expect(after.staging.state()).toMatchObject({ status: "receiving" });
      }));

    test("makes room at once: what comes next is written from the first entry, or from a snapshot", () =>
      withDisk((disk) => {
        const { storage, model } = full(disk, null);
        disk.turn("kept", () => storage.write({ reset: AFTER }));
        disk.turn("kept", () => storage.write({ append: run(1, 2, 6), state: [["k", "v"]] }));
        expect(readAll(opened(disk))).toEqual(run(1, 2, 6));
        const { manifest, chunks } = snapshotOf(model, position(9, 6), 50);
        const next = opened(disk);
        expect(disk.turn("kept", () => next.staging.begin(manifest))).toBe(true);
        for (const chunk of chunks) disk.turn("kept", () => next.staging.add(chunk));
        disk.turn("kept", () => next.write({ install: { snapshot: position(9, 6), keepsSuffix: false } }));
        expect(allRows(opened(disk))).toEqual(rowsOf(model));
      }));
  });
}
