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
import { CHECKSUM_SEED } from "./state-seals.ts";

export const FORMAT_VERSIONS_OLD: readonly string[] = ["1"];

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

  metaAll: "SELECT key, value, checksum FROM meta",
  metaPut: "INSERT OR REPLACE INTO meta (key, value, checksum) VALUES (?, ?, ?)",
  metaDelete: "DELETE FROM meta WHERE key = ?",
  metaEmpty: "DELETE FROM meta",

  logFirst: "SELECT first_index FROM log ORDER BY first_index LIMIT 1",
  logLast: "SELECT first_index, last_index, last_term, checksum, body FROM log ORDER BY first_index DESC LIMIT 1",
  logHolding:
    "SELECT first_index, last_index, last_term, checksum, body FROM log WHERE first_index <= ? ORDER BY first_index DESC LIMIT 1",
  /** Rows that may hold entries of [?1, ?2], without their bodies. */
  logSizes: `SELECT first_index, last_index, bytes FROM log
    WHERE first_index >= ifnull((SELECT max(first_index) FROM log WHERE first_index <= ?1), 0) AND first_index <= ?2
    ORDER BY first_index LIMIT ?3`,
  logSizesBackward: "SELECT first_index, bytes FROM log ORDER BY first_index DESC",
  logBodies: `SELECT first_index, last_index, last_term, checksum, body FROM log
    WHERE first_index BETWEEN ? AND ? ORDER BY first_index`,
  /** Fails if the row exists: entries are appended once. */
  logInsert: "INSERT INTO log (first_index, last_index, last_term, bytes, checksum, body) VALUES (?, ?, ?, ?, ?, ?)",
  /** The head of a row whose tail is cut off. */
  logReplace: "REPLACE INTO log (first_index, last_index, last_term, bytes, checksum, body) VALUES (?, ?, ?, ?, ?, ?)",
  logTruncate: "DELETE FROM log WHERE first_index >= ?",
  logDrop: "DELETE FROM log WHERE first_index <= ?",
  logEmpty: "DELETE FROM log",

  /** What rows held when a snapshot was pinned, of those that have changed since; null: they did not exist. */
  createImages: `CREATE TABLE IF NOT EXISTS before_images (
    pin INTEGER NOT NULL, key TEXT NOT NULL, value TEXT, PRIMARY KEY (pin, key))`,
  imagesLastPin: "SELECT max(pin) AS pin FROM before_images",
  imagesReach: "SELECT key FROM before_images WHERE pin = ? AND key > ? AND key <= ? ORDER BY key LIMIT 1 OFFSET ?",
  imagesAny: "SELECT 1 FROM before_images WHERE pin < ? LIMIT 1",
  imagesEmpty: "DELETE FROM before_images",
  /** Of ?2 rows as many as ?3 bytes need. */
  imagesClear: `DELETE FROM before_images WHERE rowid IN (SELECT id FROM (
    SELECT id, bytes, sum(bytes) OVER (ORDER BY pin, key ROWS UNBOUNDED PRECEDING) AS total FROM (
      SELECT rowid AS id, pin, key, ifnull(octet_length(value), 0) AS bytes FROM before_images
      WHERE pin < ?1 ORDER BY pin, key LIMIT ?2)) WHERE total - bytes <= ?3)`,
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

/** JSON of one bulk statement, in UTF-16 units; at three bytes a unit it stays below the platform's 2 MB. */
const BULK_UNITS_MAX = 500_000;

/** JSON arrays or objects of all items, each short enough for one statement. */
export function jsonBulks(items: readonly string[], open: string, close: string): string[] {
  const bulks: string[] = [];
  let start = 0;
  let units = 0;
  for (const [at, item] of items.entries()) {
    if (at > start && units + item.length > BULK_UNITS_MAX) {
      bulks.push(open + items.slice(start, at).join(",") + close);
      start = at;
      units = 0;
    }
    units += item.length + 1;
  }
  if (start < items.length) bulks.push(open + items.slice(start).join(",") + close);
  return bulks;
}
