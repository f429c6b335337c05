/** The hash of rows and digests: the same everywhere, spread, chained (hash.ts). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { hashDigits, hashIn, hashOut, hashText } from "../../src/base/hash.ts";

const HASH_BITS = 53;

function bitsOf(hash: number): number[] {
  const big = BigInt(hash);
  return Array.from({ length: HASH_BITS }, (_, bit) => Number((big >> BigInt(bit)) & 1n));
}

describe("hashText", () => {
  test("it is a safe, non-negative integer, for any text and seed", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.maxSafeNat(), (text, seed) => {
        const hash = hashText(text, seed);
        expect(Number.isSafeInteger(hash)).toBe(true);
        expect(hash).toBeGreaterThanOrEqual(0);
        expect(hashText(text, seed)).toBe(hash);
      }),
    );
  });

  test("it stays what it was: stored checksums must hold across versions", () => {
    expect([
      hashText("", 0),
      hashText("a", 0),
      hashText("a", 1),
      hashText("concord \u{1f600}", 2 ** 40),
    ]).toMatchInlineSnapshot(`
      [
        15216031280547,
        8948978738066659,
        7784893263317949,
        7502084698309205,
      ]
    `);
  });

  test("similar texts do not collide", () => {
    const seen = new Set<number>();
    for (let number = 0; number < 100_000; number += 1) seen.add(hashText(`key/${number}`, 0));
    expect(seen.size).toBe(100_000);
  });

  test("every bit is set about half of the time", () => {
    const counts = new Array<number>(HASH_BITS).fill(0);
    const texts = 4000;
    for (let number = 0; number < texts; number += 1) {
      bitsOf(hashText(`row ${number}`, 7)).forEach((bit, position) => {
        counts[position] = (counts[position] ?? 0) + bit;
      });
    }
    for (const count of counts) expect(Math.abs(count / texts - 0.5)).toBeLessThan(0.05);
  });

  test("one changed bit of the text changes about half of the hash, wherever it stands", () => {
    const original = "the quick brown fox jumps over the lazy dog";
    let changed = 0;
    let tried = 0;
    let least = HASH_BITS;
    for (let position = 0; position < original.length; position += 1) {
      for (let bit = 0; bit < 7; bit += 1) {
        const code = original.charCodeAt(position) ^ (1 << bit);
        const other = original.slice(0, position) + String.fromCharCode(code) + original.slice(position + 1);
        const before = bitsOf(hashText(original, 0));
        const flips = bitsOf(hashText(other, 0)).filter((value, index) => value !== before[index]).length;
        changed += flips;
        tried += 1;
        least = Math.min(least, flips);
      }
    }
    expect(changed / tried / HASH_BITS).toBeGreaterThan(0.4);
    expect(changed / tried / HASH_BITS).toBeLessThan(0.6);
    expect(least).toBeGreaterThan(5);
  });

  test("one changed bit of the seed changes the hash: all 53 bits of it count", () => {
    const seen = new Set<number>([hashText("x", 0)]);
    for (let bit = 0; bit < HASH_BITS; bit += 1) seen.add(hashText("x", 2 ** bit));
    expect(seen.size).toBe(HASH_BITS + 1);
  });

  test("chained hashes tell the order and the border of what they cover", () => {
    const chain = (...texts: readonly string[]) => texts.reduce((hash, text) => hashText(text, hash), 0);
    const chains = [chain("a", "b"), chain("b", "a"), chain("ab"), chain("a", "", "b"), chain("a"), chain("", "ab")];
    expect(new Set(chains).size).toBe(chains.length);
  });

  test("swapped, repeated and shifted characters are told apart", () => {
    const texts = ["ab", "ba", "aab", "abb", "a\0b", "ab\0", "\0ab", "\u0161b", "a\u0162"];
    expect(new Set(texts.map((text) => hashText(text, 0))).size).toBe(texts.length);
  });
});

describe("a hash of a set", () => {
  test("does not depend on the order, stays in range, and each element can be taken out again", () => {
    const hash = fc.oneof(fc.maxSafeNat(), fc.constantFrom(0, 1, Number.MAX_SAFE_INTEGER));
    fc.assert(
      fc.property(fc.array(hash, { minLength: 1 }), (hashes) => {
        const sum = hashes.reduce(hashIn, 0);
        expect(hashes.toReversed().reduce(hashIn, 0)).toBe(sum);
        expect(BigInt(sum)).toBe(hashes.reduce((total, one) => total + BigInt(one), 0n) % 2n ** 53n);
        expect(hashes.reduce(hashOut, sum)).toBe(0);
      }),
    );
  });

  test("has fourteen digits", () => {
    expect([0, 1, 2 ** 32, Number.MAX_SAFE_INTEGER].map(hashDigits)).toEqual([
      "00000000000000",
      "00000000000001",
      "00000100000000",
      "1fffffffffffff",
    ]);
  });
});
