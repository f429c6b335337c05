/**
 * The log of a node in its SQLite database: entries behind a base, several to a row.
 *
 * D3. Everything read is verified: checksum, format, that rows follow each other, and that the first follows the base.
 * D4. A row of the log holds a whole batch of entries, below `LOG_ROW_BYTES_MAX`.
 * D5. The entries of a listed kind (memberships) are found by a list of their indexes, without reading the log.
 *
 * Must not: begin a transaction; the storage does, around whatever needs several statements.
 */
import { assert } from "../base/assert.ts";
import { LOG_ROW_BYTES_MAX } from "../base/limits.ts";
import type { Entry } from "../raft/types.ts";
import { decodeEntries, encodeEntries, isRun } from "./entry-text.ts";
import { isCounter, parseJson } from "./json-guards.ts";
import type { SnapshotPosition } from "./ports.ts";
import { corrupt, type Exec, logChecksum, numberColumn, putMeta, SQL, type SqlRow, textColumn } from "./sqlite-rows.ts";
import { positionFrom } from "./staged-snapshot.ts";

/** Rows looked at per step of a log read; the bodies that are then fetched are bounded by bytes. */
const LOG_ROWS_PER_STEP = 256;
/** The JSON line of a row says about this much per entry. */
const ENTRY_HEAD_BYTES = 96;
const LISTED_KIND: Entry["kind"] = "membership";

export interface SqliteLog {
  readonly exec: Exec;
  /** Null: the log begins with entry 1. */
  base: SnapshotPosition | null;
  lastIndex: number;
  lastTerm: number;
  lastTimeMs: number;
  /** Indexes of the entries of the listed kind, ascending (D5). */
  listed: readonly number[];
}

export function emptyLog(exec: Exec): SqliteLog {
  return { exec, base: null, lastIndex: 0, lastTerm: 0, lastTimeMs: 0, listed: [] };
}

/** Reads where the log begins and ends. @throws CorruptionError */
export function loadLog(exec: Exec, meta: ReadonlyMap<string, string>): SqliteLog {
  const log = emptyLog(exec);
  log.base = baseFrom(meta.get("base"));
  log.listed = listFrom(meta.get("memberships"));
  const [first] = exec(SQL.logFirst);
  const begin = (log.base?.index ?? 0) + 1;
  if (first !== undefined && numberColumn(first, "first_index", "log") !== begin) {
    throw corrupt(
      `log ${numberColumn(first, "first_index", "log")}`,
      `is the first entry, but the log begins with ${begin}`,
    );
  }
  const [last] = exec(SQL.logLast);
  endAt(log, last === undefined ? log.base : logRowEntries(last).at(-1));
  return log;
}

/** The entries of the listed kind, oldest first. @throws CorruptionError */
export function listedEntries(log: SqliteLog): Entry[] {
  return log.listed.map((index) => {
    const [entry] = readEntries(log, index, index, 0);
    if (entry?.kind !== LISTED_KIND) throw corrupt(`log ${index}`, `is listed as ${LISTED_KIND}, but is none`);
    return entry;
  });
}

/** Entries with from <= index <= to, at least one if there is one, then as many as fit `bytesMax`. */
export function readEntries(log: SqliteLog, from: number, to: number, bytesMax: number): Entry[] {
  const entries: Entry[] = [];
  let next = Math.max(from, (log.base?.index ?? 0) + 1);
  let bytes = 0;
  while (next <= to) {
    const rows = rowsWithin(log, next, to, bytesMax - bytes);
    for (const row of rows) {
      for (const entry of logRowEntries(row)) {
        if (entry.index < next || entry.index > to) continue;
        if (entries.length > 0 && bytes + entry.payloadBytes > bytesMax) return entries;
        // A gap inside the log can only be a lost row: rows follow each other (D3).
        if (entry.index !== next) throw corrupt(`log ${entry.index}`, `stands where entry ${next} is wanted`);
        entries.push(entry);
        bytes += entry.payloadBytes;
        next = entry.index + 1;
      }
    }
    const end = rows.at(-1);
    if (end === undefined || bytes >= bytesMax) break;
    if (numberColumn(end, "last_index", "log") >= log.lastIndex) break;
  }
  return entries;
}

/** The first index of the rows that hold about `bytesMax` at the end of the log. */
export function indexWithin(log: SqliteLog, bytesMax: number): number {
  let bytes = 0;
  let index = log.lastIndex + 1;
  for (const row of log.exec(SQL.logSizesBackward)) {
    bytes += numberColumn(row, "bytes", "log");
    if (bytes > bytesMax) break;
    index = numberColumn(row, "first_index", "log");
  }
  return index;
}

/** Removes every entry with an index >= `from`. */
export function truncateLog(log: SqliteLog, from: number): void {
  if (from > log.lastIndex) return;
  const begin = log.base?.index ?? 0;
  assert(from > begin, `truncation at ${from}, the log begins behind ${begin}`);
  const kept = rowHolding(log, from - 1);
  const head = kept.filter((entry) => entry.index < from);
  log.exec(SQL.logTruncate, from);
  // A row that straddles the cut is written again without its tail; its key, the first index, stays.
  if (head.length > 0 && head.length < kept.length) putLogRow(log, SQL.logReplace, head);
  endAt(log, head.at(-1) ?? log.base);
  setListed(log, (index) => index < from);
}

/** True if the entries are appended by a single statement. */
export function isOneRow(entries: readonly Entry[]): boolean {
  let bytes = 0;
  for (const entry of entries) bytes += entry.payloadBytes + ENTRY_HEAD_BYTES;
  return bytes <= LOG_ROW_BYTES_MAX && entries.every(({ kind }) => kind !== LISTED_KIND);
}

export function appendLog(log: SqliteLog, entries: readonly Entry[]): void {
  const first = entries[0];
  const last = entries.at(-1);
  if (first === undefined || last === undefined) return;
  assert(
    isRun(entries, log.lastIndex, log.lastTerm, Number.MAX_SAFE_INTEGER),
    `entries from ${first.index} follow ${log.lastIndex}`,
  );
  for (const rowEntries of logRows(entries)) putLogRow(log, SQL.logInsert, rowEntries);
  endAt(log, last);
  const listed = entries.filter(({ kind }) => kind === LISTED_KIND).map(({ index }) => index);
  if (listed.length > 0) putListed(log, [...log.listed, ...listed]);
}

/** Removes every entry with an index <= that of `base`, from where the log goes on. */
export function dropLog(log: SqliteLog, base: SnapshotPosition): void {
  const begin = log.base?.index ?? 0;
  assert(base.index >= begin && base.index <= log.lastIndex, `base ${base.index} within ${begin} and ${log.lastIndex}`);
  const straddling = rowHolding(log, base.index);
  log.exec(SQL.logDrop, base.index);
  const tail = straddling.filter((entry) => entry.index > base.index);
  if (tail.length > 0) putLogRow(log, SQL.logInsert, tail);
  setBase(log, base);
  setListed(log, (index) => index > base.index);
}

/** Removes every entry; the log goes on behind `base`. */
export function replaceLog(log: SqliteLog, base: SnapshotPosition): void {
  log.exec(SQL.logTruncate, 0);
  setBase(log, base);
  endAt(log, base);
  setListed(log, () => false);
}

function setBase(log: SqliteLog, base: SnapshotPosition): void {
  putMeta(log.exec, "base", JSON.stringify(base));
  log.base = base;
}

function setListed(log: SqliteLog, isKept: (index: number) => boolean): void {
  const kept = log.listed.filter(isKept);
  if (kept.length < log.listed.length) putListed(log, kept);
}

function putListed(log: SqliteLog, listed: readonly number[]): void {
  putMeta(log.exec, "memberships", JSON.stringify(listed));
  log.listed = listed;
}

function endAt(log: SqliteLog, last: Pick<Entry, "index" | "term" | "timeMs"> | null | undefined): void {
  log.lastIndex = last?.index ?? 0;
  log.lastTerm = last?.term ?? 0;
  log.lastTimeMs = last?.timeMs ?? 0;
}

function baseFrom(text: string | undefined): SnapshotPosition | null {
  if (text === undefined) return null;
  const base = positionFrom(parseJson(text));
  if (base === null) throw corrupt("meta base", "not a position");
  return base;
}

function listFrom(text: string | undefined): readonly number[] {
  if (text === undefined) return [];
  const list = parseJson(text);
  if (!Array.isArray(list) || !list.every(isCounter)) throw corrupt("meta memberships", "not a list of indexes");
  return list;
}

// --- rows ------------------------------------------------------------------------------------------------------------

/** The entries of the row that holds `index`, or would. */
function rowHolding(log: SqliteLog, index: number): Entry[] {
  const [row] = log.exec(SQL.logHolding, index);
  return row === undefined ? [] : logRowEntries(row);
}

/** Rows from the one that holds `next` on, as many as `bytesMax` needs and at least one. */
function rowsWithin(log: SqliteLog, next: number, to: number, bytesMax: number): SqlRow[] {
  const sizes = log.exec(SQL.logSizes, next, to, LOG_ROWS_PER_STEP);
  let bytes = 0;
  let first: number | null = null;
  let last = 0;
  for (const row of sizes) {
    if (numberColumn(row, "last_index", "log") < next) continue;
    if (first !== null && bytes >= bytesMax) break;
    last = numberColumn(row, "first_index", "log");
    first ??= last;
    bytes += numberColumn(row, "bytes", "log");
  }
  return first === null ? [] : log.exec(SQL.logBodies, first, last);
}

/** Splits a batch so that each row stays below `LOG_ROW_BYTES_MAX`. */
function logRows(entries: readonly Entry[]): (readonly Entry[])[] {
  const rows: (readonly Entry[])[] = [];
  let start = 0;
  let bytes = 0;
  for (const [position, entry] of entries.entries()) {
    const entryBytes = entry.payloadBytes + ENTRY_HEAD_BYTES;
    if (position > start && bytes + entryBytes > LOG_ROW_BYTES_MAX) {
      rows.push(entries.slice(start, position));
      start = position;
      bytes = 0;
    }
    bytes += entryBytes;
    assert(bytes <= LOG_ROW_BYTES_MAX, `entry ${entry.index} of ${entry.payloadBytes} bytes fits a row of the log`);
  }
  rows.push(start === 0 ? entries : entries.slice(start));
  return rows;
}

function putLogRow(log: SqliteLog, statement: string, entries: readonly Entry[]): void {
  const first = entries[0];
  const last = entries.at(-1);
  assert(first !== undefined && last !== undefined, "a row of the log is never empty");
  const body = encodeEntries(entries);
  const bytes = entries.reduce((sum, entry) => sum + entry.payloadBytes, 0);
  const checksum = logChecksum(first.index, last.index, last.term, body);
  log.exec(statement, first.index, last.index, last.term, bytes, checksum, body);
}

/** Verifies a row and reads its entries. @throws CorruptionError */
function logRowEntries(row: SqlRow): Entry[] {
  const first = numberColumn(row, "first_index", "log");
  const name = `log ${first}`;
  const lastIndex = numberColumn(row, "last_index", name);
  const lastTerm = numberColumn(row, "last_term", name);
  const body = textColumn(row, "body", name);
  if (numberColumn(row, "checksum", name) !== logChecksum(first, lastIndex, lastTerm, body)) {
    throw corrupt(name, "checksum mismatch");
  }
  const entries = decodeEntries(body);
  const last = entries?.at(-1);
  if (entries === null || last === undefined || !isRun(entries, first - 1, 0, lastTerm) || last.index !== lastIndex) {
    throw corrupt(name, "the body does not hold the entries that the row names");
  }
  return entries;
}
