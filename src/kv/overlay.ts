/**
 * Uncommitted rows over a parent store. Used twice: small, as the stage of one command (discarded when an operation
 * fails, so a txn is all or nothing); large, as the write-back buffer of a node (drained into one bulk write).
 *
 * V1. The parent changes only in `commitInto`. V2. A null row hides the parent's. V3. `drain` is sorted by key: the
 * order of effects does not depend on the order in which a command happened to make them (design 00, deterministic apply).
 */
import { SortedKeys } from "./sorted-keys.ts";
import type { OrderedStore, Row, ScanRange } from "./store.ts";

export type Change = readonly [key: string, value: string | null];

/** Rows fetched per round of a merged scan at most; bounds the memory of a scan without a limit. */
const SCAN_ROUND_ROWS = 1024;

export class Overlay implements OrderedStore {
  readonly #parent: OrderedStore;
  readonly #rows = new Map<string, string | null>();
  /** Keys of `#rows` in order, but for those that still wait in `#unsorted`: a stage that is never scanned sorts once. */
  #sorted = new SortedKeys();
  #unsorted: string[] = [];
  #characters = 0;

  constructor(parent: OrderedStore) {
    this.#parent = parent;
  }

  /** Changed rows, deletions included. */
  get size(): number {
    return this.#rows.size;
  }

  /** Characters of the changed keys and values: tells a write-back buffer when to flush. */
  get characters(): number {
    return this.#characters;
  }

  get(key: string): string | undefined {
    const own = this.#rows.get(key);
    if (own === undefined) return this.#parent.get(key);
    return own ?? undefined;
  }

  put(key: string, value: string): void {
    this.#change(key, value);
  }

  delete(key: string): void {
    this.#change(key, null);
  }

  scan(range: ScanRange): Row[] {
    if (this.#rows.size === 0) return this.#parent.scan(range);
    this.#sortPending();
    const reverse = range.reverse === true;
    const merged: Row[] = [];
    let { start, end } = range;
    while (merged.length < range.limit && start < end) {
      const round = Math.min(range.limit - merged.length + 16, SCAN_ROUND_ROWS);
      const ownKeys = this.#sorted.range(start, end, round, reverse);
      const parentRows = this.#parent.scan({ start, end, limit: round, reverse });
      // A list that filled the round may go on behind its last key: only keys up to the nearer of those are decided.
      const frontier = nearer(
        ownKeys.length === round ? ownKeys[round - 1] : undefined,
        parentRows.length === round ? parentRows[round - 1]?.[0] : undefined,
        reverse,
      );
      this.#merge(ownKeys, parentRows, frontier, reverse, range.limit, merged);
      if (frontier === undefined) break;
      // No key holds NUL (O1), so "\x01" appended is the lowest bound behind `frontier`.
      if (reverse) end = frontier;
      else start = `${frontier}\u0001`;
    }
    return merged;
  }

  /** The changed rows, sorted by key; null deletes. The overlay is empty afterwards. */
  drain(): Change[] {
    const changes = this.changes();
    this.discard();
    return changes;
  }

  /** Like `drain`, but keeps them. */
  changes(): Change[] {
    const keys = [...this.#rows.keys()].sort();
    const changes: Change[] = new Array(keys.length);
    for (let position = 0; position < keys.length; position += 1) {
      const key = keys[position] ?? "";
      changes[position] = [key, this.#rows.get(key) ?? null];
    }
    return changes;
  }

  /** Writes the changed rows into `target` in key order and empties the overlay. */
  commitInto(target: OrderedStore): void {
    applyChanges(target, this.drain());
  }

  discard(): void {
    if (this.#rows.size === 0) return;
    if (this.#unsorted.length < this.#rows.size) this.#sorted = new SortedKeys();
    this.#rows.clear();
    this.#unsorted = [];
    this.#characters = 0;
  }

  #change(key: string, value: string | null): void {
    const own = this.#rows.get(key);
    if (own === undefined) {
      this.#unsorted.push(key);
      this.#characters += key.length;
    } else if (own !== null) this.#characters -= own.length;
    if (value !== null) this.#characters += value.length;
    this.#rows.set(key, value);
  }

  #sortPending(): void {
    for (const key of this.#unsorted) this.#sorted.add(key);
    this.#unsorted = [];
  }

  #merge(
    ownKeys: readonly string[],
    parentRows: readonly Row[],
    frontier: string | undefined,
    reverse: boolean,
    limit: number,
    merged: Row[],
  ): void {
    let ownAt = 0;
    let parentAt = 0;
    while (merged.length < limit) {
      const ownKey = ownKeys[ownAt];
      const parentRow = parentRows[parentAt];
      const key = nearer(ownKey, parentRow?.[0], reverse);
      if (key === undefined || (frontier !== undefined && (reverse ? key < frontier : key > frontier))) return;
      if (key === parentRow?.[0]) {
        parentAt += 1;
        if (key !== ownKey) merged.push(parentRow);
      }
      if (key === ownKey) {
        ownAt += 1;
        const value = this.#rows.get(key);
        if (value !== undefined && value !== null) merged.push([key, value]);
      }
    }
  }
}

export function applyChanges(target: OrderedStore, changes: readonly Change[]): void {
  for (const [key, value] of changes) {
    if (value === null) target.delete(key);
    else target.put(key, value);
  }
}

/** The one that a scan meets first; undefined stands for "none". */
function nearer(left: string | undefined, right: string | undefined, reverse: boolean): string | undefined {
  if (left === undefined) return right;
  if (right === undefined) return left;
  return left < right === reverse ? right : left;
}
