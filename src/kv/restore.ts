/**
 * From the state in a backup to the first state of a new cluster (design 02 §5). Pure: the changes that turn the one into
 * the other, row by row; records and values are mostly not touched, and not read.
 *
 * The cluster of the backup may have gone on after it, so its clients may know things that this state does not:
 * G1. The revision jumps, and everything up to it is compacted. A position from before, also one from behind the backup,
 *     is answered `compacted`. Records keep their revisions and versions: compares with them go on.
 * G2. The counter of lease ids jumps as far: an id that was granted behind the backup belongs to nobody, not to another.
 * G3. Results under idempotency keys stay and start their time anew. The floor is the revision of the restore: what has
 *     no result and may have run before is answered `idempotency_expired`, and does not run again.
 * G4. Every lease has its full TTL from the restore on; a record with a TTL tells the new expiry. The floor of leases
 *     belongs to the leader that set it and goes.
 * G5. Due entries stay: they name moments that users chose. Those that passed meanwhile are due.
 * G6. History below the jump is gone: of each live key its newest version is left, as if removal had passed.
 *
 * Outbox entries and runs, once they are tables of this state, are parked here (until `resume`), beside the leases.
 */
import { assert, assertCounter } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import { hashText } from "../base/hash.ts";
import { RESTORE_REVISION_JUMP_DEFAULT } from "../base/limits.ts";
import { rebasedOrder } from "./idempotency.ts";
import { attachedKeys, decodeLease, encodeLease } from "./leases.ts";
import type { Change } from "./overlay.ts";
import { REVISION_END } from "./position.ts";
import { changeBytes, readCurrent, readHistoryText, withExpiry } from "./records.ts";
import {
  type Bounds,
  escapedKeyOfVersionRow,
  expiryRow,
  historyRow,
  idOfLeaseRow,
  leaseBounds,
  META_ROW,
  markBounds,
  positionOfRow,
  resultOrderRow,
  unescapeKey,
  VERSION_BOUNDS,
} from "./rows.ts";
import { encodeMeta, type Meta, readMeta } from "./state.ts";
import type { OrderedStore, Row } from "./store.ts";

export interface RestoreOptions {
  /** Position in the new cluster's log that the state stands for. */
  readonly index: number;
  /** The new cluster's time; its log goes on from there. It may lie before the backup's. */
  readonly nowMs: number;
  /** Default {@link RESTORE_REVISION_JUMP_DEFAULT}. */
  readonly revisionJump?: number;
}

/** Rows fetched per step; none of the tables that are scanned here holds values. */
const STEP_ROWS = 256;

/**
 * The changes, in steps of bounded memory; the row of position and counters comes last. They may be carried out on
 * `source` itself as they come, or apart from it. Carried out in part they leave no state: it is all or nothing, and
 * not to be begun again on rows that are half done.
 * @param source rows that `checkRows` has found to be a state; nothing else may change them meanwhile.
 */
export function* restoreChanges(source: OrderedStore, options: RestoreOptions): Generator<Change, void> {
  const { index, nowMs, revisionJump = RESTORE_REVISION_JUMP_DEFAULT } = options;
  for (const [name, value] of Object.entries({ index, nowMs, revisionJump })) assertCounter(value, name);
  // Two clusters that share a revision could answer a position of the one from the other's history.
  assert(revisionJump > 0, "a restore moves the revision");
  const before = readMeta(source);
  const revision = before.revision + revisionJump;
  const meta: Meta = {
    ...before,
    index,
    timeMs: nowMs,
    revision,
    compactRevision: revision,
    leaseCounter: before.leaseCounter + revisionJump,
    idemFloor: revision,
    leaseFloorMs: 0,
    removedRevision: revision,
    removedOpIndex: REVISION_END,
  };
  yield* dropMarks(source, before.revision);
  yield* renewLeases(source, meta);
  yield* rebaseResults(source, meta);
  yield* dropHistory(source, meta);
  meta.markRevision = revision;
  meta.markBytes = meta.historyBytes;
  // Of the backup's digest, which stands for all its rows, and of the new counters, which all changes follow from.
  meta.digest = hashText(encodeMeta(meta), 0);
  for (const [name, value] of Object.entries(meta)) assertCounter(value, `meta.${name}`);
  yield [META_ROW, encodeMeta(meta)];
}

/** None is needed: automatic compaction aims at marks behind the compacted revision. */
function* dropMarks(source: OrderedStore, revision: number): Generator<Change, void> {
  for (const [row] of rowsOf(source, markBounds(0, revision))) yield [row, null];
}

function* renewLeases(source: OrderedStore, meta: Meta): Generator<Change, void> {
  for (const [row, text] of rowsOf(source, leaseBounds(0))) {
    const id = idOfLeaseRow(row);
    const lease = decodeLease(text);
    const expiresAtMs = meta.timeMs + lease.ttlS * 1000;
    if (lease.anonymous) yield* renewTtl(source, meta, id, expiresAtMs);
    yield [expiryRow(lease.expiresAtMs, id), null];
    yield [expiryRow(expiresAtMs, id), ""];
    yield [row, encodeLease({ ...lease, expiresAtMs })];
  }
}

/** The record behind an anonymous lease names its expiry. */
function* renewTtl(source: OrderedStore, meta: Meta, leaseId: number, expiresAtMs: number): Generator<Change, void> {
  for (const key of attachedKeys(source, leaseId)) {
    const current = readCurrent(source, key);
    assert(current !== null && current.leaseId === leaseId, `key attached to lease ${leaseId} does not name it`);
    const text = readHistoryText(source, current.revision, current.opIndex);
    const renewed = withExpiry(text, expiresAtMs);
    const grown = utf8Length(renewed) - utf8Length(text);
    meta.logicalBytes += grown;
    meta.historyBytes += grown;
    yield [historyRow(current.revision, current.opIndex), renewed];
  }
}

/** As if each had been stored by the last command before the restore: its minimum time and revisions begin now. */
function* rebaseResults(source: OrderedStore, meta: Meta): Generator<Change, void> {
  const bounds = { start: resultOrderRow(meta.idemHead), end: resultOrderRow(meta.idemNext) };
  for (const [row, text] of rowsOf(source, bounds)) yield [row, rebasedOrder(text, meta.revision - 1, meta.timeMs)];
}

/** The versions of a key come oldest first: each that another one follows goes, and the last if it is a delete. */
function* dropHistory(source: OrderedStore, meta: Meta): Generator<Change, void> {
  let previous: { readonly row: string; readonly type: string; readonly key: string } | null = null;
  for (const [row, type] of rowsOf(source, VERSION_BOUNDS)) {
    const key = escapedKeyOfVersionRow(row);
    if (previous !== null && (previous.key === key || previous.type === "d")) {
      yield* dropVersion(source, meta, previous.row, previous.key);
    }
    previous = { row, type, key };
  }
  if (previous?.type === "d") yield* dropVersion(source, meta, previous.row, previous.key);
}

function* dropVersion(source: OrderedStore, meta: Meta, row: string, escapedKey: string): Generator<Change, void> {
  const [revision, opIndex] = positionOfRow(row);
  meta.logicalBytes -= changeBytes(unescapeKey(escapedKey), readHistoryText(source, revision, opIndex));
  yield [row, null];
  yield [historyRow(revision, opIndex), null];
}

/** Rows of a table in order; the changes made meanwhile are those to rows that have been seen. */
function* rowsOf(source: OrderedStore, bounds: Bounds): Generator<Row, void> {
  let { start } = bounds;
  for (;;) {
    const rows = source.scan({ start, end: bounds.end, limit: STEP_ROWS });
    yield* rows;
    const last = rows[rows.length - 1];
    if (last === undefined || rows.length < STEP_ROWS) return;
    start = `${last[0]}\u0001`;
  }
}
