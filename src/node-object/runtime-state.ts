/**
 * The state record of one node instance, and what every part of the runtime needs of it. Lost with the instance: all
 * that must survive is in the storage port.
 */
import type { ErrorBody } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { CommandResult, Outcome } from "../kv/command.ts";
import type { applyEntries, Machine } from "../kv/machine.ts";
import type { Overlay } from "../kv/overlay.ts";
import { membershipAt } from "../raft/log.ts";
import { isAsleep, leaderOf, type RaftState } from "../raft/state.ts";
import type { step } from "../raft/step.ts";
import type { Event, NodeId, Output } from "../raft/types.ts";
import type { HistoryView } from "../watch/history-view.ts";
import type { Hub } from "../watch/hub.ts";
import type { HubLimits } from "../watch/limits.ts";
import type { BackupSpool } from "./backup-spool.ts";
import type { CallQueue } from "./call-queue.ts";
import type { DigestCheck } from "./digest-check.ts";
import type { OpenErrand } from "./errands.ts";
import type { HelloAnswer } from "./forming.ts";
import type { Duties } from "./leader-duties.ts";
import { incarnationOf, names } from "./members.ts";
import type { ForwardReply, Identity, Member, NodeConfig, PeerBody, Ports, SleepNote } from "./ports.ts";
import type { ServedBackup } from "./served-backup.ts";
import type { SnapshotIntake } from "./snapshot-intake.ts";
import type { ServedSnapshot } from "./snapshot-source.ts";
import type { Stranger } from "./strangers.ts";
import type { TopicRelay } from "./topic-relay.ts";
import { versionFor } from "./versions.ts";

/** The pure parts, so that the simulator can put a deliberate bug into one of them. */
export interface Core {
  readonly step: typeof step;
  readonly apply: typeof applyEntries;
  readonly hubLimits: Partial<HubLimits>;
}

export interface NodeState {
  readonly config: NodeConfig;
  readonly ports: Ports;
  readonly core: Core;
  readonly random: Random;
  identity: Identity;
  /** After an abort this instance touches nothing any more (ports P3). */
  dead: boolean;
  halted: string | null;
  /** Set once the cluster is formed, and on a node that has lost its storage. */
  running: Running | null;
  /** Answers of peers while the cluster is not formed. */
  readonly answers: Map<NodeId, HelloAnswer>;
  helloAtMs: number;
  /** Null: none, or one that an earlier instance left. */
  alarmAtWallMs: number | null;
  /** Ids of calls, forwards and read contexts: random start, so that a reply to an earlier instance matches none. */
  nextId: number;
  /** The highest version that each peer speaks, as far as it has been heard (versions.ts). */
  readonly spoken: Map<NodeId, number>;
  readonly calls: Calls;
  readonly reads: Reads;
  relay: TopicRelay;
  /** No deadline is due before this (monotonic ms). */
  sweepAtMs: number;
  /** Of administrators, not answered yet. */
  errands: OpenErrand[];
  /** Who must be empty for a cluster to be formed: all that are configured, unless an administrator named fewer. */
  founders: readonly NodeId[];
}

export interface Running {
  /** Among nodes; clients may know the cluster by another name (`clusterIdOf`). */
  readonly clusterId: string;
  readonly raft: RaftState;
  /** What the core's last output said: when it wants a tick, and how far to apply. */
  wakeAtMs: number;
  commitIndex: number;
  machine: Machine;
  /** Applied but not yet durable rows; replayed from the log after a crash (design 02 §2). */
  buffer: Overlay;
  flushAtMs: number;
  /** The applied index that the durable rows are of. */
  durableIndex: number;
  /** Since the size of the log was looked at (log-truncation.ts). Infinity: not yet. */
  appendedBytes: number;
  /** The core's last word: a member needs a snapshot, and there is none that helps. */
  snapshotWanted: boolean;
  served: ServedSnapshot | null;
  backup: ServedBackup | null;
  spool: BackupSpool | null;
  intake: SnapshotIntake | null;
  readonly digestCheck: DigestCheck;
  /** The next step of housekeeping.ts, at the earliest. */
  houseAtMs: number;
  /** Leader and term as the calls know them: a difference means that they must be routed anew. */
  seenLeader: NodeId | null;
  seenTerm: number;
  /** Last index of each batch of proposals that is not committed yet, oldest first. */
  readonly batches: number[];
  /** Of each id the last storage that has spoken and is no member's by the log here. */
  readonly strangers: Map<NodeId, Stranger>;
  /** The leader does nothing about members before this (monotonic ms). */
  changeAtMs: number;
  /** Whose message this turn handles: answers go to the storage that it came from. */
  heard: Member | null;
  /** The term in which this instance started: it led none of those up to here. */
  readonly startTerm: number;
  /** Ids of forwards that this instance took, per peer, oldest first (ports: `forward`). */
  readonly taken: Map<NodeId, Set<number>>;
  /** Answers to forwards, per peer: those of a turn go in one message. */
  readonly replies: Map<NodeId, ForwardReply[]>;
  /** Digests after the last entries, by index. */
  digests: Map<number, string>;
  duties: Duties;
  readonly hub: Hub;
  /** The cluster has another name than the clients were told; told at the end of the turn. */
  isRenamed: boolean;
  view: HistoryView;
  /** The hub has something to do at this time, without anything new happening. */
  pumpAtMs: number;
  /** The hub's revision at its last pump. */
  pumpedRevision: number;
  /** The leader that watchers were told of (undefined: nothing yet), and when they are told that there is none. */
  announcedLeader: NodeId | null | undefined;
  leaderlessAtMs: number;
  /** When a client last asked for something that needs the cluster. */
  activeAtMs: number;
  /** Its watches have been told to go elsewhere. */
  left: boolean;
  /** The core sleeps, and this node has drawn the consequences (sleep.ts). */
  asleep: boolean;
  /** Log time less own wall clock, by the leader's last word of it: a clock that is an hour off decides nothing here. */
  clockOffsetMs: number;
  /** What an earlier instance left: it led, fell asleep, and had left members behind. */
  missed: SleepNote | null;
  /** Pause before a sleeping leader looks again for members that were behind. */
  probeAfterMs: number;
  /** When work of the log is due by the own wall clock, as this node was about to sleep; Infinity = none. */
  dueAtWallMs: number;
}

/** Writes on their way: from a client of this node, or forwarded by a peer. */
export interface Calls {
  readonly open: Map<number, Call>;
  /** Calls by the index of their entry. */
  readonly byIndex: Map<number, Call>;
  /** On the leader: to be proposed. */
  readonly queue: CallQueue;
  /** On any other node: to be handed over to the leader. */
  readonly outbound: CallQueue;
  /** Messages to the leader that it has not answered in full, oldest first. */
  underWay: ForwardBatch[];
  /** Of all open calls. */
  queuedBytes: number;
}

export interface ForwardBatch {
  readonly sentAtMs: number;
  /** Ids of its calls that are open still. */
  readonly unanswered: Set<number>;
}

export interface Call {
  /** Key in `open`; another one for each forward. */
  id: number;
  readonly payload: string;
  readonly payloadBytes: number;
  /**
   * `keyed`: may be sent again, it runs at most once under its idempotency key. `once`: handed over once. `duty`: the
   * leader's own, ends with its leadership.
   */
  readonly repeat: "keyed" | "once" | "duty";
  readonly isUrgent: boolean;
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
  /** Waits here for its batch, to be proposed or to be handed over. */
  | { readonly kind: "queued"; readonly sinceMs: number }
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

/** Runs a turn that answers at once; `ended` when this instance has ended. */
export type AnswerTurn = <T>(ended: T, work: () => T) => T;

/** How the parts of the runtime feed the core; implemented by `runtime.ts`. */
export type Drive = (state: NodeState, running: Running, event: Event) => DriveResult;

export type DriveResult = Pick<Output, "proposed" | "refusal">;

export function nextId(state: NodeState): number {
  state.nextId += 1;
  return state.nextId;
}

/** Sends to a peer under the cluster's identity; drops what has no addressee. */
export function sendPeer(state: NodeState, to: NodeId, body: PeerBody): void {
  const { running, config, identity } = state;
  if (running === null) return;
  const { clusterId, heard, raft } = running;
  const toIncarnation = heard?.id === to ? heard.incarnation : incarnationOf(raft.log, to);
  if (toIncarnation === null) return;
  const protocol = versionFor(state, to, body);
  if (protocol === null) return;
  state.ports.transport.send({
    protocol,
    speaks: config.protocolMax,
    clusterId,
    from: config.id,
    fromIncarnation: identity.incarnation,
    to,
    toIncarnation,
    body,
  });
}

/** Set while this node serves clients: one that has lost its storage, or has left, runs, but hears of nothing new. */
export function serving(state: NodeState): Running | null {
  return !isOut(state) && state.identity.membership.kind === "formed" ? state.running : null;
}

/** No client is to be served here, whatever comes: others may serve it. */
export function isOut(state: NodeState): boolean {
  const { halted, identity, running } = state;
  return halted !== null || identity.membership.kind === "lost" || (running !== null && hasLeft(state, running));
}

/** It is committed that this storage takes no part. */
export function hasLeft({ config, identity }: NodeState, { raft }: Running): boolean {
  const membership = membershipAt(raft.log, raft.commit);
  return membership.voters.length > 0 && !names(membership, config.id, identity.incarnation);
}

/** What clients call the cluster: a restore gives it another name, and what they know of the one before counts no more. */
export function clusterIdOf({ clusterId, machine }: Running): string {
  return machine.clusterId ?? clusterId;
}

export function sweepBy(state: NodeState, atMs: number): void {
  if (atMs < state.sweepAtMs) state.sweepAtMs = atMs;
}

/**
 * The leader to which calls go: one that this node has heard since it last slept. Of a leader that slept nobody knows
 * whether its instance is still there; to a new one a call that was handed over before would be of unknown outcome.
 */
export function routableLeader({ raft }: Running): NodeId | null {
  if (isAsleep(raft)) return null;
  const { role } = raft;
  return role.kind === "follower" && role.heardLeaderAtMs === Number.NEGATIVE_INFINITY ? null : leaderOf(raft);
}
