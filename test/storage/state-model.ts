/** What a state must be: a plain map of rows, random changes of it, and the snapshot that it makes. */
import { nextInteger, type Random } from "../../src/base/random.ts";
import type { Row } from "../../src/kv/store.ts";
import type { SealedRow, SnapshotChunk, SnapshotManifest, SnapshotPosition } from "../../src/node-object/ports.ts";
import { NO_SUMS, type StateSums, sealed, sealOf, withSeal } from "../../src/node-object/state-seals.ts";
import type { Storage, TestDisk } from "./storage-contract.ts";

export type Model = Map<string, string>;
type Changes = (readonly [key: string, value: string | null])[];

export function rowsOf(model: Model): Row[] {
  return [...model].sort(([left], [right]) => (left < right ? -1 : 1));
}

export function sealedRowsOf(model: Model): SealedRow[] {
  return rowsOf(model).map(([key, value]) => [key, sealed(key, value)]);
}

/** Summed up from its end, as a check that order does not matter. */
export function sumsOf(model: Model): StateSums {
  return rowsOf(model).reduceRight((sums, [key, value]) => withSeal(sums, sealOf(key, value)), NO_SUMS);
}

/** All rows of a storage. */
export function allRows(storage: Storage): Row[] {
  return storage.scan({ start: "\u0001", end: "\u00ff\u00ff", limit: Number.MAX_SAFE_INTEGER });
}

/** Puts and deletes of old and new keys, some of them twice in one batch. */
export function randomChanges(random: Random, countMax: number, keysMax: number): Changes {
  return Array.from({ length: nextInteger(random, 1, countMax) }, () => {
    const key = `${"akr\u00ff"[nextInteger(random, 0, 3)]}${nextInteger(random, 0, keysMax)}`;
    if (nextInteger(random, 0, 3) === 0) return [key, null];
    return [key, `value ${nextInteger(random, 0, 1e6)} ${"é".repeat(nextInteger(random, 0, 30))}`];
  });
}

export function change(model: Model, changes: Changes): void {
  for (const [key, value] of changes) {
    if (value === null) model.delete(key);
    else model.set(key, value);
  }
}

/** One turn that makes them in both. */
export function write(disk: TestDisk, storage: Storage, model: Model, changes: Changes): void {
  disk.turn("kept", () => storage.write({ state: changes }));
  change(model, changes);
}

/** The manifest and the chunks of a snapshot of the model. */
export function snapshotOf(
  model: Model,
  position: SnapshotPosition,
  rowsPerChunk: number,
): { readonly manifest: SnapshotManifest; readonly chunks: readonly SnapshotChunk[] } {
  const rows = sealedRowsOf(model);
  const { index, term } = position;
  const chunks: SnapshotChunk[] = [];
  for (let at = 0; at === 0 || at < rows.length; at += rowsPerChunk) {
    const after = rows[at - 1]?.[0] ?? null;
    const last = at + rowsPerChunk >= rows.length;
    chunks.push({ index, term, after, rows: rows.slice(at, at + rowsPerChunk), last });
  }
  return { manifest: { position, ...sumsOf(model) }, chunks };
}
