/**
 * What a node says of itself and of its applied state, from its own memory alone: wakes nobody, changes nothing.
 */
import type { NodePosition, NodeSummary } from "../api/backend.ts";
import type { Outcome, Query, QueryResult } from "../kv/command.ts";
import { evaluateQuery } from "../kv/machine.ts";
import { newestMembership } from "../raft/log.ts";
import { leaderOf, logTimeMs } from "../raft/state.ts";
import type { NodeId } from "../raft/types.ts";
import type { NodeReport } from "./cluster-status.ts";
import { names } from "./members.ts";
import { clusterIdOf, type NodeState, type Running, serving } from "./runtime-state.ts";
import { FORMAT_VERSION } from "./versions.ts";
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

function partOf({ raft }: Running, id: NodeId, incarnation: number): NodeSummary["member"] {
  const { membership } = newestMembership(raft.log);
  if (!names(membership, id, incarnation)) return null;
  return membership.voters.includes(id) ? "voter" : "learner";
}

export function status(state: NodeState): NodeSummary {
  const { running, identity, halted, config } = state;
  return {
    id: config.id,
    state: halted === null ? identity.membership.kind : "halted",
    // One that has lost its storage follows, but has no part in it.
    role: identity.membership.kind === "lost" ? null : (running?.raft.role.kind ?? null),
    member: running === null ? null : partOf(running, config.id, identity.incarnation),
    term: running?.raft.term ?? 0,
    leader: running === null ? null : leaderOf(running.raft),
    first_index: (running?.raft.log.base.index ?? 0) + 1,
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
    snapshot_out: snapshotOut(running),
    snapshot_in: running === null ? null : snapshotIn(state),
    format: FORMAT_VERSION,
    protocol: state.config.protocolMax,
    // The platform tells a Worker where a request came in, but no object where it runs.
    colo: null,
  };
}

function snapshotOut(running: Running | null): NodeSummary["snapshot_out"] {
  const manifest = running?.served?.manifest;
  return manifest === undefined ? null : { index: manifest.position.index, rows_total: manifest.rowsCount };
}

function snapshotIn({ ports }: NodeState): NodeSummary["snapshot_in"] {
  const staged = ports.storage.staging.state();
  if (staged === null) return null;
  const { manifest, rowsCount } = staged;
  return { index: manifest.position.index, rows: rowsCount, rows_total: manifest.rowsCount };
}

/** All that goes into the status of the cluster. Costs more than {@link status}: a disk in memory sums up its rows for it. */
export function report(state: NodeState): NodeReport {
  const { running, halted, ports, config } = state;
  const { role } = running?.raft ?? {};
  const nowMs = ports.clock.nowMs();
  const contacts: [NodeId, number][] = [];
  if (role?.kind === "leader") {
    contacts.push([config.id, 0]);
    for (const [id, { clock, heardAtMs }] of role.progress) {
      // Before the first reply `heardAtMs` is when this node began to lead.
      if (clock !== null) contacts.push([id, Math.max(0, Math.round(nowMs - heardAtMs))]);
    }
  }
  const ofState = running === null || halted !== null ? null : running;
  return {
    status: {
      ...status(state),
      set_hash: ofState === null ? null : ports.storage.stateHash,
      set_hash_index: ofState?.durableIndex ?? 0,
      last_contact_ms: null,
    },
    membership: ofState === null ? null : membershipIn(ofState),
    contacts,
  };
}

export function membershipIn({ raft }: Running): NodeReport["membership"] {
  const { index, membership } = newestMembership(raft.log);
  const { voters, learners } = membership;
  return voters.length === 0 ? null : { index, committed: index <= raft.commit, voters, learners };
}
