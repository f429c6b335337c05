/**
 * The tables of a node's SQLite database and the integrity of their rows. Pure: statements as text, rows as data.
 *
 * T1. Every row carries a checksum over its key and content, so that a row of another key cannot pass for it either.
 *     They find a corrupted disk and our own bugs, not forgery.
 * T2. The tables carry one format version. Older ones that are known are upgraded in place, no other is read.
 * T3. Statements are constants: the platform caches prepared statements by their text.
 */
import { hashText } from "../base/hash.ts";
import { CorruptionError } from "./ports.ts";

/** 1: no base, no snapshots, no sums of the state. */
export const FORMAT_VERSION = 2;
export const FORMAT_VERSIONS_OLD: readonly string[] = ["1"];

/** Of all formats so far: an upgrade rewrites no row. */
const CHECKSUM_SEED = 1;

/** What the storage needs of `ctx.storage`. */
export interface Disk {
  readonly sql: {
    exec(statement: string, ...bindings: SqlValue[]): { toArray(): SqlRow[] };
    readonly databaseSize: number;
  };
  transactionSync<T>(work: () => T): T;
  sync(): Promise<void>;
}

export type SqlRow = Readonly<Record<string, unknown>>;

/** Runs one statement to its end. */
export type Exec = (statement: string, ...bindings: SqlValue[]) => SqlRow[];

export const SQL = {
  createMeta: `CREATE TABLE IF NOT EXISTS meta (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID`,
  /** `bytes` stands before `body`, so that a scan for sizes never touches the overflow pages of bodies. */
  createLog: `CREATE TABLE IF NOT EXISTS log (
    first_index INTEGER PRIMARY KEY, last_index INTEGER NOT NULL, last_term INTEGER NOT NULL,
    bytes INTEGER NOT NULL, checksum INTEGER NOT NULL, body TEXT NOT NULL)`,
  /**
   * The value is sealed (see {@link sealed}): the checksum travels inside it, one column, one copy. With a rowid, so that
   * the index over keys holds keys alone: without one, a value of 1 MiB that stands on the way is read by every seek.
   */
  createState: "CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL)",

  metaAll: "SELECT key, value, checksum FROM meta",
  metaPut: "INSERT OR REPLACE INTO meta (key, value, checksum) VALUES (?, ?, ?)",
  anyRow:
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM log LIMIT 1)) + (SELECT count(*) FROM (SELECT 1 FROM state LIMIT 1)) AS rows",

  logFirst: "SELECT first_index FROM log ORDER BY first_index LIMIT 1",
  logLast: "SELECT first_index, last_index, last_term, checksum, body FROM log ORDER BY first_index DESC LIMIT 1",
  logHolding:
    "SELECT first_index, last_index, last_term, checksum, body FROM log WHERE first_index <= ? ORDER BY first_index DESC LIMIT 1",
  /** Rows that may hold entries of [?1, ?2], without their bodies. */
  logSizes: `SELECT first_index, last_index, bytes FROM log
    WHERE first_index >= ifnull((SELECT max(first_index) FROM log WHERE first_index <= ?1), 0) AND first_index <= ?2
    ORDER BY first_index LIMIT ?3`,
  logBodies: `SELECT first_index, last_index, last_term, checksum, body FROM log
    WHERE first_index BETWEEN ? AND ? ORDER BY first_index`,
  /** Fails if the row exists: entries are appended once. */
  logInsert: "INSERT INTO log (first_index, last_index, last_term, bytes, checksum, body) VALUES (?, ?, ?, ?, ?, ?)",
  /** The head of a row whose tail is cut off. */
  logReplace: "REPLACE INTO log (first_index, last_index, last_term, bytes, checksum, body) VALUES (?, ?, ?, ?, ?, ?)",
  logTruncate: "DELETE FROM log WHERE first_index >= ?",
  logDrop: "DELETE FROM log WHERE first_index <= ?",

  stateGet: "SELECT value FROM state WHERE key = ?",
  stateScan: "SELECT key, value FROM state WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
  stateScanReverse: "SELECT key, value FROM state WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT ?",
  statePut: "INSERT OR REPLACE INTO state (key, value) VALUES (?, ?)",
  /** One JSON object of key to sealed value. */
  statePutMany: "INSERT OR REPLACE INTO state (key, value) SELECT key, value FROM json_each(?)",
  /** One JSON array of keys. */
  stateDeleteMany: "DELETE FROM state WHERE key IN (SELECT value FROM json_each(?))",
} as const;

/** What a column may hold. BLOBs are not used. */
export type SqlValue = string | number | null;

export function metaChecksum(key: string, value: string): number {
  return hashText(value, hashText(key, CHECKSUM_SEED));
}

export function putMeta(exec: Exec, key: string, value: string): void {
  exec(SQL.metaPut, key, value, metaChecksum(key, value));
}

export function logChecksum(firstIndex: number, lastIndex: number, lastTerm: number, body: string): number {
  return hashText(body, hashText(`log ${firstIndex} ${lastIndex} ${lastTerm}`, CHECKSUM_SEED));
}

/** 53 bits in base 36, padded: the checksum is a prefix of fixed width, so opening a value is one slice. */
const SEAL_UNITS = 11;

export function sealed(key: string, value: string): string {
  return hashText(value, hashText(key, CHECKSUM_SEED)).toString(36).padStart(SEAL_UNITS, "0") + value;
}

/** @throws CorruptionError */
export function opened(key: string, value: string): string {
  const content = value.slice(SEAL_UNITS);
  if (sealed(key, content) !== value) throw corrupt(`state ${JSON.stringify(key)}`, "checksum mismatch");
  return content;
}

export function corrupt(row: string, fault: string): CorruptionError {
  return new CorruptionError(`${row}: ${fault}`);
}

export function numberColumn(row: Readonly<Record<string, unknown>>, name: string, table: string): number {
  const value = row[name];
  if (typeof value !== "number" || !Number.isSafeInteger(value))
    throw corrupt(table, `column ${name} is not an integer`);
  return value;
}

export function textColumn(row: Readonly<Record<string, unknown>>, name: string, table: string): string {
  const value = row[name];
  if (typeof value !== "string") throw corrupt(table, `column ${name} is not text`);
  return value;
}
