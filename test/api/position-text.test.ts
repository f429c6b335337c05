import { describe, expect, test } from "vitest";
import { decodePosition, parsePosition, positionText } from "../../src/api/position-text.ts";
import { endOf } from "../../src/kv/position.ts";

const LARGEST = Number.MAX_SAFE_INTEGER;

describe("a position and its text", () => {
  test.each([
    ["0", endOf(0)],
    ["12", endOf(12)],
    [String(LARGEST), endOf(LARGEST)],
    ["12.0", { revision: 12, opIndex: 0 }],
    ["12.3", { revision: 12, opIndex: 3 }],
    ["1.99998", { revision: 1, opIndex: 99_998 }],
  ])("%s goes both ways", (text, position) => {
    expect(positionText(position)).toBe(text);
    expect(parsePosition(text)).toEqual(position);
    expect(decodePosition(text, "after")).toEqual(position);
  });

  // One text per position: clients compare texts for equality.
  test.each([
    "",
    " 12",
    "12 ",
    "12\n",
    "+12",
    "-1",
    "012",
    "00",
    "0x1",
    "1e3",
    "1_0",
    "١",
    "12.",
    ".3",
    "12.03",
    "12.-1",
    "12.3.4",
    "12.99999",
    "12.100000",
    "9007199254740992",
    "99999999999999999999",
    "null",
  ])("%j is no position", (text) => {
    expect(parsePosition(text)).toBeNull();
    expect(() => decodePosition(text, "after")).toThrow(/invalid_position.*after must be a position/);
  });
});
