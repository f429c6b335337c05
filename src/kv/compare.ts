/**
 * Compares of a txn (design 01 §2). Total: whatever is stored and whatever is asked, the answer is true or false.
 *
 * An absent key: exists = false; value, field, lease, ttl = null; version and revisions = 0. An absent record and a
 * stored JSON null are equal for `value` and `field`; `exists` tells them apart. Bytes have no fields (null) and equal
 * only the same bytes. Order across types: null < boolean < number < string < array < object.
 */
import { unreachable } from "../base/assert.ts";
import { equalJson, type JsonValue } from "../base/json.ts";
import type { Compare, OrderOperator, Value } from "./command.ts";
import { compareJson } from "./json-order.ts";
import { remainingMs } from "./lease-expiry.ts";
import { readLease } from "./leases.ts";
import { type Current, decodeRecord, readCurrent, readHistoryText } from "./records.ts";
import type { View } from "./state.ts";

export function evaluateCompare(view: View, compare: Compare): boolean {
  const current = readCurrent(view.store, compare.key);
  switch (compare.target) {
    case "exists":
      return (current !== null) === compare.value ? compare.op === "==" : compare.op === "!=";
    case "version":
      return holds(current?.version ?? 0, compare.op, compare.value);
    case "create_revision":
      return holds(current?.createRevision ?? 0, compare.op, compare.value);
    case "mod_revision":
      return holds(current?.revision ?? 0, compare.op, compare.value);
    case "lease":
      return holds(leaseIdOf(current), compare.op, compare.value);
    case "ttl":
      return holds(remainingSeconds(view, current), compare.op, compare.value);
    case "value":
      return equalValues(currentValue(view, current), compare.value) === (compare.op === "==");
    case "field":
      return compareField(currentValue(view, current), compare);
    default:
      return unreachable(compare);
  }
}

function leaseIdOf(current: Current | null): number | null {
  return current === null || current.leaseId === 0 ? null : current.leaseId;
}

/** Seconds with milliseconds behind the point; 0 when the lease is due but not yet ended. */
function remainingSeconds(view: View, current: Current | null): number | null {
  if (current === null || current.leaseId === 0) return null;
  const lease = readLease(view.store, current.leaseId);
  return lease === null ? null : remainingMs(view, lease) / 1000;
}

function currentValue(view: View, current: Current | null): Value | null {
  if (current === null) return null;
  return decodeRecord(readHistoryText(view.store, current.revision, current.opIndex), current.revision, false).value;
}

function equalValues(left: Value | null, right: Value | null): boolean {
  if (left !== null && "base64" in left) return right !== null && "base64" in right && left.base64 === right.base64;
  if (right !== null && "base64" in right) return false;
  return equalJson(left?.json ?? null, right?.json ?? null);
}

function compareField(value: Value | null, compare: Compare & { readonly target: "field" }): boolean {
  return holds(fieldOf(value, compare.path), compare.op, compare.value);
}

/** A name steps into an object, a whole number into an array; every other step leads to null. */
function fieldOf(value: Value | null, path: readonly (string | number)[]): JsonValue {
  if (value === null || "base64" in value) return null;
  let field: JsonValue = value.json;
  for (const step of path) {
    if (field === null || typeof field !== "object") return null;
    if (!Array.isArray(field) !== (typeof step === "string")) return null;
    if (!Object.hasOwn(field, step)) return null;
    field = (field as { readonly [step: string | number]: JsonValue })[step] ?? null;
  }
  return field;
}

function holds(left: JsonValue, op: OrderOperator, right: JsonValue): boolean {
  const order = compareJson(left, right);
  switch (op) {
    case "==":
      return order === 0;
    case "!=":
      return order !== 0;
    case ">":
      return order > 0;
    case ">=":
      return order >= 0;
    case "<":
      return order < 0;
    case "<=":
      return order <= 0;
    default:
      return unreachable(op);
  }
}
