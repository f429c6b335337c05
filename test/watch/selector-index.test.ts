/** Goal: the index finds exactly the items that a look at every selector finds, through any order of additions and removals. */
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Selector } from "../../src/kv/command.ts";
import { selects } from "../../src/kv/history-walk.ts";
import { SelectorIndex } from "../../src/watch/selector-index.ts";

const bytes = fc.string({ unit: fc.constantFrom("\u0000", "a", "b", "c", "\u00ff"), maxLength: 5 });
const selector: fc.Arbitrary<Selector> = fc.oneof(
  bytes.map((key) => ({ key })),
  bytes.map((prefix) => ({ prefix })),
  fc.tuple(bytes, bytes).map(([start, end]) => ({ range: { start, end } })),
  bytes.map((start) => ({ range: { start } })),
);

test("the index finds exactly what a look at every selector finds", () => {
  void fc.assert(
    fc.property(
      fc.array(fc.tuple(selector, fc.boolean(), fc.nat()), { maxLength: 60 }),
      fc.array(bytes, { minLength: 1, maxLength: 20 }),
      (steps, keys) => {
        const index = new SelectorIndex<number>();
        const items = new Map<number, Selector>();
        for (const [position, [chosen, removes, pick]] of steps.entries()) {
          const victim = removes ? [...items.keys()][pick % Math.max(1, items.size)] : undefined;
          if (victim !== undefined) {
            index.remove(items.get(victim) as Selector, victim);
            items.delete(victim);
          }
          index.add(chosen, position);
          items.set(position, chosen);
        }
        for (const key of keys) {
          const found: number[] = [];
          index.match(key, (item) => found.push(item));
          const expected = [...items].filter(([, one]) => selects(one, key)).map(([item]) => item);
          expect(found.sort((left, right) => left - right)).toEqual(expected);
        }
      },
    ),
    { numRuns: 500 },
  );
});

test("a removal of something that is not there changes nothing", () => {
  const index = new SelectorIndex<string>();
  index.add({ prefix: "ab" }, "x");
  index.remove({ prefix: "abc" }, "x");
  index.remove({ prefix: "a" }, "x");
  index.remove({ key: "ab" }, "x");
  index.remove({ range: { start: "a" } }, "x");
  const found: string[] = [];
  index.match("abd", (item) => found.push(item));
  expect(found).toEqual(["x"]);
});

test("thousands of ranges with one start, or none in common, are all found and all removed", () => {
  const index = new SelectorIndex<number>();
  const selectors: Selector[] = [];
  for (let item = 0; item < 2000; item += 1) {
    const digits = String(item).padStart(5, "0");
    selectors.push({
      range: item % 2 === 0 ? { start: "same", end: `same${digits}` } : { start: digits, end: `${digits}z` },
    });
  }
  for (const [item, one] of selectors.entries()) index.add(one, item);
  const at = (key: string): number[] => {
    const found: number[] = [];
    index.match(key, (item) => found.push(item));
    return found.sort((left, right) => left - right);
  };
  expect(at("00777a")).toEqual([777]);
  expect(at("same01000").length).toBe(499);
  for (const [item, one] of selectors.entries()) if (item !== 777) index.remove(one, item);
  expect(at("00777a")).toEqual([777]);
  expect(at("same01000")).toEqual([]);
});
