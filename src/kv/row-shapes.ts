/**
 * One row of the state, taken apart and held to its shape. For rows that come from elsewhere: a snapshot, a backup.
 *
 * W1. A row is taken only if writing its content again gives the same key and the same text. So there is one text for
 * each content, and nothing hides in a row.
 * W2. Content is held to the limits that admission and apply keep; relations between rows are row-check.ts's.
 */
import { LEASE_TTL_S_MAX, LEASE_TTL_S_MIN, LOG_ROW_BYTES_MAX } from "../base/limits.ts";
import { type OrderTuple, resultBytes } from "./idempotency.ts";
import { decodeLease, encodeLease, type Lease } from "./leases.ts";
import { type Current, decodeCurrent, decodeEventAt, encodeCurrent, encodeHistory } from "./records.ts";
import { refuse } from "./refusal.ts";
import {
  attachmentRow,
  currentRow,
  dueRow,
  escapedKeyOfVersionRow,
  expiryRow,
  historyRow,
  idOfAttachmentRow,
  idOfLeaseRow,
  keyOfAttachmentRow,
  keyOfCurrentRow,
  leaseRow,
  META_ROW,
  markRow,
  partsOfDueRow,
  partsOfExpiryRow,
  positionOfRow,
  resultOrderRow,
  resultRow,
  revisionOfMarkRow,
  rowName,
  sequenceOfOrderRow,
  unescapeKey,
  versionRow,
} from "./rows.ts";
import { EMPTY_META, encodeMeta, type Meta, STATE_FORMAT } from "./state.ts";
import { checkKey, checkMetadata, checkValue, DEFAULT_LIMITS, isByteString, isCounter } from "./validate-parts.ts";

/** `table` is the letter of rows.ts. */
export type RowContent =
  | { readonly table: "a"; readonly leaseId: number; readonly key: string }
  | { readonly table: "c"; readonly key: string; readonly current: Current }
  | { readonly table: "d"; readonly key: string }
  | { readonly table: "e" }
  | { readonly table: "h"; readonly revision: number; readonly timeMs: number; readonly historyBytes: number }
  | { readonly table: "i"; readonly bytes: number }
  | { readonly table: "k"; readonly key: string; readonly type: "p" | "d" }
  | { readonly table: "l"; readonly id: number; readonly lease: Lease }
  | { readonly table: "m"; readonly meta: Meta }
  | { readonly table: "o"; readonly sequence: number; readonly order: OrderTuple }
  | {
      readonly table: "r";
      readonly revision: number;
      readonly opIndex: number;
      readonly key: string;
      readonly type: "p" | "d";
    };

/** @throws ConcordError `invalid_request` (`invalid_rows`) */
export function readRow(row: string, text: string): RowContent {
  if (row.includes("\u0000") || !isByteString(row)) refuseRow(row, "its key is no byte string without NUL");
  if (row.length + text.length > LOG_ROW_BYTES_MAX) refuseRow(row, "it is longer than a row may be");
  if (!text.isWellFormed()) refuseRow(row, "its text is not well-formed");
  switch (row.charAt(0)) {
    case "a":
      return readAttachment(row, text);
    case "c":
      return readCurrentRow(row, text);
    case "d":
      return readDueRow(row, text);
    case "e":
      return readExpiry(row, text);
    case "h":
      return readMark(row, text);
    case "i":
      return readResultRow(row, text);
    case "k":
      return readVersion(row, text);
    case "l":
      return readLeaseRow(row, text);
    case "m":
      return readMetaRow(row, text);
    case "o":
      return readOrder(row, text);
    case "r":
      return readHistoryRow(row, text);
    default:
      return refuseRow(row, "no table of the state begins like this");
  }
}

export function refuseRows(detail: string): never {
  refuse("invalid_request", detail, { reason: "invalid_rows" });
}

function refuseRow(row: string, what: string): never {
  refuseRows(`Row ${rowName(row)} is no row of a state: ${what}.`);
}

function readAttachment(row: string, text: string): RowContent {
  const [leaseId, key] = [idOfAttachmentRow(row), keyOfAttachmentRow(row)];
  expectRow(row, attachmentRow(leaseId, key), [leaseId]);
  expectUserKey(row, key);
  expectText(row, text, "");
  return { table: "a", leaseId, key };
}

function readCurrentRow(row: string, text: string): RowContent {
  const key = keyOfCurrentRow(row);
  expectRow(row, currentRow(key), []);
  expectUserKey(row, key);
  expectList(row, text);
  const current = decodeCurrent(text);
  const { revision, opIndex, createRevision, version, leaseId, dueAtMs } = current;
  expectCounters(row, [revision, opIndex, createRevision, version, leaseId, dueAtMs ?? 0]);
  expectText(row, text, encodeCurrent(current));
  const possible = version >= 1 && createRevision >= 1 && createRevision <= revision;
  if (!possible) refuseRow(row, `version ${version}, created at ${createRevision}, written at ${revision}`);
  return { table: "c", key, current };
}

function readDueRow(row: string, text: string): RowContent {
  const [dueAtMs, key] = partsOfDueRow(row);
  expectRow(row, dueRow(dueAtMs, key), [dueAtMs]);
  expectUserKey(row, key);
  expectText(row, text, "");
  return { table: "d", key };
}

function readExpiry(row: string, text: string): RowContent {
  const [expiresAtMs, id] = partsOfExpiryRow(row);
  expectRow(row, expiryRow(expiresAtMs, id), [expiresAtMs, id]);
  expectText(row, text, "");
  return { table: "e" };
}

function readMark(row: string, text: string): RowContent {
  const revision = revisionOfMarkRow(row);
  expectRow(row, markRow(revision), [revision]);
  const [timeMs, historyBytes] = expectList(row, text);
  if (!isCounter(timeMs) || !isCounter(historyBytes)) return refuseRow(row, "it does not hold counters");
  expectText(row, text, JSON.stringify([timeMs, historyBytes]));
  return { table: "h", revision, timeMs, historyBytes };
}

function readResultRow(row: string, text: string): RowContent {
  const [scope, key, ...more] = row.slice(1).split("\u0001").map(unescapeKey);
  if (scope === undefined || key === undefined || more.length > 0) refuseRow(row, "it does not name a scope and a key");
  expectRow(row, resultRow(scope, key), []);
  const hashEnd = text.indexOf("\n");
  if (hashEnd <= 0) refuseRow(row, "it has no hash of a request");
  const outcome = parseJson(row, text.slice(hashEnd + 1));
  if (!isOutcome(outcome)) refuseRow(row, "it does not hold an outcome");
  return { table: "i", bytes: resultBytes(row, text) };
}

/** What an outcome says beyond this is for whoever asked; nothing in the state depends on it. */
function isOutcome(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const { ok, revision, result, error } = value as Readonly<Record<string, unknown>>;
  const told = ok === true ? result : error;
  return typeof ok === "boolean" && isCounter(revision) && typeof told === "object" && told !== null;
}

function readVersion(row: string, text: string): RowContent {
  const key = unescapeKey(escapedKeyOfVersionRow(row));
  const [revision, opIndex] = positionOfRow(row);
  expectRow(row, versionRow(key, revision, opIndex), [revision, opIndex]);
  expectUserKey(row, key);
  if (text !== "p" && text !== "d") refuseRow(row, "it is neither of a put nor of a delete");
  return { table: "k", key, type: text };
}

function readLeaseRow(row: string, text: string): RowContent {
  const id = idOfLeaseRow(row);
  expectRow(row, leaseRow(id), [id]);
  expectList(row, text);
  const lease = decodeLease(text);
  const { ttlS, expiresAtMs, anonymous, keysCount, metadata } = lease;
  expectCounters(row, [ttlS, expiresAtMs, keysCount]);
  const fault = checkMetadata(metadata, "metadata", "invalid_lease", DEFAULT_LIMITS);
  if (fault !== null) refuseRow(row, fault.detail);
  expectText(row, text, encodeLease(lease));
  const possible = id > 0 && ttlS >= LEASE_TTL_S_MIN && ttlS <= LEASE_TTL_S_MAX && (!anonymous || keysCount === 1);
  if (!possible) refuseRow(row, `a lease of ${ttlS} s with ${keysCount} keys`);
  return { table: "l", id, lease };
}

function readMetaRow(row: string, text: string): RowContent {
  if (row !== META_ROW) refuseRow(row, "no table of the state begins like this");
  const meta = parseJson(row, text) as Meta | null;
  if (typeof meta !== "object" || meta === null) refuseRow(row, "it does not hold counters");
  if (meta.format !== STATE_FORMAT) {
    refuseRow(row, `it has format ${String(meta.format)}; this program reads ${STATE_FORMAT}`);
  }
  const names = Object.keys(EMPTY_META);
  const found = Object.keys(meta);
  if (found.length !== names.length || found.some((name, position) => name !== names[position])) {
    refuseRow(row, "it does not hold the counters of a state");
  }
  expectCounters(row, Object.values(meta));
  expectText(row, text, encodeMeta(meta));
  return { table: "m", meta };
}

function readOrder(row: string, text: string): RowContent {
  const sequence = sequenceOfOrderRow(row);
  expectRow(row, resultOrderRow(sequence), [sequence]);
  const [result, revisionBefore, timeMs, bytes] = expectList(row, text);
  if (typeof result !== "string" || !isCounter(revisionBefore) || !isCounter(timeMs) || !isCounter(bytes)) {
    return refuseRow(row, "it does not hold the order of a result");
  }
  const order: OrderTuple = [result, revisionBefore, timeMs, bytes];
  expectText(row, text, JSON.stringify(order));
  return { table: "o", sequence, order };
}

function readHistoryRow(row: string, text: string): RowContent {
  const [revision, opIndex] = positionOfRow(row);
  expectRow(row, historyRow(revision, opIndex), [revision, opIndex]);
  const isPut = text.startsWith("p");
  const headerEnd = isPut ? text.indexOf("\n") : text.length;
  if (headerEnd < 0 || !(isPut || text.startsWith("d"))) refuseRow(row, "it is neither a put nor a delete");
  const header = text.slice(1, headerEnd);
  const fields = expectList(row, header);
  const [key, createRevision, version, leaseId, expiresAtMs, contentType, metadata] = fields;
  if (typeof key !== "string") return refuseRow(row, "it names no key");
  expectUserKey(row, key);
  if (isPut) {
    expectCounters(row, [createRevision, version, leaseId, expiresAtMs ?? 0]);
    const fault =
      checkMetadata(metadata, "metadata", "invalid_kv", DEFAULT_LIMITS) ?? checkValueText(row, text, headerEnd + 1);
    if (fault !== null) refuseRow(row, fault.detail);
    if (contentType !== null && typeof contentType !== "string") refuseRow(row, "its content type is no text");
  }
  expectText(row, text, encodeHistory(decodeEventAt(revision, opIndex, text)));
  return { table: "r", revision, opIndex, key, type: isPut ? "p" : "d" };
}

function checkValueText(row: string, text: string, from: number): ReturnType<typeof checkValue> {
  const content = text.slice(from + 1);
  if (text.charAt(from) === "b") return checkValue({ base64: content }, "value", DEFAULT_LIMITS);
  if (text.charAt(from) !== "j") refuseRow(row, "its value is neither JSON nor bytes");
  const json = parseJson(row, content) as never;
  return checkValue({ json }, "value", DEFAULT_LIMITS);
}

/** The row key is what its parts make, and the numbers in it are counters. */
function expectRow(row: string, rebuilt: string, numbers: readonly number[]): void {
  if (row !== rebuilt || !numbers.every(isCounter)) refuseRow(row, "its key is not one of its table");
}

function expectUserKey(row: string, key: string): void {
  const fault = checkKey(key, "key", DEFAULT_LIMITS);
  if (fault !== null) refuseRow(row, fault.detail);
}

function expectText(row: string, text: string, rebuilt: string): void {
  if (text !== rebuilt) refuseRow(row, "its text is not what its content is written as");
}

function expectCounters(row: string, numbers: readonly unknown[]): void {
  if (!numbers.every(isCounter)) refuseRow(row, "it does not hold counters");
}

function expectList(row: string, text: string): readonly unknown[] {
  const list = parseJson(row, text);
  return Array.isArray(list) ? list : refuseRow(row, "it does not hold a list");
}

function parseJson(row: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    // What cannot be parsed is not ours; anything else is a fault of ours.
    if (error instanceof SyntaxError) return refuseRow(row, "its text cannot be parsed");
    throw error;
  }
}
