/** Seeded randomness as a record: repeatable and even (random.ts). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createRandom, nextFloat, nextInteger } from "../../src/base/random.ts";

describe("random", () => {
  test("equal seeds give equal numbers", () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const [left, right] = [createRandom(seed), createRandom(seed)];
        for (let count = 0; count < 20; count += 1) expect(nextFloat(left)).toBe(nextFloat(right));
      }),
    );
  });

  test("the record is the whole state: a copy goes on alike", () => {
    const random = createRandom(5);
    nextFloat(random);
    const copy = { ...random };
    expect([nextFloat(copy), nextFloat(copy)]).toEqual([nextFloat(random), nextFloat(random)]);
  });

  test("neighbouring seeds go different ways", () => {
    const ways = new Set<string>();
    for (let seed = 0; seed < 10_000; seed += 1) {
      const random = createRandom(seed);
      ways.add(`${nextFloat(random)} ${nextFloat(random)}`);
    }
    expect(ways.size).toBe(10_000);
  });

  test("floats lie in [0, 1) and fill it evenly", () => {
    const random = createRandom(42);
    const buckets = new Array<number>(20).fill(0);
    const draws = 40_000;
    for (let count = 0; count < draws; count += 1) {
      const drawn = nextFloat(random);
      expect(drawn >= 0 && drawn < 1).toBe(true);
      const bucket = Math.floor(drawn * buckets.length);
      buckets[bucket] = (buckets[bucket] ?? 0) + 1;
    }
    const expected = draws / buckets.length;
    const chiSquare = buckets.reduce((sum, seen) => sum + (seen - expected) ** 2 / expected, 0);
    // 19 degrees of freedom: above 43.8 in one of a thousand fair generators; the seed is fixed.
    expect(chiSquare).toBeLessThan(43.8);
  });

  test("integers lie in [low, high], both ends included", () => {
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: -1000, max: 1000 }), fc.nat({ max: 50 }), (seed, low, span) => {
        const random = createRandom(seed);
        for (let count = 0; count < 30; count += 1) {
          const drawn = nextInteger(random, low, low + span);
          expect(Number.isInteger(drawn) && drawn >= low && drawn <= low + span).toBe(true);
        }
      }),
    );
    const random = createRandom(1);
    const seen = new Set(Array.from({ length: 500 }, () => nextInteger(random, 3, 7)));
    expect([...seen].sort()).toEqual([3, 4, 5, 6, 7]);
  });

  test("a range of one value gives that value", () => {
    expect(nextInteger(createRandom(9), 4, 4)).toBe(4);
  });

  test("consecutive numbers do not depend on each other", () => {
    const random = createRandom(7);
    const draws = Array.from({ length: 20_000 }, () => nextFloat(random) - 0.5);
    const product = draws.slice(1).reduce((sum, drawn, position) => sum + drawn * (draws[position] ?? 0), 0);
    expect(Math.abs(product / draws.length / (1 / 12))).toBeLessThan(0.03);
  });
});
