/**
 * What a pump hands out, and how events are cut into frames.
 *
 * F1. A frame with `complete` holds whole revisions: everything that the watch wants up to `position`, which then stands
 *     behind a whole revision. It also ends the parts that came before it.
 * F2. A frame without `complete` is a part: events of one revision, which goes on in the next frame.
 * F3. `position` is what the client acknowledges and what it resumes after; nothing else is needed to have no gap and no
 *     repeat.
 */

import { endOf, type Position, positionOf } from "../kv/position.ts";
import type { EncodedEvent } from "./encoded-event.ts";
import { FRAME_OVERHEAD_BYTES } from "./limits.ts";

interface OfWatch {
  readonly connection: string;
  readonly watchId: number;
}

export interface EventsFrame extends OfWatch {
  readonly kind: "events";
  /** Empty only as the end mark of a revision whose other parts have been sent. */
  readonly events: readonly EncodedEvent[];
  readonly complete: boolean;
  readonly position: Position;
  readonly bytes: number;
}

export type Frame =
  | EventsFrame
  /** History is replayed: every event <= `revision` has been sent, and what comes now is live. Once per watch. */
  | ({ readonly kind: "ready"; readonly revision: number; readonly position: Position } & OfWatch)
  /** Every event <= `revision` has been sent. */
  | ({ readonly kind: "progress"; readonly revision: number; readonly position: Position } & OfWatch)
  /** The last frame of its watch, each of these four. */
  | ({ readonly kind: "compacted"; readonly compactRevision: number } & OfWatch)
  | ({ readonly kind: "slow_consumer"; readonly position: Position } & OfWatch)
  | ({ readonly kind: "resync"; readonly revision: number } & OfWatch)
  | ({ readonly kind: "cluster_changed" } & OfWatch)
  /** Of a connection, not of a watch: its watches go on. */
  | { readonly kind: "leader_changed"; readonly connection: string; readonly leader: number | null };

/** A frame in the making. */
export interface FrameDraft {
  readonly bytesMax: number;
  readonly bytesTarget: number;
  /** What the watch may still be sent; infinite when it owes nothing. */
  readonly room: number;
  /** Events of complete revisions. */
  readonly whole: EncodedEvent[];
  wholeBytes: number;
  /** Events of the revision that is being read. */
  open: EncodedEvent[];
  openBytes: number;
  /** Bytes that the frame would need when they are over the room; 0 = it fits. */
  lacking: number;
}

export function draftFrame(bounds: {
  readonly bytesMax: number;
  readonly bytesTarget: number;
  readonly room: number;
}): FrameDraft {
  return { ...bounds, whole: [], wholeBytes: 0, open: [], openBytes: 0, lacking: 0 };
}

/** Takes the next event, or refuses it: then the frame is as large as it gets, or does not fit the room at all. */
export function acceptEvent(draft: FrameDraft, encoded: EncodedEvent): boolean {
  const [first] = draft.open;
  if (first !== undefined && encoded.event.revision > first.event.revision) {
    seal(draft);
    if (draft.wholeBytes >= draft.bytesTarget) return false;
  }
  const bytes = FRAME_OVERHEAD_BYTES + draft.wholeBytes + draft.openBytes + encoded.bytes;
  if (draft.whole.length > 0) {
    if (bytes > Math.min(draft.bytesMax, draft.room)) return false;
  } else {
    if (draft.open.length > 0 && bytes > draft.bytesMax) return false;
    if (bytes > draft.room) {
      // The revision would fit a frame of its own: it waits for credit rather than being sent in parts.
      draft.lacking = bytes;
      return false;
    }
  }
  draft.open.push(encoded);
  draft.openBytes += encoded.bytes;
  return true;
}

function seal(draft: FrameDraft): void {
  for (const encoded of draft.open) draft.whole.push(encoded);
  draft.wholeBytes += draft.openBytes;
  draft.open = [];
  draft.openBytes = 0;
}

export interface Cut {
  readonly events: readonly EncodedEvent[];
  readonly complete: boolean;
  readonly position: Position;
  readonly bytes: number;
  /** Accepted events that are not in the frame; they come again. */
  readonly dropped: number;
}

/** The frame of a draft whose source is read up to `through`, which stands behind a whole revision. */
export function cutAll(draft: FrameDraft, through: Position): Cut {
  seal(draft);
  const bytes = FRAME_OVERHEAD_BYTES + draft.wholeBytes;
  return { events: draft.whole, complete: true, position: through, bytes, dropped: 0 };
}

/** The frame of a draft that refused the event of `refusedRevision`; null when the room is lacking. */
export function cutBefore(draft: FrameDraft, refusedRevision: number): Cut | null {
  if (draft.lacking > 0) return null;
  if (draft.whole.length > 0) {
    const next = draft.open[0]?.event.revision ?? refusedRevision;
    const bytes = FRAME_OVERHEAD_BYTES + draft.wholeBytes;
    return { events: draft.whole, complete: true, position: endOf(next - 1), bytes, dropped: draft.open.length };
  }
  const last = draft.open[draft.open.length - 1];
  if (last === undefined) return null;
  const bytes = FRAME_OVERHEAD_BYTES + draft.openBytes;
  return { events: draft.open, complete: false, position: positionOf(last.event), bytes, dropped: 0 };
}
