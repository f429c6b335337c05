/**
 * The watch hub of one node: its state, and how watches come and go. The node runtime owns one record and calls it in
 * its turns; time comes in, frames go out as data (pump.ts). Nothing here is durable: selectors are kept by the edge in
 * a table, positions in the attachment of each socket (`savedPositions`, `restore`).
 *
 * B1. The hub has published every revision up to `revision`; it never falls.
 * B2. A watch sees each matching event once, in the order of (revision, op_index), from its position on, or is told
 *     that it cannot (`compacted`, `resync`, `slow_consumer`, `cluster_changed`) and ends. Silence never means loss.
 * B3. After `cancel`, `closeConnection` or a last frame, no frame of that watch is made.
 * B4. `unacknowledged` is the sum over all watches, and stays within the credit of the node.
 */
import { assert } from "../base/assert.ts";
import type { ErrorBody } from "../base/errors.ts";
import type { Selector } from "../kv/command.ts";
import { endOf, isPosition, laterOf, type Position } from "../kv/position.ts";
import { acknowledgeBytes, forgetCredit } from "./credit.ts";
import type { EncodeEvent } from "./encoded-event.ts";
import type { Frame } from "./frames.ts";
import { FutureWatches } from "./future-watches.ts";
import { checkLimits, HUB_LIMITS, type HubLimits } from "./limits.ts";
import { SelectorIndex } from "./selector-index.ts";
import { ToldRevisions } from "./told-revisions.ts";
import type { EventFilter, Watch } from "./watch.ts";

export interface Hub {
  readonly limits: HubLimits;
  readonly encode: EncodeEvent;
  revision: number;
  /** As the last pump saw it. */
  compactRevision: number;
  readonly connections: Map<string, Map<number, Watch>>;
  watchesCount: number;
  readonly index: SelectorIndex<Watch>;
  readonly future: FutureWatches;
  /** Live watches that owe a `ready` or a wanted `progress`. */
  readonly announcing: Set<Watch>;
  /** Live watches with `fresh` events, and how many these are in all. */
  readonly touched: Set<Watch>;
  freshCount: number;
  /** Behind, and may be sent something; in the order in which they take turns. */
  readonly replaying: Set<Watch>;
  /** Behind by little: one walk of the log serves them together. Null = none under way. */
  sweep: Sweep | null;
  /** Behind, and wait for credit of the node. */
  readonly starved: Set<Watch>;
  /** Wait for an acknowledgement, and may be too far behind. */
  readonly suspects: Set<Watch>;
  /** No suspect is due before this. */
  silenceCheckAtMs: number;
  progressCheckAtMs: number;
  unacknowledged: number;
  /** When each connection last acknowledged something. */
  readonly heardAtMs: Map<string, number>;
  /** Live watches by the revision that their client was told last. */
  readonly told: ToldRevisions;
  /** Frames decided between pumps. */
  pending: Frame[];
}

export interface Sweep {
  /** Behind a whole revision: members have everything up to here, or were further already. */
  cursor: Position;
  readonly members: Set<Watch>;
}

export interface WatchOptions {
  readonly connection: string;
  /** Chosen by the client; unique within the connection, 0 allowed. */
  readonly watchId: number;
  readonly selector: Selector;
  readonly includeValues: boolean;
  readonly prevValues: boolean;
  readonly filter: EventFilter | null;
}

export interface Subscription extends WatchOptions {
  /** First revision wanted; null = from now on. A future one waits. */
  readonly fromRevision: number | null;
  /** Resume behind this position; wins over `fromRevision`. */
  readonly afterPosition?: Position;
}

export interface SavedWatch {
  readonly watchId: number;
  readonly position: Position;
  readonly ready: boolean;
}

export function createHub(options: {
  /** The applied revision of the node. */
  readonly revision: number;
  readonly encode: EncodeEvent;
  readonly limits?: Partial<HubLimits>;
}): Hub {
  const limits = { ...HUB_LIMITS, ...options.limits };
  checkLimits(limits);
  return {
    limits,
    encode: options.encode,
    revision: options.revision,
    compactRevision: 0,
    connections: new Map(),
    watchesCount: 0,
    index: new SelectorIndex(),
    future: new FutureWatches(),
    announcing: new Set(),
    touched: new Set(),
    freshCount: 0,
    replaying: new Set(),
    sweep: null,
    starved: new Set(),
    suspects: new Set(),
    silenceCheckAtMs: Number.POSITIVE_INFINITY,
    progressCheckAtMs: 0,
    unacknowledged: 0,
    heardAtMs: new Map(),
    told: new ToldRevisions(),
    pending: [],
  };
}

/** Where the new watch begins (what its client may resume after, should nothing else arrive), or why there is none. */
export type Subscribed =
  | { readonly ok: true; readonly position: Position }
  | { readonly ok: false; readonly error: ErrorBody };

export function subscribe(hub: Hub, subscription: Subscription): Subscribed {
  const { fromRevision, afterPosition } = subscription;
  const from = fromRevision === null ? hub.revision : Math.max(0, fromRevision - 1);
  return addWatch(hub, subscription, { position: afterPosition ?? endOf(from), ready: false });
}

/** A watch that a former instance of this node held; `saved` is what `savedPositions` gave for it. */
export function restore(hub: Hub, options: WatchOptions, saved: Omit<SavedWatch, "watchId">): Subscribed {
  return addWatch(hub, options, saved);
}

function addWatch(hub: Hub, options: WatchOptions, saved: { position: Position; ready: boolean }): Subscribed {
  const { connection, watchId, selector, includeValues, prevValues, filter } = options;
  const error = refusalOf(hub, connection, watchId, saved.position);
  if (error !== null) return { ok: false, error };
  const watch: Watch = {
    connection,
    id: watchId,
    selector,
    shape: { includeValues, prevValues },
    filter,
    phase: "behind",
    position: saved.position,
    ready: saved.ready,
    progressWanted: false,
    fresh: [],
    unacknowledged: 0,
    ledger: [],
    lacking: 0,
    silentSinceMs: 0,
    lagEvents: 0,
    lagBytes: 0,
    lagThrough: saved.position,
    // A watch that was told more by a former instance is told once more, rather than too late (S44).
    toldRevision: saved.ready ? 0 : saved.position.revision,
    toldAtMs: 0,
  };
  const watches = hub.connections.get(connection);
  if (watches === undefined) hub.connections.set(connection, new Map([[watchId, watch]]));
  else watches.set(watchId, watch);
  hub.watchesCount += 1;
  hub.index.add(selector, watch);
  place(hub, watch);
  return { ok: true, position: saved.position };
}

function refusalOf(hub: Hub, connection: string, watchId: number, position: Position): ErrorBody | null {
  const { watchesPerNodeMax, watchesPerConnectionMax } = hub.limits;
  if (!isPosition(position)) {
    const detail = `There is no position (${position.revision}, ${position.opIndex}).`;
    return { code: "invalid_request", reason: "invalid_position", detail };
  }
  const watches = hub.connections.get(connection);
  // A watch whose last frame is not out yet still has its id: the frame would be taken for the new one's.
  if (watches?.has(watchId) || hub.pending.some((frame) => isOf(frame, connection, watchId))) {
    return {
      code: "invalid_request",
      reason: "watch_id_in_use",
      detail: `Watch ${watchId} of this connection exists.`,
    };
  }
  if (watches !== undefined && watches.size >= watchesPerConnectionMax) {
    const detail = `A connection holds at most ${watchesPerConnectionMax} watches; cancel one or open another connection.`;
    return { code: "invalid_request", reason: "too_many_watches", detail };
  }
  if (hub.watchesCount >= watchesPerNodeMax) {
    const detail = `This node holds ${watchesPerNodeMax} watches, its most; another node may have room.`;
    return { code: "overloaded", reason: "too_many_watches", detail };
  }
  return null;
}

/** Puts a watch that is in no queue into the phase of its position. */
function place(hub: Hub, watch: Watch): void {
  const { position } = watch;
  if (position.revision > hub.revision) {
    watch.phase = "future";
    hub.future.add(watch);
  } else if (laterOf(position, endOf(hub.revision)) === position) {
    enterLive(hub, watch);
    if (!watch.ready || watch.progressWanted) hub.announcing.add(watch);
  } else {
    watch.phase = "behind";
    hub.replaying.add(watch);
  }
}

/** From here on the watch is fed by `publish`. */
export function enterLive(hub: Hub, watch: Watch): void {
  watch.phase = "live";
  watch.position = endOf(hub.revision);
  watch.lacking = 0;
  watch.lagEvents = 0;
  watch.lagBytes = 0;
  watch.lagThrough = null;
  hub.told.add(watch);
}

/** A live watch whose events do not all get through goes back to reading history from `position`. */
export function leaveLive(hub: Hub, watch: Watch, position: Position): void {
  assert(watch.phase === "live", `watch ${watch.id} is ${watch.phase}`);
  hub.told.remove(watch);
  hub.touched.delete(watch);
  hub.announcing.delete(watch);
  watch.phase = "behind";
  watch.position = position;
}

/** Future watches whose position is now reached join the others. */
export function promoteFuture(hub: Hub): void {
  for (const watch of hub.future.take(hub.revision)) place(hub, watch);
}

/** Takes note that the client has everything up to `position`; of an unknown watch, of nothing (it may be cancelled). */
export function acknowledge(
  hub: Hub,
  ack: { readonly connection: string; readonly watchId: number; readonly position: Position; readonly nowMs: number },
): void {
  const watch = findWatch(hub, ack.connection, ack.watchId);
  if (watch === null) return;
  hub.heardAtMs.set(ack.connection, ack.nowMs);
  acknowledgeBytes(hub, watch, ack.position, ack.nowMs);
}

/** Asks for a `progress` as soon as the watch has caught up. False if there is none. */
export function requestProgress(hub: Hub, connection: string, watchId: number): boolean {
  const watch = findWatch(hub, connection, watchId);
  if (watch === null) return false;
  watch.progressWanted = true;
  if (watch.phase === "live") hub.announcing.add(watch);
  return true;
}

/** Forgets a watch at once. False if there is none. */
export function cancel(hub: Hub, connection: string, watchId: number): boolean {
  const watch = findWatch(hub, connection, watchId);
  if (watch !== null) endWatch(hub, watch);
  if (hub.pending.length > 0) hub.pending = hub.pending.filter((frame) => !isOf(frame, connection, watchId));
  return watch !== null;
}

function isOf(frame: Frame, connection: string, watchId: number): boolean {
  return frame.connection === connection && frame.kind !== "leader_changed" && frame.watchId === watchId;
}

export function closeConnection(hub: Hub, connection: string): void {
  for (const watch of [...(hub.connections.get(connection)?.values() ?? [])]) endWatch(hub, watch);
  hub.heardAtMs.delete(connection);
  if (hub.pending.length > 0) hub.pending = hub.pending.filter((frame) => frame.connection !== connection);
}

export function findWatch(hub: Hub, connection: string, watchId: number): Watch | null {
  return hub.connections.get(connection)?.get(watchId) ?? null;
}

export function everyWatch(hub: Hub): Watch[] {
  const watches: Watch[] = [];
  for (const byId of hub.connections.values()) watches.push(...byId.values());
  return watches;
}

/** Removes a watch from every part of the hub. */
export function endWatch(hub: Hub, watch: Watch): void {
  assert(watch.phase !== "ended", `watch ${watch.id} ended twice`);
  hub.index.remove(watch.selector, watch);
  if (watch.phase === "live") hub.told.remove(watch);
  if (watch.phase === "future") hub.future.remove(watch);
  watch.phase = "ended";
  hub.announcing.delete(watch);
  hub.touched.delete(watch);
  hub.freshCount -= watch.fresh.length;
  watch.fresh = [];
  hub.replaying.delete(watch);
  hub.sweep?.members.delete(watch);
  forgetCredit(hub, watch);
  hub.watchesCount -= 1;
  const watches = hub.connections.get(watch.connection);
  watches?.delete(watch.id);
  if (watches?.size === 0) {
    hub.connections.delete(watch.connection);
    hub.heardAtMs.delete(watch.connection);
  }
}

/** What has been sent to a watch, exactly. */
export function sentPosition(hub: Hub, watch: Watch): Position {
  if (watch.phase === "live") {
    const [first] = watch.fresh;
    return endOf(first === undefined ? hub.revision : first.event.revision - 1);
  }
  const { sweep } = hub;
  return sweep?.members.has(watch) ? laterOf(watch.position, sweep.cursor) : watch.position;
}

/** Positions of a connection's watches, for the attachment of its socket. */
export function savedPositions(hub: Hub, connection: string): SavedWatch[] {
  const saved: SavedWatch[] = [];
  for (const watch of hub.connections.get(connection)?.values() ?? []) {
    saved.push({ watchId: watch.id, position: sentPosition(hub, watch), ready: watch.ready });
  }
  return saved;
}

/** Whether a sleeping node would leave somebody waiting for what it could do now. */
export function hasWork(hub: Hub): boolean {
  return (
    hub.pending.length > 0 ||
    hub.announcing.size > 0 ||
    hub.touched.size > 0 ||
    hub.replaying.size > 0 ||
    hub.sweep !== null
  );
}
