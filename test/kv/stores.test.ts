import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { Overlay } from "../../src/kv/overlay.ts";
import { escapeKey, unescapeKey } from "../../src/kv/rows.ts";
import { SortedKeys } from "../../src/kv/sorted-keys.ts";
import { storeContract } from "./store-contract.ts";

storeContract("the memory store", () => new MemoryStore());
storeContract("an overlay over an empty store", () => new Overlay(new MemoryStore()));
storeContract("an overlay over an overlay", () => new Overlay(new Overlay(new MemoryStore())));
storeContract("an overlay over rows that it has deleted", () => {
  const parent = new MemoryStore();
  const overlay = new Overlay(parent);
  for (const first of ["a", "b", "c", "\u0001", "\u00ff"]) {
    for (let index = 0; index < 40; index += 1) parent.put(`${first}${String.fromCharCode(index + 1)}`, "parent");
  }
  for (const [key] of parent.rows()) overlay.delete(key);
  return overlay;
});

describe("an overlay", () => {
  test("changes nothing in its parent before it is committed", () => {
    const parent = new MemoryStore();
    parent.put("a", "1");
    parent.put("b", "1");
    const overlay = new Overlay(parent);
    overlay.put("c", "2");
    overlay.delete("a");
    expect(parent.rows()).toEqual([
      ["a", "1"],
      ["b", "1"],
    ]);
    overlay.commitInto(parent);
    expect(parent.rows()).toEqual([
      ["b", "1"],
      ["c", "2"],
    ]);
    expect(overlay.size).toBe(0);
  });

  test("discarding brings the parent's rows back", () => {
    const parent = new MemoryStore();
    parent.put("a", "1");
    const overlay = new Overlay(parent);
    overlay.delete("a");
    overlay.put("b", "2");
    expect(overlay.scan({ start: "a", end: "z", limit: 9 })).toEqual([["b", "2"]]);
    overlay.discard();
    expect(overlay.get("a")).toBe("1");
    expect(overlay.scan({ start: "a", end: "z", limit: 9 })).toEqual([["a", "1"]]);
    expect(overlay.characters).toBe(0);
  });

  test("drains its changes once, sorted by key, deletions as null", () => {
    const overlay = new Overlay(new MemoryStore());
    overlay.put("c", "3");
    overlay.put("a", "1");
    overlay.delete("b");
    expect(overlay.characters).toBe(5);
    expect(overlay.drain()).toEqual([
      ["a", "1"],
      ["b", null],
      ["c", "3"],
    ]);
    expect(overlay.drain()).toEqual([]);
  });

  test("merges any own changes with any parent rows", () => {
    const key = fc.string({ unit: fc.constantFrom("a", "b", "\u0001", "\u00ff"), minLength: 1, maxLength: 4 });
    const rows = fc.array(fc.tuple(key, fc.constantFrom("x", "y", null)), { maxLength: 80 });
    void fc.assert(
      fc.property(
        rows,
        rows,
        key,
        key,
        fc.integer({ min: 1, max: 40 }),
        fc.boolean(),
        (below, above, start, end, limit, reverse) => {
          const parent = new MemoryStore();
          const model = new MemoryStore();
          const overlay = new Overlay(parent);
          for (const [name, value] of below) for (const store of [parent, model]) store.put(name, value ?? "z");
          for (const [name, value] of above) {
            for (const store of [overlay, model]) {
              if (value === null) store.delete(name);
              else store.put(name, value);
            }
          }
          const range = { start, end, limit, reverse };
          expect(overlay.scan(range)).toEqual(model.scan(range));
        },
      ),
      { numRuns: 300 },
    );
  });
});

test("sorted keys stay in order through splits and emptied chunks", () => {
  const keys = new SortedKeys();
  const names = Array.from({ length: 5000 }, (_, index) => String(index).padStart(6, "0"));
  for (let index = 0; index < names.length; index += 1) keys.add(names[(index * 1237) % names.length] ?? "");
  for (const name of names.slice(700, 4000)) keys.remove(name);
  keys.remove("absent");
  expect(keys.range("", "z", 99_999, false)).toEqual([...names.slice(0, 700), ...names.slice(4000)]);
  expect(keys.range("000699", "z", 2, false)).toEqual(["000699", "004000"]);
  expect(keys.range("", "004000", 1, true)).toEqual(["000699"]);
});

test("escaping a key keeps its bytes and its order, and leaves no NUL or end mark in it", () => {
  const bytes = fc.string({
    unit: fc.constantFrom("\u0000", "\u0001", "\u0002", "\u0003", "a", "\u00ff"),
    maxLength: 6,
  });
  void fc.assert(
    fc.property(bytes, bytes, (left, right) => {
      expect(unescapeKey(escapeKey(left))).toBe(left);
      expect(escapeKey(left) < escapeKey(right)).toBe(left < right);
      // With the end mark of the version index, too: a key sorts before every key that it starts.
      expect(`${escapeKey(left)}\u0001` < `${escapeKey(right)}\u0001`).toBe(left < right);
      expect([...escapeKey(left)].some((character) => character < "\u0002")).toBe(false);
    }),
    { numRuns: 1000 },
  );
});
