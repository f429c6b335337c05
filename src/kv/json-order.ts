/**
 * A total order of JSON values: null < boolean < number < string < array < object. Pure; never throws; equal exactly
 * when `equalJson` says so.
 */
import type { JsonObject, JsonValue } from "../base/json.ts";

/** Negative, 0 or positive, like a sort function. */
export function compareJson(left: JsonValue, right: JsonValue): number {
  const leftRank = rank(left);
  const rightRank = rank(right);
  if (leftRank !== rightRank) return leftRank - rightRank;
  if (typeof left === "string" && typeof right === "string") return compareText(left, right);
  if (isArray(left) && isArray(right)) return compareArrays(left, right);
  if (isObject(left) && isObject(right)) return compareObjects(left, right);
  const leftNumber = Number(left);
  const rightNumber = Number(right);
  return leftNumber < rightNumber ? -1 : leftNumber > rightNumber ? 1 : 0;
}

/** Code point order, which is the byte order of UTF-8: the order that keys have (S13). */
export function compareText(left: string, right: string): number {
  const length = Math.min(left.length, right.length);
  for (let position = 0; position < length; position += 1) {
    const leftUnit = left.charCodeAt(position);
    const rightUnit = right.charCodeAt(position);
    if (leftUnit !== rightUnit) return codePointRank(leftUnit) - codePointRank(rightUnit);
  }
  return left.length - right.length;
}

/** Surrogates stand for code points above U+FFFF, so they rank behind U+E000..U+FFFF. */
function codePointRank(unit: number): number {
  return unit >= 0xd800 && unit <= 0xdfff ? unit + 0x10000 : unit;
}

function compareArrays(left: readonly JsonValue[], right: readonly JsonValue[]): number {
  const length = Math.min(left.length, right.length);
  for (let position = 0; position < length; position += 1) {
    const order = compareJson(left[position] ?? null, right[position] ?? null);
    if (order !== 0) return order;
  }
  return left.length - right.length;
}

/** As lists of (name, value) sorted by name. */
function compareObjects(left: JsonObject, right: JsonObject): number {
  const leftNames = Object.keys(left).sort(compareText);
  const rightNames = Object.keys(right).sort(compareText);
  const length = Math.min(leftNames.length, rightNames.length);
  for (let position = 0; position < length; position += 1) {
    const leftName = leftNames[position] ?? "";
    const rightName = rightNames[position] ?? "";
    const order = compareText(leftName, rightName) || compareJson(left[leftName] ?? null, right[rightName] ?? null);
    if (order !== 0) return order;
  }
  return leftNames.length - rightNames.length;
}

function rank(value: JsonValue): number {
  if (value === null) return 0;
  if (typeof value === "boolean") return 1;
  if (typeof value === "number") return 2;
  if (typeof value === "string") return 3;
  return isArray(value) ? 4 : 5;
}

function isArray(value: JsonValue): value is readonly JsonValue[] {
  return Array.isArray(value);
}

function isObject(value: JsonValue): value is JsonObject {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
