/**
 * What a node says of itself and of its applied state, from its own memory alone: wakes nobody, changes nothing.
 */
import type { NodePosition, NodeStatus } from "../api/backend.ts";
import type { Outcome, Query, QueryResult } from "../kv/command.ts";
import { evaluateQuery } from "../kv/machine.ts";
import { newestMembership } from "../raft/log.ts";
import { leaderOf, logTimeMs } from "../raft/state.ts";
import type { NodeId } from "../raft/types.ts";
import { names } from "./members.ts";
import { clusterIdOf, type NodeState, type Running, serving } from "./runtime-state.ts";
import { unavailable } from "./waiters.ts";

/** Evaluates a query on the applied state, whatever its age. */
export function queryState(state: NodeState, query: Query): Outcome<QueryResult> {
  const running = serving(state);
  if (running === null) return { ok: false, revision: 0, error: unavailable(state) };
  const { clock } = state.ports;
  const logNowMs = logTimeMs(running.raft, clock.nowMs()) ?? clock.wallMs() + running.clockOffsetMs;
  return evaluateQuery(running.machine, query, Math.max(running.machine.timeMs, logNowMs));
}

export function position(state: NodeState): NodePosition {
  const { running } = state;
  const { membership } = state.identity;
  const leader = running === null ? null : leaderOf(running.raft);
  return {
    clusterId: running !== null ? clusterIdOf(running) : membership.kind === "empty" ? null : membership.clusterId,
    node: state.config.id,
    leader,
    revision: running?.machine.revision ?? 0,
    ready: serving(state)?.machine.isRestoring === false && (leader !== null || running?.asleep === true),
    restoring: running?.machine.isRestoring ?? false,
    halted: state.halted,
  };
}

function partOf({ raft }: Running, id: NodeId, incarnation: number): NodeStatus["member"] {
  const { membership } = newestMembership(raft.log);
  if (!names(membership, id, incarnation)) return null;
  return membership.voters.includes(id) ? "voter" : "learner";
}

export function status(state: NodeState): NodeStatus {
  const { running, identity, halted, config } = state;
  return {
    id: config.id,
    state: halted === null ? identity.membership.kind : "halted",
    // One that has lost its storage follows, but has no part in it.
    role: identity.membership.kind === "lost" ? null : (running?.raft.role.kind ?? null),
    member: running === null ? null : partOf(running, config.id, identity.incarnation),
    term: running?.raft.term ?? 0,
    leader: running === null ? null : leaderOf(running.raft),
    last_index: running?.raft.log.lastIndex ?? 0,
    commit_index: running?.raft.commit ?? 0,
    applied_index: running?.machine.appliedIndex ?? 0,
    revision: running?.machine.revision ?? 0,
    digest: running?.machine.digest ?? "",
    digest_index: running?.machine.appliedIndex ?? 0,
    incarnation: identity.incarnation,
    storage_bytes: state.ports.storage.bytes,
    quiescent: running?.asleep ?? false,
    halted,
  };
}
