/**
 * What a disk has done to its rows by itself: a character is another one, or a row is gone. The rows as they were written
 * stay where they are, for the checkers; who reads a row through the ports meets it as it is stored now.
 *
 * B1. A state row that has changed fails its seal, also in a snapshot; writing it again repairs it.
 * B2. A state row that is gone is as if it had never been, but the sums that were kept know of it (state-seals.ts): until
 *     they are compared nobody can notice, so what the node says meanwhile is not held against it ({@link isTainted}).
 * B3. An entry of the log is a row. One that has changed fails its checksum; one that is gone is a gap.
 */
import { nextFloat, nextInteger, type Random } from "../../src/base/random.ts";
import type { Row } from "../../src/kv/store.ts";
import { CorruptionError, type SealedRow } from "../../src/node-object/ports.ts";
import { NO_SUMS, opened, plus, type StateSums, sealed, sealOf, withSeal } from "../../src/node-object/state-seals.ts";
import type { Entry } from "../../src/raft/types.ts";
import type { Disk } from "./disk.ts";

type Rows = Pick<Disk, "rows" | "keys" | "damage">;

export interface Damage {
  /** A row has been struck: the node may halt from now on. */
  struck: boolean;
  /** Key to what is stored now, of rows that have changed. */
  readonly changed: Map<string, string>;
  /** Of the rows that are gone. */
  lost: StateSums;
  readonly changedEntries: Set<number>;
  readonly lostEntries: Set<number>;
}

export function noDamage(): Damage {
  return { struck: false, changed: new Map(), lost: NO_SUMS, changedEntries: new Set(), lostEntries: new Set() };
}

/** B2 */
export function isTainted({ damage }: Rows): boolean {
  return damage.lost.rowsCount > 0;
}

/** Something is still wrong with rows of the state, which are read again and again. */
export function isStateDamaged({ damage }: Rows): boolean {
  return damage.changed.size > 0 || damage.lost.rowsCount > 0;
}

/** Something is still wrong with the log, which is read when it is needed. */
export function isLogDamaged({ damage, base, log }: Disk): boolean {
  const begin = base?.index ?? 0;
  const stands = (index: number) => index > begin && index <= begin + log.length;
  return [...damage.changedEntries, ...damage.lostEntries].some(stands);
}

/** One row of the state or of the log. False: there is none to strike. */
export function strikeDisk(disk: Disk, random: Random): boolean {
  const { damage, log } = disk;
  const changes = nextFloat(random) < 0.6;
  if (nextFloat(random) < 0.6) {
    const key = disk.keys[nextInteger(random, 0, disk.keys.length - 1)];
    if (key === undefined) return false;
    if (changes) changeRow(disk, key, random);
    else loseRow(disk, key);
  } else {
    // Of the last row nobody can tell whether it was ever written: a disk that forgets it has lied about a sync.
    if (log.length < 2) return false;
    const index = log[nextInteger(random, 0, log.length - 2)]!.index;
    (changes ? damage.changedEntries : damage.lostEntries).add(index);
  }
  damage.struck = true;
  return true;
}

export function changeRow(disk: Rows, key: string, random: Random): void {
  const text = disk.damage.changed.get(key) ?? sealed(key, disk.rows.get(key)!);
  const at = nextInteger(random, 0, text.length - 1);
  const other = String.fromCharCode(text.charCodeAt(at) ^ nextInteger(random, 1, 7));
  disk.damage.changed.set(key, text.slice(0, at) + other + text.slice(at + 1));
}

export function loseRow({ rows, keys, damage }: Rows, key: string): void {
  damage.lost = withSeal(damage.lost, sealOf(key, rows.get(key)!));
  damage.changed.delete(key);
  rows.delete(key);
  keys.splice(keys.indexOf(key), 1);
}

// --- what is read ----------------------------------------------------------------------------------------------------

/** @throws CorruptionError */
export function readRow({ rows, damage }: Rows, key: string): string | undefined {
  const text = damage.changed.size === 0 ? undefined : damage.changed.get(key);
  return text === undefined ? rows.get(key) : opened(key, text);
}

/** @throws CorruptionError */
export function readRows(disk: Rows, found: Row[]): Row[] {
  if (disk.damage.changed.size > 0) for (const [key] of found) readRow(disk, key);
  return found;
}

export function storedRows({ keys, rows, damage }: Rows): SealedRow[] {
  return keys.map((key) => [key, damage.changed.get(key) ?? sealed(key, rows.get(key)!)]);
}

export function keptSums({ rows, damage }: Rows): StateSums {
  let sums = damage.lost;
  for (const [key, value] of rows) sums = withSeal(sums, sealOf(key, value));
  return sums;
}

/** Null: the row is gone. @throws CorruptionError */
export function readEntry({ damage }: Rows, entry: Entry): Entry | null {
  if (damage.lostEntries.has(entry.index)) return null;
  if (damage.changedEntries.has(entry.index)) throw new CorruptionError(`log ${entry.index}: checksum mismatch`);
  return entry;
}

// --- what is written -------------------------------------------------------------------------------------------------

/** The whole state is another one. What it takes to undo that. */
export function replaceAll({ damage }: Rows): () => void {
  const changed = [...damage.changed];
  const { lost } = damage;
  damage.changed.clear();
  damage.lost = NO_SUMS;
  return () => {
    for (const [key, text] of changed) damage.changed.set(key, text);
    damage.lost = plus(damage.lost, lost);
  };
}

/** An entry is written where one stood that is no longer there. */
export function renewEntry({ damage }: Rows, index: number): void {
  damage.changedEntries.delete(index);
  damage.lostEntries.delete(index);
}
