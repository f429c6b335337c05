/** The place for a backup on its way in (ports: `spool`), as every storage must offer it. */
import { describe, expect, test } from "vitest";
import { opened, type WithDisk } from "./storage-contract.ts";

const ALL = { start: "\u0001", end: "\u{10FFFF}", limit: 1_000_000 };

export function spoolContract(name: string, withDisk: WithDisk): void {
  describe(`${name}: a spool`, () => {
    test("takes rows and deletes, of a key the last, and reads like the state", async () => {
      await withDisk((disk) => {
        const { spool } = opened(disk);
        expect(disk.turn("kept", () => spool.begin())).toBe(true);
        const large = "😀".repeat(100_000);
        disk.turn("kept", () => {
          spool.write([
            ["b", "1"],
            ["a", "0"],
            ["b", "2"],
          ]);
          spool.write([["c", large]]);
          spool.write([["a", null]]);
        });
        expect(spool.get("a")).toBeUndefined();
        expect(spool.get("c")).toBe(large);
        expect(spool.scan(ALL)).toEqual([
          ["b", "2"],
          ["c", large],
        ]);
        expect(spool.scan({ ...ALL, limit: 1, reverse: true })).toEqual([["c", large]]);
      });
    });

    test("is apart from the state and its sums", async () => {
      await withDisk((disk) => {
        const storage = opened(disk);
        disk.turn("kept", () => storage.write({ state: [["a", "1"]] }));
        const before = storage.stateHash;
        disk.turn("kept", () => void storage.spool.begin());
        disk.turn("kept", () => storage.spool.write([["b", "2"]]));
        expect(storage.scan(ALL)).toEqual([["a", "1"]]);
        expect(storage.stateHash).toBe(before);
      });
    });

    test("is empty for the next backup, also for one of a later instance, and is emptied in steps", async () => {
      await withDisk((disk) => {
        const fill = (storage: ReturnType<typeof opened>) => {
          for (let steps = 0; !disk.turn("kept", () => storage.spool.begin()); steps += 1)
            expect(steps).toBeLessThan(50);
          expect(storage.spool.scan(ALL)).toEqual([]);
          const rows = Array.from({ length: 1000 }, (_, at) => [`key/${at}`, "x"] as const);
          disk.turn("kept", () => storage.spool.write(rows));
          expect(storage.spool.scan(ALL)).toHaveLength(1000);
        };
        const first = opened(disk);
        fill(first);
        first.spool.end();
        fill(first);
        // While it is in use nothing of it is tidied up.
        while (disk.turn("kept", () => first.cleanUp()));
        expect(first.spool.scan(ALL)).toHaveLength(1000);
        const second = opened(disk);
        while (disk.turn("kept", () => second.cleanUp()));
        expect(second.spool.scan(ALL)).toEqual([]);
        fill(second);
      });
    });
  });
}
