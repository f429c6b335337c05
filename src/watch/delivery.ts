/**
 * From events to frames: what a watch gets in this pump, and what becomes of a watch that cannot get all of it.
 */
import { assert } from "../base/assert.ts";
import { comparePositions, endOf, isWhole, type Position, positionOf } from "../kv/position.ts";
import { charge, forgetLag, nodeHasRoom, roomOf, waitForClient, waitForNode } from "./credit.ts";
import { type EncodedEvent, encodeShared, type SharedEvent, weightOf } from "./encoded-event.ts";
import { acceptEvent, type Cut, cutAll, cutBefore, draftFrame, type Frame, type FrameDraft } from "./frames.ts";
import type { HistoryView } from "./history-view.ts";
import { endWatch, enterLive, type Hub, leaveLive } from "./hub.ts";
import { FRAME_OVERHEAD_BYTES } from "./limits.ts";
import type { Watch } from "./watch.ts";

/** One pump under way. */
export interface Pump {
  readonly hub: Hub;
  readonly view: HistoryView;
  readonly nowMs: number;
  readonly frames: Frame[];
  /** Bytes of events frames so far, and where this pump stops making more. */
  bytes: number;
  bytesMax: number;
  /** Rows of history that this pump may still look at. */
  rows: number;
}

/** `all`: sent. `client`, `node`: waits for credit. `pump`: this pump has made enough; the next one goes on. */
export type Delivered = "all" | "client" | "node" | "pump";

export function draftFor(pump: Pump, watch: Watch): FrameDraft {
  const { frameBytesMax, frameBytesTarget } = pump.hub.limits;
  return draftFrame({ bytesMax: frameBytesMax, bytesTarget: frameBytesTarget, room: roomOf(pump.hub, watch) });
}

export function encodeFor(pump: Pump, watch: Watch, shared: SharedEvent): EncodedEvent {
  return encodeShared(pump.hub.encode, pump.view, shared, watch.shape);
}

/**
 * Sends events that are in memory, the next ones behind what the watch has. `through` stands behind a whole revision
 * and behind the last of them. Unless all are sent, `watch.position` says how far it went.
 */
export function deliver(pump: Pump, watch: Watch, events: readonly SharedEvent[], through: Position): Delivered {
  let index = 0;
  for (;;) {
    if (pump.bytes >= pump.bytesMax) return "pump";
    const draft = draftFor(pump, watch);
    let refused: SharedEvent | undefined;
    for (; index < events.length; index += 1) {
      const shared = events[index];
      if (shared === undefined || acceptEvent(draft, encodeFor(pump, watch, shared))) continue;
      refused = shared;
      break;
    }
    const cut = refused === undefined ? cutAll(draft, through) : cutBefore(draft, refused.event.revision);
    const sent = sendCut(pump, watch, cut, draft);
    if (sent !== "all") return sent;
    if (refused === undefined) return "all";
    index -= cut?.dropped ?? 0;
  }
}

/** Sends what was cut, if the credit allows, and moves the watch there. */
export function sendCut(pump: Pump, watch: Watch, cut: Cut | null, draft: FrameDraft): Delivered {
  const { hub } = pump;
  if (cut === null) {
    watch.lacking = draft.lacking;
    return "client";
  }
  const { events, complete, position, bytes } = cut;
  if (events.length > 0) {
    if (!nodeHasRoom(hub, bytes)) return "node";
    // Parts of one revision never follow parts of another without an end mark.
    const [first] = events;
    if (!complete && first !== undefined && first.event.revision > watch.position.revision) sendEndMark(pump, watch);
    sendEvents(pump, watch, cut);
  } else if (complete && !isWhole(watch.position)) sendEndMark(pump, watch);
  watch.position = position;
  return "all";
}

function sendEvents(pump: Pump, watch: Watch, cut: Cut): void {
  const { hub, nowMs } = pump;
  const { events, complete, position, bytes } = cut;
  const last = events[events.length - 1];
  assert(last !== undefined, "a frame of events is not empty");
  charge(hub, watch, positionOf(last.event), bytes, nowMs);
  pump.bytes += bytes;
  pump.frames.push({
    kind: "events",
    connection: watch.connection,
    watchId: watch.id,
    events,
    complete,
    position,
    bytes,
  });
  if (complete) tell(hub, watch, position.revision, nowMs);
}

/** Ends a revision of which parts were sent, when nothing of it is left. Weighs too little to wait for credit. */
function sendEndMark(pump: Pump, watch: Watch): void {
  if (isWhole(watch.position)) return;
  const { revision } = watch.position;
  pump.frames.push({
    kind: "events",
    connection: watch.connection,
    watchId: watch.id,
    events: [],
    complete: true,
    position: endOf(revision),
    bytes: FRAME_OVERHEAD_BYTES,
  });
  watch.position = endOf(revision);
  tell(pump.hub, watch, revision, pump.nowMs);
}

/** The client knows, or will, that everything up to `revision` was sent. */
export function tell(hub: Hub, watch: Watch, revision: number, nowMs: number): void {
  watch.toldAtMs = nowMs;
  if (watch.phase === "live") hub.told.move(watch, revision);
  else watch.toldRevision = revision;
}

/** Sends what `publish` gathered for a live watch. What does not get through, the watch reads from history later. */
export function deliverFresh(pump: Pump, watch: Watch): void {
  const { hub } = pump;
  const fresh = takeFresh(hub, watch);
  const [first] = fresh;
  if (first === undefined) return;
  watch.position = endOf(first.event.revision - 1);
  const delivered = deliver(pump, watch, fresh, endOf(hub.revision));
  if (delivered === "all") return;
  leaveLive(hub, watch, watch.position);
  const unsent = fresh.filter(({ event }) => comparePositions(positionOf(event), watch.position) > 0);
  stop(pump, watch, delivered, unsent);
}

export function takeFresh(hub: Hub, watch: Watch): SharedEvent[] {
  const { fresh } = watch;
  hub.freshCount -= fresh.length;
  watch.fresh = [];
  return fresh;
}

/** Queues a watch that is behind for what it waits for. `unsent`: all that it is behind by; null = nobody knows. */
export function stop(
  pump: Pump,
  watch: Watch,
  delivered: Exclude<Delivered, "all">,
  unsent: readonly SharedEvent[] | null,
): void {
  const { hub } = pump;
  assert(watch.phase === "behind", `watch ${watch.id} is ${watch.phase} and stops`);
  forgetLag(watch);
  if (unsent !== null) {
    watch.lagThrough = null;
    for (const shared of unsent) {
      watch.lagEvents += 1;
      watch.lagBytes += weightOf(hub.encode, shared, watch.shape);
    }
  }
  if (delivered === "client") waitForClient(hub, watch);
  else if (delivered === "node") waitForNode(hub, watch);
  else hub.replaying.add(watch);
}

/** The watch has everything: from here on it is live. */
export function catchUp(pump: Pump, watch: Watch): void {
  const { hub } = pump;
  assert(isWhole(watch.position), `watch ${watch.id} is inside revision ${watch.position.revision} and live`);
  hub.replaying.delete(watch);
  enterLive(hub, watch);
  if (!watch.ready || watch.progressWanted) hub.announcing.add(watch);
}

export function sendReady(pump: Pump, watch: Watch, revision: number): void {
  const { connection, id } = watch;
  watch.ready = true;
  pump.frames.push({ kind: "ready", connection, watchId: id, revision, position: endOf(revision) });
  tell(pump.hub, watch, revision, pump.nowMs);
}

/** The last frame of a watch. */
export function expire(pump: Pump, watch: Watch, frame: Frame): void {
  endWatch(pump.hub, watch);
  pump.frames.push(frame);
}

export function expireCompacted(pump: Pump, watch: Watch): void {
  const { connection, id } = watch;
  const { compactRevision } = pump.view;
  expire(pump, watch, { kind: "compacted", connection, watchId: id, compactRevision });
}
