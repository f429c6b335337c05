/**
 * The two tables that hold the rows of a state: one is the state, the other takes in a snapshot and then becomes it. And a
 * third one of the same form, for the rows of a backup on their way in (sqlite-spool.ts).
 *
 * T3. Statements are constants, one set per table: the platform caches prepared statements by their text.
 * T4. The value is sealed (state-seals.ts): the checksum travels inside it, one column, one copy. With a rowid, so that the
 *     index over keys holds keys alone: without one, a value of 1 MiB that stands on the way is read by every seek.
 * T5. What asks for sizes alone (`octet_length` of a column) never touches the overflow pages of values.
 */
import { SEAL_UNITS } from "./state-seals.ts";

export interface StateTable {
  readonly name: string;
  readonly create: string;
  readonly any: string;
  readonly get: string;
  readonly scan: string;
  readonly scanReverse: string;
  readonly put: string;
  /** One JSON object of key to sealed value. An update is half the work of a delete and an insert. */
  readonly putMany: string;
  /** One JSON array of keys. */
  readonly deleteMany: string;
  /** The seals of those rows, out of one JSON array of keys, that exist. */
  readonly seals: string;
  readonly lastKey: string;
  /** Of ?1 rows as many as ?2 bytes need. */
  readonly clear: string;
  readonly empty: string;
  /** The key of the row that is (?3 + 1)-th in (?1, ?2]. */
  readonly reach: string;
  /** Of the rows in (?1, ?2] as of pin ?3: the ends, and how far ?4 bytes go. */
  readonly cut: string;
  /** The rows in (?1, ?2] as of pin ?3. */
  readonly pinned: string;
  /** Saves for pin ?1 what the keys of the JSON array ?2 hold now, if that has not been done. */
  readonly saveImages: string;
}

export const STATE_A = stateTable("state");
export const STATE_B = stateTable("state_b");
export const SPOOL = stateTable("spool");

export function otherTable(table: StateTable): StateTable {
  return table === STATE_A ? STATE_B : STATE_A;
}

function stateTable(name: string): StateTable {
  const pinned = (columns: string) => `SELECT key, ${columns} FROM ${name} WHERE key > ?1 AND key <= ?2
      AND NOT EXISTS (SELECT 1 FROM before_images AS image WHERE image.pin = ?3 AND image.key = ${name}.key)
    UNION ALL SELECT key, ${columns} FROM before_images WHERE pin = ?3 AND key > ?1 AND key <= ?2 AND value IS NOT NULL
    ORDER BY key`;
  const upsert = "ON CONFLICT (key) DO UPDATE SET value = excluded.value";
  return {
    name,
    create: `CREATE TABLE IF NOT EXISTS ${name} (key TEXT PRIMARY KEY, value TEXT NOT NULL)`,
    any: `SELECT 1 FROM ${name} LIMIT 1`,
    get: `SELECT value FROM ${name} WHERE key = ?`,
    scan: `SELECT key, value FROM ${name} WHERE key >= ? AND key < ? ORDER BY key LIMIT ?`,
    scanReverse: `SELECT key, value FROM ${name} WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT ?`,
    put: `INSERT INTO ${name} (key, value) VALUES (?, ?) ${upsert}`,
    putMany: `INSERT INTO ${name} (key, value) SELECT key, value FROM json_each(?) WHERE true ${upsert}`,
    deleteMany: `DELETE FROM ${name} WHERE key IN (SELECT value FROM json_each(?))`,
    seals: `SELECT count(*) AS rows, group_concat(substr(value, 1, ${SEAL_UNITS}), '') AS seals FROM ${name}
      WHERE key IN (SELECT value FROM json_each(?))`,
    lastKey: `SELECT max(key) AS key FROM ${name}`,
    clear: `DELETE FROM ${name} WHERE rowid IN (SELECT id FROM (
      SELECT id, bytes, sum(bytes) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS total FROM (
        SELECT rowid AS id, octet_length(value) AS bytes FROM ${name} ORDER BY rowid LIMIT ?1)) WHERE total - bytes <= ?2)`,
    empty: `DELETE FROM ${name}`,
    reach: `SELECT key FROM ${name} WHERE key > ? AND key <= ? ORDER BY key LIMIT 1 OFFSET ?`,
    cut: `SELECT min(key) AS first, max(key) AS last, max(CASE WHEN total <= ?4 THEN key END) AS fits,
      max(CASE WHEN total <= ?4 THEN total END) AS bytes
      FROM (SELECT key, sum(bytes) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) AS total
        FROM (${pinned("octet_length(key) + octet_length(value) AS bytes")}))`,
    pinned: pinned("value"),
    saveImages: `INSERT OR IGNORE INTO before_images (pin, key, value)
      SELECT ?1, change.value, row.value FROM json_each(?2) AS change LEFT JOIN ${name} AS row ON row.key = change.value`,
  };
}
