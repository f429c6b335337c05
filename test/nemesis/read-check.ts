/**
 * Every read against the feed.
 *
 * R1. What a read found stood there at one revision: not older than anything that anybody had been told before a
 *     linearizable read began, nor than what its own client had seen before a serializable one; not newer than what could
 *     exist when it ended.
 * R2. What no client ever sees is its own revision go back, whatever nodes it asks.
 * R3. The accounts hold the same sum at any revision that anybody reads.
 */
import { Violation } from "../simulator/violation.ts";
import type { Evidence, ReadRecord } from "./evidence.ts";
import { type Knowledge, recordAt, stoodBetween, type Timeline } from "./timeline.ts";

export const ACCOUNTS_READ = "accounts";

export function checkReads(timeline: Timeline, evidence: Evidence, knowledge: Knowledge): number {
  for (const read of evidence.reads) {
    if (read.revision === null) checkSomewhere(timeline, read, knowledge);
    else checkAt(timeline, read, read.revision, knowledge);
    if (read.kind === ACCOUNTS_READ) checkSum(evidence, read);
  }
  for (const { name, revisions } of evidence.clients) {
    for (const [position, revision] of revisions.entries()) {
      const before = revisions[position - 1] ?? 0;
      if (revision < before) throw new Violation("no stale read", `${name} went back from ${before} to ${revision}`);
    }
  }
  return evidence.reads.length;
}

function floorOf(read: ReadRecord, knowledge: Knowledge): number {
  return read.isLinearizable ? Math.max(read.seen, knowledge.knownAt(read.callMs)) : read.seen;
}

function checkAt(timeline: Timeline, read: ReadRecord, revision: number, knowledge: Knowledge): void {
  const floor = floorOf(read, knowledge);
  if (revision < floor) {
    throw new Violation("no stale read", `${textOf(read)} is of ${revision} when ${floor} was known`);
  }
  const possible = Math.min(knowledge.possibleAt(read.endMs), timeline.newest);
  if (revision > possible) {
    const detail = `${textOf(read)} is of ${revision} when no more than ${possible} could exist`;
    throw new Violation("acknowledged write is committed", detail);
  }
  for (const { key, op, modRevision } of read.found) {
    const record = recordAt(timeline, key, revision);
    if (record.op === op && record.modRevision === modRevision) continue;
    const detail = `${textOf(read)} at ${revision}; ${key} was ${record.op} of ${record.modRevision}`;
    throw new Violation("read sees one state", detail);
  }
}

/** The answer does not say of which revision it is, so any that could be will do. */
function checkSomewhere(timeline: Timeline, read: ReadRecord, knowledge: Knowledge): void {
  const low = floorOf(read, knowledge);
  const high = Math.min(knowledge.possibleAt(read.endMs), timeline.newest);
  for (const { key, op, modRevision } of read.found) {
    if (stoodBetween(timeline, key, { op, modRevision }, low, high)) continue;
    throw new Violation("no stale read", `${textOf(read)}: that did not stand there from ${low} to ${high}`);
  }
}

function checkSum(evidence: Evidence, read: ReadRecord): void {
  const opening = evidence.writes.find(({ kind }) => kind === ACCOUNTS_READ);
  const wanted = (opening?.changes ?? []).reduce((sum, { amount = 0 }) => sum + amount, 0);
  const sum = read.found.reduce((total, { amount }) => total + (amount ?? 0), 0);
  if (sum === wanted) return;
  throw new Violation("read sees one state", `${textOf(read)}: the accounts hold ${sum} instead of ${wanted}`);
}

function textOf(read: ReadRecord): string {
  const { client, kind, isLinearizable, callMs, endMs, found } = read;
  const records = found.map(({ key, op, modRevision }) => `${key} = ${op} of ${modRevision}`).join(", ");
  const how = isLinearizable ? "linearizable" : "serializable";
  return `${how} ${kind} of client ${client} (${callMs.toFixed(1)} to ${endMs.toFixed(1)}) found ${records}`;
}
