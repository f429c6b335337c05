/**
 * JSON values as data: types, deep equality, canonical text. Pure.
 * Must not: depend on property order anywhere (design 01 §2, "equality ignores property order").
 */

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;
export interface JsonObject {
  readonly [key: string]: JsonValue;
}

/** Text that is equal for equal values: properties sorted by UTF-16 code unit, no white space. */
export function canonicalJson(value: JsonValue): string {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  const members: string[] = [];
  for (const name of Object.keys(value).sort()) {
    const member = value[name];
    if (member !== undefined) members.push(`${JSON.stringify(name)}:${canonicalJson(member)}`);
  }
  return `{${members.join(",")}}`;
}

/** Deep equality that ignores the order of properties. */
export function equalJson(left: JsonValue, right: JsonValue): boolean {
  if (left === right) return true;
  if (left === null || right === null || typeof left !== "object" || typeof right !== "object") return false;
  if (isArray(left)) {
    if (!isArray(right) || left.length !== right.length) return false;
    return left.every((item, position) => equalJson(item, right[position] ?? null));
  }
  if (isArray(right)) return false;
  const names = Object.keys(left);
  if (names.length !== Object.keys(right).length) return false;
  return names.every((name) => {
    if (!Object.hasOwn(right, name)) return false;
    return equalJson(left[name] ?? null, right[name] ?? null);
  });
}

function isArray(value: JsonValue): value is readonly JsonValue[] {
  return Array.isArray(value);
}
