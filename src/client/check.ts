/**
 * What can be seen to be wrong before anything is sent: text that has no UTF-8 form, values that are no JSON data, keys
 * of idempotency that a header cannot carry. Each would otherwise be an exception of the platform, a broken request
 * that looks like a broken connection, or, worst, another value than the caller's.
 *
 * Must not: check limits; the server does, and may have others.
 */
import { BODY_NESTING_MAX } from "../api/limits.ts";
import { ConcordError } from "../base/errors.ts";
import { IDEMPOTENCY_KEY_BYTES_MAX, NESTING_MAX } from "../base/limits.ts";

/** Parameters as text. @throws ConcordError `invalid_kv` reason `not_json`, `depth_exceeded` or `lone_surrogate`. */
export function paramsText(params: object): string {
  if (typeof params !== "object" || params === null || Array.isArray(params)) {
    const detail = `The arguments of a call are an object with names, not ${JSON.stringify(params)?.slice(0, 80)}.`;
    throw new ConcordError({ code: "invalid_request", reason: "wrong_type", detail });
  }
  checkJson(params, "", 0);
  for (const text of textsIn(params)) checkText(text);
  return JSON.stringify(params);
}

/** @throws ConcordError `invalid_kv` reason `lone_surrogate`. */
function checkText(text: unknown): void {
  if (typeof text !== "string" || text.isWellFormed()) return;
  const detail = `The text ${JSON.stringify(text.slice(0, 80))} holds a lone surrogate and has no UTF-8 encoding.`;
  throw new ConcordError({ code: "invalid_kv", reason: "lone_surrogate", detail });
}

/** @throws ConcordError `invalid_request` reason `idempotency_key` or `idempotency_key_size`. */
export function checkIdempotencyKey(key: string): void {
  if (key.length < 1 || key.length > IDEMPOTENCY_KEY_BYTES_MAX) {
    const detail = `An idempotency key has 1 to ${IDEMPOTENCY_KEY_BYTES_MAX} characters; this one has ${key.length}.`;
    throw new ConcordError({ code: "invalid_request", reason: "idempotency_key_size", detail });
  }
  // Blanks at the ends of a header's value are lost on the way.
  if (/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(key)) return;
  const detail = "An idempotency key is printable ASCII without blanks at its ends.";
  throw new ConcordError({ code: "invalid_request", reason: "idempotency_key", detail });
}

/** A member that is undefined is left out, as JSON does; everything else that JSON would drop or change is refused. */
function checkJson(value: unknown, place: string, depth: number): void {
  if (value === null || typeof value === "string" || typeof value === "boolean") return;
  if (typeof value === "number" && Number.isFinite(value)) return;
  if (typeof value !== "object" || !isPlain(value)) throw notJson(place, value);
  if (depth >= BODY_NESTING_MAX) {
    const detail = `A value is nested at most ${NESTING_MAX} levels deep.`;
    throw new ConcordError({ code: "invalid_kv", reason: "depth_exceeded", detail });
  }
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) checkJson(item, `${place}[${index}]`, depth + 1);
    return;
  }
  for (const [name, member] of Object.entries(value)) {
    if (member !== undefined) checkJson(member, place === "" ? name : `${place}.${name}`, depth + 1);
  }
}

/** An array, or an object whose prototype is that of `{}` (of any realm) or none. */
function isPlain(value: object): boolean {
  if (Array.isArray(value)) return true;
  const prototype: object | null = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

function notJson(place: string, value: unknown): ConcordError {
  const what = typeof value === "object" ? `an object of a class` : `the ${typeof value} ${String(value)}`;
  const detail = `${place.slice(0, 200)} is ${what.slice(0, 80)}; only JSON data can be sent, and bytes by bytes().`;
  return new ConcordError({ code: "invalid_kv", reason: "not_json", detail });
}

/** Every text that names something: keys, prefixes, bounds, cursors, topics; never what stands inside of values. */
function textsIn(params: object): unknown[] {
  const { keys, items, compare, success, failure } = params as Readonly<Record<string, unknown>>;
  const named = [[params], items, compare, success, failure].flatMap(listOf).flatMap((part): unknown[] => {
    const { range, key, prefix, start, end, cursor, after, topic } = part as Readonly<Record<string, unknown>>;
    const bounds = isObject(range) ? Object.values(range) : [];
    return [key, prefix, start, end, cursor, after, topic, ...bounds];
  });
  return [...listOf(keys), ...named];
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === "string" || isObject(item)) : [];
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
