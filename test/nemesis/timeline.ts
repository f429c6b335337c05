/**
 * The feed of changes as the one order of all that happened, and what it says of any moment: which record stood where at
 * a revision, which revision somebody knew at a time, which one could exist by then.
 *
 * T1. All nodes have the same feed. Revisions are dense from 1, op indexes from 0, versions count from the creation.
 */
import { Violation } from "../simulator/violation.ts";
import type { Evidence, FeedEvent, Seen } from "./evidence.ts";

/** A record from the revision that wrote it until the one before the next change. */
export interface Version extends Seen {
  /** Of the event, also of a delete. */
  readonly revision: number;
  readonly amount: number | null;
  readonly createRevision: number;
  readonly version: number;
  readonly lease: number | null;
}

export interface Timeline {
  /** By revision; the first entry is nobody's. */
  readonly events: readonly (readonly FeedEvent[])[];
  readonly newest: number;
  /** Changes of each key, oldest first. */
  readonly versions: ReadonlyMap<string, readonly Version[]>;
}

/** @throws Violation (T1) */
export function timelineOf(feeds: readonly (readonly FeedEvent[])[]): Timeline {
  const [feed = [], ...others] = feeds;
  for (const [position, other] of others.entries()) compareFeeds(feed, other, position + 2);
  const events: FeedEvent[][] = [[]];
  const versions = new Map<string, Version[]>();
  for (const event of feed) {
    const { revision, opIndex } = event;
    if (revision === events.length && opIndex === 0) events.push([]);
    const group = events.at(-1) ?? [];
    if (revision !== events.length - 1 || revision === 0 || opIndex !== group.length) {
      const detail = `the feed goes on with ${revision}.${opIndex} behind ${events.length - 1}.${group.length - 1}`;
      throw new Violation("revisions are dense", detail);
    }
    group.push(event);
    addVersion(versions, event);
  }
  return { events, newest: events.length - 1, versions };
}

function compareFeeds(feed: readonly FeedEvent[], other: readonly FeedEvent[], node: number): void {
  const length = Math.max(feed.length, other.length);
  for (let position = 0; position < length; position += 1) {
    const mine = JSON.stringify(feed[position] ?? null);
    const theirs = JSON.stringify(other[position] ?? null);
    if (mine !== theirs) {
      throw new Violation(
        "digests are equal",
        `event ${position} of the feed of node 1: ${mine}, of ${node}: ${theirs}`,
      );
    }
  }
}

function addVersion(versions: Map<string, Version[]>, event: FeedEvent): void {
  const { key, kind, revision, op, amount, lease } = event;
  const list = versions.get(key) ?? [];
  if (list.length === 0) versions.set(key, list);
  const before = list.at(-1);
  const isFresh = before === undefined || before.modRevision === 0;
  const isPut = kind === "put";
  const expected = isFresh
    ? { createRevision: revision, version: 1 }
    : { createRevision: before.createRevision, version: before.version + 1 };
  if (!isPut && isFresh)
    throw new Violation("revisions are dense", `${key} is deleted at ${revision}, but is not there`);
  if (isPut && (event.createRevision !== expected.createRevision || event.version !== expected.version)) {
    const found = `created at ${event.createRevision}, version ${event.version}`;
    const detail = `${key} at ${revision} is ${found}; by the feed it is ${expected.createRevision}, ${expected.version}`;
    throw new Violation("revisions are dense", detail);
  }
  list.push({ revision, op: isPut ? op : null, modRevision: isPut ? revision : 0, amount, lease, ...expected });
}

/** The record as it was at a revision: `modRevision` 0 if there was none. */
export function recordAt(timeline: Timeline, key: string, revision: number): Version {
  const list = timeline.versions.get(key) ?? [];
  const position = lastAtMost(list, revision, (one) => one.revision);
  return list[position] ?? ABSENT;
}

const ABSENT: Version = {
  revision: 0,
  op: null,
  modRevision: 0,
  amount: null,
  createRevision: 0,
  version: 0,
  lease: null,
};

/** Whether some revision from `low` to `high` shows this key so. */
export function stoodBetween(timeline: Timeline, key: string, found: Seen, low: number, high: number): boolean {
  if (low > high) return false;
  const list = timeline.versions.get(key) ?? [];
  const matches = (one: Version): boolean => one.op === found.op && one.modRevision === found.modRevision;
  let position = lastAtMost(list, low, (one) => one.revision);
  if (matches(list[position] ?? ABSENT)) return true;
  for (position += 1; position < list.length && list[position]!.revision <= high; position += 1) {
    if (matches(list[position]!)) return true;
  }
  return false;
}

/** When what was known to somebody, and when what could exist. */
export interface Knowledge {
  /** The highest revision in any answer that had come before that time. */
  knownAt(atMs: number): number;
  /** The highest revision that the calls begun before that time can have made. */
  possibleAt(atMs: number): number;
}

export function knowledgeOf(timeline: Timeline, evidence: Pick<Evidence, "writes" | "reads">): Knowledge {
  const known: { atMs: number; revision: number }[] = [];
  const calledMs = new Map<string, number>();
  for (const { op, callMs, endMs, end } of evidence.writes) {
    calledMs.set(op, callMs);
    if (end.kind === "answered") known.push({ atMs: endMs, revision: end.revisions[0] ?? 0 });
  }
  for (const { endMs, revision, found } of evidence.reads) {
    known.push({ atMs: endMs, revision: revision ?? Math.max(0, ...found.map(({ modRevision }) => modRevision)) });
  }
  known.sort((left, right) => left.atMs - right.atMs);
  let highest = 0;
  for (const one of known) {
    highest = Math.max(highest, one.revision);
    one.revision = highest;
  }
  // A revision exists only behind all before it, so it cannot be older than the youngest call among those.
  const begun: number[] = [0];
  for (let revision = 1; revision <= timeline.newest; revision += 1) {
    const calls = (timeline.events[revision] ?? []).map(({ op }) => (op === null ? 0 : (calledMs.get(op) ?? 0)));
    begun.push(Math.max(begun[revision - 1] ?? 0, ...calls));
  }
  return {
    knownAt: (atMs) => known[lastAtMost(known, atMs, (one) => one.atMs, true)]?.revision ?? 0,
    possibleAt: (atMs) => lastAtMost(begun, atMs, (one) => one),
  };
}

/** Position of the last one whose number is at most (or below) `limit`, -1 if there is none. Numbers must not fall. */
function lastAtMost<T>(list: readonly T[], limit: number, numberOf: (one: T) => number, isBelow = false): number {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const number = numberOf(list[middle]!);
    if (isBelow ? number < limit : number <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
