/**
 * The state record of one node instance, and what every part of the runtime needs of it. Lost with the instance: all
 * that must survive is in the storage port.
 */
import type { ErrorBody } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { CommandResult, Outcome } from "../kv/command.ts";
import type { Machine } from "../kv/machine.ts";
import type { Overlay } from "../kv/overlay.ts";
import type { RaftState } from "../raft/state.ts";
import type { step } from "../raft/step.ts";
import type { Event, NodeId } from "../raft/types.ts";
import type { HelloAnswer } from "./forming.ts";
import type { Identity, NodeConfig, PeerBody, Ports } from "./ports.ts";

export interface NodeState {
  readonly config: NodeConfig;
  readonly ports: Ports;
  readonly step: typeof step;
  readonly random: Random;
  identity: Identity;
  /** After an abort this instance touches nothing any more (ports P3). */
  dead: boolean;
  halted: string | null;
  /** Set once the cluster is formed. */
  running: Running | null;
  /** Answers of peers while the cluster is not formed. */
  readonly answers: Map<NodeId, HelloAnswer>;
  helloAtMs: number;
  alarmAtWallMs: number;
  /** Ids of calls, forwards and read contexts: random start, so that a reply to an earlier instance matches none. */
  nextId: number;
  readonly calls: Calls;
  readonly reads: Reads;
  /** No deadline is due before this (monotonic ms). */
  sweepAtMs: number;
}

export interface Running {
  readonly clusterId: string;
  readonly raft: RaftState;
  /** What the core's last output said: when it wants a tick, and how far to apply. */
  wakeAtMs: number;
  commitIndex: number;
  readonly machine: Machine;
  /** Applied but not yet durable rows; replayed from the log after a crash (design 02 §2). */
  readonly buffer: Overlay;
  flushAtMs: number;
  /** Leader and term as the calls know them: a difference means that they must be routed anew. */
  seenLeader: NodeId | null;
  seenTerm: number;
  /** Last index of each batch of proposals that is not committed yet, oldest first. */
  readonly batches: number[];
  /** The term in which this instance started: it led none of those up to here. */
  readonly startTerm: number;
  /** Ids of forwards that this instance took, per peer, oldest first (ports: `forward`). */
  readonly taken: Map<NodeId, Set<number>>;
  /** Digests after the last entries, by index. */
  readonly digests: Map<number, string>;
}

/** Writes on their way: from a client of this node, or forwarded by a peer. */
export interface Calls {
  readonly open: Map<number, Call>;
  /** Calls by the index of their entry. */
  readonly byIndex: Map<number, Call>;
  /** Calls that wait on the leader for their batch, in order of arrival. */
  queue: Call[];
  queuedBytes: number;
}

export interface Call {
  /** Key in `open`; another one for each forward. */
  id: number;
  readonly payload: string;
  readonly payloadBytes: number;
  /** May be sent again: it runs at most once under its idempotency key. */
  readonly idempotent: boolean;
  deadlineMs: number;
  readonly respond: (reply: CallReply) => void;
  /** A try of it was forwarded and never answered: it may be proposed, whatever a later try says (W2). */
  exposed: boolean;
  /** Forwards so far: each waits twice as long for its answer, so that a slow leader is not asked ever more. */
  forwards: number;
  phase: CallPhase;
}

export type CallPhase =
  /** No leader is known, or it refused: routed again at `retryAtMs`, or when the leader changes. */
  | { readonly kind: "unrouted"; readonly retryAtMs: number }
  | { readonly kind: "queued" }
  | { readonly kind: "proposed"; readonly index: number; readonly term: number }
  | { readonly kind: "forwarded"; readonly leader: NodeId; readonly againAtMs: number };

export type CallReply =
  | { readonly kind: "outcome"; readonly outcome: Outcome<CommandResult> }
  | { readonly kind: "not_leader" }
  | { readonly kind: "overloaded" }
  | { readonly kind: "unknown" };

/** Linearizable reads and waits for a revision. */
export interface Reads {
  /** Barriers that wait for the next read context. */
  waiting: Barrier[];
  /** The context under way: at most one, shared by every barrier that waited when it was asked for. */
  asked: { readonly context: number; readonly sentAtMs: number; readonly barriers: Barrier[] } | null;
  /** Confirmed: served once this index is applied here. */
  confirmed: { readonly index: number; readonly barriers: Barrier[] }[];
  revisions: {
    readonly revision: number;
    readonly deadlineMs: number;
    readonly respond: (error: ErrorBody | null) => void;
  }[];
}

export interface Barrier {
  readonly deadlineMs: number;
  readonly respond: (error: ErrorBody | null) => void;
}

/** How the parts of the runtime feed the core; implemented by `runtime.ts`. */
export type Drive = (state: NodeState, running: Running, event: Event) => DriveResult;

export interface DriveResult {
  readonly proposed: { readonly firstIndex: number; readonly term: number } | null;
}

export function nextId(state: NodeState): number {
  state.nextId += 1;
  return state.nextId;
}

/** Sends to a peer under the cluster's identity; drops what has no addressee. */
export function sendPeer(state: NodeState, to: NodeId, body: PeerBody): void {
  const { membership, incarnation } = state.identity;
  const formed = membership.kind === "forming" || membership.kind === "formed";
  const member = formed ? membership.members.find((candidate) => candidate.id === to) : undefined;
  state.ports.transport.send({
    protocol: 1,
    clusterId: membership.kind === "empty" ? null : membership.clusterId,
    from: state.config.id,
    fromIncarnation: incarnation,
    to,
    toIncarnation: member?.incarnation ?? null,
    body,
  });
}

export function sweepBy(state: NodeState, atMs: number): void {
  if (atMs < state.sweepAtMs) state.sweepAtMs = atMs;
}
