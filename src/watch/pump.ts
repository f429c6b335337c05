/**
 * One pump: everything that the hub can send now, within bounds (design 01 §4). The runtime calls it at the end of a turn
 * in which it published, applied, or took a request of a watcher, and again while `more`.
 *
 * U1. Frames of one watch stand in the order in which they must be sent.
 * U2. `progress(r)` and `ready(r)` come only after every event <= r that the watch wants.
 * U3. A hub with nothing to send says so (`more` false, `wakeAtMs` infinite): the node may sleep, its sockets may
 *     hibernate, and no watch is the worse for it.
 */
import { assert } from "../base/assert.ts";
import { endOf, isAvailable, laterOf } from "../kv/position.ts";
import { charge, roomOf } from "./credit.ts";
import { deliverFresh, expireCompacted, type Pump, sendReady, tell } from "./delivery.ts";
import type { Frame } from "./frames.ts";
import type { HistoryView } from "./history-view.ts";
import { everyWatch, type Hub, hasWork, sentPosition } from "./hub.ts";
import { FRAME_OVERHEAD_BYTES } from "./limits.ts";
import { replay } from "./replay.ts";
import { endSlowConsumers } from "./slow-consumers.ts";
import type { Watch } from "./watch.ts";

export interface Pumped {
  readonly frames: readonly Frame[];
  /** Connections of clients that take nothing: they are to be closed behind these frames. */
  readonly silent: readonly string[];
  /** There is more to do now: pump again in a turn of its own, soon. */
  readonly more: boolean;
  /** Pump again at this time at the latest; infinite = only when something happens. */
  readonly wakeAtMs: number;
}

/** Share of a pump's bytes that live events leave for those who catch up. */
const REPLAY_SHARE = 1 / 4;
const PROGRESS_CHECK_MS = 1000;
/** Thousands of quiet watches may be due at once. */
const PROGRESS_PER_PUMP_MAX = 256;

/** `view`: the state of this node at the revision that was published last. */
export function pump(hub: Hub, view: HistoryView, nowMs: number): Pumped {
  assert(view.revision === hub.revision, `pump at revision ${view.revision}, published ${hub.revision}`);
  const { pumpBytesMax, pumpRowsMax } = hub.limits;
  const state: Pump = {
    hub,
    view,
    nowMs,
    frames: hub.pending,
    bytes: 0,
    bytesMax: pumpBytesMax * (1 - REPLAY_SHARE),
    rows: pumpRowsMax,
  };
  hub.pending = [];
  if (view.compactRevision > hub.compactRevision) expireAllCompacted(state);
  announceReady(state);
  for (const watch of [...hub.touched]) deliverFresh(state, watch);
  hub.touched.clear();
  state.bytesMax = pumpBytesMax;
  replay(state);
  announceReady(state);
  sendProgress(state);
  const silent = endSlowConsumers(state);
  assert(hub.freshCount === 0, `${hub.freshCount} events wait as copies`);
  return { frames: state.frames, silent, more: hasWork(hub), wakeAtMs: hub.silenceCheckAtMs };
}

/** Everybody whose history is gone. Live watches have all of it and are told so below (`sendProgress`). */
function expireAllCompacted(pump: Pump): void {
  const { hub, view } = pump;
  for (const watch of everyWatch(hub)) {
    if (watch.phase !== "live" && !isAvailable(sentPosition(hub, watch), view.compactRevision)) {
      expireCompacted(pump, watch);
    }
  }
  if (hub.sweep !== null) hub.sweep.cursor = laterOf(hub.sweep.cursor, endOf(view.compactRevision));
}

function announceReady(pump: Pump): void {
  const { hub } = pump;
  for (const watch of [...hub.announcing]) {
    if (watch.ready) continue;
    // In front of what was published since it came: its events follow.
    sendReady(pump, watch, sentPosition(hub, watch).revision);
    if (!watch.progressWanted) hub.announcing.delete(watch);
  }
}

function sendProgress(pump: Pump): void {
  const { hub } = pump;
  findDueProgress(pump);
  let left = PROGRESS_PER_PUMP_MAX;
  for (const watch of [...hub.announcing]) {
    if (left <= 0) return; // `hasWork` sees the rest
    left -= 1;
    hub.announcing.delete(watch);
    // Without credit it is sent when the client has acknowledged and the watch has caught up again.
    if (sendProgressTo(pump, watch)) watch.progressWanted = false;
  }
}

/** Quiet watches whose clients hold an old position: before it is compacted away, and now and then. */
function findDueProgress(pump: Pump): void {
  const { hub, view, nowMs } = pump;
  const { progressRevisions, progressMs } = hub.limits;
  const due: Watch[] = [];
  if (view.compactRevision > hub.compactRevision) {
    hub.compactRevision = view.compactRevision;
    due.push(...hub.told.below(view.compactRevision));
  }
  if (nowMs >= hub.progressCheckAtMs) {
    hub.progressCheckAtMs = nowMs + PROGRESS_CHECK_MS;
    const old = hub.told.below(hub.revision - progressRevisions + 1);
    due.push(...old.filter((watch) => nowMs - watch.toldAtMs >= progressMs));
  }
  for (const watch of due) {
    watch.progressWanted = true;
    hub.announcing.add(watch);
  }
}

/** False when the watch has no credit: a client that does not read is not sent more. */
function sendProgressTo(pump: Pump, watch: Watch): boolean {
  const { hub, nowMs } = pump;
  const { connection, id } = watch;
  if (roomOf(hub, watch) < FRAME_OVERHEAD_BYTES) return false;
  const { revision } = hub;
  charge(hub, watch, endOf(revision), FRAME_OVERHEAD_BYTES, nowMs);
  pump.frames.push({ kind: "progress", connection, watchId: id, revision, position: endOf(revision) });
  tell(hub, watch, revision, nowMs);
  return true;
}
