/** JSON as data: equality and canonical text do not depend on the order of properties (design 01 section 2). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalJson, equalJson, type JsonObject, type JsonValue } from "../../src/base/json.ts";

const value: fc.Arbitrary<JsonValue> = fc
  .jsonValue({ maxDepth: 4 })
  // -0 does not survive JSON text, and so never reaches a value that was parsed.
  .map((made) => JSON.parse(JSON.stringify(made)) as JsonValue);

/** The same value with the properties of every object in reverse order. */
function reversed(original: JsonValue): JsonValue {
  if (original === null || typeof original !== "object") return original;
  if (Array.isArray(original)) return original.map((item: JsonValue) => reversed(item));
  const members = Object.entries(original as JsonObject).reverse();
  return Object.fromEntries(members.map(([name, member]) => [name, reversed(member)]));
}

describe("canonical text", () => {
  test("it is JSON for the same value", () => {
    fc.assert(
      fc.property(value, (any) => {
        expect(JSON.parse(canonicalJson(any))).toEqual(any);
      }),
    );
  });

  test("it does not depend on the order of properties, at any depth", () => {
    fc.assert(
      fc.property(value, (any) => {
        expect(canonicalJson(reversed(any))).toBe(canonicalJson(any));
      }),
    );
  });

  test("properties are sorted and nothing is spaced", () => {
    expect(canonicalJson({ b: [1, { d: null, c: "x" }], a: true, B: 1.5 })).toBe(
      '{"B":1.5,"a":true,"b":[1,{"c":"x","d":null}]}',
    );
  });

  test("names are escaped like text, and a lone surrogate stays ASCII", () => {
    expect(canonicalJson({ 'a"\n': "\ud800" })).toBe('{"a\\"\\n":"\\ud800"}');
  });

  test("a property named __proto__ is a property like any other", () => {
    const parsed = JSON.parse('{"__proto__":1,"a":2}') as JsonValue;
    expect(canonicalJson(parsed)).toBe('{"__proto__":1,"a":2}');
  });

  test("numeric names are sorted as text", () => {
    expect(canonicalJson({ 10: 1, 9: 2, 1: 3 })).toBe('{"1":3,"10":1,"9":2}');
  });
});

describe("equality", () => {
  test("a value equals itself in any order of properties", () => {
    fc.assert(
      fc.property(value, (any) => {
        expect(equalJson(any, reversed(any))).toBe(true);
        expect(equalJson(reversed(any), any)).toBe(true);
      }),
    );
  });

  test("two values are equal exactly when their canonical texts are", () => {
    fc.assert(
      fc.property(value, value, (left, right) => {
        expect(equalJson(left, right)).toBe(canonicalJson(left) === canonicalJson(right));
      }),
    );
  });

  test.each<[JsonValue, JsonValue]>([
    [null, 0],
    [null, false],
    [null, {}],
    [0, false],
    [0, "0"],
    ["", null],
    [[], {}],
    [[null], []],
    [
      [1, 2],
      [2, 1],
    ],
    [{ a: null }, {}],
    [{ a: null }, { b: null }],
    [{ a: 1 }, { a: 1, b: 2 }],
    [{ a: { b: 1 } }, { a: { b: 2 } }],
    [{ toString: null }, { a: null }],
  ])("%j and %j differ, either way round", (left, right) => {
    expect(equalJson(left, right)).toBe(false);
    expect(equalJson(right, left)).toBe(false);
  });

  test("inherited names are not properties", () => {
    expect(equalJson({ constructor: null }, { valueOf: null })).toBe(false);
  });
});
