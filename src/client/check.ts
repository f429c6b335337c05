/**
 * What can be seen to be wrong before anything is sent: arguments of another kind, options that do not exist, text that
 * has no UTF-8 form, values that are no JSON data, keys of idempotency that a header cannot carry. Each would otherwise be
 * an exception of the platform, a broken request that looks like a broken connection, or, worst, something else than what
 * the caller meant; and a query of HTTP, where all is text, would mean something else than a message of a session.
 *
 * Must not: check limits; the server does, and may have others.
 */
import { BODY_NESTING_MAX } from "../api/limits.ts";
import { ConcordError, type ErrorCode } from "../base/errors.ts";
import { IDEMPOTENCY_KEY_BYTES_MAX, NESTING_MAX } from "../base/limits.ts";

/** The options of a call, of one that reads, and of one that writes, by name. */
export const CALL = "timeoutMs signal";
export const READ = `${CALL} consistency minRevision`;
export const WRITE = `${CALL} idempotencyKey`;

/** Members by the kind of their values. What is in no list is checked elsewhere, or by the server alone. */
const KINDS = Object.entries({
  number: "minRevision limit revision from to from_revision ttl_s",
  string: "cursor cluster_id",
  boolean: "keys_only count_only include_values prev_values anonymous",
  function: "onStatus onInterrupted onClusterChanged regrant fetch webSocket random",
  array: "compare success failure",
  "string or bytes": "key prefix start end",
  AbortSignal: "signal",
  "linearizable or serializable": "consistency",
  "asc or desc": "order",
  "puts or deletes": "filter",
  "http or session": "transport",
});

/**
 * `given` is an object with members of `names`, each of its kind. @throws ConcordError `code` reason `unknown_field` or
 * `wrong_type`; `invalid_kv` reason `lone_surrogate`.
 */
export function checkMembers(given: object, names: string, code: ErrorCode = "invalid_request"): void {
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw fault(code, "wrong_type", `${shown(given)} stands where an object is expected with: ${names}.`);
  }
  for (const [name, value] of Object.entries(given)) {
    if (!names.split(" ").includes(name)) {
      throw fault(code, "unknown_field", `There is no ${shown(name)} here; there are: ${names}.`);
    }
    const kind = KINDS.find(([, members]) => members.split(" ").includes(name))?.[0];
    if (value !== undefined && kind !== undefined) checkKind(name, value, kind, code);
  }
}

/** @throws as {@link checkMembers}. */
export function checkKind(name: string, value: unknown, kind: string, code?: ErrorCode): void {
  if (isOfKind(value, kind)) checkText(value);
  else throw fault(code, "wrong_type", `${name} is ${shown(value)}, not ${kind}.`);
}

function isOfKind(value: unknown, kind: string): boolean {
  switch (kind) {
    case "number":
      return Number.isFinite(value);
    case "array":
      return Array.isArray(value);
    case "AbortSignal":
      return isObject(value) && "addEventListener" in value;
    case "string or bytes":
      return typeof value === "string" || isObject(value);
    default:
      // The other kinds are types by their names, or choices.
      return typeof value === kind || kind.split(" or ").includes(value as string);
  }
}

/** A selector of records, or of changes. @throws ConcordError `invalid_selector`. */
export function checkSelector(selector: object): void {
  const code = "invalid_selector";
  checkMembers(selector, "key prefix range", code);
  const named = Object.entries(selector).filter(([, value]) => value !== undefined);
  if (named.length !== 1) {
    const reason = named.length === 0 ? "empty_selector" : "ambiguous_selector";
    throw fault(code, reason, "Exactly one of key, prefix and range is to be named.");
  }
  const { range } = selector as { readonly range?: { readonly start?: unknown } };
  if (range === undefined) return;
  checkMembers(range, "start end", code);
  checkKind("range.start", range.start, "string or bytes", code);
}

function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 80));
  return isObject(value) ? "an object" : String(value).slice(0, 80);
}

/** A ConcordError with a reason. */
export function fault(code: ErrorCode | undefined, reason: string, detail: string): ConcordError {
  return new ConcordError({ code: code ?? "invalid_request", reason, detail });
}

/** Parameters as text. @throws ConcordError `invalid_kv` reason `not_json`, `depth_exceeded` or `lone_surrogate`. */
export function paramsText(params: object): string {
  if (!isObject(params) || Array.isArray(params)) {
    throw fault("invalid_request", "wrong_type", `${shown(params)} stands where an object is expected.`);
  }
  checkJson(params, "", 0);
  for (const text of textsIn(params)) checkText(text);
  return JSON.stringify(params);
}

/** @throws ConcordError `invalid_kv` reason `lone_surrogate`. */
function checkText(text: unknown): void {
  if (typeof text !== "string" || text.isWellFormed()) return;
  const detail = `The text ${JSON.stringify(text.slice(0, 80))} holds a lone surrogate and has no UTF-8 encoding.`;
  throw fault("invalid_kv", "lone_surrogate", detail);
}

/** @throws ConcordError `invalid_request` reason `wrong_type`, `idempotency_key` or `idempotency_key_size`. */
export function checkIdempotencyKey(key: string): void {
  checkKind("The idempotency key", key, "string");
  if (key.length < 1 || key.length > IDEMPOTENCY_KEY_BYTES_MAX) {
    const detail = `An idempotency key has 1 to ${IDEMPOTENCY_KEY_BYTES_MAX} characters; this one has ${key.length}.`;
    throw fault("invalid_request", "idempotency_key_size", detail);
  }
  // Blanks at the ends of a header's value are lost on the way.
  if (/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(key)) return;
  const detail = "An idempotency key is printable ASCII without blanks at its ends.";
  throw fault("invalid_request", "idempotency_key", detail);
}

/** A member that is undefined is left out, as JSON does; everything else that JSON would drop or change is refused. */
function checkJson(value: unknown, place: string, depth: number): void {
  if (value === null || typeof value === "string" || typeof value === "boolean") return;
  if (typeof value === "number" && Number.isFinite(value)) return;
  if (typeof value !== "object" || !isPlain(value)) throw notJson(place, value);
  if (depth >= BODY_NESTING_MAX) {
    const detail = `A value is nested at most ${NESTING_MAX} levels deep.`;
    throw fault("invalid_kv", "depth_exceeded", detail);
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
  return fault("invalid_kv", "not_json", detail);
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
