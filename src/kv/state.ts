/**
 * The machine's position and counters (the meta row), and the draft that one command works on.
 *
 * M1. A command changes a draft: a stage over the store and a copy of the meta record. Nothing of it is visible before
 * the machine takes it over whole; a refused command's draft is thrown away (design 01 §2, all or nothing).
 * M2. Everything in `Meta` is a function of the log up to `index`.
 */
import { assert, assertCounter } from "../base/assert.ts";
import type { ChangeEvent } from "./command.ts";
import { REVISION_END } from "./position.ts";
import { META_ROW } from "./rows.ts";
import type { OrderedStore } from "./store.ts";

/** Written into the meta row; another layout of rows is another number. */
export const STATE_FORMAT = 2;

export interface Meta {
  readonly format: number;
  /** Last applied entry and its time; times never fall. */
  index: number;
  timeMs: number;
  revision: number;
  /** Reads below it fail; 0 = nothing compacted. */
  compactRevision: number;
  /** Running digest over the effects of every entry (53 bits). */
  digest: number;
  /** The last lease id that the counter gave out. */
  leaseCounter: number;
  leasesCount: number;
  /** Idempotency results in eviction order: sequences idemHead <= s < idemNext exist. */
  idemHead: number;
  idemNext: number;
  idemBytes: number;
  /** A key whose first try may have been evicted has `since` below this. */
  idemFloor: number;
  /** What the state weighs (quota.ts); compared with the quota at admission. */
  logicalBytes: number;
  /** No lease ends before it (lease-expiry.ts). */
  leaseFloorMs: number;
  /** Removal has passed every history row up to here (compaction.ts). */
  removedRevision: number;
  removedOpIndex: number;
  /** Bytes of all changes ever made, removed ones included: it only grows. */
  historyBytes: number;
  /** The newest history mark (history-marks.ts): its revision, and `historyBytes` at it. */
  markRevision: number;
  markBytes: number;
}

/** Of a machine that has applied nothing. */
export const EMPTY_META: Readonly<Meta> = {
  format: STATE_FORMAT,
  index: 0,
  timeMs: 0,
  revision: 0,
  compactRevision: 0,
  digest: 0,
  leaseCounter: 0,
  leasesCount: 0,
  idemHead: 1,
  idemNext: 1,
  idemBytes: 0,
  idemFloor: 0,
  logicalBytes: 0,
  leaseFloorMs: 0,
  removedRevision: 0,
  removedOpIndex: REVISION_END,
  historyBytes: 0,
  markRevision: 0,
  markBytes: 0,
};

export function readMeta(store: OrderedStore): Meta {
  const row = store.get(META_ROW);
  return row === undefined ? { ...EMPTY_META } : decodeMeta(row);
}

export function decodeMeta(row: string): Meta {
  const meta: Meta = JSON.parse(row);
  assert(meta.format === STATE_FORMAT, `state format ${meta.format}, this program reads ${STATE_FORMAT}`);
  for (const [name, value] of Object.entries(meta)) assertCounter(value, `meta.${name}`);
  assert(meta.compactRevision <= meta.revision, `compacted ${meta.compactRevision} above revision ${meta.revision}`);
  assert(meta.removedRevision <= meta.compactRevision, `removed ${meta.removedRevision} above ${meta.compactRevision}`);
  return meta;
}

export function encodeMeta(meta: Readonly<Meta>): string {
  return JSON.stringify(meta);
}

export function writeMeta(store: OrderedStore, meta: Meta): void {
  store.put(META_ROW, encodeMeta(meta));
}

/** What a command works on while it is undecided. */
export interface Draft {
  /** Rows of the command over the machine's store; reads see its own writes. */
  readonly store: OrderedStore;
  readonly meta: Meta;
  /** The entry's time: the only clock here. */
  readonly timeMs: number;
  /** The revision that this command gets if it changes a record. */
  readonly revision: number;
  /** In op order; the position of an event is its op index. */
  readonly events: ChangeEvent[];
}

/** What a read may look at. `Draft.meta` before the command's revision is taken has the same shape. */
export interface View {
  readonly store: OrderedStore;
  readonly meta: Readonly<Pick<Meta, "revision" | "compactRevision" | "leaseFloorMs">>;
  readonly timeMs: number;
}
