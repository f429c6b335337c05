/**
 * A log that begins behind a snapshot, and followers that need one (paper section 7, thesis 5). The chunks are pulled
 * outside of the core: here is who needs one, who may fetch which, and what becomes of one that lies complete.
 *
 * T1. The log's base is committed, and covered by the durable state of this node (`truncate_log`).
 * T2. A follower takes in only what is ahead of its commit index; older, repeated and abandoned snapshots change nothing
 *     (S52). What is taken in is committed, so every later leader holds it.
 * T3. State and position change together (`persist.install`). The log is replaced whole, with its memberships (S57),
 *     unless it holds the snapshot's last entry: then it agrees with the snapshot, and what stands behind it stays.
 * T4. A leader offers only what its own log continues: a snapshot below its base helps nobody.
 * T5. That a follower needs one is known by its answer alone. Nobody makes a snapshot for a node that does not answer.
 */
import { assert } from "../base/assert.ts";
import { membershipAt, positionAt, rebase, replaceLog, termAt } from "./log.ts";
import { equalMemberships } from "./membership.ts";
import {
  becomeFollower,
  isReachable,
  type Leader,
  type MutableOutput,
  type Progress,
  type RaftState,
  send,
} from "./state.ts";
import type { Message, NodeId, SnapshotPosition } from "./types.ts";

type Of<Kind extends Message["kind"]> = Extract<Message, { kind: Kind }>;

// The own log

export function onTruncateLog(state: RaftState, index: number, out: MutableOutput): void {
  const { log, role } = state;
  if (index <= log.base.index) return;
  assert(index <= state.commit, `truncation through ${index}, commit ${state.commit}`);
  const base = positionAt(log, index);
  rebase(log, base);
  // The caller's promise: the durable state covers it, so the entries were durable.
  state.durableIndex = Math.max(state.durableIndex, index);
  out.dropThrough = base;
  if (role.kind !== "leader") return;
  if (role.snapshot !== null && role.snapshot.index < index) role.snapshot = null; // T4
  for (const progress of role.progress.values()) {
    if (progress.kind === "snapshot") progress.next = index + 1;
    else if (progress.next <= index) askAtBase(state, progress);
  }
}

/** The next heartbeat asks the follower for the base: its answer says whether it goes on from there (T5). */
export function askAtBase(state: RaftState, progress: Progress): void {
  progress.kind = "probe";
  progress.probing = true;
  progress.inFlight.length = 0;
  progress.next = state.log.base.index + 1;
}

// The leader

/** The follower's answer has shown that it needs entries at or below the base. */
export function awaitSnapshot(
  state: RaftState,
  role: Leader,
  to: NodeId,
  progress: Progress,
  out: MutableOutput,
): void {
  progress.kind = "snapshot";
  progress.probing = false;
  progress.inFlight.length = 0;
  progress.next = state.log.base.index + 1;
  offerSnapshot(state, role, to, out);
}

export function offerSnapshot(state: RaftState, role: Leader, to: NodeId, out: MutableOutput): void {
  if (role.snapshot === null) return;
  send(state, to, { kind: "snapshot_offer", term: state.term, snapshot: role.snapshot }, out);
}

export function onSnapshotReady(state: RaftState, snapshot: SnapshotPosition | null, out: MutableOutput): void {
  const { role, log, commit } = state;
  if (role.kind !== "leader") return;
  if (snapshot === null) {
    role.snapshot = null;
    return;
  }
  if (snapshot.index < log.base.index) return; // T4
  assert(snapshot.index <= commit, `snapshot at ${snapshot.index}, commit ${commit}`);
  const position = positionAt(log, snapshot.index);
  assert(
    snapshot.term === position.term && snapshot.timeMs === position.timeMs,
    `snapshot ${snapshot.index} of term ${snapshot.term}, time ${snapshot.timeMs}: the log has ${position.term}, ${position.timeMs}`,
  );
  // A node that was taken in late does not know who took part before; it makes a newer snapshot.
  if (snapshot.membership.voters.length === 0) return;
  assert(
    equalMemberships(snapshot.membership, position.membership),
    `snapshot ${snapshot.index} has another membership than the log`,
  );
  role.snapshot = snapshot;
  for (const [to, progress] of role.progress) if (progress.kind === "snapshot") offerSnapshot(state, role, to, out);
}

/** Followers that answer and need a snapshot: until there are none, the caller keeps the one that it serves. */
export function snapshotPeers(state: RaftState, nowMs: number): NodeId[] {
  const { role } = state;
  const peers: NodeId[] = [];
  if (role.kind !== "leader") return peers;
  for (const [id, progress] of role.progress) {
    if (progress.kind === "snapshot" && isReachable(state, progress, nowMs)) peers.push(id);
  }
  return peers;
}

/** T5. */
export function isSnapshotWanted(state: RaftState, nowMs: number): boolean {
  const { role } = state;
  return role.kind === "leader" && role.snapshot === null && snapshotPeers(state, nowMs).length > 0;
}

/** A snapshot is kept for those who need it: who falls behind later gets a newer one. */
export function releaseSnapshot({ role }: RaftState): void {
  if (role.kind !== "leader" || role.snapshot === null) return;
  if ([...role.progress.values()].every(({ kind }) => kind !== "snapshot")) role.snapshot = null;
}

// The follower

export function onSnapshotOffer(
  state: RaftState,
  from: NodeId,
  message: Of<"snapshot_offer">,
  nowMs: number,
  wallMs: number,
  out: MutableOutput,
): void {
  const { snapshot, term } = message;
  if (term < state.term) return; // the heartbeat that came with it is answered
  assert(state.role.kind !== "leader" || term > state.term, `two leaders in term ${term}: ${state.config.id}, ${from}`);
  becomeFollower(state, term, from, nowMs);
  const { log } = state;
  // An entry of a committed index and its term: the log agrees with the leader's up to there (paper 5.3).
  if (termAt(log, snapshot.index) === snapshot.term) state.commit = Math.max(state.commit, snapshot.index);
  if (snapshot.index > state.commit) out.snapshotOffer = { from, snapshot };
  else acknowledge(state, from, wallMs, out);
}

/** What is committed here stands in the log of every leader of this term. */
function acknowledge(state: RaftState, to: NodeId, wallMs: number, out: MutableOutput): void {
  const result = { kind: "matched", index: state.commit } as const;
  send(state, to, { kind: "append_reply", term: state.term, result, round: 0, wallMs }, out);
}

/** T2 and T3. Whoever fetched it may have waited long: the log may have got there by itself, or this node may lead. */
export function onSnapshotStaged(
  state: RaftState,
  snapshot: SnapshotPosition,
  nowMs: number,
  wallMs: number,
  out: MutableOutput,
): void {
  const { log, commit } = state;
  if (snapshot.index <= commit || snapshot.term > state.term || state.role.kind === "leader") return;
  // The log that a candidate advertises must be the one that it has.
  if (state.role.kind !== "follower") becomeFollower(state, state.term, null, nowMs);
  const keepsSuffix = termAt(log, snapshot.index) === snapshot.term;
  if (keepsSuffix) {
    const own = membershipAt(log, snapshot.index);
    const agrees = own.voters.length === 0 || equalMemberships(own, snapshot.membership);
    assert(agrees, `snapshot ${snapshot.index} has another membership than the log`);
    rebase(log, snapshot);
  } else {
    replaceLog(log, snapshot);
    // The rest is durable once this turn's write is.
    state.durableIndex = Math.min(state.durableIndex, commit);
  }
  state.commit = snapshot.index;
  out.install = { snapshot, keepsSuffix };
  if (state.role.kind === "follower" && state.role.leader !== null) {
    acknowledge(state, state.role.leader, wallMs, out);
  }
}

/** T1, and of each follower that what comes next for it is there. */
export function assertBase(state: RaftState): void {
  const { log, commit, role } = state;
  assert(log.base.index <= commit, `the log begins behind ${log.base.index}, commit ${commit}`);
  assert(log.memberships[0]?.index === log.base.index, `no membership of the base ${log.base.index}`);
  if (role.kind !== "leader") return;
  for (const [id, { next }] of role.progress) {
    assert(next > log.base.index, `next ${next} of node ${id}, the log begins behind ${log.base.index}`);
  }
  const served = role.snapshot?.index ?? log.base.index;
  assert(served >= log.base.index, `snapshot ${served} is served, the log begins behind ${log.base.index}`);
}
