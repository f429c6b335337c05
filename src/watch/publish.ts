/**
 * News for the hub: events of a revision that this node has just applied, and changes of the node itself.
 *
 * A watcher never makes a commit wait: publishing only finds the watches that match and notes references.
 */
import { assert } from "../base/assert.ts";
import type { ChangeEvent } from "../kv/command.ts";
import { comparePositions, endOf, isAvailable } from "../kv/position.ts";
import { forgetLag, suspect } from "./credit.ts";
import { type SharedEvent, shareEvent, weightOf } from "./encoded-event.ts";
import type { HistoryView } from "./history-view.ts";
import { endWatch, everyWatch, type Hub, leaveLive, promoteFuture, sentPosition } from "./hub.ts";
import { type Watch, wantsType } from "./watch.ts";

/** Events of one applied command, in op order; none if it changed nothing. Call it for every applied entry, in order. */
export function publish(hub: Hub, events: readonly ChangeEvent[]): void {
  const [first] = events;
  if (first === undefined) return;
  const { revision } = first;
  assert(revision > hub.revision, `revision ${revision} published after ${hub.revision}`);
  for (const event of events) {
    assert(event.revision === revision, `event of revision ${event.revision} among those of ${revision}`);
    offer(hub, event);
  }
  hub.revision = revision;
  promoteFuture(hub);
}

function offer(hub: Hub, event: ChangeEvent): void {
  let shared: SharedEvent | undefined;
  hub.index.match(event.key, (watch) => {
    if (!wantsType(watch, event)) return;
    if (watch.phase === "live") {
      shared ??= shareEvent(event);
      if (hub.freshCount < hub.limits.freshEventsMax) {
        watch.fresh.push(shared);
        hub.freshCount += 1;
        hub.touched.add(watch);
      } else dropFresh(hub, watch);
    } else if (watch.lacking > 0 && watch.lagThrough === null) {
      shared ??= shareEvent(event);
      addLag(hub, watch, shared);
    }
  });
}

/** Too many references in one turn: the watch reads them from history instead. */
function dropFresh(hub: Hub, watch: Watch): void {
  leaveLive(hub, watch, sentPosition(hub, watch));
  hub.freshCount -= watch.fresh.length;
  watch.fresh = [];
  forgetLag(watch);
  hub.replaying.add(watch);
}

function addLag(hub: Hub, watch: Watch, shared: SharedEvent): void {
  watch.lagEvents += 1;
  watch.lagBytes += weightOf(hub.encode, shared, watch.shape);
  suspect(hub, watch);
}

/** Tells every connection that another node leads now, or none does. Watches go on. */
export function announceLeader(hub: Hub, leader: number | null): void {
  hub.pending = hub.pending.filter((frame) => frame.kind !== "leader_changed");
  for (const connection of hub.connections.keys()) hub.pending.push({ kind: "leader_changed", connection, leader });
}

/**
 * The node has installed a snapshot: its revision jumped without events. Who can read on in the new history does so;
 * who cannot is told to list again (`resync`). The revision never falls.
 */
export function adoptSnapshot(hub: Hub, view: HistoryView): void {
  assert(view.revision >= hub.revision, `a snapshot at ${view.revision} after ${hub.revision}`);
  assert(hub.touched.size === 0, "events are pumped before a snapshot is installed");
  const { revision, compactRevision } = view;
  const watches = everyWatch(hub).map((watch) => ({ watch, position: sentPosition(hub, watch) }));
  hub.sweep = null;
  hub.revision = revision;
  for (const { watch, position } of watches) {
    if (watch.phase === "future") continue;
    if (!isAvailable(position, compactRevision)) {
      endWatch(hub, watch);
      hub.pending.push({ kind: "resync", connection: watch.connection, watchId: watch.id, revision });
    } else if (watch.phase === "live") {
      if (comparePositions(position, endOf(revision)) < 0) {
        leaveLive(hub, watch, position);
        forgetLag(watch);
        hub.replaying.add(watch);
      }
    } else {
      watch.position = position;
      forgetLag(watch);
      if (watch.lacking === 0 && !hub.starved.has(watch)) hub.replaying.add(watch);
      suspect(hub, watch);
    }
  }
  hub.compactRevision = compactRevision;
  promoteFuture(hub);
}

/** The node belongs to another cluster now: every watch ends, and the revisions start anew. */
export function changeCluster(hub: Hub, revision: number): void {
  for (const watch of everyWatch(hub)) {
    endWatch(hub, watch);
    hub.pending.push({ kind: "cluster_changed", connection: watch.connection, watchId: watch.id });
  }
  hub.sweep = null;
  hub.revision = revision;
  hub.compactRevision = 0;
}
