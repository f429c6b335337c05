/**
 * The log as the core sees it: a cached tail in memory over a synchronous reader of the durable rows.
 * Must not: write (the caller persists), or read more than it was asked for.
 *
 * L1. Indexes are dense from 1; the entry before the first is (0, term 0).
 * L2. Entries that may not be durable yet are always cached: only durable ones are trimmed (`trimCache`).
 */
import { assert } from "../base/assert.ts";
import type { Entry } from "./types.ts";

/** Reads durable entries from..to: at least one if there is one, then as many as fit `bytesMax`. Deterministic. */
export type LogReader = (from: number, to: number, bytesMax: number) => readonly Entry[];

export interface RaftLog {
  readonly read: LogReader;
  lastIndex: number;
  lastTerm: number;
  lastTimeMs: number;
  /** Cached entries are dense and end at `lastIndex`. */
  cached: Entry[];
  cachedBytes: number;
}

const CACHED_ENTRIES_MAX = 8192;
const CACHED_BYTES_MAX = 8 << 20;

export function createLog(read: LogReader, last: { lastIndex: number; lastTerm: number; lastTimeMs: number }): RaftLog {
  return { read, ...last, cached: [], cachedBytes: 0 };
}

/** The entry at `index`, or undefined beyond the ends. */
export function entryAt(log: RaftLog, index: number): Entry | undefined {
  if (index < 1 || index > log.lastIndex) return undefined;
  const cached = log.cached[index - firstCached(log)];
  if (cached !== undefined) return cached;
  const entry = log.read(index, index, 0)[0];
  assert(entry !== undefined && entry.index === index, `the log has lost entry ${index} of ${log.lastIndex}`);
  return entry;
}

/** Term of the entry at `index`; 0 for index 0; undefined beyond the end. */
export function termAt(log: RaftLog, index: number): number | undefined {
  if (index === 0) return 0;
  if (index === log.lastIndex) return log.lastTerm;
  return entryAt(log, index)?.term;
}

/** Entries from `from` on, bounded by count and bytes, never fewer than one if there is one. */
export function entriesFrom(log: RaftLog, from: number, countMax: number, bytesMax: number): readonly Entry[] {
  if (from > log.lastIndex) return [];
  const first = firstCached(log);
  if (from < first) return log.read(from, Math.min(from + countMax, first) - 1, bytesMax);
  const start = from - first;
  let end = start;
  let bytes = 0;
  while (end < log.cached.length && end - start < countMax) {
    bytes += log.cached[end]?.payloadBytes ?? 0;
    if (bytes > bytesMax && end > start) break;
    end += 1;
  }
  return log.cached.slice(start, end);
}

export function appendEntries(log: RaftLog, entries: readonly Entry[]): void {
  for (const entry of entries) {
    assert(entry.index === log.lastIndex + 1, `append ${entry.index} after ${log.lastIndex}`);
    assert(entry.term >= log.lastTerm, `append term ${entry.term} after ${log.lastTerm}`);
    assert(entry.timeMs >= log.lastTimeMs, `append time ${entry.timeMs} after ${log.lastTimeMs}`);
    log.cached.push(entry);
    log.cachedBytes += entry.payloadBytes;
    log.lastIndex = entry.index;
    log.lastTerm = entry.term;
    log.lastTimeMs = entry.timeMs;
  }
}

/** Forgets every entry with an index >= `from`. */
export function truncateLog(log: RaftLog, from: number): void {
  const before = entryAt(log, from - 1);
  const kept = Math.max(0, from - firstCached(log));
  for (const entry of log.cached.splice(kept)) log.cachedBytes -= entry.payloadBytes;
  log.lastIndex = from - 1;
  log.lastTerm = before?.term ?? 0;
  log.lastTimeMs = before?.timeMs ?? 0;
}

/** Drops the oldest cached entries beyond the limits, durable ones only (L2). */
export function trimCache(log: RaftLog, durableIndex: number): void {
  if (log.cached.length <= CACHED_ENTRIES_MAX && log.cachedBytes <= CACHED_BYTES_MAX) return;
  const first = firstCached(log);
  let count = 0;
  while (first + count <= durableIndex && count < log.cached.length) {
    // Trim to half, so that the cost is amortised over many entries.
    if (log.cached.length - count <= CACHED_ENTRIES_MAX / 2 && log.cachedBytes <= CACHED_BYTES_MAX / 2) break;
    log.cachedBytes -= log.cached[count]?.payloadBytes ?? 0;
    count += 1;
  }
  log.cached.splice(0, count);
}

function firstCached(log: RaftLog): number {
  return log.lastIndex - log.cached.length + 1;
}
