/**
 * Items by key range, for "which ranges hold this key": intervals sorted by start, in chunks that know their highest end.
 * A chunk whose ends all lie at or below the key is passed over whole, so disjoint ranges cost little more than the hit.
 *
 * G1. No chunk is empty; starts ascend within a chunk and from chunk to chunk.
 * G2. `highestEnd` is the highest end of the chunk, null for an open end, which is above all.
 */

const CHUNK_INTERVALS_MAX = 64;

interface Interval<T> {
  readonly start: string;
  /** Exclusive; null = no end. */
  readonly end: string | null;
  readonly item: T;
}

interface Chunk<T> {
  intervals: Interval<T>[];
  highestEnd: string | null;
}

export class RangeList<T> {
  readonly #chunks: Chunk<T>[] = [];

  add(start: string, end: string | null, item: T): void {
    const interval = { start, end, item };
    const at = this.#lastChunkFrom(start);
    const chunk = this.#chunks[at];
    if (chunk === undefined) {
      this.#chunks.push({ intervals: [interval], highestEnd: end });
      return;
    }
    const { intervals } = chunk;
    intervals.splice(firstFrom(intervals, start), 0, interval);
    chunk.highestEnd = higherEnd(chunk.highestEnd, end);
    if (intervals.length <= CHUNK_INTERVALS_MAX) return;
    const upper = intervals.splice(CHUNK_INTERVALS_MAX >> 1);
    chunk.highestEnd = highestEndOf(intervals);
    this.#chunks.splice(at + 1, 0, { intervals: upper, highestEnd: highestEndOf(upper) });
  }

  remove(start: string, item: T): void {
    // Equal starts may fill several chunks; the last of them is where the search ends.
    for (let at = this.#lastChunkFrom(start); at >= 0; at -= 1) {
      const chunk = this.#chunks[at];
      if (chunk === undefined) return;
      const index = chunk.intervals.findIndex((interval) => interval.start === start && interval.item === item);
      if (index >= 0) {
        chunk.intervals.splice(index, 1);
        if (chunk.intervals.length === 0) this.#chunks.splice(at, 1);
        else chunk.highestEnd = highestEndOf(chunk.intervals);
        return;
      }
      const last = chunk.intervals[chunk.intervals.length - 1];
      if (last !== undefined && last.start < start) return;
    }
  }

  /** Visits the items whose start <= key < end. */
  match(key: string, visit: (item: T) => void): void {
    for (const { intervals, highestEnd } of this.#chunks) {
      const first = intervals[0];
      if (first === undefined || first.start > key) return;
      if (highestEnd !== null && highestEnd <= key) continue;
      for (const { start, end, item } of intervals) {
        if (start > key) return;
        if (end === null || end > key) visit(item);
      }
    }
  }

  /** Index of the last chunk whose first start is <= `start`; 0 if there is none. */
  #lastChunkFrom(start: string): number {
    let low = 0;
    let high = this.#chunks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const first = this.#chunks[middle]?.intervals[0];
      if (first !== undefined && first.start <= start) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** Index of the first interval whose start is >= `start`. */
function firstFrom<T>(intervals: readonly Interval<T>[], start: string): number {
  let low = 0;
  let high = intervals.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const candidate = intervals[middle];
    if (candidate !== undefined && candidate.start < start) low = middle + 1;
    else high = middle;
  }
  return low;
}

function higherEnd(left: string | null, right: string | null): string | null {
  if (left === null || right === null) return null;
  return left > right ? left : right;
}

function highestEndOf<T>(intervals: readonly Interval<T>[]): string | null {
  let highest: string | null = "";
  for (const { end } of intervals) highest = higherEnd(highest, end);
  return highest;
}
