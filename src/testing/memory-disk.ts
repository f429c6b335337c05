/**
 * The storage of one test node, in memory. It outlives the node's instances, as a disk does: a restart is a new runtime
 * over the same disk.
 *
 * D1. The writes of a turn take effect at once and are kept at its end ({@link endTurn}), or undone if the turn was
 *     aborted. A kill comes between turns, so that what was acknowledged is always there.
 * D2. `afterSync` calls back in a later turn of the same instance; who calls is the business of the node (test-node.ts).
 */
import { assert } from "../base/assert.ts";
import { MemoryStore } from "../kv/memory-store.ts";
import type { Row, ScanRange } from "../kv/store.ts";
import type {
  Identity,
  Install,
  LoadedState,
  NodeStorage,
  SleepNote,
  SnapshotPosition,
  WriteBatch,
} from "../node-object/ports.ts";
import type { Entry, HardState } from "../raft/types.ts";
import { MemorySnapshots, sealedRows, sumsOf } from "./memory-snapshots.ts";

/** The rows that there is one of. */
interface Meta {
  readonly identity: Identity | null;
  readonly hardState: HardState;
  readonly fence: number;
  readonly sleep: SleepNote | null;
  readonly halted: string | null;
  readonly alarmAtWallMs: number | null;
}

export class MemoryDisk implements Omit<NodeStorage, "afterSync"> {
  #meta: Meta = {
    identity: null,
    hardState: { term: 0, votedFor: null },
    fence: 0,
    sleep: null,
    halted: null,
    alarmAtWallMs: null,
  };
  #base: SnapshotPosition | null = null;
  /** The entries behind the base. */
  #log: Entry[] = [];
  #rows = new MemoryStore();
  #bytes = 0;
  /** Of the turn in progress, oldest first. */
  #undo: (() => void)[] = [];

  readonly #snapshots = new MemorySnapshots(
    {
      all: () => sealedRows(this.#rows.rows()),
      sums: () => sumsOf(sealedRows(this.#rows.rows())),
      replace: (rows) => this.#replaceRows(rows),
    },
    (step) => this.#undo.push(step),
  );
  readonly snapshot = this.#snapshots.snapshot;
  readonly staging = this.#snapshots.staging;
  readonly spool = this.#snapshots.spool;
  readonly scrub = this.#snapshots.scrub;

  get stateHash(): number {
    return this.#snapshots.stateHash;
  }

  cleanUp(): boolean {
    return this.#snapshots.cleanUp();
  }

  get alarmAtWallMs(): number | null {
    return this.#meta.alarmAtWallMs;
  }

  get bytes(): number {
    return this.#bytes;
  }

  load(): LoadedState {
    this.#snapshots.restart();
    const { identity, hardState, sleep, halted } = this.#meta;
    const last = this.#log.at(-1) ?? this.#base;
    return {
      identity,
      hardState,
      base: this.#base,
      lastIndex: last?.index ?? 0,
      lastTerm: last?.term ?? 0,
      lastTimeMs: last?.timeMs ?? 0,
      memberships: this.#log.filter(({ kind }) => kind === "membership"),
      sleep,
      halted,
    };
  }

  write(batch: WriteBatch): void {
    if (batch.reset !== undefined) this.#reset(batch.reset);
    const {
      identity,
      hardState,
      truncateFrom,
      install,
      append = [],
      dropThrough,
      fence,
      sleep,
      state = [],
      halted,
    } = batch;
    if (identity !== undefined) this.#setMeta({ identity });
    if (hardState !== undefined) this.#setMeta({ hardState });
    if (truncateFrom !== undefined) this.#truncate(truncateFrom);
    assert(install === undefined || batch.state === undefined, "a snapshot brings the whole state");
    if (install !== undefined) this.#install(install);
    for (const entry of append) this.#append(entry);
    if (dropThrough !== undefined) this.#drop(dropThrough);
    if (fence !== undefined) this.#setMeta({ fence });
    if (sleep !== undefined) this.#setMeta({ sleep });
    for (const [key, value] of state) this.#setRow(key, value);
    if (halted !== undefined) this.#setMeta({ halted });
  }

  readLog(from: number, to: number, bytesMax: number): Entry[] {
    const entries: Entry[] = [];
    let bytes = 0;
    const begin = this.#begin;
    for (const entry of this.#log.slice(Math.max(from - begin - 1, 0), Math.max(to - begin, 0))) {
      bytes += entry.payloadBytes;
      if (entries.length > 0 && bytes > bytesMax) break;
      entries.push(entry);
    }
    return entries;
  }

  logIndexWithin(bytesMax: number): number {
    return indexWithin(this.#log, bytesMax, this.#begin + this.#log.length + 1);
  }

  get(key: string): string | undefined {
    return this.#rows.get(key);
  }

  scan(range: ScanRange): Row[] {
    return this.#rows.scan(range);
  }

  setAlarm(alarmAtWallMs: number | null): void {
    this.#setMeta({ alarmAtWallMs });
  }

  /** D1 */
  endTurn(outcome: "kept" | "undone"): void {
    const undo = this.#undo;
    this.#undo = [];
    if (outcome === "undone") for (const step of undo.reverse()) step();
  }

  #setMeta(change: Partial<Meta>): void {
    const before = this.#meta;
    this.#undo.push(() => {
      this.#meta = before;
    });
    this.#meta = { ...before, ...change };
  }

  #reset(identity: Identity): void {
    this.#setMeta({ identity, hardState: { term: 0, votedFor: null }, fence: 0, sleep: null, halted: null });
    this.#setLog(null, []);
    this.#snapshots.reset();
  }

  /** The log begins behind it. */
  get #begin(): number {
    return this.#base?.index ?? 0;
  }

  #truncate(from: number): void {
    assert(from > this.#begin, `truncation at ${from}, the log begins behind ${this.#begin}`);
    this.#setLog(this.#base, this.#log.slice(0, from - this.#begin - 1));
  }

  #append(entry: Entry): void {
    const last = this.#begin + this.#log.length;
    assert(entry.index === last + 1, `entry ${entry.index} written after ${last}`);
    this.#log.push(entry);
    this.#bytes += entry.payloadBytes;
    this.#undo.push(() => {
      this.#log.pop();
      this.#bytes -= entry.payloadBytes;
    });
  }

  #drop(base: SnapshotPosition): void {
    const last = this.#begin + this.#log.length;
    assert(base.index >= this.#begin && base.index <= last, `base ${base.index} within ${this.#begin} and ${last}`);
    this.#setLog(base, this.#log.slice(base.index - this.#begin));
  }

  #install({ snapshot, keepsSuffix }: Install): void {
    this.#snapshots.install(snapshot);
    if (keepsSuffix) this.#drop(snapshot);
    else this.#setLog(snapshot, []);
  }

  #replaceRows(rows: readonly Row[]): void {
    const before = { rows: this.#rows, bytes: this.#bytes };
    this.#undo.push(() => {
      this.#rows = before.rows;
      this.#bytes = before.bytes;
    });
    for (const [key, value] of before.rows.rows()) this.#bytes -= key.length + value.length;
    this.#rows = new MemoryStore();
    for (const [key, value] of rows) this.#putRow(key, value);
  }

  #setLog(base: SnapshotPosition | null, log: Entry[]): void {
    const before = { base: this.#base, log: this.#log, bytes: this.#bytes };
    this.#undo.push(() => {
      this.#base = before.base;
      this.#log = before.log;
      this.#bytes = before.bytes;
    });
    this.#base = base;
    this.#log = log;
    this.#bytes += payloadBytes(log) - payloadBytes(before.log);
  }

  #setRow(key: string, value: string | null): void {
    const before = this.#rows.get(key) ?? null;
    this.#undo.push(() => this.#putRow(key, before));
    this.#putRow(key, value);
  }

  #putRow(key: string, value: string | null): void {
    const before = this.#rows.get(key);
    if (before !== undefined) this.#bytes -= key.length + before.length;
    if (value === null) this.#rows.delete(key);
    else {
      this.#rows.put(key, value);
      this.#bytes += key.length + value.length;
    }
  }
}

function payloadBytes(entries: readonly Entry[]): number {
  return entries.reduce((sum, entry) => sum + entry.payloadBytes, 0);
}

/** The index from which on `entries`, the last of which stands before `end`, hold `bytesMax` or fewer. */
export function indexWithin(entries: readonly Entry[], bytesMax: number, end: number): number {
  let bytes = 0;
  let index = end;
  for (const entry of entries.toReversed()) {
    bytes += entry.payloadBytes;
    if (bytes > bytesMax) break;
    index = entry.index;
  }
  return index;
}
