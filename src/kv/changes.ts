/**
 * The pull side of sync: one page of events behind a position (design 01 §4, `changes`).
 */
import { ConcordError } from "../base/errors.ts";
import type { ChangeEvent, Selector } from "./command.ts";
import type { Visit, Walked, WalkRequest } from "./history-walk.ts";
import { comparePositions, endOf, isAvailable, isPosition, type Position } from "./position.ts";
import { replyBytes } from "./records.ts";

/** Rows of history looked at for one page. */
const CHANGES_ROWS_MAX = 4096;

/** History as a page needs it; a watch's view of it (watch/history-view.ts) has this shape. */
export interface ChangeLog {
  readonly revision: number;
  readonly compactRevision: number;
  walk(request: WalkRequest, visit: Visit): Walked;
}

export interface ChangesRequest {
  readonly selector: Selector;
  /** `endOf(r)` asks for everything with a revision > r. */
  readonly after: Position;
  readonly limit: number;
  /** What the events weigh in a reply; the page holds at least one event if there is one. */
  readonly bytesMax: number;
}

export interface ChangesPage {
  readonly events: readonly ChangeEvent[];
  /**
   * Where the next page begins. `isWhole(next)` is false when the page ends inside a revision. It may have moved although
   * the page is empty: a page looks at a bounded number of rows.
   */
  readonly next: Position;
  /** False when `next` has reached the revision of this node. */
  readonly hasMore: boolean;
}

/** @throws ConcordError `invalid_request`, `compacted`, `revision_in_future` */
export function readChanges(log: ChangeLog, request: ChangesRequest): ChangesPage {
  const { selector, after, limit, bytesMax } = request;
  if (!isPosition(after)) {
    const detail = `There is no position (${after.revision}, ${after.opIndex}).`;
    throw new ConcordError({ code: "invalid_request", reason: "invalid_position", detail });
  }
  if (!isAvailable(after, log.compactRevision)) {
    throw new ConcordError({
      code: "compacted",
      detail: `Events at or below revision ${log.compactRevision} are compacted.`,
      compact_revision: log.compactRevision,
    });
  }
  if (after.revision > log.revision) {
    throw new ConcordError({
      code: "revision_in_future",
      detail: `Revision ${after.revision} does not exist yet; the newest is ${log.revision}.`,
      revision: log.revision,
    });
  }
  const events: ChangeEvent[] = [];
  let bytes = 0;
  const { next } = log.walk({ selector, after, rowsMax: CHANGES_ROWS_MAX }, (event, _characters, text) => {
    const eventBytes = replyBytes(text, false);
    if (events.length >= limit || (events.length > 0 && bytes + eventBytes > bytesMax)) return false;
    events.push(event);
    bytes += eventBytes;
    return true;
  });
  return { events, next, hasMore: comparePositions(next, endOf(log.revision)) < 0 };
}
