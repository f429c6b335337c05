/**
 * The log as the core sees it: a cached tail in memory over a synchronous reader of the durable rows, behind a base.
 * Must not: write (the caller persists), or read more than it was asked for.
 *
 * L1. Indexes are dense behind the base, whose index, term, time and membership are known; at first (0, term 0). What
 *     stood at or below the base is gone: a snapshot covers it (thesis 5).
 * L2. Entries that may not be durable yet are always cached: only durable ones are trimmed (`trimCache`).
 * L3. Every membership in the log is known here, and goes when its entry goes (thesis 4.1). Each is at most one voter
 *     apart from the one before it.
 */
import { assert } from "../base/assert.ts";
import { assertFollows, parseMembership } from "./membership.ts";
import type { Entry, Membership, SnapshotPosition } from "./types.ts";

/** Reads durable entries from..to: at least one if there is one, then as many as fit `bytesMax`. Deterministic. */
export type LogReader = (from: number, to: number, bytesMax: number) => readonly Entry[];

/** A membership and the index of the entry that brought it. */
export interface PlacedMembership {
  readonly index: number;
  readonly membership: Membership;
}

export interface RaftLog {
  readonly read: LogReader;
  base: SnapshotPosition;
  /** Oldest first, that of the base before all others. The last one is in force. */
  memberships: PlacedMembership[];
  lastIndex: number;
  lastTerm: number;
  lastTimeMs: number;
  /** Cached entries are dense and end at `lastIndex`. */
  cached: Entry[];
  cachedBytes: number;
}

const CACHED_ENTRIES_MAX = 8192;
const CACHED_BYTES_MAX = 8 << 20;

/** What a node finds in its storage. */
export interface LoadedLog {
  readonly base: SnapshotPosition;
  /** Of the last entry; of the base if there is none. */
  readonly lastIndex: number;
  readonly lastTerm: number;
  readonly lastTimeMs: number;
  /** All `membership` entries behind the base, oldest first. */
  readonly memberships: readonly Entry[];
}

export function createLog(read: LogReader, loaded: LoadedLog): RaftLog {
  const { base, lastIndex, lastTerm, lastTimeMs, memberships } = loaded;
  assert(base.index <= lastIndex, `the log ends at ${lastIndex}, before its base ${base.index}`);
  const first = { index: base.index, membership: base.membership };
  const end = { lastIndex, lastTerm, lastTimeMs };
  const log: RaftLog = { read, base, memberships: [first], ...end, cached: [], cachedBytes: 0 };
  for (const entry of memberships) {
    assert(entry.index <= lastIndex, `membership ${entry.index} beyond the log's end ${lastIndex}`);
    noteMembership(log, entry);
  }
  return log;
}

/** The membership entries among those from `first` to `last`: for a storage that keeps no list of them. */
export function membershipEntries(read: LogReader, first: number, last: number, bytesMax: number): Entry[] {
  const found: Entry[] = [];
  for (let from = first; from <= last; ) {
    const entries = read(from, last, bytesMax);
    assert(entries.length > 0, `the log has lost entry ${from} of ${last}`);
    found.push(...entries.filter(({ kind }) => kind === "membership"));
    from += entries.length;
  }
  return found;
}

function noteMembership(log: RaftLog, { index, kind, payload }: Entry): void {
  const before = newestMembership(log);
  const membership = parseMembership(payload);
  assert(kind === "membership" && membership !== null, `entry ${index} is no membership: ${payload.slice(0, 100)}`);
  assert(index > before.index, `membership ${index} after that of ${before.index}`);
  assertFollows(before.membership, membership);
  log.memberships.push({ index, membership });
}

/** The one in force. */
export function newestMembership(log: RaftLog): PlacedMembership {
  const newest = log.memberships[log.memberships.length - 1];
  assert(newest !== undefined, "a log has the membership of its base");
  return newest;
}

/** The one in force at an entry that is still in the log, or at the base. */
export function membershipAt(log: RaftLog, index: number): Membership {
  const placed = log.memberships.findLast((candidate) => candidate.index <= index);
  assert(placed !== undefined, `no membership at ${index}, the log begins behind ${log.base.index}`);
  return placed.membership;
}

/** Where a snapshot of the state after entry `index` stands. */
export function positionAt(log: RaftLog, index: number): SnapshotPosition {
  if (index === log.base.index) return log.base;
  const entry = entryAt(log, index);
  assert(entry !== undefined, `no entry ${index} between ${log.base.index} and ${log.lastIndex}`);
  return { index, term: entry.term, timeMs: entry.timeMs, membership: membershipAt(log, index) };
}

/** The entry at `index`, or undefined beyond the ends. */
export function entryAt(log: RaftLog, index: number): Entry | undefined {
  if (index <= log.base.index || index > log.lastIndex) return undefined;
  const cached = log.cached[index - firstCached(log)];
  if (cached !== undefined) return cached;
  const entry = log.read(index, index, 0)[0];
  assert(entry !== undefined && entry.index === index, `the log has lost entry ${index} of ${log.lastIndex}`);
  return entry;
}

/** Term of the entry at `index`, which may be the base; undefined beyond the ends. */
export function termAt(log: RaftLog, index: number): number | undefined {
  if (index === log.base.index) return log.base.term;
  if (index === log.lastIndex) return log.lastTerm;
  return entryAt(log, index)?.term;
}

/** Entries from `from` on, bounded by count and bytes, never fewer than one if there is one. */
export function entriesFrom(log: RaftLog, from: number, countMax: number, bytesMax: number): readonly Entry[] {
  assert(from > log.base.index, `entry ${from} is gone, the log begins behind ${log.base.index}`);
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
    if (entry.kind === "membership") noteMembership(log, entry);
    log.cached.push(entry);
    log.cachedBytes += entry.payloadBytes;
    log.lastIndex = entry.index;
    log.lastTerm = entry.term;
    log.lastTimeMs = entry.timeMs;
  }
}

/** Forgets every entry with an index >= `from`, and the memberships that they brought. */
export function truncateLog(log: RaftLog, from: number): void {
  assert(from > log.base.index, `truncation at ${from}, the log begins behind ${log.base.index}`);
  const before = from - 1 === log.base.index ? log.base : entryAt(log, from - 1);
  log.memberships = log.memberships.filter(({ index }) => index < from);
  const kept = Math.max(0, from - firstCached(log));
  for (const entry of log.cached.splice(kept)) log.cachedBytes -= entry.payloadBytes;
  log.lastIndex = from - 1;
  assert(before !== undefined, `no entry before ${from}`);
  log.lastTerm = before.term;
  log.lastTimeMs = before.timeMs;
}

/** The log begins behind `base` from now on: an entry of this log, or the position of a snapshot that it agrees with. */
export function rebase(log: RaftLog, base: SnapshotPosition): void {
  const count = Math.max(0, base.index - firstCached(log) + 1);
  for (const entry of log.cached.splice(0, count)) log.cachedBytes -= entry.payloadBytes;
  log.base = base;
  const later = log.memberships.filter(({ index }) => index > base.index);
  log.memberships = [{ index: base.index, membership: base.membership }, ...later];
}

/** Forgets everything: the log is empty behind `base`. */
export function replaceLog(log: RaftLog, base: SnapshotPosition): void {
  log.base = base;
  log.memberships = [{ index: base.index, membership: base.membership }];
  log.cached = [];
  log.cachedBytes = 0;
  log.lastIndex = base.index;
  log.lastTerm = base.term;
  log.lastTimeMs = base.timeMs;
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
