/**
 * The pieces of admission: keys, values, JSON, selectors, TTLs, numbers. Each check answers null or the first problem.
 * `at` names the field in the request, for the person who reads the error.
 */
import { utf8Length } from "../base/bytes.ts";
import type { ErrorBody, ErrorCode } from "../base/errors.ts";
import {
  BATCH_KEYS_MAX,
  COMPARES_MAX,
  CONTENT_TYPE_BYTES_MAX,
  KEY_BYTES_MAX,
  LEASE_TTL_S_MAX,
  LEASE_TTL_S_MIN,
  METADATA_BYTES_MAX,
  NESTING_MAX,
  OPERATIONS_PER_BRANCH_MAX,
  RANGE_LIMIT_MAX,
  TXN_BYTES_MAX,
  VALUE_BYTES_MAX,
} from "../base/limits.ts";
import type { Selector, Value } from "./command.ts";

/** Limits that an operator may lower for requests that are yet to be logged. */
export interface AdmissionLimits {
  readonly keyBytesMax: number;
  readonly valueBytesMax: number;
  readonly metadataBytesMax: number;
  readonly contentTypeBytesMax: number;
  readonly comparesMax: number;
  readonly operationsPerBranchMax: number;
  readonly txnBytesMax: number;
  readonly rangeLimitMax: number;
  readonly batchKeysMax: number;
  readonly leaseTtlSMax: number;
}

export type LimitOptions = Partial<AdmissionLimits>;

export const DEFAULT_LIMITS: AdmissionLimits = {
  keyBytesMax: KEY_BYTES_MAX,
  valueBytesMax: VALUE_BYTES_MAX,
  metadataBytesMax: METADATA_BYTES_MAX,
  contentTypeBytesMax: CONTENT_TYPE_BYTES_MAX,
  comparesMax: COMPARES_MAX,
  operationsPerBranchMax: OPERATIONS_PER_BRANCH_MAX,
  txnBytesMax: TXN_BYTES_MAX,
  rangeLimitMax: RANGE_LIMIT_MAX,
  batchKeysMax: BATCH_KEYS_MAX,
  leaseTtlSMax: LEASE_TTL_S_MAX,
};

/** The defaults, lowered where the options say so; an option above its default has no effect. */
export function lowered(options: LimitOptions | undefined): AdmissionLimits {
  if (options === undefined) return DEFAULT_LIMITS;
  const limits: Record<keyof AdmissionLimits, number> = { ...DEFAULT_LIMITS };
  for (const name of Object.keys(limits) as (keyof AdmissionLimits)[]) {
    limits[name] = Math.min(DEFAULT_LIMITS[name], options[name] ?? DEFAULT_LIMITS[name]);
  }
  return limits;
}

export function problem(code: ErrorCode, reason: string, detail: string): ErrorBody {
  return { code, reason, detail };
}

/** A whole number from 0 that JSON and SQLite carry exactly. */
export function isCounter(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

export function checkCount(count: number, countMax: number, what: string, reason: string): ErrorBody | null {
  if (count <= countMax) return null;
  return problem("invalid_txn", reason, `${count} ${what}; at most ${countMax} are allowed.`);
}

export function checkKey(key: string, at: string, limits: AdmissionLimits, suffixBytes = 0): ErrorBody | null {
  if (key.length === 0) return problem("invalid_kv", "key_empty", `${at}: a key has at least one byte.`);
  const bytes = key.length + suffixBytes;
  if (bytes > limits.keyBytesMax) {
    return problem("invalid_kv", "key_too_large", `${at}: ${bytes} bytes; at most ${limits.keyBytesMax} are allowed.`);
  }
  return isByteString(key) ? null : problem("invalid_kv", "key_not_bytes", `${at}: the key is not a byte string.`);
}

export function isByteString(text: string): boolean {
  for (let position = 0; position < text.length; position += 1) {
    if (text.charCodeAt(position) > 0xff) return false;
  }
  return true;
}

export function checkValue(value: Value, at: string, limits: AdmissionLimits): ErrorBody | null {
  const isBytes = "base64" in value;
  const found = isBytes ? checkBase64(value.base64, at) : checkJson(value.json, at, "invalid_kv");
  if (found !== null) return found;
  const bytes = isBytes ? base64Bytes(value.base64) : utf8Length(JSON.stringify(value.json));
  if (bytes <= limits.valueBytesMax) return null;
  const detail = `${at}: ${bytes} bytes; at most ${limits.valueBytesMax} are allowed.`;
  return problem("invalid_kv", "value_too_large", detail);
}

/** Equal bytes must have equal text, because compares compare the text: padded, and no stray bits at the end. */
function checkBase64(text: string, at: string): ErrorBody | null {
  const body = text.endsWith("==") ? text.slice(0, -2) : text.endsWith("=") ? text.slice(0, -1) : text;
  const padding = text.length - body.length;
  const last = body.charAt(body.length - 1);
  const canonicalEnd =
    padding === 0 || (padding === 1 ? "AEIMQUYcgkosw048" : "AQgw").includes(last === "" ? "-" : last);
  if (text.length % 4 === 0 && !/[^A-Za-z0-9+/]/.test(body) && canonicalEnd) return null;
  return problem("invalid_kv", "invalid_base64", `${at}: bytes are padded base64 of the standard alphabet.`);
}

function base64Bytes(text: string): number {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  return (text.length / 4) * 3 - padding;
}

/** JSON data of bounded nesting. The walk ends at the bound, so deep input cannot overflow the stack either. */
export function checkJson(value: unknown, at: string, code: ErrorCode): ErrorBody | null {
  const fault = jsonFault(value, 0);
  if (fault === "depth_exceeded") {
    return problem(code, fault, `${at}: arrays and objects are nested more than ${NESTING_MAX} deep.`);
  }
  return fault === null ? null : problem(code, fault, `${at}: only JSON data can be stored.`);
}

function jsonFault(value: unknown, depth: number): "depth_exceeded" | "not_json" | null {
  if (value === null || typeof value === "string" || typeof value === "boolean") return null;
  if (typeof value === "number") return Number.isFinite(value) ? null : "not_json";
  if (typeof value !== "object") return "not_json";
  if (depth >= NESTING_MAX) return "depth_exceeded";
  for (const member of Array.isArray(value) ? value : Object.values(value)) {
    const fault = jsonFault(member, depth + 1);
    if (fault !== null) return fault;
  }
  return null;
}

export function checkMetadata(
  metadata: unknown,
  at: string,
  code: "invalid_kv" | "invalid_lease",
  limits: AdmissionLimits,
): ErrorBody | null {
  if (metadata === null || typeof metadata !== "object" || Array.isArray(metadata)) {
    return problem(code, "metadata_not_object", `${at}: metadata is a JSON object.`);
  }
  const found = checkJson(metadata, at, code);
  if (found !== null) return found;
  const bytes = utf8Length(JSON.stringify(metadata));
  if (bytes <= limits.metadataBytesMax) return null;
  const detail = `${at}: ${bytes} bytes as JSON; at most ${limits.metadataBytesMax} are allowed.`;
  return problem(code, "metadata_too_large", detail);
}

/** Whole seconds within bounds (S35): everything else would be stored as something that the caller did not mean. */
export function checkTtl(
  ttlS: unknown,
  at: string,
  code: "invalid_kv" | "invalid_lease",
  limits: AdmissionLimits,
): ErrorBody | null {
  if (isCounter(ttlS) && ttlS >= LEASE_TTL_S_MIN && ttlS <= limits.leaseTtlSMax) return null;
  const range = `${LEASE_TTL_S_MIN} to ${limits.leaseTtlSMax}`;
  return problem(code, "invalid_ttl", `${at}: a TTL is a whole number of seconds from ${range}.`);
}

export function checkLeaseId(id: unknown, at: string): ErrorBody | null {
  if (isCounter(id) && id > 0) return null;
  return problem("invalid_lease", "invalid_lease_id", `${at}: a lease id is a whole number from 1.`);
}

export function checkRevisionNumber(revision: unknown, at: string): ErrorBody | null {
  if (revision === undefined || isCounter(revision)) return null;
  return problem("invalid_kv", "invalid_revision", `${at}: a whole number from 0 is expected.`);
}

export function checkPageLimit(limit: unknown, at: string, limits: AdmissionLimits): ErrorBody | null {
  if (!isCounter(limit) || limit === 0) {
    return problem("invalid_selector", "invalid_limit", `${at}: a limit is a whole number from 1.`);
  }
  if (limit <= limits.rangeLimitMax) return null;
  const detail = `${at}: ${limit}; at most ${limits.rangeLimitMax} records are read at once.`;
  return problem("invalid_selector", "range_limit_too_large", detail);
}

export function checkSelector(selector: Selector, at: string, limits: AdmissionLimits): ErrorBody | null {
  const kinds = ["key", "prefix", "range"].filter((kind) => Object.hasOwn(selector, kind));
  if (kinds.length === 0) {
    return problem("invalid_selector", "empty_selector", `${at}: one of key, prefix or range is needed.`);
  }
  if (kinds.length > 1) {
    return problem("invalid_selector", "ambiguous_selector", `${at}: only one of key, prefix or range is allowed.`);
  }
  if ("key" in selector) return checkKey(selector.key, `${at}.key`, limits);
  // The empty prefix selects every key.
  if ("prefix" in selector) return selector.prefix === "" ? null : checkKey(selector.prefix, `${at}.prefix`, limits);
  return checkRange(selector.range, `${at}.range`, limits);
}

function checkRange(
  range: { readonly start: string; readonly end?: string },
  at: string,
  limits: AdmissionLimits,
): ErrorBody | null {
  const { start, end } = range;
  const found =
    (start === "" ? null : checkKey(start, `${at}.start`, limits)) ??
    // The end of a range may be a longest key with one byte more: the first key behind it.
    (end === undefined || end === "" ? null : checkKey(end, `${at}.end`, limits, -1));
  if (found !== null) return found;
  if (end === undefined || start < end) return null;
  if (start === end) return problem("invalid_selector", "range_empty", `${at}: start and end are the same key.`);
  return problem("invalid_selector", "range_reversed", `${at}: start lies behind end.`);
}
