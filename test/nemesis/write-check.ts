/**
 * Every write against the feed.
 *
 * W1. An answered write stands in the feed at the revision of its answer, with exactly its changes; its compares hold on
 *     the record before, those of one that answered "compares failed" do not. So no acknowledged write is lost.
 * W2. A write has one effect at most, whatever was repeated, and all answers under one idempotency key are the same. One
 *     that was refused has none.
 * W3. Every event is somebody's; what no value names (a delete) is at most once that of each delete of unknown outcome.
 * W4. Its revision is above all that anybody had been told before it began, and not above what could exist at its end.
 */
import { Violation } from "../simulator/violation.ts";
import { type Change, type Evidence, type FeedEvent, LEASE_PREFIX, type WriteRecord } from "./evidence.ts";
import { type Knowledge, recordAt, type Timeline } from "./timeline.ts";

export function checkWrites(timeline: Timeline, evidence: Evidence, knowledge: Knowledge): number {
  const byOp = new Map(evidence.writes.map((write) => [write.op, write]));
  const owners = ownersOf(timeline, byOp);
  for (const write of evidence.writes) {
    const { end } = write;
    if (end.kind === "answered") checkAnswered(timeline, write, end, owners);
    checkOrder(write, owners, knowledge);
  }
  checkDeletes(timeline, evidence.writes, owners);
  return evidence.writes.length;
}

interface Owners {
  /** Of each write with an effect: its revision. */
  readonly revisions: Map<string, number>;
  readonly byRevision: Map<number, WriteRecord>;
}

/** W2, W3: whose events these are, by the values. */
function ownersOf(timeline: Timeline, byOp: ReadonlyMap<string, WriteRecord>): Owners {
  const owners: Owners = { revisions: new Map(), byRevision: new Map() };
  for (const event of timeline.events.flat()) {
    if (event.kind === "delete") continue;
    const where = `${event.key} at ${event.revision}`;
    const write = event.op === null ? undefined : byOp.get(event.op);
    if (write === undefined) throw new Violation("definite failure has no effect", `${where} was put by nobody`);
    if (write.end.kind === "refused") {
      const detail = `${where} was put by ${write.op}, which was refused with ${write.end.code}`;
      throw new Violation("definite failure has no effect", detail);
    }
    if (!write.changes.some((change) => isOf(change, event))) {
      throw new Violation("reply matches the log", `${where} was put by ${write.op}, which has not asked for that`);
    }
    own(owners, write, event.revision);
  }
  return owners;
}

function own(owners: Owners, write: WriteRecord, revision: number): void {
  const before = owners.revisions.get(write.op);
  if (before !== undefined && before !== revision) {
    const detail = `${write.op} (${write.kind}) has taken effect at ${before} and at ${revision}`;
    throw new Violation("one effect per idempotency key", detail);
  }
  const other = owners.byRevision.get(revision);
  if (other !== undefined && other !== write) {
    throw new Violation("reply matches the log", `${write.op} and ${other.op} both are revision ${revision}`);
  }
  owners.revisions.set(write.op, revision);
  owners.byRevision.set(revision, write);
}

function isOf(change: Change, event: FeedEvent): boolean {
  if (change.kind !== event.kind || (change.lease ?? null) !== event.lease) return false;
  if (change.kind === "put" && (change.amount ?? null) !== event.amount) return false;
  const suffix = change.suffixed === true ? String(event.revision).padStart(16, "0") : "";
  return event.key === change.key + suffix;
}

/** W1 */
function checkAnswered(
  timeline: Timeline,
  write: WriteRecord,
  end: Extract<WriteRecord["end"], { kind: "answered" }>,
  owners: Owners,
): void {
  const { op, kind } = write;
  const [revision = 0, ...more] = end.revisions;
  if (more.some((one) => one !== revision)) {
    const detail = `${op} (${kind}) was answered with the revisions ${end.revisions.join(", ")}`;
    throw new Violation("one effect per idempotency key", detail);
  }
  if (revision > timeline.newest) {
    const detail = `${op} (${kind}) was acknowledged at ${revision}, the feed ends at ${timeline.newest}`;
    throw new Violation("acknowledged write is committed", detail);
  }
  if (end.hadEffect) {
    const found = timeline.events[revision] ?? [];
    const isWhole =
      found.length === write.changes.length &&
      write.changes.every((change, at) => {
        const event = found[at]!;
        return isOf(change, event) && (event.kind === "delete" || event.op === op);
      });
    if (!isWhole) {
      const detail = `${op} (${kind}) was acknowledged at ${revision} as ${JSON.stringify(write.changes)}; there is ${JSON.stringify(found)}`;
      throw new Violation("acknowledged write is committed", detail);
    }
    own(owners, write, revision);
  } else if (owners.revisions.has(op)) {
    const detail = `${op} (${kind}) was answered as without effect, and is revision ${owners.revisions.get(op)}`;
    throw new Violation("reply matches the log", detail);
  }
  checkCompares(timeline, write, { ...end, revision });
  if (end.succeeded && !end.hadEffect) {
    for (const { key } of write.changes) {
      if (recordAt(timeline, key, revision).modRevision === 0) continue;
      const detail = `${op} found no ${key} to delete at ${revision}; there was one`;
      throw new Violation("reply matches the log", detail);
    }
  }
}

function checkCompares(
  timeline: Timeline,
  write: WriteRecord,
  end: { readonly succeeded: boolean; readonly hadEffect: boolean; readonly revision: number },
): void {
  // What the compares saw is the state before its own changes.
  const before = end.hadEffect ? end.revision - 1 : end.revision;
  const holds = write.compares.every(
    ({ key, modRevision }) => recordAt(timeline, key, before).modRevision === modRevision,
  );
  if (holds === end.succeeded) return;
  const detail = `${write.op} (${write.kind}) at ${end.revision} answered ${end.succeeded} to ${JSON.stringify(write.compares)}; they are ${holds}`;
  throw new Violation("reply matches the log", detail);
}

/** W4 */
function checkOrder(write: WriteRecord, owners: Owners, knowledge: Knowledge): void {
  const { op, kind, callMs, endMs, end } = write;
  const effect = owners.revisions.get(op);
  const known = knowledge.knownAt(callMs);
  if (effect !== undefined && effect <= known) {
    const detail = `${op} (${kind}) began when ${known} was known, and is revision ${effect}`;
    throw new Violation("real-time order", detail);
  }
  if (end.kind !== "answered") return;
  const [revision = 0] = end.revisions;
  if (revision < known) {
    throw new Violation("no stale read", `${op} (${kind}) is answered ${revision} when ${known} was known`);
  }
  const possible = knowledge.possibleAt(endMs);
  if (revision > possible) {
    const detail = `${op} (${kind}) was answered ${revision} when no more than ${possible} had been asked for`;
    throw new Violation("acknowledged write is committed", detail);
  }
}

/** W3: deletes that no answered write and no value owns. */
function checkDeletes(timeline: Timeline, writes: readonly WriteRecord[], owners: Owners): void {
  const unknown = new Map<string, number>();
  for (const { end, changes } of writes) {
    const [change, ...others] = changes;
    if (end.kind !== "unknown" || change?.kind !== "delete" || others.length > 0) continue;
    unknown.set(change.key, (unknown.get(change.key) ?? 0) + 1);
  }
  for (const { kind, key, revision } of timeline.events.flat()) {
    if (kind !== "delete" || key.startsWith(LEASE_PREFIX) || owners.byRevision.has(revision)) continue;
    const left = unknown.get(key) ?? 0;
    if (left === 0) throw new Violation("one effect per idempotency key", `nobody has deleted ${key} at ${revision}`);
    unknown.set(key, left - 1);
  }
}
