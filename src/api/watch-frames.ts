/**
 * Watch frames as text (design 01 §4). The text of an event is made once (`encodeWatchEvent`) and shared by every watch
 * that wants that shape; a frame joins such texts and serialises no value again.
 */
import { unreachable } from "../base/assert.ts";
import type { EncodedEvent } from "../watch/encoded-event.ts";
import type { Frame } from "../watch/frames.ts";
import { positionText } from "./position-text.ts";

/** A WireWatchFrame, or what a session adds to `watch_id`. */
export function frameText(frame: Frame): string {
  switch (frame.kind) {
    case "events":
      return eventsText(frame.events, frame.complete, positionText(frame.position));
    case "ready":
    case "progress":
      return JSON.stringify({ kind: frame.kind, revision: frame.revision, position: positionText(frame.position) });
    case "compacted":
      return JSON.stringify({ kind: frame.kind, compact_revision: frame.compactRevision });
    case "slow_consumer":
      return JSON.stringify({ kind: frame.kind, position: positionText(frame.position) });
    case "resync":
      return JSON.stringify({ kind: frame.kind, revision: frame.revision });
    case "cluster_changed":
      return JSON.stringify({ kind: frame.kind });
    case "leader_changed":
      return JSON.stringify({ kind: frame.kind, leader: frame.leader });
    default:
      return unreachable(frame);
  }
}

function eventsText(events: readonly EncodedEvent[], complete: boolean, position: string): string {
  const texts = events.map(({ text }) => text).join(",");
  return `{"kind":"events","events":[${texts}],"complete":${complete},"position":"${position}"}`;
}

/** Whether nothing of its watch follows. */
export function isLastFrame(frame: Frame): boolean {
  switch (frame.kind) {
    case "compacted":
    case "slow_consumer":
    case "resync":
    case "cluster_changed":
      return true;
    default:
      return false;
  }
}
