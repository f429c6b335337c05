/** Byte strings: one order everywhere (bytes.ts B1, S13). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  arrayFromBytes,
  bytesFromArray,
  bytesFromText,
  prefixEnd,
  textFromBytes,
  utf8Length,
} from "../../src/base/bytes.ts";

/** Well-formed text of any code points, and more often of those at the borders of one to four bytes. */
const text = fc.oneof(
  fc.string({ unit: "grapheme" }),
  fc.string({ unit: "binary" }),
  fc.string({
    unit: fc.constantFrom(
      "\0",
      "a",
      "\x7f",
      "\x80",
      "\u07ff",
      "\u0800",
      "\ud7ff",
      "\ue000",
      "\uff61",
      "\u{10000}",
      "\u{10ffff}",
    ),
  }),
);
const byteString = fc
  .array(fc.oneof(fc.integer({ min: 0, max: 255 }), fc.constantFrom(0, 0x7f, 0x80, 0xfe, 0xff)), { maxLength: 12 })
  .map((codes) => String.fromCharCode(...codes));

function bytesOf(wellFormed: string): string {
  const bytes = bytesFromText(wellFormed);
  if (bytes === null) throw new Error("not well-formed");
  return bytes;
}

function sign(comparison: number): number {
  return Math.sign(comparison);
}

function compare(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

describe("text to bytes and back", () => {
  test("the order of byte strings is the order of UTF-8 bytes, which is that of code points", () => {
    fc.assert(
      fc.property(text, text, (left, right) => {
        const byBytes = sign(Buffer.compare(Buffer.from(left), Buffer.from(right)));
        expect(compare(bytesOf(left), bytesOf(right))).toBe(byBytes);
      }),
      { numRuns: 2000 },
    );
  });

  test("a key beyond the BMP sorts behind one below it, though its UTF-16 code unit is lower (S13)", () => {
    const keys = ["\u{1f600}", "\uff61", "a"];
    expect([...keys].sort()).toEqual(["a", "\u{1f600}", "\uff61"]);
    expect(keys.map(bytesOf).sort().map(textFromBytes)).toEqual(["a", "\uff61", "\u{1f600}"]);
  });

  test("every well-formed text survives the round trip", () => {
    fc.assert(
      fc.property(text, (original) => {
        expect(textFromBytes(bytesOf(original))).toBe(original);
      }),
    );
  });

  test("every char code of a byte string is one byte", () => {
    fc.assert(
      fc.property(text, (original) => {
        const bytes = bytesOf(original);
        expect(bytes.length).toBe(new TextEncoder().encode(original).length);
        for (const unit of bytes) expect(unit.charCodeAt(0)).toBeLessThanOrEqual(0xff);
      }),
    );
  });

  test("ASCII text is its own byte string", () => {
    const ascii = Array.from({ length: 128 }, (_, code) => String.fromCharCode(code)).join("");
    expect(bytesFromText(ascii)).toBe(ascii);
    expect(textFromBytes(ascii)).toBe(ascii);
    expect(bytesFromText("")).toBe("");
  });

  test.each(["\ud800", "\udc00", "a\ud800", "\ud800a", "\udc00\ud800", "\u{1f600}\ud83d"])(
    "a lone surrogate has no encoding: %j",
    (lone) => {
      expect(bytesFromText(lone)).toBeNull();
    },
  );

  test.each([
    { claim: "a byte that begins nothing", codes: [0xff] },
    { claim: "a continuation without a beginning", codes: [0x80] },
    { claim: "a sequence cut short", codes: [0xe2, 0x82] },
    { claim: "an overlong form", codes: [0xc0, 0xaf] },
    { claim: "an encoded surrogate", codes: [0xed, 0xa0, 0x80] },
    { claim: "a code point beyond the last", codes: [0xf4, 0x90, 0x80, 0x80] },
  ])("bytes that are no UTF-8 have no text: $claim", ({ codes }) => {
    expect(textFromBytes(String.fromCharCode(...codes))).toBeNull();
  });

  test("a byte order mark is text like any other", () => {
    expect(textFromBytes(bytesOf("\ufeffa"))).toBe("\ufeffa");
  });
});

describe("arrays", () => {
  test("any bytes survive the round trip", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (array) => {
        expect(arrayFromBytes(bytesFromArray(array))).toEqual(array);
      }),
    );
  });

  test.each([0, 1, 8191, 8192, 8193, 100_000])("an array of %i bytes is taken whole", (length) => {
    const array = Uint8Array.from({ length }, (_, position) => position * 7);
    expect(bytesFromArray(array)).toHaveLength(length);
    expect(Buffer.from(arrayFromBytes(bytesFromArray(array))).equals(Buffer.from(array))).toBe(true);
  });

  test("a view into a larger buffer is taken as it is seen", () => {
    const whole = Uint8Array.from([1, 2, 3, 4, 5]);
    expect(bytesFromArray(whole.subarray(1, 3))).toBe("\x02\x03");
  });
});

describe("the end of a prefix", () => {
  test("it lies above every string with the prefix and not above any other that is higher", () => {
    fc.assert(
      fc.property(byteString, byteString, byteString, (prefix, rest, other) => {
        const end = prefixEnd(prefix);
        if (end === null) {
          // Nothing lies above all of them: only 0xff bytes, or nothing at all.
          expect(prefix).toMatch(/^\xff*$/);
          return;
        }
        expect(prefix + rest < end).toBe(true);
        expect(prefix < end).toBe(true);
        if (!other.startsWith(prefix) && other > prefix) expect(other >= end).toBe(true);
      }),
      { numRuns: 2000 },
    );
  });

  test.each([
    { prefix: "a", end: "b" },
    { prefix: "a\xff", end: "b" },
    { prefix: "a\xfe\xff\xff", end: "a\xff" },
    { prefix: "\0", end: "\x01" },
    { prefix: "", end: null },
    { prefix: "\xff\xff", end: null },
  ])("prefix $prefix ends at $end", ({ prefix, end }) => {
    expect(prefixEnd(prefix)).toBe(end);
  });
});

describe("length in UTF-8", () => {
  const encoder = new TextEncoder();

  test("it is the encoder's, without encoding", () => {
    fc.assert(
      fc.property(text, (measured) => {
        expect(utf8Length(measured)).toBe(encoder.encode(measured).length);
      }),
      { numRuns: 2000 },
    );
  });

  // Known: a high surrogate swallows whatever follows it. Such text is refused as a key and escaped in JSON.
  test("text with lone surrogates is measured as the encoder replaces it", () => {
    for (const lone of ["\ud800\ud800", "\ud800\u00e9", "\ud800\uff61"]) {
      expect(utf8Length(lone)).toBe(encoder.encode(lone).length);
    }
  });

  test("a surrogate at the end or before ASCII counts three bytes, as the encoder replaces it", () => {
    for (const lone of ["\ud800", "\udc00", "a\ud800", "\ud800a", "\udc00\udc00"]) {
      expect(utf8Length(lone)).toBe(encoder.encode(lone).length);
    }
  });
});
