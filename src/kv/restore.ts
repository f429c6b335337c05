/**
 * From the state in a backup to the first state of a new cluster (design 02 §5). Pure: what turns the one into the other,
 * row by row; records and values are mostly not touched, and not read. In two parts: what grows with the history goes
 * before the state is handed to the cluster (`forgetHistory`), what hangs on its time behind that (`renew`, restoring.ts).
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
import { isRemovalPending } from "./compaction.ts";
import { rebasedOrder } from "./idempotency.ts";
import { attachedKeys, decodeLease, encodeLease, type Lease } from "./leases.ts";
import { applyChanges, type Change } from "./overlay.ts";
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
  sequenceOfOrderRow,
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
  readonly revisionJump: number;
}

/** Rows fetched per step; none of the tables that are scanned here holds values. */
const STEP_ROWS = 256;

/** Whatever of it is renewed at once is held in memory until it is durable. */
export interface RenewalBudget {
  readonly rowsMax: number;
  readonly charactersMax: number;
}

/** How far the second part has come: the ids of leases, and the sequence numbers of results, up to `after` are renewed. */
export interface Renewal {
  readonly table: "results" | "leases";
  readonly after: number;
}

export const RENEWAL_BEGIN: Renewal = { table: "results", after: 0 };
/** The leases are renewed from the beginning: what was renewed before may be renewed again. */
export const RENEWAL_OF_LEASES: Renewal = { table: "leases", after: 0 };

/**
 * The first part (G6), which grows with the history and is for a place of its own: as if everything were compacted, and
 * removal had passed. What is left is a state, and the row of position and counters comes last. Null: nothing to change
 * among many rows. Not to be begun again on rows that are half done.
 */
export function* forgetHistory(source: OrderedStore): Generator<Change | null, void> {
  const meta = readMeta(source);
  const { revision } = meta;
  if (isForgotten(meta)) return;
  yield* dropMarks(source, revision);
  yield* dropHistory(source, meta);
  const forgotten: Meta = {
    ...meta,
    compactRevision: revision,
    removedRevision: revision,
    removedOpIndex: REVISION_END,
    markRevision: revision,
    markBytes: meta.historyBytes,
  };
  yield [META_ROW, encodeMeta(forgotten)];
}

function isForgotten(meta: Readonly<Meta>): boolean {
  return meta.compactRevision === meta.revision && !isRemovalPending(meta);
}

/**
 * The second part (G3, G4), in bounded steps: the rows that tell times, one row at least. Answers where to go on; null:
 * all is done.
 * @param meta of the backup; its weights follow the rows.
 */
export function renew(
  store: OrderedStore,
  meta: Meta,
  { from, ...target }: { readonly from: Renewal; readonly nowMs: number; readonly revisionJump: number },
  budget: RenewalBudget,
): Renewal | null {
  const left = { rows: budget.rowsMax, characters: budget.charactersMax };
  const changes = from.table === "results" ? rebaseResults : renewLeases;
  for (const { at, rows } of changes(store, meta, { after: from.after, ...target })) {
    for (const [row, value] of rows) {
      left.rows -= 1;
      left.characters -= value?.length ?? 0;
      applyChanges(store, [[row, value]]);
    }
    if (left.rows <= 0 || left.characters <= 0) return { table: from.table, after: at };
  }
  return from.table === "results" ? RENEWAL_OF_LEASES : null;
}

/** The end (G1..G4): position and counters of the new cluster. The running digest is that of its own log. */
export function restoredMeta(before: Readonly<Meta>, { index, nowMs, revisionJump }: RestoreOptions): Meta {
  for (const [name, value] of Object.entries({ index, nowMs, revisionJump })) assertCounter(value, name);
  // Two clusters that share a revision could answer a position of the one from the other's history.
  assert(revisionJump > 0, "a restore moves the revision");
  assert(isForgotten(before), "the history before a restore is forgotten first");
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
    markRevision: revision,
    markBytes: before.historyBytes,
  };
  for (const [name, value] of Object.entries(meta)) assertCounter(value, `meta.${name}`);
  return meta;
}

/** None is needed: automatic compaction aims at marks behind the compacted revision. */
function* dropMarks(source: OrderedStore, revision: number): Generator<Change, void> {
  for (const [row] of rowsOf(source, markBounds(0, revision))) yield [row, null];
}

/** What is renewed together. */
interface Renewed {
  readonly at: number;
  readonly rows: Iterable<Change>;
}

interface RenewalTarget {
  readonly after: number;
  readonly nowMs: number;
  readonly revisionJump: number;
}

function* renewLeases(source: OrderedStore, meta: Meta, { after, nowMs }: RenewalTarget): Generator<Renewed, void> {
  for (const [row, text] of rowsOf(source, leaseBounds(after))) {
    const at = idOfLeaseRow(row);
    yield { at, rows: renewLease(source, meta, { id: at, row, lease: decodeLease(text) }, nowMs) };
  }
}

function* renewLease(
  source: OrderedStore,
  meta: Meta,
  { id, row, lease }: { readonly id: number; readonly row: string; readonly lease: Lease },
  nowMs: number,
): Generator<Change, void> {
  const expiresAtMs = nowMs + lease.ttlS * 1000;
  if (lease.anonymous) yield* renewTtl(source, meta, id, expiresAtMs);
  yield [expiryRow(lease.expiresAtMs, id), null];
  yield [expiryRow(expiresAtMs, id), ""];
  yield [row, encodeLease({ ...lease, expiresAtMs })];
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
function* rebaseResults(
  source: OrderedStore,
  meta: Meta,
  { after, nowMs, revisionJump }: RenewalTarget,
): Generator<Renewed, void> {
  const before = meta.revision + revisionJump - 1;
  const bounds = { start: resultOrderRow(Math.max(meta.idemHead, after + 1)), end: resultOrderRow(meta.idemNext) };
  for (const [row, text] of rowsOf(source, bounds)) {
    yield { at: sequenceOfOrderRow(row), rows: [[row, rebasedOrder(text, before, nowMs)]] };
  }
}

/** The versions of a key come oldest first: each that another one follows goes, and the last if it is a delete. */
function* dropHistory(source: OrderedStore, meta: Meta): Generator<Change | null, void> {
  let previous: { readonly row: string; readonly type: string; readonly key: string } | null = null;
  let seen = 0;
  for (const [row, type] of rowsOf(source, VERSION_BOUNDS)) {
    const key = escapedKeyOfVersionRow(row);
    if (previous !== null && (previous.key === key || previous.type === "d")) {
      yield* dropVersion(source, meta, previous.row, previous.key);
    }
    previous = { row, type, key };
    seen += 1;
    if (seen % STEP_ROWS === 0) yield null;
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
