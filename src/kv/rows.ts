/**
 * The layout of the state in one ordered row space (design 02 §2): keys of rows, and the text of the plain ones.
 * Nothing else in src/kv builds or takes apart a row key.
 *
 * One letter names the table. History has the highest letter, so that the log of changes grows at the end of the space.
 *
 *   a lease(16) key             ""                             keys attached to a lease
 *   c key                       [rev,op,create,version,…]      current record of each live key (no value)
 *   d due_ms(16) key            ""                             due index
 *   e expires_ms(16) lease(16)  ""                             leases in the order of their expiry
 *   h rev(16)                   [time_ms,bytes]                history marks: when a revision was made, bytes up to it
 *   i scope \x01 key            header \n outcome              idempotency results
 *   k key \x01 rev(16) op(5)    "p" | "d"                      versions of one key
 *   l lease(16)                 lease                          leases
 *   m                           meta                           position and counters
 *   n                           origin                         of which restore the state is, and one under way
 *   o sequence(16)              order entry                    idempotency results in the order of their eviction
 *   r rev(16) op(5)             header [\n value]              history = change log; the only copy of a value
 *
 * L1. Row keys hold no NUL; user keys, which may, are escaped so that their byte order stays.
 * L2. Numbers are zero-padded: text order is number order.
 * L3. History rows are written once and never changed (removed only by compaction).
 * L4. No row exceeds LOG_ROW_BYTES_MAX: a value is at most 1.4 MB as base64, everything else far less.
 */
import { prefixEnd } from "../base/bytes.ts";
import type { Selector } from "./command.ts";

export const META_ROW = "m";
/** Not part of a backup: it says who the cluster is. Absent where nothing was ever restored. */
export const ORIGIN_ROW = "n";
/** Bounds of all other rows. */
export const ROWS_BEFORE_META: Bounds = { start: "\u0001", end: META_ROW };
export const ROWS_BEHIND_ORIGIN: Bounds = { start: `${ORIGIN_ROW}\u0001`, end: "\u{10FFFF}" };

/** Digits of an op index: a command makes at most 10 000 deletes and 128 puts, so five are enough. */
const OP_DIGITS = 5;
const REVISION_DIGITS = 16;

const ZEROS = "0000000000000000";

/** 16 digits: any safe integer. */
export function digits16(value: number): string {
  const text = String(value);
  return ZEROS.slice(text.length) + text;
}

function opDigits(opIndex: number): string {
  const text = String(opIndex);
  return ZEROS.slice(0, OP_DIGITS - text.length) + text;
}

/** Order-preserving, without NUL and without "\x01": 00 → 02 02, 01 → 02 03, 02 → 02 04. */
export function escapeKey(key: string): string {
  for (let position = 0; position < key.length; position += 1) {
    if (key.charCodeAt(position) <= 2) return escapeFrom(key, position);
  }
  return key;
}

function escapeFrom(key: string, from: number): string {
  let escaped = key.slice(0, from);
  for (let position = from; position < key.length; position += 1) {
    const code = key.charCodeAt(position);
    escaped += code <= 2 ? `\u0002${String.fromCharCode(code + 2)}` : key.charAt(position);
  }
  return escaped;
}

export function unescapeKey(escaped: string): string {
  let mark = escaped.indexOf("\u0002");
  if (mark < 0) return escaped;
  let key = "";
  let from = 0;
  while (mark >= 0) {
    key += escaped.slice(from, mark) + String.fromCharCode(escaped.charCodeAt(mark + 1) - 2);
    from = mark + 2;
    mark = escaped.indexOf("\u0002", from);
  }
  return key + escaped.slice(from);
}

export const currentRow = (key: string): string => `c${escapeKey(key)}`;
export const keyOfCurrentRow = (row: string): string => unescapeKey(row.slice(1));

export const historyRow = (revision: number, opIndex: number): string => `r${digits16(revision)}${opDigits(opIndex)}`;

/** (revision, op index) at the end of a history row's or a version row's key. */
export function positionOfRow(row: string): readonly [revision: number, opIndex: number] {
  const opAt = row.length - OP_DIGITS;
  return [Number(row.slice(opAt - REVISION_DIGITS, opAt)), Number(row.slice(opAt))];
}

export const versionRow = (key: string, revision: number, opIndex: number): string =>
  `k${escapeKey(key)}\u0001${digits16(revision)}${opDigits(opIndex)}`;

/** Bounds of the versions of one key with from <= revision <= to. */
export function versionBounds(key: string, from: number, to: number): Bounds {
  const prefix = `k${escapeKey(key)}\u0001`;
  return { start: prefix + digits16(from), end: prefix + digits16(to + 1) };
}

/** Bounds of the versions of all keys. */
export const VERSION_BOUNDS: Bounds = { start: "k", end: "l" };

/** The escaped key inside a version row's key. */
export const escapedKeyOfVersionRow = (row: string): string => row.slice(1, row.indexOf("\u0001"));

export const leaseRow = (id: number): string => `l${digits16(id)}`;
export const attachmentRow = (id: number, key: string): string => `a${digits16(id)}${escapeKey(key)}`;
export const attachmentBounds = (id: number): Bounds => ({ start: `a${digits16(id)}`, end: `a${digits16(id + 1)}` });
export const idOfAttachmentRow = (row: string): number => Number(row.slice(1, 1 + 16));
export const keyOfAttachmentRow = (row: string): string => unescapeKey(row.slice(1 + 16));
export const expiryRow = (expiresAtMs: number, id: number): string => `e${digits16(expiresAtMs)}${digits16(id)}`;
/** Bounds of all leases behind an id; 0 = all of them. */
export const leaseBounds = (after: number): Bounds => ({ start: leaseRow(after + 1), end: "m" });
export const idOfLeaseRow = (row: string): number => Number(row.slice(1));
/** Bounds of the expiry index up to and with a time. */
export const expiryBounds = (untilMs: number): Bounds => ({ start: "e", end: `e${digits16(untilMs + 1)}` });
export const partsOfExpiryRow = (row: string): readonly [expiresAtMs: number, id: number] => [
  Number(row.slice(1, 1 + 16)),
  Number(row.slice(1 + 16)),
];
/** Bounds of the due index up to and with a time, behind an entry of it. */
export const dueBounds = (after: readonly [dueAtMs: number, key: string] | null, untilMs: number): Bounds => ({
  // No key holds "\x01" once it is escaped: this is the lowest bound behind the entry.
  start: after === null ? "d" : `${dueRow(after[0], after[1])}\u0001`,
  end: `d${digits16(untilMs + 1)}`,
});
/** Bounds of the due entries behind a time. */
export const dueLaterBounds = (afterMs: number): Bounds => ({ start: `d${digits16(afterMs + 1)}`, end: "e" });
export const partsOfDueRow = (row: string): readonly [dueAtMs: number, key: string] => [
  Number(row.slice(1, 1 + 16)),
  unescapeKey(row.slice(1 + 16)),
];
export const markRow = (revision: number): string => `h${digits16(revision)}`;
/** Bounds of the marks with from < revision <= to. */
export const markBounds = (from: number, to: number): Bounds => ({ start: markRow(from + 1), end: markRow(to + 1) });
export const revisionOfMarkRow = (row: string): number => Number(row.slice(1));
export const dueRow = (dueAtMs: number, key: string): string => `d${digits16(dueAtMs)}${escapeKey(key)}`;
export const resultOrderRow = (sequence: number): string => `o${digits16(sequence)}`;
export const sequenceOfOrderRow = (row: string): number => Number(row.slice(1));
/** Both parts are byte strings. */
export const resultRow = (scope: string, key: string): string => `i${escapeKey(scope)}\u0001${escapeKey(key)}`;

const ROW_NAME_CHARACTERS = 80;

/** A row's key as a person can read it. */
export function rowName(key: string): string {
  return JSON.stringify(key.length > ROW_NAME_CHARACTERS ? `${key.slice(0, ROW_NAME_CHARACTERS)}…` : key);
}

export interface Bounds {
  readonly start: string;
  readonly end: string;
}

/** Bounds of a selector among escaped keys behind the table's letter. */
export function selectorBounds(table: "c" | "k", selector: Selector): Bounds {
  const tableEnd = String.fromCharCode(table.charCodeAt(0) + 1);
  if ("key" in selector) {
    const start = table + escapeKey(selector.key);
    // Behind the key itself: "\x01" ends a key in `k`, and no other key of `c` starts with it.
    return { start, end: `${start}\u0002` };
  }
  if ("prefix" in selector) {
    const end = prefixEnd(selector.prefix);
    return { start: table + escapeKey(selector.prefix), end: end === null ? tableEnd : table + escapeKey(end) };
  }
  const { start, end } = selector.range;
  return { start: table + escapeKey(start), end: end === undefined ? tableEnd : table + escapeKey(end) };
}
