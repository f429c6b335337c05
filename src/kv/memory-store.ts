/**
 * The ordered store in memory: simulator and tests stand on it. See store.ts for the contract (O1..O3).
 * Must not: copy values, or depend on the insertion order of the Map.
 */
import { SortedKeys } from "./sorted-keys.ts";
import type { OrderedStore, Row, ScanRange } from "./store.ts";

export class MemoryStore implements OrderedStore {
  readonly #values = new Map<string, string>();
  readonly #keys = new SortedKeys();

  get size(): number {
    return this.#values.size;
  }

  get(key: string): string | undefined {
    return this.#values.get(key);
  }

  put(key: string, value: string): void {
    const sizeBefore = this.#values.size;
    this.#values.set(key, value);
    if (this.#values.size !== sizeBefore) this.#keys.add(key);
  }

  delete(key: string): void {
    if (this.#values.delete(key)) this.#keys.remove(key);
  }

  scan(range: ScanRange): Row[] {
    const rows: Row[] = [];
    for (const key of this.#keys.range(range.start, range.end, range.limit, range.reverse === true)) {
      const value = this.#values.get(key);
      if (value !== undefined) rows.push([key, value]);
    }
    return rows;
  }

  /** Every row in order: what a snapshot or a comparison of two nodes needs. */
  rows(): Row[] {
    return this.scan({ start: "", end: "\u{10FFFF}", limit: Number.POSITIVE_INFINITY });
  }
}
