/**
 * A node's durable storage over the SQLite of its Durable Object (ports.ts, design 02 §2).
 *
 * D1. All writes of one turn commit together (the platform's implicit transaction); within `write` a savepoint makes
 *     a failing statement take the whole batch with it.
 * D2. After a failed write this object refuses every call: memory and disk may differ, the instance must end (P3).
 *     Only the row that halts the node may still be written; nothing of the failed batch is on disk then.
 * What stands where: the log in sqlite-log.ts (D3 to D5), rows of the state in sqlite-state.ts (D6, D7), a pinned state in
 * sqlite-snapshot.ts, a snapshot that comes in in sqlite-staging.ts, a backup that does in sqlite-spool.ts, the pass that
 * verifies all in sqlite-scrub.ts.
 *
 * Must not: know about Raft's rules, peers or time. Takes the platform by a narrow interface, so that tests can run it
 * over another SQLite and make any statement fail.
 */
import { assert } from "../base/assert.ts";
import type { Row, ScanRange } from "../kv/store.ts";
import type { Entry } from "../raft/types.ts";
import type {
  Identity,
  LoadedState,
  NodeStorage,
  RowSpool,
  SnapshotSource,
  SnapshotStaging,
  StateScrub,
  WriteBatch,
} from "./ports.ts";
import {
  appendLog,
  dropLog,
  emptyLog,
  indexWithin,
  isOneRow,
  listedEntries,
  loadLog,
  readEntries,
  type SqliteLog,
  truncateLog,
} from "./sqlite-log.ts";
import {
  haltedState,
  hardStateFrom,
  hardStateText,
  identityFrom,
  loadMeta,
  sleepFrom,
  sleepText,
} from "./sqlite-meta.ts";
import { corrupt, type Disk, type Exec, FORMAT_VERSIONS_OLD, putMeta, SQL } from "./sqlite-rows.ts";
import { scrubStep } from "./sqlite-scrub.ts";
import { beginPin, clearImages, readPinned } from "./sqlite-snapshot.ts";
import { beginSpool, clearSpool, writeSpool } from "./sqlite-spool.ts";
import { addChunk, beginStaging, discardStaging, installStaged, loadStaged } from "./sqlite-staging.ts";
import {
  activeFrom,
  clearTable,
  emptyState,
  getRow,
  putSums,
  type SqliteState,
  scanRows,
  spareTable,
  sumsFrom,
  writeState,
} from "./sqlite-state.ts";
import { stagingState } from "./staged-snapshot.ts";
import { NO_SUMS } from "./state-seals.ts";
import { SPOOL, STATE_A, STATE_B } from "./state-table.ts";
import { FORMAT_VERSION } from "./versions.ts";

export type { Disk } from "./sqlite-rows.ts";

/** Rows of the state that a step of `cleanUp` sums up, where no sums are known. */
const SUM_ROWS_PER_STEP = 768;

export class SqliteStorage implements NodeStorage {
  readonly #disk: Disk;
  /** Runs work that the storage calls back with; the Durable Object passes its turn guard. */
  readonly #turn: (work: () => void) => void;
  readonly #exec: Exec;
  #log: SqliteLog;
  #state: SqliteState;
  #failed = false;

  constructor(disk: Disk, turn: (work: () => void) => void = (work) => work()) {
    this.#disk = disk;
    this.#turn = turn;
    this.#exec = (statement, ...bindings) => disk.sql.exec(statement, ...bindings).toArray();
    this.#log = emptyLog(this.#exec);
    this.#state = emptyState(this.#exec);
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
    const isUpToDate = this.#checkFormat(meta);
    this.#log = loadLog(this.#exec, meta);
    this.#state = {
      ...emptyState(this.#exec),
      active: isUpToDate ? activeFrom(meta.get("active_state")) : STATE_A,
      sums: sumsFrom(meta.get("state_sums")),
      staged: loadStaged(meta.get("staging")),
    };
    if (!isUpToDate) this.#upgrade();
    const { base, lastIndex, lastTerm, lastTimeMs } = this.#log;
    return {
      identity: identityFrom(meta.get("identity")),
      hardState: hardStateFrom(meta.get("hard_state")),
      base,
      lastIndex,
      lastTerm,
      lastTimeMs,
      memberships: listedEntries(this.#log),
      sleep: sleepFrom(meta.get("sleep")),
      halted: null,
    };
  }

  write(batch: WriteBatch): void {
    if (isHalt(batch)) this.#failed = false;
    this.#change(() => this.#carryOut(batch), isOneStatement(batch));
  }

  /** D1, D2 */
  #change<T>(work: () => T, isOneStatement = false): T {
    this.#assertUsable();
    // Until the last statement has run, this storage counts as failed: any throw on the way leaves it so.
    this.#failed = true;
    const result = isOneStatement ? work() : this.#disk.transactionSync(work);
    this.#failed = false;
    return result;
  }

  #assertUsable(): void {
    assert(!this.#failed, "storage is not used after a failed write");
  }

  #carryOut(batch: WriteBatch): void {
    const exec = this.#exec;
    if (batch.reset !== undefined) this.#reset(batch.reset);
    if (batch.identity !== undefined) putMeta(exec, "identity", JSON.stringify(batch.identity));
    if (batch.hardState !== undefined) putMeta(exec, "hard_state", hardStateText(batch.hardState));
    if (batch.truncateFrom !== undefined) truncateLog(this.#log, batch.truncateFrom);
    if (batch.install !== undefined) {
      assert(batch.state === undefined, "a snapshot brings the whole state");
      installStaged(this.#state, this.#log, batch.install);
    }
    if (batch.append !== undefined) appendLog(this.#log, batch.append);
    if (batch.dropThrough !== undefined) dropLog(this.#log, batch.dropThrough);
    if (batch.fence !== undefined) putMeta(exec, "fence", String(batch.fence));
    if (batch.sleep !== undefined) putMeta(exec, "sleep", sleepText(batch.sleep));
    if (batch.state !== undefined) writeState(this.#state, batch.state);
    if (batch.halted !== undefined) putMeta(exec, "halted", batch.halted);
  }

  readLog(from: number, to: number, bytesMax: number): Entry[] {
    this.#assertUsable();
    return readEntries(this.#log, from, to, bytesMax);
  }

  logIndexWithin(bytesMax: number): number {
    this.#assertUsable();
    return indexWithin(this.#log, bytesMax);
  }

  get(key: string): string | undefined {
    this.#assertUsable();
    return getRow(this.#exec, this.#state.active, key);
  }

  scan(range: ScanRange): Row[] {
    this.#assertUsable();
    return scanRows(this.#exec, this.#state.active, range);
  }

  readonly snapshot: SnapshotSource = {
    begin: (position) => {
      this.#assertUsable();
      return beginPin(this.#state, position);
    },
    read: (after, bytesMax) => {
      this.#assertUsable();
      const { pin } = this.#state;
      return pin === null ? null : readPinned(this.#state, pin, after, bytesMax);
    },
    end: () => {
      this.#state.pin = null;
    },
  };

  readonly staging: SnapshotStaging = {
    begin: (manifest) => this.#change(() => beginStaging(this.#state, manifest)),
    add: (chunk) => this.#change(() => addChunk(this.#state, chunk)),
    state: () => stagingState(this.#state.staged),
    discard: () => this.#change(() => discardStaging(this.#state)),
  };

  readonly spool: RowSpool = {
    begin: () => this.#change(() => beginSpool(this.#state)),
    write: (changes) => this.#change(() => writeSpool(this.#state, changes)),
    get: (key) => {
      this.#assertUsable();
      return getRow(this.#exec, SPOOL, key);
    },
    scan: (range) => {
      this.#assertUsable();
      return scanRows(this.#exec, SPOOL, range);
    },
    end: () => {
      this.#state.isSpooling = false;
    },
  };

  readonly scrub: StateScrub = {
    step: (rowsMax) => this.#change(() => scrubStep(this.#state, rowsMax)),
  };

  get stateHash(): number | null {
    return this.#state.sums?.hash ?? null;
  }

  cleanUp(): boolean {
    const state = this.#state;
    return this.#change(() => {
      if (state.staged === null && clearTable(state.exec, spareTable(state))) return true;
      if (clearImages(state) || clearSpool(state)) return true;
      if (state.sums !== null) return false;
      return scrubStep(state, SUM_ROWS_PER_STEP).afterKey !== null;
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

  /** False: the database is new, or of an earlier format. */
  #checkFormat(meta: ReadonlyMap<string, string>): boolean {
    const format = meta.get("format");
    if (format === undefined) {
      const tables = [STATE_A.any, SQL.logFirst];
      const isNew = meta.size === 0 && tables.every((table) => this.#exec(table).length === 0);
      if (!isNew) throw corrupt("meta format", "missing although other rows exist");
    } else if (format !== String(FORMAT_VERSION) && !FORMAT_VERSIONS_OLD.includes(format)) {
      throw corrupt("meta format", `version ${format}, this code reads ${FORMAT_VERSION}`);
    }
    return format === String(FORMAT_VERSION);
  }

  /** Emptied without a condition, a table gives its pages back unread, row by row it would take minutes. */
  #reset(identity: Identity): void {
    for (const statement of SQL_EMPTY) this.#exec(statement);
    this.#log = emptyLog(this.#exec);
    this.#state = emptyState(this.#exec);
    this.#upgrade();
    putMeta(this.#exec, "identity", JSON.stringify(identity));
  }

  /** The tables are there already, and no row is rewritten (T2). */
  #upgrade(): void {
    putMeta(this.#exec, "format", String(FORMAT_VERSION));
    putMeta(this.#exec, "active_state", STATE_A.name);
    if (this.#exec(STATE_A.any).length === 0) putSums(this.#state, NO_SUMS);
  }
}

const SQL_CREATE = [SQL.createMeta, SQL.createLog, STATE_A.create, STATE_B.create, SPOOL.create, SQL.createImages];

const SQL_EMPTY = [SQL.metaEmpty, SQL.logEmpty, STATE_A.empty, STATE_B.empty, SPOOL.empty, SQL.imagesEmpty];

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
  "sleep",
  "halted",
] satisfies (keyof WriteBatch)[]);

function isHalt(batch: WriteBatch): boolean {
  return batch.halted !== undefined && Object.keys(batch).length === 1;
}
