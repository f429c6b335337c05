/**
 * Compaction: from now on nothing older than `revision` can be read (design 01 §1), and then the rows go.
 *
 * After compact(r) the state at r and every event with a revision > r stay available; anything that needs less is
 * refused, whatever old rows are still there. Rows are removed by commands of their own, in chunks, under these rules, on
 * which reads.ts relies:
 * D1. For each key, the last version at or below r stays if it is a put, with its history row.
 * D2. A tombstone at or below r goes only after every older version of its key (else an older put would reappear).
 * D3. The current revision is in the meta row and is never derived from the rows that are left (S51).
 *
 * Removal passes once over the log up to r, oldest first; its position is in the meta row, so it goes on after a restart
 * and on every node alike. At each change, the version of that key before it goes, and the change itself if it is a
 * tombstone. Behind the position there is thus only, per key, the newest put passed and nothing older:
 * D4. A version that is passed and still there has no later version that is passed. So one older version at most is to be
 * looked for at each change, and a later compaction goes on where the last one ended.
 */
import { COMPACT_REMOVE_BYTES_MAX } from "../base/limits.ts";
import type { CommandResult } from "./command.ts";
import { removeMarks } from "./history-marks.ts";
import { comparePositions, endOf, type Position } from "./position.ts";
import { keyOfHistory, readHistoryText, removeVersion } from "./records.ts";
import { refuse } from "./refusal.ts";
import { historyRow, positionOfRow, versionBounds, versionRow } from "./rows.ts";
import type { Draft, Meta } from "./state.ts";

/** Compacting what is compacted already is done, not refused: repeating the command is harmless. */
export function compact(draft: Draft, revision: number): CommandResult {
  const { meta } = draft;
  if (revision > meta.revision) {
    refuse("revision_in_future", `Revision ${revision} does not exist yet; the newest is ${meta.revision}.`, {
      revision: meta.revision,
    });
  }
  if (revision > meta.compactRevision) meta.compactRevision = revision;
  return { kind: "compact", compact_revision: meta.compactRevision };
}

/** True while rows at or below the compacted revision have not been passed. */
export function isRemovalPending(meta: Readonly<Meta>): boolean {
  return comparePositions(removedUpTo(meta), endOf(meta.compactRevision)) < 0;
}

/** Removal has passed every change up to here. */
export function removedUpTo(meta: Readonly<Meta>): Position {
  return { revision: meta.removedRevision, opIndex: meta.removedOpIndex };
}

/**
 * Whether an entry removes history. A node lets its watches catch up with what it has applied before it applies such an
 * entry: they may still look for the version before a change that they have not sent (watch/history-view.ts H4). May say
 * yes for another small command that holds the word.
 */
export function removesHistory(payload: string): boolean {
  return payload.length <= REMOVAL_PAYLOAD_MAX && payload.includes('"compact_remove"');
}

/** The command is far shorter; a large payload need not be searched. */
const REMOVAL_PAYLOAD_MAX = 1024;

/** Rows fetched per step: each may be 1.4 MB. */
const REMOVAL_STEP_ROWS = 16;

/** Passes at most `rowsMax` changes, fewer where they are large; when nothing is pending it does nothing. */
export function removeCompacted(draft: Draft, rowsMax: number): CommandResult {
  const { meta } = draft;
  const before = removedUpTo(meta);
  let passed = before;
  let removed = 0;
  let rowsLeft = rowsMax;
  let bytesLeft = COMPACT_REMOVE_BYTES_MAX;
  while (comparePositions(passed, endOf(meta.compactRevision)) < 0 && rowsLeft > 0 && bytesLeft > 0) {
    const limit = Math.min(rowsLeft, REMOVAL_STEP_ROWS);
    const start = `${historyRow(passed.revision, passed.opIndex)}\u0001`;
    const rows = draft.store.scan({ start, end: historyRow(meta.compactRevision + 1, 0), limit });
    for (const [row, text] of rows) {
      const [revision, opIndex] = positionOfRow(row);
      passed = { revision, opIndex };
      removed += passChange(draft, passed, text);
      rowsLeft -= 1;
      bytesLeft -= text.length;
      if (bytesLeft <= 0) break;
    }
    if (rows.length < limit && bytesLeft > 0) passed = endOf(meta.compactRevision);
  }
  meta.removedRevision = passed.revision;
  meta.removedOpIndex = passed.opIndex;
  removeMarks(draft, before.revision, passed.revision);
  return { kind: "compact_remove", removed, done: !isRemovalPending(meta) };
}

/** Removes what the change at `position` makes superfluous (D1, D2); answers how many versions went. */
function passChange(draft: Draft, position: Position, text: string): number {
  const { store } = draft;
  const key = keyOfHistory(text);
  let removed = 0;
  const start = versionBounds(key, 0, 0).start;
  const end = versionRow(key, position.revision, position.opIndex);
  const [older] = store.scan({ start, end, limit: 1, reverse: true });
  if (older !== undefined) {
    const [revision, opIndex] = positionOfRow(older[0]);
    removeVersion(draft, key, { revision, opIndex }, readHistoryText(store, revision, opIndex));
    removed += 1;
  }
  if (text.startsWith("d")) {
    removeVersion(draft, key, position, text);
    removed += 1;
  }
  return removed;
}
