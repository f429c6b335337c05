/** Admission of one compare or one operation of a txn. See validate.ts. */
import { unreachable } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import type { ErrorBody } from "../base/errors.ts";
import { NESTING_MAX } from "../base/limits.ts";
import type { Compare, Operation } from "./command.ts";
import {
  type AdmissionLimits,
  checkJson,
  checkKey,
  checkLeaseId,
  checkMetadata,
  checkPageLimit,
  checkRevisionNumber,
  checkSelector,
  checkTtl,
  checkValue,
  isCounter,
  problem,
} from "./validate-parts.ts";

const EQUALITY_OPERATORS: readonly string[] = ["==", "!="];
const ORDER_OPERATORS: readonly string[] = [...EQUALITY_OPERATORS, ">", ">=", "<", "<="];

/** Digits that `revision_suffix` appends to a key. */
const REVISION_SUFFIX_BYTES = 16;

export function checkCompare(compare: Compare, at: string, limits: AdmissionLimits): ErrorBody | null {
  const onlyEquality = compare.target === "value" || compare.target === "lease" || compare.target === "exists";
  const operators = onlyEquality ? EQUALITY_OPERATORS : ORDER_OPERATORS;
  if (!operators.includes(compare.op)) {
    const detail = `${at}: ${compare.target} can be compared by ${operators.join(" ")}, not by ${String(compare.op)}.`;
    return problem("invalid_txn", "unsupported_op", detail);
  }
  return checkKey(compare.key, `${at}.key`, limits) ?? checkCompareValue(compare, `${at}.value`, limits);
}

function checkCompareValue(compare: Compare, at: string, limits: AdmissionLimits): ErrorBody | null {
  switch (compare.target) {
    case "exists":
      return typeof compare.value === "boolean" ? null : wrongValue(at, "true or false");
    case "version":
    case "create_revision":
    case "mod_revision":
      return isCounter(compare.value) ? null : wrongValue(at, "a whole number from 0");
    case "lease":
      return compare.value === null || isCounter(compare.value) ? null : wrongValue(at, "a lease id or null");
    case "ttl":
      return compare.value === null || Number.isFinite(compare.value) ? null : wrongValue(at, "seconds or null");
    case "value":
      return compare.value === null ? null : checkValue(compare.value, at, limits);
    case "field":
      return checkPath(compare.path, at) ?? checkJson(compare.value, at, "invalid_txn");
    default:
      return unreachable(compare);
  }
}

function wrongValue(at: string, wanted: string): ErrorBody {
  return problem("invalid_txn", "invalid_compare_value", `${at}: ${wanted} is expected.`);
}

function checkPath(path: readonly unknown[], at: string): ErrorBody | null {
  const fits = path.length <= NESTING_MAX && path.every((step) => typeof step === "string" || isCounter(step));
  if (fits) return null;
  const detail = `${at}: a path is at most ${NESTING_MAX} property names and array positions.`;
  return problem("invalid_txn", "invalid_path", detail);
}

export function checkOperation(operation: Operation, at: string, limits: AdmissionLimits): ErrorBody | null {
  switch (operation.type) {
    case "get":
      return checkGet(operation, at, limits);
    case "put":
      return checkPut(operation, at, limits);
    case "delete":
      return checkSelector(operation.selector, at, limits);
    case "touch":
      return checkKey(operation.key, `${at}.key`, limits) ?? checkTtl(operation.ttl, `${at}.ttl`, "invalid_kv", limits);
    default:
      return unreachable(operation);
  }
}

function checkGet(get: Operation & { readonly type: "get" }, at: string, limits: AdmissionLimits): ErrorBody | null {
  const found = checkSelector(get.selector, at, limits) ?? checkRevisionNumber(get.revision, `${at}.revision`);
  if (found !== null) return found;
  if (get.limit !== undefined) return checkPageLimit(get.limit, `${at}.limit`, limits);
  if ("key" in get.selector) return null;
  const detail = `${at}: a get of a prefix or range names a limit, at most ${limits.rangeLimitMax}.`;
  return problem("invalid_selector", "missing_range_limit", detail);
}

function checkPut(put: Operation & { readonly type: "put" }, at: string, limits: AdmissionLimits): ErrorBody | null {
  const suffixBytes = put.revision_suffix === true ? REVISION_SUFFIX_BYTES : 0;
  return (
    checkKey(put.key, `${at}.key`, limits, suffixBytes) ??
    checkPutOptions(put, at) ??
    (put.value === undefined ? null : checkValue(put.value, `${at}.value`, limits)) ??
    checkContentType(put.content_type, `${at}.content_type`, limits) ??
    (put.metadata === undefined ? null : checkMetadata(put.metadata, `${at}.metadata`, "invalid_kv", limits)) ??
    (put.ttl === undefined ? null : checkTtl(put.ttl, `${at}.ttl`, "invalid_kv", limits)) ??
    (put.lease === undefined ? null : checkLeaseId(put.lease, `${at}.lease`)) ??
    checkDue(put.due_at_ms, `${at}.due_at_ms`)
  );
}

/** Options that exclude or need each other. */
function checkPutOptions(put: Operation & { readonly type: "put" }, at: string): ErrorBody | null {
  if (put.ttl !== undefined && put.lease !== undefined) {
    return problem("invalid_kv", "ttl_and_lease_conflict", `${at}: a record has a ttl or a lease, not both.`);
  }
  if (put.ignore_lease === true && (put.ttl !== undefined || put.lease !== undefined)) {
    return problem("invalid_kv", "ignore_lease_conflict", `${at}: ignore_lease keeps the lease; give no ttl or lease.`);
  }
  if (put.ignore_value === true && put.value !== undefined) {
    return problem("invalid_kv", "ignore_value_conflict", `${at}: ignore_value keeps the value; give none.`);
  }
  if (put.ignore_value !== true && put.value === undefined) {
    return problem("invalid_kv", "missing_value", `${at}: a put has a value, or ignore_value.`);
  }
  return null;
}

function checkContentType(contentType: string | undefined, at: string, limits: AdmissionLimits): ErrorBody | null {
  if (contentType === undefined) return null;
  const bytes = utf8Length(contentType);
  if (bytes <= limits.contentTypeBytesMax) return null;
  const detail = `${at}: ${bytes} bytes; at most ${limits.contentTypeBytesMax} are allowed.`;
  return problem("invalid_kv", "content_type_too_large", detail);
}

function checkDue(dueAtMs: unknown, at: string): ErrorBody | null {
  if (dueAtMs === undefined || isCounter(dueAtMs)) return null;
  return problem("invalid_kv", "invalid_due_at", `${at}: milliseconds since 1970, a whole number from 0.`);
}
