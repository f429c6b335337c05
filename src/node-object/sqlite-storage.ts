/**
 * A node's durable storage over the SQLite of its Durable Object (ports.ts, design 02 §2).
 *
 * D1. All writes of one turn commit together (the platform's implicit transaction); within `write` a savepoint makes
 *     a failing statement take the whole batch with it.
 * D2. After a failed write this object refuses every call: memory and disk may differ, the instance must end (P3).
 *     Only the row that halts the node may still be written; nothing of the failed batch is on disk then.
 * D3. Everything read is verified: checksum, format, and that rows of the log follow each other.
 * D4. A row of the log holds a whole batch of entries, below `LOG_ROW_BYTES_MAX`.
 *
 * Must not: know about Raft's rules, peers or time. Takes the platform by a narrow interface, so that tests can run it
 * over another SQLite and make any statement fail.
 */
import { assert } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import { LOG_ROW_BYTES_MAX } from "../base/limits.ts";
import type { Row, ScanRange } from "../kv/store.ts";
import type { Entry } from "../raft/types.ts";
import type { LoadedState, NodeStorage, WriteBatch } from "./ports.ts";
import {
  appendLog,
  dropLog,
  emptyLog,
  isOneRow,
  listedEntries,
  loadLog,
  readEntries,
  type SqliteLog,
  truncateLog,
} from "./sqlite-log.ts";
import { haltedState, hardStateFrom, hardStateText, identityFrom, loadMeta } from "./sqlite-meta.ts";
import {
  corrupt,
  type Disk,
  type Exec,
  FORMAT_VERSION,
  FORMAT_VERSIONS_OLD,
  numberColumn,
  opened,
  putMeta,
  SQL,
  type SqlValue,
  sealed,
  textColumn,
} from "./sqlite-rows.ts";

export type { Disk } from "./sqlite-rows.ts";

type Statement = readonly [text: string, ...bindings: SqlValue[]];

/** JSON of one bulk statement, in UTF-16 units; at three bytes a unit it stays below the platform's 2 MB. */
const BULK_UNITS_MAX = 500_000;
/** A value longer than this is bound by itself: escaping it into JSON would only cost. */
const BULK_VALUE_UNITS_MAX = 64_000;
const SCAN_ROWS_MAX = 2 ** 31 - 1;

export class SqliteStorage implements NodeStorage {
  readonly #disk: Disk;
  /** Runs work that the storage calls back with; the Durable Object passes its turn guard. */
  readonly #turn: (work: () => void) => void;
  readonly #exec: Exec;
  #log: SqliteLog;
  #failed = false;

  constructor(disk: Disk, turn: (work: () => void) => void = (work) => work()) {
    this.#disk = disk;
    this.#turn = turn;
    this.#exec = (statement, ...bindings) => disk.sql.exec(statement, ...bindings).toArray();
    this.#log = emptyLog(this.#exec);
  }

  /** Size of the database file. */
  get bytes(): number {
    return this.#disk.sql.databaseSize;
  }

  load(): LoadedState {
    for (const create of SQL_CREATE) this.#exec(create);
    const { meta, corruption } = loadMeta(this.#exec);
    const halted = meta.get("halted");
    // A node that halted over a corrupt row must be able to say so: it is read no further than this.
    if (halted !== undefined) return haltedState(halted, meta);
    if (corruption !== null) throw corruption;
    this.#upgrade(meta);
    this.#log = loadLog(this.#exec, meta);
    const { base, lastIndex, lastTerm, lastTimeMs } = this.#log;
    return {
      identity: identityFrom(meta.get("identity")),
      hardState: hardStateFrom(meta.get("hard_state")),
      base,
      lastIndex,
      lastTerm,
      lastTimeMs,
      memberships: listedEntries(this.#log),
      halted: null,
    };
  }

  write(batch: WriteBatch): void {
    assert(!this.#failed || isHalt(batch), "storage is not used after a failed write");
    // Until the last statement has run, this storage counts as failed (D2): any throw on the way leaves it so.
    this.#failed = true;
    if (isOneStatement(batch)) this.#carryOut(batch);
    else this.#disk.transactionSync(() => this.#carryOut(batch));
    this.#failed = false;
  }

  #carryOut(batch: WriteBatch): void {
    const exec = this.#exec;
    if (batch.identity !== undefined) putMeta(exec, "identity", JSON.stringify(batch.identity));
    if (batch.hardState !== undefined) putMeta(exec, "hard_state", hardStateText(batch.hardState));
    if (batch.truncateFrom !== undefined) truncateLog(this.#log, batch.truncateFrom);
    if (batch.append !== undefined) appendLog(this.#log, batch.append);
    if (batch.dropThrough !== undefined) dropLog(this.#log, batch.dropThrough);
    if (batch.fence !== undefined) putMeta(exec, "fence", String(batch.fence));
    if (batch.state !== undefined) {
      const statements: Statement[] = [];
      stateStatements(batch.state, statements);
      for (const [text, ...bindings] of statements) exec(text, ...bindings);
    }
    if (batch.halted !== undefined) putMeta(exec, "halted", batch.halted);
  }

  readLog(from: number, to: number, bytesMax: number): Entry[] {
    assert(!this.#failed, "storage is not used after a failed write");
    return readEntries(this.#log, from, to, bytesMax);
  }

  get(key: string): string | undefined {
    assert(!this.#failed, "storage is not used after a failed write");
    const row = this.#exec(SQL.stateGet, key)[0];
    return row === undefined ? undefined : opened(key, textColumn(row, "value", "state"));
  }

  scan(range: ScanRange): Row[] {
    assert(!this.#failed, "storage is not used after a failed write");
    const statement = range.reverse === true ? SQL.stateScanReverse : SQL.stateScan;
    const rows = this.#exec(statement, range.start, range.end, Math.min(range.limit, SCAN_ROWS_MAX));
    return rows.map((row) => {
      const key = textColumn(row, "key", "state");
      return [key, opened(key, textColumn(row, "value", "state"))];
    });
  }

  afterSync(done: () => void): void {
    this.#disk.sync().then(
      () => this.#turn(done),
      () => {
        // The commit failed: the platform resets this object by itself, and nobody may be told that it succeeded.
      },
    );
  }

  /** Brings the database to this code's format; the tables are there already (T2). */
  #upgrade(meta: ReadonlyMap<string, string>): void {
    const format = meta.get("format");
    if (format === String(FORMAT_VERSION)) return;
    if (format === undefined) this.#assertEmpty(meta.size);
    else if (!FORMAT_VERSIONS_OLD.includes(format)) {
      throw corrupt("meta format", `version ${format}, this code reads ${FORMAT_VERSION}`);
    }
    putMeta(this.#exec, "format", String(FORMAT_VERSION));
  }

  /** A database without a format row must be a new one. */
  #assertEmpty(metaRows: number): void {
    const [row] = this.#exec(SQL.anyRow);
    if (metaRows > 0 || row === undefined || numberColumn(row, "rows", "log and state") > 0) {
      throw corrupt("meta format", "missing although other rows exist");
    }
  }
}

const SQL_CREATE = [SQL.createMeta, SQL.createLog, SQL.createState];

/** A batch of one statement pays for no savepoint. */
function isOneStatement(batch: WriteBatch): boolean {
  const [field, ...others] = Object.keys(batch);
  if (field === undefined || others.length > 0) return field === undefined;
  if (batch.append !== undefined) return isOneRow(batch.append);
  return ONE_STATEMENT.has(field);
}

const ONE_STATEMENT: ReadonlySet<string> = new Set([
  "identity",
  "hardState",
  "fence",
  "halted",
] satisfies (keyof WriteBatch)[]);

function isHalt(batch: WriteBatch): boolean {
  return batch.halted !== undefined && Object.keys(batch).length === 1;
}

// --- state rows ------------------------------------------------------------------------------------------------------

/** Puts and deletes in as few statements as the platform's limits on bound values allow. Of a key's changes the last counts. */
function stateStatements(rows: NonNullable<WriteBatch["state"]>, statements: Statement[]): void {
  const changes = new Map(rows);
  const puts = new JsonChunks(SQL.statePutMany, "{", "}", statements);
  const deletes = new JsonChunks(SQL.stateDeleteMany, "[", "]", statements);
  for (const [key, value] of changes) {
    if (value === null) deletes.add(JSON.stringify(key));
    else if (value.length > BULK_VALUE_UNITS_MAX) statements.push(stateStatement(key, value));
    else puts.add(`${JSON.stringify(key)}:${JSON.stringify(sealed(key, value))}`);
  }
  deletes.end();
  puts.end();
}

function stateStatement(key: string, value: string): Statement {
  const text = sealed(key, value);
  const bytes = utf8Length(key) + utf8Length(text);
  assert(bytes <= LOG_ROW_BYTES_MAX, `state row ${JSON.stringify(key)} of ${bytes} bytes fits`);
  return [SQL.statePut, key, text];
}

/** Gathers JSON items into statements of one bound text each. */
class JsonChunks {
  readonly #statement: string;
  readonly #open: string;
  readonly #close: string;
  readonly #statements: Statement[];
  #items: string[] = [];
  #units = 0;

  constructor(statement: string, open: string, close: string, statements: Statement[]) {
    this.#statement = statement;
    this.#open = open;
    this.#close = close;
    this.#statements = statements;
  }

  add(item: string): void {
    if (this.#units + item.length > BULK_UNITS_MAX) this.end();
    this.#items.push(item);
    this.#units += item.length + 1;
  }

  end(): void {
    if (this.#items.length === 0) return;
    this.#statements.push([this.#statement, this.#open + this.#items.join(",") + this.#close]);
    this.#items = [];
    this.#units = 0;
  }
}
