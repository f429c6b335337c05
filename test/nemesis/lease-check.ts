/**
 * Leases against the clock of those who hold them.
 *
 * L1. A lease lives for its TTL from when the last call that renewed it was SENT, less the skew that is allowed (design 02
 *     §3). That it had ended is known from the first of: an event of any watch, an answer `unknown_lease`, a read.
 * L2. A keeper says `lost` only when that is true: `time_over` when by its own clock nothing vouches for the lease any
 *     more, `unknown_lease` when it has ended. A lease that is given back without having been lost is there until then.
 * L3. A lease takes all its keys with it, at one revision; nothing is put under it afterwards.
 */
import { leaseTimes } from "../../src/client/lease-keeper.ts";
import { Violation } from "../simulator/violation.ts";
import type { Evidence, FeedEvent, LeaseRecord } from "./evidence.ts";
import type { Timeline } from "./timeline.ts";

const SKEW_MS_MAX = 1000;
/** What a timer may fire early, and how close to its deadline an answer may have been given up by its caller. */
const TIMER_MS = 5;
const LATE_MS = 100;

export interface LeaseCount {
  readonly leases: number;
  readonly ended: number;
  /** How long before the end of its promise the worst one was seen to have ended; negative: after it. */
  readonly earliestMs: number | null;
}

export function checkLeases(timeline: Timeline, evidence: Evidence): LeaseCount {
  const events = eventsByLease(timeline, evidence.leases);
  const seen = firstEnds(evidence);
  let ended = 0;
  let earliestMs: number | null = null;
  for (const lease of evidence.leases) {
    const own = events.get(lease.id) ?? [];
    checkKeys(timeline, lease, own);
    const end = firstEnd(lease, seen);
    if (end !== null) {
      ended += 1;
      const earlyMs = checkEnd(lease, end);
      if (earlyMs !== null) earliestMs = Math.max(earliestMs ?? earlyMs, earlyMs);
    }
    checkLost(lease, own, end);
  }
  return { leases: evidence.leases.length, ended, earliestMs };
}

interface End {
  readonly atMs: number;
  readonly how: string;
}

/** By key: when any watcher first saw it go. */
function firstEnds({ watchers }: Pick<Evidence, "watchers">): ReadonlyMap<string, End> {
  const first = new Map<string, End>();
  for (const { name, leaseEnds } of watchers) {
    for (const [key, atMs] of leaseEnds) {
      if (atMs < (first.get(key)?.atMs ?? Number.POSITIVE_INFINITY)) first.set(key, { atMs, how: `seen by ${name}` });
    }
  }
  return first;
}

function firstEnd(lease: LeaseRecord, seen: ReadonlyMap<string, End>): End | null {
  const ends = [...lease.ends, ...lease.keys.flatMap((key) => seen.get(key) ?? [])];
  return ends.reduce<End | null>((first, end) => (first === null || end.atMs < first.atMs ? end : first), null);
}

/** L1: by how much before its promise was over; null if its holder had ended it. */
function checkEnd(lease: LeaseRecord, end: End): number | null {
  const { id, kind, renewals, revokedMs } = lease;
  if (revokedMs !== null && revokedMs <= end.atMs) return null;
  const promised = renewals.reduce<{ untilMs: number; sentMs: number } | null>((last, { sentMs, ttlS }) => {
    const untilMs = sentMs + ttlS * 1000;
    return last === null || untilMs > last.untilMs ? { untilMs, sentMs } : last;
  }, null);
  if (promised === null) return null;
  const earlyMs = promised.untilMs - end.atMs;
  if (earlyMs <= SKEW_MS_MAX) return earlyMs;
  const detail = `lease ${id} (${kind}, ${lease.ttlS} s), renewed by a call sent at ${promised.sentMs.toFixed(0)}, had ended at ${end.atMs.toFixed(0)} (${end.how}): ${earlyMs.toFixed(0)} ms early`;
  throw new Violation("lease lives as long as was promised", detail);
}

/** L2 */
function checkLost(lease: LeaseRecord, own: readonly FeedEvent[], end: End | null): void {
  const { id, lost, renewals, ttlS, revokedMs } = lease;
  const hasEnded = own.some(({ kind }) => kind === "delete");
  if (lease.isKept && end !== null && end.atMs < (revokedMs ?? Number.POSITIVE_INFINITY)) {
    const detail = `lease ${id} was not lost to its keeper, and had ended at ${end.atMs.toFixed(0)} (${end.how})`;
    throw new Violation("keeper is told the truth", detail);
  }
  if (lost === null) return;
  if (lost.reason === "unknown_lease") {
    if (hasEnded || own.length === 0) return;
    throw new Violation("keeper is told the truth", `lease ${id} is lost as unknown, and its keys are still there`);
  }
  const { attemptMs, trustedMs } = leaseTimes(ttlS);
  // What came back later than that was given up by the keeper before.
  const counted = renewals.filter(
    ({ sentMs, endMs }, at) => endMs <= lost.atMs && (at === 0 || endMs - sentMs < attemptMs - LATE_MS),
  );
  const lastMs = Math.max(...counted.map(({ askedMs }) => askedMs));
  if (counted.length === 0 || lost.atMs >= lastMs + trustedMs - TIMER_MS) return;
  const detail = `lease ${id} (${ttlS} s) is lost (${lost.reason}) ${(lost.atMs - lastMs).toFixed(0)} ms after a keep-alive that succeeded`;
  throw new Violation("keeper is told the truth", detail);
}

/** Events of the keys of each lease, in order. */
function eventsByLease(timeline: Timeline, leases: readonly LeaseRecord[]): Map<number, FeedEvent[]> {
  const leaseOf = new Map(leases.flatMap(({ id, keys }) => keys.map((key): [string, number] => [key, id])));
  const events = new Map<number, FeedEvent[]>();
  for (const event of timeline.events.flat()) {
    const id = leaseOf.get(event.key);
    if (id === undefined) continue;
    const own = events.get(id);
    if (own === undefined) events.set(id, [event]);
    else own.push(event);
  }
  return events;
}

/** L3 */
function checkKeys(timeline: Timeline, { id, keys }: LeaseRecord, own: readonly FeedEvent[]): void {
  const first = own.find(({ kind }) => kind === "delete");
  if (first === undefined) return;
  const { revision } = first;
  const rule = "reply matches the log";
  for (const key of keys) {
    const events = own.filter((event) => event.key === key);
    if (events.some((event) => event.revision > revision)) {
      throw new Violation(rule, `lease ${id} ended at ${revision}, and ${key} changes after that`);
    }
    if (events.length > 0 && events.at(-1)?.kind === "put") {
      throw new Violation(rule, `lease ${id} ended at ${revision} without ${key}`);
    }
  }
  const others = (timeline.events[revision] ?? []).filter(({ kind }) => kind === "put");
  if (others.length > 0) throw new Violation(rule, `the end of lease ${id} at ${revision} puts ${others[0]?.key}`);
}
