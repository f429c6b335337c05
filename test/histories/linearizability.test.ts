import { describe, expect, test } from "vitest";
import { isLinearizable, type RegisterOperation, type RegisterValue } from "./linearizability.ts";

const UNKNOWN = Number.POSITIVE_INFINITY;

function write(call: number, end: number, value: RegisterValue): RegisterOperation {
  return { call, end, action: { kind: "write", value } };
}

function read(call: number, end: number, value: RegisterValue): RegisterOperation {
  return { call, end, action: { kind: "read", value } };
}

function swap(
  call: number,
  end: number,
  from: RegisterValue,
  to: RegisterValue,
  succeeded: boolean | null,
): RegisterOperation {
  return { call, end, action: { kind: "swap", from, to, succeeded } };
}

describe("the search accepts", () => {
  test("no operations at all", () => {
    expect(isLinearizable([])).toBe(true);
  });

  test("reads that see the writes before them", () => {
    expect(isLinearizable([read(1, 2, null), write(3, 4, "a"), read(5, 6, "a")])).toBe(true);
  });

  test("concurrent reads that see either side of a write", () => {
    expect(isLinearizable([write(1, 10, "a"), read(2, 3, null), read(4, 5, "a")])).toBe(true);
  });

  test("a write of unknown outcome that is seen late, or never", () => {
    expect(isLinearizable([write(1, UNKNOWN, "a"), read(2, 3, null), read(8, 9, "a")])).toBe(true);
    expect(isLinearizable([write(1, UNKNOWN, "a"), read(2, 3, null), read(8, 9, null)])).toBe(true);
  });

  test("a failed swap beside the write that made it fail", () => {
    expect(isLinearizable([write(1, 2, "a"), write(3, 6, "b"), swap(4, 5, "a", "c", false), read(7, 8, "b")])).toBe(
      true,
    );
  });
});

describe("the search rejects", () => {
  test("a stale read", () => {
    expect(isLinearizable([write(1, 2, "a"), write(3, 4, "b"), read(5, 6, "a")])).toBe(false);
  });

  test("a read of a value that nobody wrote", () => {
    expect(isLinearizable([write(1, 2, "a"), read(3, 4, "z")])).toBe(false);
  });

  test("a read that goes back behind an earlier read", () => {
    expect(isLinearizable([write(1, 20, "a"), read(2, 3, "a"), read(4, 5, null)])).toBe(false);
  });

  test("a lost acknowledged write", () => {
    expect(isLinearizable([write(1, 2, "a"), read(3, 4, null)])).toBe(false);
  });

  test("two swaps from one value that both succeeded", () => {
    const operations = [write(1, 2, "a"), swap(3, 6, "a", "b", true), swap(4, 5, "a", "c", true)];
    expect(isLinearizable(operations)).toBe(false);
  });

  test("a swap that failed although nothing had changed the value", () => {
    expect(isLinearizable([write(1, 2, "a"), swap(3, 4, "a", "b", false)])).toBe(false);
  });

  test("a swap from a value that was not there", () => {
    expect(isLinearizable([write(1, 2, "a"), swap(3, 4, "x", "b", true)])).toBe(false);
  });

  test("an effect before its call", () => {
    expect(isLinearizable([read(1, 2, "a"), write(3, UNKNOWN, "a")])).toBe(false);
  });

  test("two readers that saw two writes in opposite orders", () => {
    const operations = [write(1, 20, "a"), write(2, 21, "b"), read(3, 4, "a"), read(5, 6, "b"), read(7, 8, "a")];
    expect(isLinearizable(operations)).toBe(false);
  });
});

test("the search gives up rather than run for ever", () => {
  const many = Array.from({ length: 60 }, (_, index) => write(index, UNKNOWN, `w${index}`));
  expect(isLinearizable([...many, read(100, 101, "never written")], null, 1000)).toBeNull();
});
