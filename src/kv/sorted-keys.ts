/**
 * An ordered set of strings: the order index behind the in-memory stores. Pure data structure, no values.
 *
 * The keys lie in chunks of bounded size, each sorted, and the chunks are in order: an insert moves at most one chunk's
 * worth of pointers, and a key behind all others is appended in constant time (the change log grows at the end).
 *
 * K1. No chunk is empty. K2. Every key of a chunk is lower than every key of the next one. K3. No key occurs twice; the
 * caller knows whether a key is new, because it keeps the values.
 */

const CHUNK_KEYS_MAX = 512;

export class SortedKeys {
  readonly #chunks: string[][] = [];

  /** Adds a key that is not in the set. */
  add(key: string): void {
    const chunks = this.#chunks;
    const lastChunk = chunks[chunks.length - 1];
    if (lastChunk === undefined) {
      chunks.push([key]);
      return;
    }
    const highest = lastChunk[lastChunk.length - 1];
    if (highest !== undefined && key > highest) {
      // A full last chunk is left full instead of split: ascending inserts then never move a key.
      if (lastChunk.length < CHUNK_KEYS_MAX) lastChunk.push(key);
      else chunks.push([key]);
      return;
    }
    const position = this.#chunkOf(key);
    const chunk = chunks[position];
    if (chunk === undefined) return;
    chunk.splice(lowerBound(chunk, key), 0, key);
    if (chunk.length > CHUNK_KEYS_MAX) chunks.splice(position + 1, 0, chunk.splice(CHUNK_KEYS_MAX >> 1));
  }

  /** Removes a key that is in the set. */
  remove(key: string): void {
    const position = this.#chunkOf(key);
    const chunk = this.#chunks[position];
    if (chunk === undefined) return;
    const index = lowerBound(chunk, key);
    if (chunk[index] !== key) return;
    chunk.splice(index, 1);
    if (chunk.length === 0) this.#chunks.splice(position, 1);
  }

  /** Keys with start <= key < end, ascending from `start`, or descending from `end`, at most `limit`. */
  range(start: string, end: string, limit: number, reverse: boolean): string[] {
    const found: string[] = [];
    if (limit <= 0 || start >= end || this.#chunks.length === 0) return found;
    if (reverse) this.#collectDown(start, end, limit, found);
    else this.#collectUp(start, end, limit, found);
    return found;
  }

  #collectUp(start: string, end: string, limit: number, found: string[]): void {
    let position = this.#chunkOf(start);
    let chunk = this.#chunks[position];
    let index = chunk === undefined ? 0 : lowerBound(chunk, start);
    while (chunk !== undefined) {
      for (; index < chunk.length; index += 1) {
        const key = chunk[index];
        if (key === undefined || key >= end) return;
        found.push(key);
        if (found.length >= limit) return;
      }
      position += 1;
      chunk = this.#chunks[position];
      index = 0;
    }
  }

  #collectDown(start: string, end: string, limit: number, found: string[]): void {
    let position = this.#chunkOf(end);
    let chunk = this.#chunks[position];
    let index = chunk === undefined ? -1 : lowerBound(chunk, end) - 1;
    while (chunk !== undefined) {
      for (; index >= 0; index -= 1) {
        const key = chunk[index];
        if (key === undefined || key < start) return;
        found.push(key);
        if (found.length >= limit) return;
      }
      position -= 1;
      chunk = this.#chunks[position];
      index = chunk === undefined ? -1 : chunk.length - 1;
    }
  }

  /** Index of the last chunk whose first key is <= key; 0 when the key is lower than all. */
  #chunkOf(key: string): number {
    const chunks = this.#chunks;
    let low = 0;
    let high = chunks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const first = chunks[middle]?.[0];
      if (first !== undefined && first <= key) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** Index of the first element >= key. */
function lowerBound(sorted: readonly string[], key: string): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const candidate = sorted[middle];
    if (candidate !== undefined && candidate < key) low = middle + 1;
    else high = middle;
  }
  return low;
}
