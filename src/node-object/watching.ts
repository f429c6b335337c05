/**
 * The node's watch hub (src/watch) in its turns: what is applied is published, and what the hub has to send leaves at the
 * end of the turn by the port `watchers`.
 *
 * H1. New events leave the hub in the turn in which they were applied: what waits for a watch is its position.
 * H2. Before an entry that removes history is applied, the watches get what was applied before it (kv/compaction.ts).
 * H3. A commit never waits for a watcher: one pump is bounded, and what is left is sent in turns of its own.
 * H4. A restore gives the cluster another name: every watch ends and is told so, then every socket does.
 */
import type { Applied } from "../kv/machine.ts";
import type { Position } from "../kv/position.ts";
import { isAsleep, leaderOf } from "../raft/state.ts";
import {
  acknowledge,
  cancel,
  closeConnection,
  createHub,
  type Hub,
  requestProgress,
  restore,
  type Subscribed,
  type Subscription,
  savedPositions,
  subscribe,
} from "../watch/hub.ts";
import type { HubLimits } from "../watch/limits.ts";
import { announceLeader, changeCluster, publish } from "../watch/publish.ts";
import { pump } from "../watch/pump.ts";
import type { Ports } from "./ports.ts";
import { hasLeft, type NodeState, type Running, serving } from "./runtime-state.ts";
import { unavailable } from "./waiters.ts";

/** The hub of a node that begins to run at `revision`, with the watches that outlived its predecessor. */
export function openHub(ports: Ports, revision: number, limits: Partial<HubLimits>): Hub {
  const hub = createHub({ revision, encode: ports.watchers.encode, limits });
  for (const { options, saved } of ports.watchers.restore()) {
    const restored = restore(hub, options, saved);
    if (restored.ok) continue;
    ports.log("warn", "watch not restored", { watch: options.watchId, reason: restored.error.detail });
    // Silence never means loss: its client goes on from there, perhaps elsewhere.
    const { connection, watchId } = options;
    hub.pending.push({ kind: "slow_consumer", connection, watchId, position: saved.position });
  }
  return hub;
}

export function subscribeWatch(state: NodeState, subscription: Subscription): Subscribed {
  const running = serving(state);
  if (running === null) return { ok: false, error: unavailable(state) };
  const subscribed = subscribe(running.hub, subscription);
  if (subscribed.ok) pumpSoon(state, running);
  return subscribed;
}

export function cancelWatch(state: NodeState, connection: string, watchId: number): boolean {
  return state.running !== null && cancel(state.running.hub, connection, watchId);
}

export function acknowledgeWatch(
  state: NodeState,
  ack: { readonly connection: string; readonly watchId: number; readonly position: Position },
): void {
  if (state.running === null) return;
  acknowledge(state.running.hub, { ...ack, nowMs: state.ports.clock.nowMs() });
  pumpSoon(state, state.running);
}

export function requestWatchProgress(state: NodeState, connection: string, watchId: number): boolean {
  if (state.running === null || !requestProgress(state.running.hub, connection, watchId)) return false;
  pumpSoon(state, state.running);
  return true;
}

export function closeWatches(state: NodeState, connection: string): void {
  if (state.running !== null) closeConnection(state.running.hub, connection);
}

export function publishApplied(state: NodeState, running: Running, { index, outcome, events }: Applied): void {
  if (outcome?.ok !== true || outcome.result.kind !== "restore_end" || !outcome.result.done) {
    publish(running.hub, events);
    return;
  }
  // Repeated ends change nothing any more.
  if (outcome.revision <= running.hub.revision) return;
  renameCluster(running, outcome.revision);
  state.ports.log("info", "backup restored", { index, revision: outcome.revision });
}

/** H4 */
export function renameCluster(running: Running, revision: number): void {
  changeCluster(running.hub, revision);
  running.isRenamed = true;
}

/** H4. Called in every turn, behind the pump. */
export function tellRenaming(state: NodeState, running: Running): void {
  if (!running.isRenamed) return;
  running.isRenamed = false;
  state.ports.watchers.renamed();
}

/** Who leads now is news; that nobody does only when it lasts. */
export function announceLeaderChange(state: NodeState, running: Running, nowMs: number): void {
  const leader = leaderOf(running.raft);
  // A node that sleeps would find a leader: that it names none is no news.
  if (leader === running.announcedLeader || isAsleep(running.raft)) {
    running.leaderlessAtMs = Number.POSITIVE_INFINITY;
    return;
  }
  if (leader === null && running.leaderlessAtMs === Number.POSITIVE_INFINITY) {
    running.leaderlessAtMs = nowMs + 2 * state.config.electionTimeoutMsMax;
  }
  if (leader === null && nowMs < running.leaderlessAtMs) return;
  running.leaderlessAtMs = Number.POSITIVE_INFINITY;
  running.announcedLeader = leader;
  announceLeader(running.hub, leader);
}

function pumpSoon(state: NodeState, running: Running): void {
  running.pumpAtMs = Math.min(running.pumpAtMs, state.ports.clock.nowMs());
}

/** A node that has left hears of nothing new: who watches here must go elsewhere. Called in every turn. */
export function sendWatchesAway(state: NodeState, running: Running): void {
  const left = hasLeft(state, running);
  if (left === running.left) return;
  running.left = left;
  if (!left) return;
  state.ports.log("info", "is no member any more", { watches: running.hub.watchesCount });
  for (const connection of [...running.hub.connections.keys()]) closeWatches(state, connection);
  state.ports.watchers.dropAll();
}

/** Sends what is new, and goes on with what is not when its time has come (H3). */
export function pumpWatches(state: NodeState, running: Running, nowMs: number): void {
  const { hub } = running;
  const isNew = hub.touched.size > 0 || hub.pending.length > 0 || hub.announcing.size > 0;
  if (!isNew && nowMs < running.pumpAtMs && !owesProgress(running, nowMs)) return;
  const { frames, silent, more, wakeAtMs } = pump(hub, running.view, nowMs);
  running.pumpedRevision = hub.revision;
  running.pumpAtMs = more ? nowMs : wakeAtMs;
  if (frames.length > 0) state.ports.watchers.send(frames, (connection) => savedPositions(hub, connection));
  for (const connection of silent) state.ports.watchers.drop(connection);
}

/** Quiet watches are told how far history has gone, before it is compacted and now and then; nothing else would pump. */
function owesProgress({ hub, machine, pumpedRevision }: Running, nowMs: number): boolean {
  if (hub.watchesCount === 0) return false;
  if (machine.compactRevision > hub.compactRevision) return true;
  return hub.revision > pumpedRevision && nowMs >= hub.progressCheckAtMs;
}
