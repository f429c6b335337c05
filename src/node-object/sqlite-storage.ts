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
import type { Entry, HardState } from "../raft/types.ts";
import { decodeEntries, encodeEntries, identityOf, isCounter, isNode, isObject, isRun, parseJson } from "./codec.ts";
import type { Identity, LoadedState, NodeStorage, WriteBatch } from "./ports.ts";
import {
  corrupt,
  FORMAT_VERSION,
  logChecksum,
  metaChecksum,
  numberColumn,
  opened,
  SQL,
  type SqlValue,
  sealed,
  textColumn,
} from "./sqlite-rows.ts";

/** What this file needs of `ctx.storage`. */
export interface Disk {
  readonly sql: {
    exec(statement: string, ...bindings: SqlValue[]): { toArray(): Readonly<Record<string, unknown>>[] };
    readonly databaseSize: number;
  };
  transactionSync<T>(work: () => T): T;
  sync(): Promise<void>;
}

type Statement = readonly [text: string, ...bindings: SqlValue[]];

/** Rows looked at per step of a log read; the bodies that are then fetched are bounded by bytes. */
const LOG_ROWS_PER_STEP = 256;
/** JSON of one bulk statement, in UTF-16 units; at three bytes a unit it stays below the platform's 2 MB. */
const BULK_UNITS_MAX = 500_000;
/** A value longer than this is bound by itself: escaping it into JSON would only cost. */
const BULK_VALUE_UNITS_MAX = 64_000;
/** The JSON line of a row says about this much per entry. */
const ENTRY_HEAD_BYTES = 96;
const SCAN_ROWS_MAX = 2 ** 31 - 1;

export class SqliteStorage implements NodeStorage {
  readonly #disk: Disk;
  /** Runs work that the storage calls back with; the Durable Object passes its turn guard. */
  readonly #turn: (work: () => void) => void;
  #lastIndex = 0;
  #lastTerm = 0;
  #failed = false;

  constructor(disk: Disk, turn: (work: () => void) => void = (work) => work()) {
    this.#disk = disk;
    this.#turn = turn;
  }

  /** Size of the database file. */
  get bytes(): number {
    return this.#disk.sql.databaseSize;
  }

  load(): LoadedState {
    this.#exec([SQL.createMeta]);
    this.#exec([SQL.createLog]);
    this.#exec([SQL.createState]);
    const { meta, corruption } = this.#loadMeta();
    const halted = meta.get("halted");
    // A node that halted over a corrupt row must be able to say so: it is read no further than this.
    if (halted !== undefined) return haltedState(halted, meta);
    if (corruption !== null) throw corruption;
    const format = meta.get("format");
    if (format === undefined) {
      this.#assertEmpty(meta.size);
      this.#exec(metaStatement("format", String(FORMAT_VERSION)));
    } else if (format !== String(FORMAT_VERSION)) {
      throw corrupt("meta format", `version ${format}, this code reads ${FORMAT_VERSION}`);
    }
    const last = this.#loadLastRow();
    this.#lastIndex = last?.index ?? 0;
    this.#lastTerm = last?.term ?? 0;
    return {
      identity: identityFrom(meta.get("identity")),
      hardState: hardStateFrom(meta.get("hard_state")),
      lastIndex: this.#lastIndex,
      lastTerm: this.#lastTerm,
      lastTimeMs: last?.timeMs ?? 0,
      halted: null,
    };
  }

  write(batch: WriteBatch): void {
    assert(!this.#failed || isHalt(batch), "storage is not used after a failed write");
    // Until the last statement has run, this storage counts as failed (D2): any throw on the way leaves it so.
    this.#failed = true;
    const statements: Statement[] = [];
    if (batch.identity !== undefined) statements.push(metaStatement("identity", JSON.stringify(batch.identity)));
    if (batch.hardState !== undefined) statements.push(metaStatement("hard_state", hardStateText(batch.hardState)));
    if (batch.truncateFrom !== undefined) this.#truncate(batch.truncateFrom, statements);
    if (batch.append !== undefined) this.#append(batch.append, statements);
    if (batch.fence !== undefined) statements.push(metaStatement("fence", String(batch.fence)));
    if (batch.state !== undefined) stateStatements(batch.state, statements);
    if (batch.halted !== undefined) statements.push(metaStatement("halted", batch.halted));
    const run = () => {
      for (const statement of statements) this.#exec(statement);
    };
    if (statements.length > 1) this.#disk.transactionSync(run);
    else run();
    this.#failed = false;
  }

  readLog(from: number, to: number, bytesMax: number): Entry[] {
    assert(!this.#failed, "storage is not used after a failed write");
    const entries: Entry[] = [];
    let next = from;
    let bytes = 0;
    while (next <= to) {
      const rows = this.#rowsWithin(next, to, bytesMax - bytes);
      for (const row of rows) {
        for (const entry of logRowEntries(row)) {
          if (entry.index < next || entry.index > to) continue;
          if (entries.length > 0 && bytes + entry.payloadBytes > bytesMax) return entries;
          // A gap inside the log can only be a lost row: rows follow each other (D3).
          if (entries.length > 0 && entry.index !== next)
            throw corrupt(`log ${entry.index}`, `follows entry ${next - 1}`);
          entries.push(entry);
          bytes += entry.payloadBytes;
          next = entry.index + 1;
        }
      }
      const end = rows.at(-1);
      if (end === undefined || bytes >= bytesMax) break;
      if (numberColumn(end, "last_index", "log") >= this.#lastIndex) break;
    }
    return entries;
  }

  get(key: string): string | undefined {
    assert(!this.#failed, "storage is not used after a failed write");
    const row = this.#exec([SQL.stateGet, key])[0];
    return row === undefined ? undefined : opened(key, textColumn(row, "value", "state"));
  }

  scan(range: ScanRange): Row[] {
    assert(!this.#failed, "storage is not used after a failed write");
    const statement = range.reverse === true ? SQL.stateScanReverse : SQL.stateScan;
    const rows = this.#exec([statement, range.start, range.end, Math.min(range.limit, SCAN_ROWS_MAX)]);
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

  #exec(statement: Statement): Readonly<Record<string, unknown>>[] {
    const [text, ...bindings] = statement;
    return this.#disk.sql.exec(text, ...bindings).toArray();
  }

  #loadMeta(): { readonly meta: Map<string, string>; readonly corruption: Error | null } {
    const meta = new Map<string, string>();
    let corruption: Error | null = null;
    for (const row of this.#exec([SQL.metaAll])) {
      const key = textColumn(row, "key", "meta");
      const value = textColumn(row, "value", `meta ${key}`);
      if (numberColumn(row, "checksum", `meta ${key}`) === metaChecksum(key, value)) meta.set(key, value);
      else corruption ??= corrupt(`meta ${key}`, "checksum mismatch");
    }
    return { meta, corruption };
  }

  /** A database without a format row must be a new one. */
  #assertEmpty(metaRows: number): void {
    const [row] = this.#exec([SQL.anyRow]);
    if (metaRows > 0 || row === undefined || numberColumn(row, "rows", "log and state") > 0) {
      throw corrupt("meta format", "missing although other rows exist");
    }
  }

  #loadLastRow(): Entry | undefined {
    const [row] = this.#exec([SQL.logLast]);
    return row === undefined ? undefined : logRowEntries(row).at(-1);
  }

  /** Rows from the one that holds `next` on, as many as `bytesMax` needs and at least one. */
  #rowsWithin(next: number, to: number, bytesMax: number): Readonly<Record<string, unknown>>[] {
    const sizes = this.#exec([SQL.logSizes, next, to, LOG_ROWS_PER_STEP]);
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
    return first === null ? [] : this.#exec([SQL.logBodies, first, last]);
  }

  #truncate(from: number, statements: Statement[]): void {
    if (from > this.#lastIndex) return;
    statements.push([SQL.logTruncate, from]);
    const [row] = this.#exec([SQL.logHolding, from - 1]);
    const kept = row === undefined ? [] : logRowEntries(row);
    const head = kept.filter((entry) => entry.index < from);
    const last = head.at(-1);
    this.#lastIndex = last?.index ?? 0;
    this.#lastTerm = last?.term ?? 0;
    // A row that straddles the cut is written again without its tail; its key, the first index, stays.
    if (head.length > 0 && head.length < kept.length) statements.push(logStatement(SQL.logReplace, head));
  }

  #append(entries: readonly Entry[], statements: Statement[]): void {
    const first = entries[0];
    if (first === undefined) return;
    // An empty log may start anywhere (behind a snapshot); any other goes on without a gap.
    const before = this.#lastIndex === 0 ? first.index - 1 : this.#lastIndex;
    assert(
      isRun(entries, before, this.#lastTerm, Number.MAX_SAFE_INTEGER),
      `entries from ${first.index} follow ${before}`,
    );
    for (const rowEntries of logRows(entries)) statements.push(logStatement(SQL.logInsert, rowEntries));
    const last = entries.at(-1) ?? first;
    this.#lastIndex = last.index;
    this.#lastTerm = last.term;
  }
}

// --- log rows --------------------------------------------------------------------------------------------------------

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

function logStatement(statement: string, entries: readonly Entry[]): Statement {
  const first = entries[0];
  const last = entries.at(-1);
  assert(first !== undefined && last !== undefined, "a row of the log is never empty");
  const body = encodeEntries(entries);
  const bytes = entries.reduce((sum, entry) => sum + entry.payloadBytes, 0);
  const checksum = logChecksum(first.index, last.index, last.term, body);
  return [statement, first.index, last.index, last.term, bytes, checksum, body];
}

/** Verifies a row and reads its entries. @throws CorruptionError */
function logRowEntries(row: Readonly<Record<string, unknown>>): Entry[] {
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

// --- meta rows -------------------------------------------------------------------------------------------------------

function metaStatement(key: string, value: string): Statement {
  return [SQL.metaPut, key, value, metaChecksum(key, value)];
}

function isHalt(batch: WriteBatch): boolean {
  return batch.halted !== undefined && Object.keys(batch).length === 1;
}

/** What a halted node says of itself: who it is, if that much is sound, and why it halted. */
function haltedState(halted: string, meta: ReadonlyMap<string, string>): LoadedState {
  const identity = identityOf(parseJson(meta.get("identity") ?? "")) ?? {
    incarnation: 0,
    membership: { kind: "empty" },
  };
  return { identity, hardState: { term: 0, votedFor: null }, lastIndex: 0, lastTerm: 0, lastTimeMs: 0, halted };
}

function hardStateText(hardState: HardState): string {
  return JSON.stringify([hardState.term, hardState.votedFor]);
}

function hardStateFrom(text: string | undefined): HardState {
  if (text === undefined) return { term: 0, votedFor: null };
  const value = parseJson(text);
  if (!Array.isArray(value) || value.length !== 2) throw corrupt("meta hard_state", "not a pair");
  const [term, votedFor] = value as unknown[];
  if (!isCounter(term) || !(votedFor === null || isNode(votedFor)))
    throw corrupt("meta hard_state", "not term and vote");
  return { term, votedFor };
}

function identityFrom(text: string | undefined): Identity | null {
  if (text === undefined) return null;
  const value = parseJson(text);
  const identity = isObject(value) ? identityOf(value) : null;
  if (identity === null) throw corrupt("meta identity", "not an identity");
  return identity;
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
