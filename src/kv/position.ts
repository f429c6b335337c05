/**
 * Positions in history: (revision, op_index) of the last event that has been seen (design 01 §4).
 *
 * P1. A position with `opIndex` REVISION_END says that the whole revision, and all before it, has been seen; it is how a
 *     position stands between two revisions. Any other op index means that the revision may go on.
 */
import { assert } from "../base/assert.ts";
import { DELETE_KEYS_MAX, OPERATIONS_PER_BRANCH_MAX } from "../base/limits.ts";

export interface Position {
  readonly revision: number;
  readonly opIndex: number;
}

/** Behind every op index of a revision; the largest that a row key can carry (rows.ts). */
export const REVISION_END = 99_999;

assert(DELETE_KEYS_MAX + OPERATIONS_PER_BRANCH_MAX < REVISION_END, "no event has the op index of the end");

/** The position behind all events of `revision`. */
export function endOf(revision: number): Position {
  return { revision, opIndex: REVISION_END };
}

export function isWhole(position: Position): boolean {
  return position.opIndex === REVISION_END;
}

/** For what clients send: the numbers of a position are in range. */
export function isPosition(position: Position): boolean {
  const { revision, opIndex } = position;
  return (
    Number.isSafeInteger(revision) &&
    revision >= 0 &&
    Number.isInteger(opIndex) &&
    opIndex >= 0 &&
    opIndex <= REVISION_END
  );
}

/** Negative, zero or positive, like the positions themselves. */
export function comparePositions(left: Position, right: Position): number {
  return left.revision === right.revision ? left.opIndex - right.opIndex : left.revision - right.revision;
}

export function laterOf(left: Position, right: Position): Position {
  return comparePositions(left, right) >= 0 ? left : right;
}

/** True when nothing behind `position` has been compacted: after compact(r) every event with revision > r is there. */
export function isAvailable(position: Position, compactRevision: number): boolean {
  return comparePositions(position, endOf(compactRevision)) >= 0;
}

export function positionOf(event: { readonly revision: number; readonly op_index: number }): Position {
  return { revision: event.revision, opIndex: event.op_index };
}
