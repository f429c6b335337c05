/**
 * Whether rows are a whole state of ours: what a node asks of a snapshot, and a restore of a backup, before it takes over
 * anything. Rows come once, in the order of their keys, in any portions; what is kept meanwhile does not grow with them.
 *
 * N1. Each row has its shape (row-shapes.ts).
 * N2. Tables that say the same things twice say the same: leases and their expiries, records and attachments, records and
 * due entries, history and versions, live records and newest versions, results and their order. Each pair is one sum of
 * hashes, in on one side and out on the other: it is zero at the end exactly if (but for chance) both are the same set.
 * N3. Counters in the meta row are what the rows count: leases, results, bytes. Behind the compacted revision no change is
 * missing.
 * Not looked at, because it would take the state itself: that a current row repeats the numbers of its history row.
 */
import { unreachable } from "../base/assert.ts";
import { hashIn, hashOut, hashText } from "../base/hash.ts";
import { IDEMPOTENCY_BYTES_MAX, IDEMPOTENCY_ENTRIES_MAX, LEASE_KEYS_MAX, LEASES_MAX } from "../base/limits.ts";
import { removedUpTo } from "./compaction.ts";
import type { OrderTuple } from "./idempotency.ts";
import { LEASE_COUNTER_MAX, type Lease, weightOfLease } from "./leases.ts";
import { comparePositions, endOf, type Position, REVISION_END } from "./position.ts";
import { indexBytes } from "./quota.ts";
import { type Current, changeBytes, recordBytes } from "./records.ts";
import { type RowContent, readRow, refuseRows } from "./row-shapes.ts";
import { attachmentRow, dueRow, expiryRow, positionOfRow, rowName, versionRow } from "./rows.ts";
import type { Meta } from "./state.ts";
import type { Row } from "./store.ts";

type Table = RowContent["table"];
type Link = keyof typeof LINK_NAMES;

/** For the reader of a refusal: what does not agree. */
const LINK_NAMES = {
  attachments: "the records that name a lease and the keys attached to leases",
  attached: "the leases' counts of keys and the keys attached to them",
  expiries: "the leases and the order of their expiry",
  dues: "the records with a due time and the due index",
  versions: "the history and the index of versions",
  currents: "the live records and the newest versions",
  results: "the idempotency results and the order of their eviction",
};

export interface RowCheck {
  lastRow: string;
  meta: Meta | null;
  readonly counts: Record<Table, number>;
  readonly links: Record<Link, number>;
  logicalBytes: number;
  changesBytes: number;
  idemBytes: number;
  /** The lease whose attachments are coming, and how many there were. */
  leaseId: number;
  leaseKeys: number;
  leaseIdMax: number;
  /** The version row before: the newest of its key once another key comes. */
  version: { readonly key: string; readonly row: string; readonly type: "p" | "d" } | null;
  /** The first position, by the log, of a version whose key has an older one. */
  overwriteMin: Position;
  markRevision: number;
  /** The last result in the order of eviction. */
  order: OrderTuple | null;
  /** The last change behind the compacted revision. */
  tail: Position | null;
}

export function beginRowCheck(): RowCheck {
  return {
    lastRow: "",
    meta: null,
    counts: { a: 0, c: 0, d: 0, e: 0, h: 0, i: 0, k: 0, l: 0, m: 0, o: 0, r: 0 },
    links: { attachments: 0, attached: 0, expiries: 0, dues: 0, versions: 0, currents: 0, results: 0 },
    logicalBytes: 0,
    changesBytes: 0,
    idemBytes: 0,
    leaseId: 0,
    leaseKeys: 0,
    leaseIdMax: 0,
    version: null,
    overwriteMin: endOf(Number.MAX_SAFE_INTEGER),
    markRevision: 0,
    order: null,
    tail: null,
  };
}

/** @throws ConcordError `invalid_request` (`invalid_rows`) at the first row that cannot be part of a state */
export function checkRows(check: RowCheck, rows: readonly Row[]): void {
  for (const [row, text] of rows) {
    if (row <= check.lastRow) refuseRows(`Row ${rowName(row)} comes behind ${rowName(check.lastRow)}.`);
    check.lastRow = row;
    const content = readRow(row, text);
    check.counts[content.table] += 1;
    tally(check, row, text, content);
  }
}

/**
 * Says that all rows together are a state, and answers its position and counters.
 * @throws ConcordError `invalid_request` (`invalid_rows`)
 */
export function endRowCheck(check: RowCheck): Meta {
  const meta = metaOf(check);
  endLeaseKeys(check);
  endVersions(check);
  for (const [link, sum] of Object.entries(check.links)) {
    if (sum !== 0) refuseRows(`The rows are no state: ${LINK_NAMES[link as Link]} do not agree.`);
  }
  const { counts } = check;
  expectEqual("leases", meta.leasesCount, counts.l);
  expectEqual("idempotency results", meta.idemNext - meta.idemHead, counts.o);
  expectEqual("bytes of idempotency results", meta.idemBytes, check.idemBytes);
  expectEqual("logical bytes", meta.logicalBytes, check.logicalBytes);
  expectEqual("the last revision", meta.revision, check.tail?.revision ?? meta.compactRevision);
  // A mark goes when removal has passed it.
  const newestMark = meta.markRevision > meta.removedRevision ? meta.markRevision : 0;
  expectEqual("the newest history mark", newestMark, check.markRevision);
  expectAtMost("bytes of the changes that are left", check.changesBytes, meta.historyBytes);
  expectAtMost("ids of leases", check.leaseIdMax, meta.leaseCounter);
  expectAtMost("leases", counts.l, LEASES_MAX);
  expectAtMost("idempotency results", counts.o, IDEMPOTENCY_ENTRIES_MAX);
  expectAtMost("bytes of idempotency results", check.idemBytes, IDEMPOTENCY_BYTES_MAX);
  return meta;
}

function tally(check: RowCheck, row: string, text: string, content: RowContent): void {
  switch (content.table) {
    case "a":
      tallyAttachment(check, row, content.leaseId, content.key);
      break;
    case "c":
      tallyCurrent(check, content.key, content.current);
      break;
    case "d":
      check.logicalBytes += indexBytes(content.key);
      add(check, "dues", row);
      break;
    case "e":
      add(check, "expiries", row);
      break;
    case "h":
      check.markRevision = content.revision;
      break;
    case "i":
      add(check, "results", resultText(row, content.bytes));
      break;
    case "k":
      tallyVersion(check, row, content.key, content.type);
      break;
    case "l":
      tallyLease(check, content.id, content.lease);
      break;
    case "m":
      tallyMeta(check, content.meta);
      break;
    case "o":
      tallyOrder(check, content.sequence, content.order);
      break;
    case "r":
      tallyChange(check, text, content);
      break;
    default:
      unreachable(content);
  }
}

function tallyAttachment(check: RowCheck, row: string, leaseId: number, key: string): void {
  if (leaseId !== check.leaseId) endLeaseKeys(check);
  check.leaseId = leaseId;
  check.leaseKeys += 1;
  check.logicalBytes += indexBytes(key);
  add(check, "attachments", row);
}

function endLeaseKeys(check: RowCheck): void {
  if (check.leaseKeys > 0) add(check, "attached", attachedText(check.leaseId, check.leaseKeys));
  check.leaseKeys = 0;
}

const attachedText = (leaseId: number, keys: number): string => `${leaseId},${keys}`;
const resultText = (row: string, bytes: number): string => `${row}\n${bytes}`;

function tallyCurrent(check: RowCheck, key: string, current: Current): void {
  const { revision, opIndex, leaseId, dueAtMs } = current;
  check.logicalBytes += recordBytes(key);
  add(check, "currents", versionRow(key, revision, opIndex));
  if (leaseId !== 0) remove(check, "attachments", attachmentRow(leaseId, key));
  if (dueAtMs !== null) remove(check, "dues", dueRow(dueAtMs, key));
}

function tallyVersion(check: RowCheck, row: string, key: string, type: "p" | "d"): void {
  add(check, "versions", row + type);
  if (check.version?.key === key) {
    const [revision, opIndex] = positionOfRow(row);
    if (comparePositions({ revision, opIndex }, check.overwriteMin) < 0) check.overwriteMin = { revision, opIndex };
  } else endVersions(check);
  check.version = { key, row, type };
}

/** The newest version of a key is its live record, unless it is a delete. */
function endVersions(check: RowCheck): void {
  if (check.version?.type === "p") remove(check, "currents", check.version.row);
  check.version = null;
}

function tallyLease(check: RowCheck, id: number, lease: Lease): void {
  check.logicalBytes += weightOfLease(lease);
  expectAtMost(`keys of lease ${id}`, lease.keysCount, LEASE_KEYS_MAX);
  if (id < LEASE_COUNTER_MAX) check.leaseIdMax = id;
  if (lease.keysCount > 0) remove(check, "attached", attachedText(id, lease.keysCount));
  remove(check, "expiries", expiryRow(lease.expiresAtMs, id));
}

function tallyMeta(check: RowCheck, meta: Meta): void {
  check.meta = meta;
  expectAtMost("the compacted revision", meta.compactRevision, meta.revision);
  expectAtMost("the removed revision", meta.removedRevision, meta.compactRevision);
  expectAtMost("the removed op index", meta.removedOpIndex, REVISION_END);
  expectAtMost("the marked revision", meta.markRevision, meta.revision);
  expectAtMost("the marked bytes", meta.markBytes, meta.historyBytes);
  expectAtMost("the first idempotency result", meta.idemHead, meta.idemNext);
  expectAtMost("the idempotency floor", meta.idemFloor, meta.revision + 1);
  // Removal that has passed a version has removed the one before it (compaction.ts D4).
  const { revision, opIndex } = check.overwriteMin;
  if (comparePositions(check.overwriteMin, removedUpTo(meta)) <= 0) {
    refuseRows(`The rows are no state: what (${revision}, ${opIndex}) has overwritten has been removed.`);
  }
}

function tallyOrder(check: RowCheck, sequence: number, order: OrderTuple): void {
  const meta = metaOf(check);
  const [row, revisionBefore, timeMs, bytes] = order;
  expectEqual("the next idempotency result", sequence, meta.idemHead + check.counts.o - 1);
  expectAtMost("the revision before a result", check.order?.[1] ?? 0, revisionBefore);
  expectAtMost("the revision before a result", revisionBefore, meta.revision);
  expectAtMost("the time of a result", check.order?.[2] ?? 0, timeMs);
  expectAtMost("the time of a result", timeMs, meta.timeMs);
  check.order = order;
  check.idemBytes += bytes;
  remove(check, "results", resultText(row, bytes));
}

function tallyChange(check: RowCheck, text: string, change: RowContent & { readonly table: "r" }): void {
  const meta = metaOf(check);
  const { revision, opIndex, key, type } = change;
  const bytes = changeBytes(key, text);
  check.logicalBytes += bytes;
  check.changesBytes += bytes;
  remove(check, "versions", versionRow(key, revision, opIndex) + type);
  expectAtMost("the revision of a change", revision, meta.revision);
  if (type === "d" && comparePositions(change, removedUpTo(meta)) <= 0) {
    refuseRows(`The rows are no state: the delete at (${revision}, ${opIndex}) has been removed.`);
  }
  if (revision <= meta.compactRevision) return;
  const tail = check.tail ?? endOf(meta.compactRevision);
  const goesOn = revision === tail.revision && opIndex === tail.opIndex + 1;
  const begins = revision === tail.revision + 1 && opIndex === 0;
  if (!goesOn && !begins) {
    const last = `(${tail.revision}, ${tail.opIndex})`;
    refuseRows(`The rows are no state: changes are missing between ${last} and (${revision}, ${opIndex}).`);
  }
  check.tail = { revision, opIndex };
}

function metaOf(check: RowCheck): Meta {
  return check.meta ?? refuseRows("The rows are no state: the row of its position is missing.");
}

function add(check: RowCheck, link: Link, text: string): void {
  check.links[link] = hashIn(check.links[link], hashText(text, 0));
}

function remove(check: RowCheck, link: Link, text: string): void {
  check.links[link] = hashOut(check.links[link], hashText(text, 0));
}

function expectEqual(what: string, told: number, found: number): void {
  if (told !== found) refuseRows(`The rows are no state: ${what}: ${told} by its counters, ${found} by its rows.`);
}

function expectAtMost(what: string, number: number, most: number): void {
  if (number > most) refuseRows(`The rows are no state: ${what}: ${number} is above ${most}.`);
}
