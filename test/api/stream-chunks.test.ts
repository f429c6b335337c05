import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { messageParts } from "../../src/api/stream-chunks.ts";
import type { WireChunk } from "../../src/api/wire.ts";
import { utf8Length } from "../../src/base/bytes.ts";

const BYTES_MAX = 65_536;

function joined(parts: readonly string[]): string {
  const chunks = parts.map((part) => JSON.parse(part) as WireChunk);
  expect(chunks.map(({ kind, index, last }) => [kind, index, last])).toEqual(
    chunks.map((_, index) => ["chunk", index, index === chunks.length - 1]),
  );
  return chunks.map(({ data }) => data).join("");
}

describe("messages in parts", () => {
  test("a message within the limit, or without one, goes as it is", () => {
    const text = "x".repeat(BYTES_MAX);
    expect(messageParts(text, BYTES_MAX)).toEqual([text]);
    expect(messageParts(`${text}xxxx`, null)).toEqual([`${text}xxxx`]);
  });

  test("bytes count, not characters", () => {
    const text = "é".repeat(BYTES_MAX / 2);
    expect(messageParts(text, BYTES_MAX)).toEqual([text]);
    expect(messageParts(`${text}x`, BYTES_MAX).length).toBe(2);
  });

  test("every part is within the limit and together they are the message, whatever it holds", () => {
    const piece = fc.oneof(
      fc.constantFrom('"', "\\", '\\"', "a", "é", "€", "😀", "\u0000", "\ud800", "\udc00"),
      fc.string({ unit: "binary", maxLength: 20 }),
    );
    void fc.assert(
      fc.property(fc.array(piece, { minLength: 1, maxLength: 40 }), fc.integer({ min: 1, max: 5 }), (pieces, times) => {
        const text = pieces.join("").repeat(Math.ceil((times * BYTES_MAX) / (pieces.join("").length + 1)));
        const parts = messageParts(text, BYTES_MAX);
        for (const part of parts) expect(utf8Length(part)).toBeLessThanOrEqual(BYTES_MAX);
        expect(parts.length === 1 ? parts[0] === text : joined(parts) === text).toBe(true);
      }),
      { numRuns: 30 },
    );
  });

  test("a pair of surrogates is never torn", () => {
    for (let shift = 0; shift < 4; shift += 1) {
      const parts = messageParts("a".repeat(shift) + "😀".repeat(BYTES_MAX), BYTES_MAX);
      for (const part of parts) expect((JSON.parse(part) as WireChunk).data.isWellFormed()).toBe(true);
    }
  });
});
