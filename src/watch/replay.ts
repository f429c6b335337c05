/**
 * Watches that are behind read history, a bounded number of rows per pump, and take turns.
 *
 * Y1. Who is far behind reads alone, through its selector. Who is near reads with others: one walk of the log (the
 *     sweep) from the lowest position among them serves them all, so a thousand watches that come back at once cost one.
 * Y2. Before any read the position is checked against the compacted revision.
 */
import type { ChangeEvent } from "../kv/command.ts";
import { comparePositions, endOf, isAvailable, isWhole, laterOf, type Position, positionOf } from "../kv/position.ts";
import {
  catchUp,
  deliver,
  draftFor,
  encodeFor,
  expireCompacted,
  type Pump,
  sendCut,
  stop,
  takeFresh,
} from "./delivery.ts";
import { shareEvent } from "./encoded-event.ts";
import { acceptEvent, cutAll, cutBefore } from "./frames.ts";
import { type Watch, wantsType } from "./watch.ts";

const EVERYTHING = { prefix: "" };
/** Watches of single keys have an index and read alone, unless so many are near that one walk is cheaper. */
const KEYS_ALONE_MAX = 16;
/** Characters of rows that one step of the sweep holds. */
const SWEEP_STEP_CHARACTERS = 1 << 20;

/** Lets the waiting ones read until rows or bytes of this pump are used up. */
export function replay(pump: Pump): void {
  const { hub } = pump;
  const turns = [...hub.replaying];
  const crowded = turns.length > KEYS_ALONE_MAX;
  for (const watch of turns) {
    if (pump.rows <= 0 || pump.bytes >= pump.bytesMax) return;
    if (!hub.replaying.has(watch)) continue; // it joined the sweep since the turns were listed
    if (!isNear(pump, watch, crowded)) readAlone(pump, watch);
    else if (hub.sweep === null) startSweep(pump, crowded);
    if (hub.sweep !== null) stepSweep(pump);
  }
  while (hub.sweep !== null && pump.rows > 0 && pump.bytes < pump.bytesMax) stepSweep(pump);
}

function isNear(pump: Pump, watch: Watch, crowded: boolean): boolean {
  const { hub } = pump;
  // Who is inside a revision owes an end mark, which only its own reading tells when to send.
  if (!isWhole(watch.position)) return false;
  if (hub.revision - watch.position.revision > hub.limits.nearRevisions) return false;
  return crowded || !("key" in watch.selector);
}

function readAlone(pump: Pump, watch: Watch): void {
  const { hub, view } = pump;
  if (!isAvailable(watch.position, view.compactRevision)) {
    expireCompacted(pump, watch);
    return;
  }
  hub.replaying.delete(watch);
  const draft = draftFor(pump, watch);
  let refused: ChangeEvent | undefined;
  const rowsMax = Math.min(hub.limits.sliceRowsMax, pump.rows);
  const walked = view.walk({ selector: watch.selector, after: watch.position, rowsMax }, (event) => {
    if (!wantsType(watch, event) || acceptEvent(draft, encodeFor(pump, watch, shareEvent(event)))) return true;
    refused = event;
    return false;
  });
  pump.rows -= Math.max(1, walked.rows);
  const cut = refused === undefined ? cutAll(draft, walked.next) : cutBefore(draft, refused.revision);
  const sent = sendCut(pump, watch, cut, draft);
  if (sent !== "all") stop(pump, watch, sent, null);
  else if (comparePositions(watch.position, endOf(hub.revision)) >= 0) catchUp(pump, watch);
  else hub.replaying.add(watch);
}

/** Gathers everybody who is near. Those that come later wait for the next sweep. */
function startSweep(pump: Pump, crowded: boolean): void {
  const { hub, view } = pump;
  const members = new Set<Watch>();
  let cursor: Position = endOf(hub.revision);
  for (const watch of [...hub.replaying]) {
    if (!isNear(pump, watch, crowded)) continue;
    if (!isAvailable(watch.position, view.compactRevision)) {
      expireCompacted(pump, watch);
      continue;
    }
    hub.replaying.delete(watch);
    members.add(watch);
    if (comparePositions(watch.position, cursor) < 0) cursor = watch.position;
  }
  if (members.size > 0) hub.sweep = { cursor, members };
}

function stepSweep(pump: Pump): void {
  const { hub, view } = pump;
  const { sweep } = hub;
  if (sweep === null) return;
  const touched = new Set<Watch>();
  const from = sweep.cursor;
  let characters = 0;
  let revision = from.revision;
  const rowsMax = Math.min(hub.limits.sliceRowsMax, Math.max(1, pump.rows));
  const walked = view.walk({ selector: EVERYTHING, after: from, rowsMax }, (event, eventCharacters) => {
    // Only between revisions: what is gathered must be whole.
    if (event.revision > revision && characters >= SWEEP_STEP_CHARACTERS) return false;
    revision = event.revision;
    characters += eventCharacters;
    offer(pump, event, sweep.members, touched);
    return true;
  });
  pump.rows -= Math.max(1, walked.rows);
  for (const watch of touched) {
    watch.position = laterOf(watch.position, from);
    const delivered = deliver(pump, watch, takeFresh(hub, watch), walked.next);
    if (delivered === "all") continue;
    sweep.members.delete(watch);
    stop(pump, watch, delivered, null);
  }
  sweep.cursor = walked.next;
  if (comparePositions(sweep.cursor, endOf(hub.revision)) >= 0) {
    hub.sweep = null;
    for (const watch of sweep.members) catchUp(pump, watch);
  } else if (sweep.members.size === 0) hub.sweep = null;
}

function offer(pump: Pump, event: ChangeEvent, members: ReadonlySet<Watch>, touched: Set<Watch>): void {
  const { hub } = pump;
  const shared = shareEvent(event);
  const position = positionOf(event);
  hub.index.match(event.key, (watch) => {
    if (!members.has(watch) || !wantsType(watch, event)) return;
    if (comparePositions(position, watch.position) <= 0) return;
    watch.fresh.push(shared);
    hub.freshCount += 1;
    touched.add(watch);
  });
}
