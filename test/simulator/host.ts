/**
 * The records of the simulated world. A host is one node's place in the world: its disk, its wall clock, and the
 * instances of its runtime that live over that disk: normally one, for a while two (the older one superseded).
 */
import type { Random } from "../../src/base/random.ts";
import type { CompactionPolicy } from "../../src/kv/history-marks.ts";
import type { applyEntries } from "../../src/kv/machine.ts";
import type { Identity, NodeConfig, PeerEnvelope, Ports } from "../../src/node-object/ports.ts";
import type { Runtime } from "../../src/node-object/runtime.ts";
import type { RaftState } from "../../src/raft/state.ts";
import type { step } from "../../src/raft/step.ts";
import type { HardState, Membership, NodeId } from "../../src/raft/types.ts";
import type { HubLimits } from "../../src/watch/limits.ts";
import type { MonotonicClock } from "./clock.ts";
import type { Disk, Journal } from "./disk.ts";
import type { EventQueue } from "./event-queue.ts";
import type { FaultCounts } from "./fault-kinds.ts";
import type { Network } from "./network.ts";
import type { Safety } from "./safety.ts";
import type { Sleep } from "./sleep.ts";
import type { Transfers } from "./snapshot-ports.ts";
import type { Socket, SocketMessage } from "./sockets.ts";
import type { Trace } from "./trace.ts";
import type { Violation } from "./violation.ts";

export interface Host {
  readonly id: NodeId;
  /** What its next instances speak at most: an upgrade raises it. */
  protocolMax: number;
  disk: Disk;
  wallSkewMs: number;
  /** How often its wall clock has jumped. */
  wallJumps: number;
  clockRate: number;
  live: Instance | null;
  /** The older of two live instances; it has lost the disk and does not know. */
  zombie: Instance | null;
  /** No instance can run before; what arrives is lost. */
  downUntil: number;
  /** Nothing is handled before: events wait. */
  pausedUntil: number;
  /** A fault that strikes the next write of the live instance, or its next read. */
  armed: "crash_between_statements" | "disk_error" | "disk_error_on_read" | "commit_failure" | null;
  /** When the queue holds an alarm event for this host; Infinity = none. */
  alarmEventAt: number;
  /** Connections of watchers that this node has not seen end. */
  readonly sockets: Set<Socket>;
}

export interface Instance {
  readonly serial: number;
  readonly host: Host;
  readonly clock: MonotonicClock;
  readonly runtime: Runtime;
  /** The core's state record, seen when the runtime first steps it. */
  raft: RaftState | null;
  running: boolean;
  superseded: boolean;
  turn: Turn | null;
  /** Turns that wrote and are not durable yet, oldest first. */
  readonly inFlight: Commit[];
  /** What is durable: the state after the last completed commit. */
  durableHardState: HardState;
  durableLastIndex: number;
  timerAtMs: number;
  /** When the queue holds a timer event for this instance; Infinity = none. */
  timerEventAt: number;
  readonly calls: Set<Call>;
  /** Of a leader: by whose majority its commit index has moved last. */
  committedUnder: Membership | null;
  // Watermarks of the checkers.
  asleep: boolean;
  seenCommit: number;
  seenTerm: number;
  leaderTerm: number;
  nextDigest: number;
}

/** One call into a runtime, and all that it did to the outside. */
export interface Turn {
  wrote: boolean;
  /** Ends the instance at the end of the turn, undoing the turn. */
  died: "abort" | "crash" | null;
  deathReason: string;
  /** Leaves at the end of the turn. */
  readonly immediate: Release[];
  /** Leaves with the commit that was in flight when the turn began. */
  readonly behindEarlier: Release[];
  /** Leaves with the commit of this turn. */
  readonly behindOwn: Release[];
  readonly syncsEarlier: (() => void)[];
  readonly syncsOwn: (() => void)[];
  /** Runs when the call into the runtime has returned, in the same turn: what a program does after an await. */
  readonly after: (() => void)[];
}

export type Release = PeerEnvelope | CallAnswer | SocketRelease;

export interface CallAnswer {
  readonly call: Call;
  readonly arrive: () => void;
}

export interface SocketRelease {
  readonly socket: Socket;
  readonly message: SocketMessage;
}

export interface Commit {
  readonly journal: Journal;
  readonly held: Release[];
  readonly syncs: (() => void)[];
  readonly identity: Identity | null;
  readonly hardState: HardState;
  readonly lastIndex: number;
  readonly doneAt: number;
  fails: boolean;
}

/** A client's request to one node. Exactly one of an `arrive` and `lost` is called, or the answer is lost on its way. */
export interface Call {
  run(runtime: Runtime, answer: (arrive: () => void) => void, turn: CallTurn): void;
  /** `refused`: the node never saw it. `broken`: the node died before it answered. */
  lost(kind: "refused" | "broken"): void;
  answered: boolean;
  /** A read touches no storage of its own: an instance that has lost its storage may live through it. */
  readonly reads: boolean;
  readonly label: string;
}

/** What a call may ask of the turn that it runs in. */
export interface CallTurn {
  /** Runs when the call into the runtime has returned. */
  defer(work: () => void): void;
  /** The last entry that the node has applied. */
  appliedIndex(): number;
}

export type SimEvent = { at: number; seq: number } & (
  | { readonly kind: "deliver"; readonly host: Host; readonly envelope: PeerEnvelope; readonly sender: Instance | null }
  | { readonly kind: "timer"; readonly instance: Instance }
  | { readonly kind: "alarm"; readonly host: Host; readonly repeat: boolean }
  | { readonly kind: "commit"; readonly instance: Instance; readonly commit: Commit }
  | { readonly kind: "synced"; readonly instance: Instance; readonly done: () => void }
  | { readonly kind: "call"; readonly host: Host; readonly call: Call }
  | { readonly kind: "socket"; readonly host: Host; readonly socket: Socket; readonly request: SocketRequest }
  | { readonly kind: "start"; readonly host: Host }
  | { readonly kind: "act"; readonly label: string; readonly run: () => void }
);

/** What a client sends over its socket; the first request opens it. */
export interface SocketRequest {
  readonly label: string;
  readonly opens: boolean;
  /** Begins a watch: an instance that has heard of no leader wakes the cluster for it. */
  readonly watches: boolean;
  run(runtime: Runtime): void;
}

/** A deliberate bug, woven in from outside: production code knows nothing of it. */
export interface Mutation {
  readonly config?: (config: NodeConfig) => NodeConfig;
  /** Called once per instance; the wrapped step sees the state before and the output after. */
  readonly step?: (real: typeof step, config: NodeConfig) => typeof step;
  readonly ports?: (ports: Ports, config: NodeConfig) => Ports;
  readonly runtime?: (runtime: Runtime, config: NodeConfig) => Runtime;
  /** Of every node, and of the replay that knows what the state must be: only the model (model.ts) is free of it. */
  readonly apply?: (real: typeof applyEntries) => typeof applyEntries;
  /** How the clients of the workload turn text keys into byte strings. */
  readonly keyOf?: (text: string) => string;
}

export interface Timing {
  syncMsMin: number;
  syncMsMax: number;
  /** Share of commits that take up to `slowSyncMsMax`. */
  slowSyncRate: number;
  slowSyncMsMax: number;
  clientDelayMsMin: number;
  clientDelayMsMax: number;
  replyLostRate: number;
}

export interface WorldOptions {
  readonly seed: number;
  readonly size: number;
  readonly heartbeatMs: number;
  readonly electionTimeoutMsMin: number;
  readonly electionTimeoutMsMax: number;
  readonly fence: boolean;
  readonly quiesceAfterMs: number;
  readonly quotaBytes: number;
  readonly logKeepEntries: number;
  readonly logKeepBytes: number;
  readonly housekeepingMs: number;
  /** Of a snapshot: a small state is a long transfer all the same. */
  readonly chunkBytesMax: number;
  readonly compaction: CompactionPolicy;
  readonly hubLimits: Partial<HubLimits>;
  readonly mutation: Mutation | null;
  /** Deep-freezes every message that is sent, to find whoever changes one. */
  readonly freeze: boolean;
  /** Events kept for the report of a violation. */
  readonly traceLines: number;
}

export interface World {
  readonly options: WorldOptions;
  now: number;
  steps: number;
  readonly queue: EventQueue<SimEvent>;
  readonly random: Random;
  readonly hosts: readonly Host[];
  readonly network: Network;
  readonly timing: Timing;
  readonly counts: FaultCounts;
  readonly transfers: Transfers;
  /** When a node was last known to have lost rows without knowing it (damage.ts B2). */
  taintedAt: number;
  /** Nodes that have halted over a row, and were repaired. */
  halts: number;
  readonly safety: Safety;
  readonly sleep: Sleep;
  readonly trace: Trace;
  /** Found inside a turn, where the runtime would take it for a fault of its own; thrown at the turn's end. */
  violation: Violation | null;
  nextSerial: number;
  /** Scripted stories take messages out of the network; true = taken. */
  intercept: ((envelope: PeerEnvelope, sender: Instance) => boolean) | null;
  /** With two live instances: the chance that the older one gets what an older one, a newer one or a client sends. */
  readonly toOld: { old: number; new: number; read: number; write: number };
  /** Nobody asks for anything before. */
  restUntil: number;
  /** Every topic message that was ever published. */
  readonly published: Set<string>;
  /** Rates of the alarm faults. */
  alarmLateRate: number;
  alarmRepeatRate: number;
  /** Every instance that runs or ran, for the final check that each call was answered. */
  readonly instances: Instance[];
}

export function hostOf(world: World, id: NodeId): Host {
  return world.hosts[id - 1]!;
}
