/**
 * History marks: now and then a row that says when a revision was made and how much history there was up to it. They are
 * what automatic compaction aims at (design 01 §1).
 *
 * T1. The first revision that is HISTORY_MARK_REVISIONS_MAX or HISTORY_MARK_BYTES_MAX behind the last mark gets one: a
 * function of the log alone.
 * T2. Time and bytes grow with the revision, so a search may go forward and end at the first mark that is too young.
 * T3. A mark goes when removal has passed it; no target lies there.
 */
import {
  COMPACTION_HISTORY_BYTES_DEFAULT,
  COMPACTION_KEEP_MS_DEFAULT,
  COMPACTION_KEEP_REVISIONS_DEFAULT,
  HISTORY_MARK_BYTES_MAX,
  HISTORY_MARK_REVISIONS_MAX,
} from "../base/limits.ts";
import { markBounds, markRow, revisionOfMarkRow } from "./rows.ts";
import type { Draft } from "./state.ts";
import type { OrderedStore } from "./store.ts";

type MarkTuple = readonly [timeMs: number, historyBytes: number];

/** Called for each new revision, when `draft.meta.revision` is it. */
export function markHistory(draft: Draft): void {
  const { meta } = draft;
  const due =
    meta.revision - meta.markRevision >= HISTORY_MARK_REVISIONS_MAX ||
    meta.historyBytes - meta.markBytes >= HISTORY_MARK_BYTES_MAX;
  if (!due) return;
  draft.store.put(markRow(meta.revision), `[${draft.timeMs},${meta.historyBytes}]`);
  meta.markRevision = meta.revision;
  meta.markBytes = meta.historyBytes;
}

/** Removes the marks with `from` < revision <= `to`. */
export function removeMarks(draft: Draft, from: number, to: number): void {
  for (const [row] of draft.store.scan({ ...markBounds(from, to), limit: Number.MAX_SAFE_INTEGER })) {
    draft.store.delete(row);
  }
}

/** A revision or a time is enough to be kept; the bytes bound both. */
export interface CompactionPolicy {
  /** 0 = no automatic compaction. */
  readonly keepRevisions: number;
  readonly keepMs: number;
  /** Of the changes behind the target, to within the distance of two marks; 0 = no bound. */
  readonly historyBytesMax: number;
}

export const COMPACTION_POLICY: CompactionPolicy = {
  keepRevisions: COMPACTION_KEEP_REVISIONS_DEFAULT,
  keepMs: COMPACTION_KEEP_MS_DEFAULT,
  historyBytesMax: COMPACTION_HISTORY_BYTES_DEFAULT,
};

/** A machine has this shape. */
export interface HistoryMeasures {
  readonly store: OrderedStore;
  readonly revision: number;
  readonly compactRevision: number;
  readonly timeMs: number;
  readonly historyBytes: number;
}

const MARKS_PER_STEP = 64;

/**
 * The revision that the next `compact` should name, or null when everything is to be kept. Age is measured by the log's
 * time: a cluster at rest compacts nothing. Reads one row when there is nothing to do.
 */
export function compactionTarget(history: HistoryMeasures, policy: CompactionPolicy): number | null {
  if (policy.keepRevisions === 0) return null;
  const { store, revision, timeMs, historyBytes } = history;
  let target: number | null = null;
  let from = history.compactRevision;
  /** True while the history behind the last mark seen is over its bytes. */
  let over = false;
  for (let limit = 1; ; limit = MARKS_PER_STEP) {
    const rows = store.scan({ ...markBounds(from, revision), limit });
    for (const [row, text] of rows) {
      const [markMs, markBytes]: MarkTuple = JSON.parse(text);
      from = revisionOfMarkRow(row);
      const old = from <= revision - policy.keepRevisions && markMs <= timeMs - policy.keepMs;
      if (!old && !over && !isOver(policy, historyBytes - markBytes)) return target;
      target = from;
      over = isOver(policy, historyBytes - markBytes);
    }
    if (rows.length < limit) return target;
  }
}

function isOver(policy: CompactionPolicy, bytes: number): boolean {
  return policy.historyBytesMax > 0 && bytes > policy.historyBytesMax;
}
