/**
 * One node's disk with the turn semantics of the ports (P1, P2): every write takes effect at once in memory and leaves an
 * undo record; the records of a turn form a journal that is kept until the turn is durable. A crash undoes the journals
 * that were not durable, newest first.
 *
 * K1. The disk outlives instances: a restart is a new runtime over the same disk, a wipe is a new disk.
 * K2. Each field of a batch, each log row and each state row is one statement; `onStatement` runs before each of them
 *     and may throw. What earlier statements of the turn did stays done: there is no roll-back short of a crash.
 */

import type { Row, ScanRange } from "../../src/kv/store.ts";
import {
  CorruptionError,
  type Identity,
  type LoadedState,
  type SleepNote,
  type SnapshotPosition,
  type WriteBatch,
} from "../../src/node-object/ports.ts";
import type { Entry, HardState } from "../../src/raft/types.ts";
import { MemorySnapshots } from "../../src/testing/memory-snapshots.ts";
import { type Damage, keptSums, noDamage, readEntry, readRows, renewEntry, replaceAll, storedRows } from "./damage.ts";
import { Violation } from "./violation.ts";

export interface Disk {
  /** Distinguishes a disk that was wiped, or given up, from the one before it. */
  serial: number;
  identity: Identity | null;
  hardState: HardState;
  /** The log begins behind it; null: with entry 1. */
  base: SnapshotPosition | null;
  /** The entries behind the base. */
  readonly log: Entry[];
  rows: Map<string, string>;
  /** The keys of `rows`, ascending. */
  keys: string[];
  /** Snapshots of `rows`; what they write is undone by the journal as well. */
  readonly snapshots: MemorySnapshots;
  fence: number;
  sleep: SleepNote | null;
  alarmAtWallMs: number | null;
  halted: string | null;
  /** What it has done to its rows by itself. */
  readonly damage: Damage;
  /** Undo records of the turn in progress. */
  journal: Undo[];
  /** The lowest index written since the checkers last looked; Infinity = none. */
  writtenFrom: number;
  /** The identity that the checkers last looked at. */
  checkedIdentity: Identity | null;
}

type Undo = () => void;
export type Journal = readonly Undo[];

export function createDisk(serial: number): Disk {
  const disk: Omit<Disk, "snapshots"> = {
    serial,
    identity: null,
    hardState: { term: 0, votedFor: null },
    base: null,
    log: [],
    rows: new Map(),
    keys: [],
    fence: 0,
    sleep: null,
    alarmAtWallMs: null,
    halted: null,
    damage: noDamage(),
    journal: [],
    writtenFrom: Number.POSITIVE_INFINITY,
    checkedIdentity: null,
  };
  const rows = {
    all: () => storedRows(disk),
    sums: () => keptSums(disk),
    replace: (next: readonly Row[]) => replaceRows(disk, next),
  };
  return Object.assign(disk, { snapshots: new MemorySnapshots(rows, (step) => disk.journal.push(step)) });
}

function replaceRows(disk: Omit<Disk, "snapshots">, next: readonly Row[]): void {
  const { rows, keys } = disk;
  const restore = replaceAll(disk);
  disk.journal.push(() => {
    disk.rows = rows;
    disk.keys = keys;
    restore();
  });
  disk.rows = new Map(next);
  disk.keys = next.map(([key]) => key);
}

export function loadDisk(disk: Disk): LoadedState {
  disk.snapshots.restart();
  const last = disk.log[disk.log.length - 1] ?? disk.base;
  const memberships = disk.log.filter(({ kind }) => kind === "membership");
  // A node that halted over a corrupt row must be able to say so: it is read no further than this.
  if (disk.halted === null) for (const entry of [...memberships, ...disk.log.slice(-1)]) mustRead(disk, entry);
  return {
    identity: disk.identity,
    hardState: disk.hardState,
    base: disk.base,
    lastIndex: last?.index ?? 0,
    lastTerm: last?.term ?? 0,
    lastTimeMs: last?.timeMs ?? 0,
    memberships,
    sleep: disk.sleep,
    halted: disk.halted,
  };
}

function mustRead(disk: Disk, entry: Entry): void {
  if (readEntry(disk, entry) === null)
    throw new CorruptionError(`log ${entry.index}: is needed at the start, but is gone`);
}

/** The index of the log's base; 0: none. */
export function baseIndex(disk: Disk): number {
  return disk.base?.index ?? 0;
}

export function lastIndex(disk: Disk): number {
  return baseIndex(disk) + disk.log.length;
}

/** Undefined: beyond the ends of the log. */
export function entryAt(disk: Disk, index: number): Entry | undefined {
  return disk.log[index - baseIndex(disk) - 1];
}

/** Of an entry of the log, or of its base. */
export function termAt(disk: Disk, index: number): number | undefined {
  return index === disk.base?.index ? disk.base.term : entryAt(disk, index)?.term;
}

export function countStatements(batch: WriteBatch): number {
  return (
    (batch.reset === undefined ? 0 : 1) +
    (batch.identity === undefined ? 0 : 1) +
    (batch.hardState === undefined ? 0 : 1) +
    (batch.truncateFrom === undefined ? 0 : 1) +
    (batch.install === undefined ? 0 : 1) +
    (batch.append?.length ?? 0) +
    (batch.dropThrough === undefined ? 0 : 1) +
    (batch.fence === undefined ? 0 : 1) +
    (batch.sleep === undefined ? 0 : 1) +
    (batch.state?.length ?? 0) +
    (batch.halted === undefined ? 0 : 1)
  );
}

export function writeDisk(disk: Disk, batch: WriteBatch, onStatement: () => void): void {
  const journal = disk.journal;
  if (batch.reset !== undefined) {
    onStatement();
    resetDisk(disk, batch.reset);
  }
  if (batch.identity !== undefined) {
    onStatement();
    const old = disk.identity;
    journal.push(() => {
      disk.identity = old;
    });
    disk.identity = batch.identity;
  }
  if (batch.hardState !== undefined) {
    onStatement();
    const old = disk.hardState;
    journal.push(() => {
      disk.hardState = old;
    });
    disk.hardState = batch.hardState;
  }
  if (batch.truncateFrom !== undefined) {
    onStatement();
    if (batch.truncateFrom <= baseIndex(disk)) {
      throw new Violation("log has no gap", `truncation at ${batch.truncateFrom}, the base is ${baseIndex(disk)}`);
    }
    const removed = disk.log.splice(batch.truncateFrom - baseIndex(disk) - 1);
    if (removed.length > 0) journal.push(() => disk.log.push(...removed));
  }
  if (batch.install !== undefined) {
    onStatement();
    if (batch.state !== undefined) throw new Violation("no uncaught exception", "state rows beside an install");
    const { snapshot, keepsSuffix } = batch.install;
    disk.snapshots.install(snapshot);
    if (keepsSuffix) dropLog(disk, snapshot);
    else replaceLog(disk, snapshot);
  }
  if (batch.append !== undefined) {
    for (const entry of batch.append) {
      onStatement();
      if (entry.index !== lastIndex(disk) + 1) {
        throw new Violation("log has no gap", `entry ${entry.index} written after ${lastIndex(disk)}`);
      }
      disk.log.push(entry);
      renewEntry(disk, entry.index);
      if (entry.index < disk.writtenFrom) disk.writtenFrom = entry.index;
      journal.push(() => disk.log.pop());
    }
  }
  if (batch.dropThrough !== undefined) {
    onStatement();
    dropLog(disk, batch.dropThrough);
  }
  if (batch.fence !== undefined) {
    onStatement();
    const old = disk.fence;
    journal.push(() => {
      disk.fence = old;
    });
    disk.fence = batch.fence;
  }
  if (batch.sleep !== undefined) {
    onStatement();
    const old = disk.sleep;
    journal.push(() => {
      disk.sleep = old;
    });
    disk.sleep = batch.sleep;
  }
  if (batch.state !== undefined) {
    for (const [key, value] of batch.state) {
      onStatement();
      const old = disk.rows.get(key) ?? null;
      setRow(disk, key, value);
      journal.push(() => setRow(disk, key, old));
    }
  }
  if (batch.halted !== undefined) {
    onStatement();
    const old = disk.halted;
    journal.push(() => {
      disk.halted = old;
    });
    disk.halted = batch.halted;
  }
}

function resetDisk(disk: Disk, identity: Identity): void {
  const { serial, identity: owner, hardState, fence, sleep, halted, base } = disk;
  const removed = disk.log.splice(0);
  disk.journal.push(() => {
    Object.assign(disk, { serial, identity: owner, hardState, fence, sleep, halted, base });
    disk.log.push(...removed);
  });
  Object.assign(disk, { serial: serial + 1, identity, fence: 0, sleep: null, halted: null, base: null });
  disk.hardState = { term: 0, votedFor: null };
  disk.snapshots.reset();
}

function dropLog(disk: Disk, base: SnapshotPosition): void {
  const begin = baseIndex(disk);
  if (base.index < begin || base.index > lastIndex(disk)) {
    throw new Violation("log has no gap", `base ${base.index} within ${begin} and ${lastIndex(disk)}`);
  }
  const before = disk.base;
  const removed = disk.log.splice(0, base.index - begin);
  disk.journal.push(() => {
    disk.base = before;
    disk.log.unshift(...removed);
  });
  disk.base = base;
}

function replaceLog(disk: Disk, base: SnapshotPosition): void {
  const before = disk.base;
  const removed = disk.log.splice(0);
  disk.journal.push(() => {
    disk.base = before;
    disk.log.push(...removed);
  });
  disk.base = base;
}

export function writeAlarm(disk: Disk, atWallMs: number | null): void {
  const old = disk.alarmAtWallMs;
  disk.journal.push(() => {
    disk.alarmAtWallMs = old;
  });
  disk.alarmAtWallMs = atWallMs;
}

/** Ends the turn: hands out its undo records and begins a new journal. */
export function takeJournal(disk: Disk): Journal {
  const journal = disk.journal;
  disk.journal = [];
  return journal;
}

export function undo(journal: Journal): void {
  for (let position = journal.length - 1; position >= 0; position -= 1) journal[position]!();
}

export function readLog(disk: Disk, from: number, to: number, bytesMax: number): Entry[] {
  const entries: Entry[] = [];
  let bytes = 0;
  for (let index = Math.max(from, baseIndex(disk) + 1); index <= to; index += 1) {
    const written = entryAt(disk, index);
    if (written === undefined) break;
    const entry = readEntry(disk, written);
    if (entry === null) throw new CorruptionError(`log ${index}: is gone`);
    bytes += entry.payloadBytes;
    if (entries.length > 0 && bytes > bytesMax) break;
    entries.push(entry);
  }
  return entries;
}

export function scanDisk(disk: Disk, range: ScanRange): Row[] {
  const rows: Row[] = [];
  const low = lowerBound(disk.keys, range.start);
  const high = lowerBound(disk.keys, range.end);
  if (range.reverse === true) {
    for (let position = high - 1; position >= low && rows.length < range.limit; position -= 1)
      pushRow(disk, position, rows);
  } else {
    for (let position = low; position < high && rows.length < range.limit; position += 1) pushRow(disk, position, rows);
  }
  return readRows(disk, rows);
}

function pushRow(disk: Disk, position: number, rows: Row[]): void {
  const key = disk.keys[position]!;
  rows.push([key, disk.rows.get(key)!]);
}

function setRow(disk: Disk, key: string, value: string | null): void {
  const present = disk.rows.has(key);
  disk.damage.changed.delete(key);
  if (value === null) {
    if (!present) return;
    disk.rows.delete(key);
    disk.keys.splice(lowerBound(disk.keys, key), 1);
    return;
  }
  disk.rows.set(key, value);
  if (!present) disk.keys.splice(lowerBound(disk.keys, key), 0, key);
}

/** The first position whose key is >= `key`. */
function lowerBound(keys: readonly string[], key: string): number {
  let low = 0;
  let high = keys.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (keys[middle]! < key) low = middle + 1;
    else high = middle;
  }
  return low;
}
