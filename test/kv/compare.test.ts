import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { equalJson, type JsonValue } from "../../src/base/json.ts";
import type { Compare, OrderOperator } from "../../src/kv/command.ts";
import { compareJson } from "../../src/kv/json-order.ts";
import { Harness } from "./harness.ts";

const OPERATORS: readonly OrderOperator[] = ["==", "!=", ">", ">=", "<", "<="];

/** Evaluates one compare by the branch that a txn takes; through the log and as a read, which must agree. */
function holds(h: Harness, compare: Compare): boolean {
  const logged = h.run({ compare: [compare] }).succeeded;
  const read = h.query({ kind: "txn", compare: [compare], success: [], failure: [] });
  expect(read.kind === "txn" && read.succeeded).toBe(logged);
  return logged;
}

/** The operators of `compare` that hold, in the order of OPERATORS. */
function holding(h: Harness, compare: Omit<Compare, "op">, operators = OPERATORS): string {
  return operators.filter((op) => holds(h, { ...compare, op } as Compare)).join(" ");
}

const EQUAL = "== >= <=";
const GREATER = "!= > >=";
const LESS = "!= < <=";

/** One key for each way of having or not having a value (S23). */
function stored(): Harness {
  const h = new Harness();
  h.put("deleted", 1);
  h.delete("deleted");
  h.put("null", null);
  h.put("zero", 0);
  h.put("empty", "");
  h.put("object", { s: null, n: 5, list: [1, { deep: "x" }] });
  h.put("array", [1]);
  h.run({ success: [{ type: "put", key: "bytes", value: { base64: "AQI=" } }] });
  return h;
}

describe("exists separates absent from null (S23)", () => {
  const h = stored();
  test.each([
    ["absent", false],
    ["deleted", false],
    ["null", true],
    ["zero", true],
    ["empty", true],
    ["bytes", true],
  ])("%s exists: %s", (key, exists) => {
    expect(holds(h, { target: "exists", key, op: "==", value: exists })).toBe(true);
    expect(holds(h, { target: "exists", key, op: "!=", value: exists })).toBe(false);
    expect(holds(h, { target: "exists", key, op: "==", value: !exists })).toBe(false);
  });
});

describe("numbers of an absent key are 0 (S23)", () => {
  const h = stored();
  for (const target of ["version", "create_revision", "mod_revision"] as const) {
    test.each(["absent", "deleted"])(`${target} of %s`, (key) => {
      expect(holding(h, { target, key, value: 0 })).toBe(EQUAL);
      expect(holding(h, { target, key, value: 1 })).toBe(LESS);
    });
  }

  test("a live key compares by its numbers under every operator", () => {
    const live = new Harness();
    live.put("other", 0);
    live.put("k", 1);
    live.put("k", 2);
    for (const [target, actual] of [
      ["version", 2],
      ["create_revision", 2],
      ["mod_revision", 3],
    ] as const) {
      expect(holding(live, { target, key: "k", value: actual })).toBe(EQUAL);
      expect(holding(live, { target, key: "k", value: actual - 1 })).toBe(GREATER);
      expect(holding(live, { target, key: "k", value: actual + 1 })).toBe(LESS);
    }
  });
});

describe("value compares by deep equality", () => {
  const h = stored();
  const equality = ["==", "!="] as const;
  test.each([
    ["absent", null, true],
    ["absent", { json: null }, true],
    ["deleted", null, true],
    ["null", null, true],
    ["null", { json: null }, true],
    ["zero", { json: 0 }, true],
    ["zero", { json: false }, false],
    ["zero", { json: "" }, false],
    ["zero", null, false],
    ["empty", { json: "" }, true],
    ["empty", null, false],
    ["object", { json: { list: [1, { deep: "x" }], n: 5, s: null } }, true],
    ["object", { json: { list: [1, { deep: "x" }], n: 5 } }, false],
    ["array", { json: [1] }, true],
    ["array", { json: [1, 1] }, false],
    ["array", { json: { "0": 1 } }, false],
    ["bytes", { base64: "AQI=" }, true],
    ["bytes", { base64: "AQM=" }, false],
    ["bytes", { json: "AQI=" }, false],
    ["bytes", null, false],
    ["empty", { base64: "" }, false],
    ["absent", { base64: "" }, false],
  ] as const)("%s == %j: %s", (key, value, equal) => {
    expect(holding(h, { target: "value", key, value } as Omit<Compare, "op">, [...equality])).toBe(equal ? "==" : "!=");
  });
});

describe("field compares a path into a JSON value (S23)", () => {
  const h = stored();
  test.each<[string, (string | number)[], JsonValue, string]>([
    ["absent", ["s"], null, EQUAL],
    ["null", ["s"], null, EQUAL],
    ["zero", ["s", "t"], null, EQUAL],
    ["zero", ["s", "t"], 1, LESS],
    ["empty", ["length"], null, EQUAL],
    ["object", ["s"], null, EQUAL],
    ["object", ["s", "t"], 1, LESS],
    ["object", ["n"], 5, EQUAL],
    ["object", ["n"], 4, GREATER],
    ["object", ["n"], 6, LESS],
    ["object", ["n"], "5", LESS],
    ["object", ["n"], true, GREATER],
    ["object", ["list", 0], 1, EQUAL],
    ["object", ["list", "0"], null, EQUAL],
    ["object", ["list", 1, "deep"], "x", EQUAL],
    ["object", ["list", 2], null, EQUAL],
    ["object", ["list", "length"], null, EQUAL],
    ["object", ["missing"], null, EQUAL],
    ["object", ["toString"], null, EQUAL],
    ["object", ["__proto__"], null, EQUAL],
    ["object", ["constructor", "name"], null, EQUAL],
    ["array", [0], 1, EQUAL],
    ["array", [], [1], EQUAL],
    ["array", [], [0, 9], GREATER],
    ["array", [], [1, 0], LESS],
    ["array", [], {}, LESS],
    ["array", [], "z", GREATER],
    ["bytes", [], null, EQUAL],
    ["bytes", [0], null, EQUAL],
  ])("%s %j against %j: %s", (key, path, value, expected) => {
    expect(holding(h, { target: "field", key, path, value } as Omit<Compare, "op">)).toBe(expected);
  });
});

describe("lease and ttl compares", () => {
  function leased(): Harness {
    const h = new Harness();
    h.grant(60);
    h.put("held", 1, { lease: 1 });
    h.put("timed", 1, { ttl: 10 });
    h.put("free", 1);
    return h;
  }

  test("a key without lease has lease null, absent or not (S23)", () => {
    const h = leased();
    for (const key of ["absent", "free"]) {
      expect(holds(h, { target: "lease", key, op: "==", value: null })).toBe(true);
      expect(holds(h, { target: "lease", key, op: "!=", value: null })).toBe(false);
      expect(holds(h, { target: "lease", key, op: "==", value: 1 })).toBe(false);
    }
    expect(holds(h, { target: "lease", key: "held", op: "==", value: 1 })).toBe(true);
    expect(holds(h, { target: "lease", key: "held", op: "!=", value: 2 })).toBe(true);
    expect(holds(h, { target: "lease", key: "timed", op: "!=", value: null })).toBe(true);
  });

  test("ttl is the remaining seconds at the entry's time", () => {
    const h = leased();
    expect(holding(h, { target: "ttl", key: "held", value: 60 })).toBe(EQUAL);
    h.timeMs += 4500;
    expect(holding(h, { target: "ttl", key: "timed", value: 5.5 })).toBe(EQUAL);
    expect(holding(h, { target: "ttl", key: "timed", value: 5 })).toBe(GREATER);
    h.timeMs += 60_000;
    expect(holding(h, { target: "ttl", key: "timed", value: 0 })).toBe(EQUAL);
  });

  test("ttl without a lease is null, which is lower than every number (S23)", () => {
    const h = leased();
    for (const key of ["absent", "free"]) {
      expect(holding(h, { target: "ttl", key, value: null })).toBe(EQUAL);
      expect(holding(h, { target: "ttl", key, value: 5 })).toBe(LESS);
    }
    expect(holding(h, { target: "ttl", key: "timed", value: null })).toBe(GREATER);
  });
});

test("compares are a conjunction, and no compares at all succeed", () => {
  const h = new Harness();
  h.put("a", 1);
  const yes: Compare = { target: "exists", key: "a", op: "==", value: true };
  const no: Compare = { target: "exists", key: "b", op: "==", value: true };
  expect(h.run({ compare: [] }).succeeded).toBe(true);
  expect(h.run({ compare: [yes, yes] }).succeeded).toBe(true);
  expect(h.run({ compare: [yes, no] }).succeeded).toBe(false);
});

describe("the order of JSON values", () => {
  const json = fc.jsonValue({ maxDepth: 3, noUnicodeString: false }) as fc.Arbitrary<JsonValue>;

  test("is total: antisymmetric, transitive, and zero exactly for equal values", () => {
    void fc.assert(
      fc.property(json, json, json, (a, b, c) => {
        expect(Math.sign(compareJson(a, b))).toBe(-Math.sign(compareJson(b, a)) + 0);
        expect(compareJson(a, b) === 0).toBe(equalJson(a, b));
        expect(compareJson(a, structuredClone(a))).toBe(0);
        const [low, middle, high] = [a, b, c].sort(compareJson);
        if (low !== undefined && middle !== undefined && high !== undefined) {
          expect(compareJson(low, high)).toBeLessThanOrEqual(0);
          expect(compareJson(low, middle)).toBeLessThanOrEqual(0);
        }
      }),
      { numRuns: 500 },
    );
  });

  test("ranks types, then orders within a type", () => {
    const ascending: JsonValue[] = [
      null,
      false,
      true,
      -1,
      0,
      1.5,
      "",
      "a",
      "aa",
      "b",
      "\uFF61",
      "\u{1F600}",
      [],
      [0],
      [0, 0],
      [1],
      {},
      { a: 1 },
      { a: 1, b: 0 },
      { a: 2 },
      { b: 0 },
    ];
    for (const [left, low] of ascending.entries()) {
      for (const [right, high] of ascending.entries()) {
        expect(Math.sign(compareJson(low, high))).toBe(Math.sign(left - right));
      }
    }
  });
});
