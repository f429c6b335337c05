/**
 * The contract of OrderedStore (src/kv/store.ts) as tests. Every implementation runs it: memory, overlay, and the SQLite
 * of a Durable Object inside the Workers runtime. Needs vitest and fast-check only.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { OrderedStore, Row } from "../../src/kv/store.ts";

export interface StoreContractOptions {
  /** Runs of each property. Default 100; lower it where a run is expensive. */
  readonly numRuns?: number;
  /** Called around the work of a test, for stores that live in another context. Default: calls it directly. */
  readonly within?: (work: (create: () => OrderedStore) => void) => void | Promise<void>;
}

const ALL = { start: "\u0001", end: "\u00ff\u00ff\u00ff\u00ff", limit: Number.MAX_SAFE_INTEGER } as const;

/** @param create makes an empty store; it is called once per property run. */
export function storeContract(name: string, create: () => OrderedStore, options: StoreContractOptions = {}): void {
  const numRuns = options.numRuns ?? 100;
  const within = options.within ?? ((work: (create: () => OrderedStore) => void) => work(create));

  describe(`${name} keeps the OrderedStore contract`, () => {
    test("a row that was put is read back, and an absent row is undefined", () =>
      within((createStore) => {
        const store = createStore();
        store.put("a", "1");
        expect(store.get("a")).toBe("1");
        expect(store.get("b")).toBeUndefined();
        expect(store.get("")).toBeUndefined();
      }));

    test("a put replaces, and an empty value is a value", () =>
      within((createStore) => {
        const store = createStore();
        store.put("a", "1");
        store.put("a", "");
        expect(store.get("a")).toBe("");
        expect(store.scan(ALL)).toEqual([["a", ""]]);
      }));

    test("deleting removes the row, and deleting an absent row is harmless", () =>
      within((createStore) => {
        const store = createStore();
        store.put("a", "1");
        store.delete("a");
        store.delete("a");
        store.delete("never");
        expect(store.get("a")).toBeUndefined();
        expect(store.scan(ALL)).toEqual([]);
        store.put("a", "2");
        expect(store.scan(ALL)).toEqual([["a", "2"]]);
      }));

    test("keys are ordered by bytes (S13)", () =>
      within((createStore) => {
        const store = createStore();
        const keys = [
          "\u0001",
          "\u0001\u0002",
          "A",
          "a",
          "a\u0001",
          "aa",
          "b",
          "~",
          "\u007f",
          "\u0080",
          "\u00ef\u00bd",
          "\u00ff",
        ];
        for (const key of [...keys].reverse()) store.put(key, key);
        expect(keysOf(store.scan(ALL))).toEqual(keys);
        expect(keysOf(store.scan({ ...ALL, reverse: true }))).toEqual([...keys].reverse());
      }));

    test("a scan includes its start, excludes its end, and stops at its limit from either side", () =>
      within((createStore) => {
        const store = createStore();
        for (const key of ["a", "b", "c", "d"]) store.put(key, key);
        expect(keysOf(store.scan({ start: "b", end: "d", limit: 10 }))).toEqual(["b", "c"]);
        expect(keysOf(store.scan({ start: "b", end: "d", limit: 10, reverse: true }))).toEqual(["c", "b"]);
        expect(keysOf(store.scan({ start: "a", end: "z", limit: 2 }))).toEqual(["a", "b"]);
        expect(keysOf(store.scan({ start: "a", end: "z", limit: 2, reverse: true }))).toEqual(["d", "c"]);
        expect(store.scan({ start: "a", end: "z", limit: 0 })).toEqual([]);
        expect(store.scan({ start: "c", end: "c", limit: 10 })).toEqual([]);
        expect(store.scan({ start: "d", end: "a", limit: 10 })).toEqual([]);
        expect(store.scan({ start: "a\u0001", end: "b", limit: 10 })).toEqual([]);
      }));

    test("a scan shows the store as it was when it was called", () =>
      within((createStore) => {
        const store = createStore();
        for (const key of ["a", "b", "c"]) store.put(key, "old");
        const rows = store.scan(ALL);
        store.put("b", "new");
        store.delete("c");
        store.put("aa", "new");
        expect(rows).toEqual([
          ["a", "old"],
          ["b", "old"],
          ["c", "old"],
        ]);
      }));

    test("values keep every character of well-formed text", () =>
      within((createStore) => {
        const store = createStore();
        const value = "\u0000\u0001'\"\\\n\u{1F600}\uFFFF%_";
        store.put("a'%_", value);
        expect(store.get("a'%_")).toBe(value);
        expect(store.scan(ALL)).toEqual([["a'%_", value]]);
      }));

    test("a row of 1.8 MB is kept", () =>
      within((createStore) => {
        const store = createStore();
        const value = "v".repeat(1_800_000);
        store.put("large", value);
        expect(store.get("large")?.length).toBe(value.length);
      }));

    test("two thousand rows in any order of arrival come back in order, page by page", () =>
      within((createStore) => {
        const store = createStore();
        const keys = Array.from({ length: 2000 }, (_, index) => `row/${String(index).padStart(5, "0")}`);
        for (let index = 0; index < keys.length; index += 1) store.put(keys[(index * 769) % keys.length] ?? "", "v");
        for (const key of keys.slice(100, 1500)) store.delete(key);
        const left = [...keys.slice(0, 100), ...keys.slice(1500)];
        expect(keysOf(store.scan(ALL))).toEqual(left);
        const paged: string[] = [];
        for (let start: string = ALL.start; ; ) {
          const page = keysOf(store.scan({ ...ALL, start, limit: 37 }));
          paged.push(...page);
          const last = page[page.length - 1];
          if (last === undefined) break;
          start = `${last}\u0001`;
        }
        expect(paged).toEqual(left);
      }));

    test("any sequence of changes and scans agrees with a sorted list", () =>
      within((createStore) => {
        void fc.assert(
          fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
            const store = createStore();
            const model = new Map<string, string>();
            for (const action of steps) checkStep(store, model, action);
            expect(store.scan(ALL)).toEqual(scanModel(model, ALL.start, ALL.end, ALL.limit, false));
          }),
          { numRuns },
        );
      }));
  });
}

const keyCharacter = fc.constantFrom("\u0001", "\u0002", "a", "b", "c", "\u0080", "\u00ff");
const storeKey = fc.string({ unit: keyCharacter, minLength: 1, maxLength: 3 });
const step = fc.oneof(
  fc.record({ kind: fc.constant("put" as const), key: storeKey, value: fc.string({ maxLength: 3 }) }),
  fc.record({ kind: fc.constant("delete" as const), key: storeKey }),
  fc.record({
    kind: fc.constant("scan" as const),
    start: storeKey,
    end: storeKey,
    limit: fc.integer({ min: 1, max: 6 }),
    reverse: fc.boolean(),
  }),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

function checkStep(store: OrderedStore, model: Map<string, string>, action: Step): void {
  if (action.kind === "put") {
    store.put(action.key, action.value);
    model.set(action.key, action.value);
  } else if (action.kind === "delete") {
    store.delete(action.key);
    model.delete(action.key);
  } else {
    const { start, end, limit, reverse } = action;
    expect(store.scan({ start, end, limit, reverse })).toEqual(scanModel(model, start, end, limit, reverse));
    expect(store.get(start)).toBe(model.get(start));
  }
}

function scanModel(model: Map<string, string>, start: string, end: string, limit: number, reverse: boolean): Row[] {
  const rows = [...model]
    .filter(([key]) => key >= start && key < end)
    .sort(([left], [right]) => (left < right ? -1 : 1));
  return (reverse ? rows.reverse() : rows).slice(0, limit);
}

function keysOf(rows: readonly Row[]): string[] {
  return rows.map(([key]) => key);
}
