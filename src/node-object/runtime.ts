/**
 * The node runtime: feeds one event at a time to the consensus core and carries its output out in order (design 02 §2).
 * The same file runs in the Durable Object and in the simulator; all I/O goes through the ports.
 *
 * N1. A turn = one call into the runtime. Early sends, then writes, then late sends, then apply, then answers.
 * N2. A broken invariant or a corrupt row halts the node for good (`halted` row); any other exception aborts the
 *     instance in the same turn. After either, this instance touches nothing any more.
 * N3. Applied rows are buffered (applying.ts); a watcher never makes a commit wait (watching.ts).
 * N4. Nothing is concluded across turns without asking the core again: role and term are re-read after every event.
 */
import type { NodePosition, NodeSummary } from "../api/backend.ts";
import { AssertionError } from "../base/assert.ts";
import type { ErrorBody } from "../base/errors.ts";
import { createRandom, nextInteger } from "../base/random.ts";
import type { CommandResult, Outcome, Proposal, Query, QueryResult } from "../kv/command.ts";
import { applyEntries } from "../kv/machine.ts";
import type { Position } from "../kv/position.ts";
import { step as raftStep } from "../raft/step.ts";
import type { Event, NodeId } from "../raft/types.ts";
import type { Subscribed, Subscription } from "../watch/hub.ts";
import { applyCommitted, flushIfDue } from "./applying.ts";
import { type SpoolSteps, spoolSteps } from "./backup-spool.ts";
import {
  askAgain,
  askForContext,
  onReadIndex,
  openBarrier,
  serveReads,
  sweepReads,
  waitForRevision,
} from "./barriers.ts";
import { createCallQueue } from "./call-queue.ts";
import type { NodeReport } from "./cluster-status.ts";
import { checkDigests } from "./digest-check.ts";
import { type ErrandCall, errandsAtMs, openErrand, runErrands } from "./errands.ts";
import { forwardQueued, sendReplies } from "./forwarding.ts";
import { sayHello } from "./hello.ts";
import { keepHouse } from "./housekeeping.ts";
import { dutiesAtMs, runDuties } from "./leader-duties.ts";
import { truncateLog } from "./log-truncation.ts";
import { changeMember, type MemberChange, type MemberRefusal } from "./member-changes.ts";
import { newIncarnation } from "./members.ts";
import { openRunning } from "./opening.ts";
import { onPeer } from "./peer-messages.ts";
import { CorruptionError, type NodeConfig, type PeerEnvelope, type Ports } from "./ports.ts";
import { noticeAdmission, readmit } from "./readmission.ts";
import {
  type Core,
  type DriveResult,
  type NodeState,
  type Running,
  routableLeader,
  sendPeer,
  serving,
} from "./runtime-state.ts";
import { position, queryState, report, status } from "./runtime-status.ts";
import { type BackupSteps, backupIdleAtMs, backupSteps, dropIdleBackup } from "./served-backup.ts";
import {
  armWatchdog,
  followSleep,
  isOverdue,
  noticeRequest,
  noticeWatch,
  onAlarmFired,
  quiesceIfIdle,
  wakeUp,
} from "./sleep.ts";
import { openInstalled, wantSnapshot } from "./snapshot-intake.ts";
import { serveSnapshot, snapshotAtMs } from "./snapshot-source.ts";
import { createTopicRelay, publishTopic, relayAtMs, relayTopics } from "./topic-relay.ts";
import { openCall, proposeQueued, rerouteCalls, sweepCalls } from "./waiters.ts";
import {
  acknowledgeWatch,
  announceLeaderChange,
  cancelWatch,
  closeWatches,
  pumpWatches,
  requestWatchProgress,
  sendWatchesAway,
  subscribeWatch,
  tellRenaming,
} from "./watching.ts";

/** Every call is one turn (ports P1). `respond` is called exactly once, in this or a later turn. */
export interface Runtime {
  /** First call on a new instance: loads, verifies, arms. */
  start(): void;
  onTimer(): void;
  onAlarm(): void;
  onPeer(envelope: PeerEnvelope): void;
  /** Proposes on the leader, forwards on a follower. Cluster errors come as the error outcome of the same shape. */
  execute(call: {
    readonly proposal: Proposal;
    readonly timeoutMs: number;
    readonly respond: (outcome: Outcome<CommandResult>) => void;
  }): void;
  /** Answers null once this node's state is linearizable as of the call; an error body otherwise. */
  barrier(call: { readonly timeoutMs: number; readonly respond: (error: ErrorBody | null) => void }): void;
  /** Answers null once `revision` is applied here; `behind` when the time is over. */
  waitRevision(call: {
    readonly revision: number;
    readonly timeoutMs: number;
    readonly respond: (error: ErrorBody | null) => void;
  }): void;
  /** Evaluates a query on this node's applied state, whatever its age. */
  query(query: Query): Outcome<QueryResult>;
  /** Frames go out by the port `watchers`. */
  readonly watches: {
    /** An error body: `cluster_not_ready` and `node_halted` besides those of the hub. */
    subscribe(subscription: Subscription): Subscribed;
    /** False: there is no such watch. */
    cancel(connection: string, watchId: number): boolean;
    acknowledge(ack: { readonly connection: string; readonly watchId: number; readonly position: Position }): void;
    /** False: there is no such watch. */
    requestProgress(connection: string, watchId: number): boolean;
    closeConnection(connection: string): void;
  };
  /** To the subscribers of every node that can be reached now. `payload`: JSON text. */
  publishTopic(topic: string, payload: string): void;
  position(): NodePosition;
  status(): NodeSummary;
  /** For the status of the cluster; seldom, for it may cost a look at every row. */
  report(): NodeReport;
  /** Digest of the state after entry `index`, if this instance still remembers it. */
  digestAt(index: number): string | null;
  /** What an administrator asks of this node; answered by a turn of its own, once (errands.ts). Also a halted node answers. */
  administer(call: ErrandCall): void;
  /** Null: the leader does it; it is done when it is committed. */
  changeMember(change: MemberChange): MemberRefusal | null;
  /** Null: the leader tries (thesis 3.10); it may go on leading. */
  transferLeader(to: NodeId): MemberRefusal | null;
  readonly backup: BackupSteps;
  readonly spool: SpoolSteps;
}

const ENDED: ErrorBody = {
  code: "node_halted",
  detail: "This instance of the node has ended; try again, or ask another node.",
};
const ENDED_WATCH: Subscribed = { ok: false, error: ENDED };

const PRODUCTION_CORE: Core = { step: raftStep, apply: applyEntries, hubLimits: {} };

export function createRuntime(config: NodeConfig, ports: Ports, core: Core = PRODUCTION_CORE): Runtime {
  const random = createRandom(config.seed);
  const state: NodeState = {
    config,
    ports,
    core,
    random,
    identity: { incarnation: 0, membership: { kind: "empty" } },
    dead: false,
    halted: null,
    running: null,
    answers: new Map(),
    helloAtMs: Number.POSITIVE_INFINITY,
    alarmAtWallMs: null,
    nextId: nextInteger(random, 1, 2 ** 31) * 2 ** 16,
    spoken: new Map(),
    calls: {
      open: new Map(),
      byIndex: new Map(),
      queue: createCallQueue(),
      outbound: createCallQueue(),
      underWay: [],
      queuedBytes: 0,
    },
    reads: { waiting: [], asked: null, confirmed: [], revisions: [] },
    relay: createTopicRelay(),
    sweepAtMs: Number.POSITIVE_INFINITY,
    errands: [],
    founders: config.members,
  };
  return {
    start: () => turn(state, () => start(state)),
    onTimer: () => turn(state, () => tick(state)),
    onAlarm: () =>
      turn(state, () => {
        state.alarmAtWallMs = null; // it has fired: the end of this turn arms the next one
        if (state.running !== null && state.halted === null) onAlarmFired(state, state.running, drive);
        tick(state);
      }),
    onPeer: (envelope) => turn(state, () => onPeer(state, envelope, drive)),
    execute: ({ proposal, timeoutMs, respond }) => request(state, () => openCall(state, proposal, timeoutMs, respond)),
    barrier: ({ timeoutMs, respond }) => request(state, () => openBarrier(state, timeoutMs, respond)),
    waitRevision: ({ revision, timeoutMs, respond }) => {
      // A node that has it answers in its sleep.
      const has = state.running !== null && state.running.machine.revision >= revision;
      (has ? turn : request)(state, () => waitForRevision(state, revision, timeoutMs, respond));
    },
    query: (query) => {
      let outcome: Outcome<QueryResult> = { ok: false, revision: 0, error: ENDED };
      // A row that a reader finds corrupt halts the node as any other does.
      guard(state, () => {
        outcome = queryState(state, query);
      });
      return outcome;
    },
    watches: {
      subscribe: (subscription) =>
        answered(state, ENDED_WATCH, () => {
          if (state.running !== null && state.halted === null) noticeWatch(state, state.running, drive);
          return subscribeWatch(state, subscription);
        }),
      cancel: (connection, watchId) => answered(state, false, () => cancelWatch(state, connection, watchId)),
      acknowledge: (ack) => turn(state, () => acknowledgeWatch(state, ack)),
      requestProgress: (connection, watchId) =>
        answered(state, false, () => requestWatchProgress(state, connection, watchId)),
      closeConnection: (connection) => turn(state, () => closeWatches(state, connection)),
    },
    publishTopic: (topic, payload) => turn(state, () => publishTopic(state, { topic, payload })),
    position: () => position(state),
    status: () => status(state),
    report: () => report(state),
    digestAt: (index) => state.running?.digests.get(index) ?? null,
    administer: (call) => {
      const isTaken = answered(state, false, () => {
        openErrand(state, call, drive);
        return true;
      });
      if (!isTaken) call.respond({ kind: "elsewhere", leader: null });
    },
    changeMember: (change) => ofLeader(state, (running) => changeMember(state, running, change, drive)),
    transferLeader: (to) => ofLeader(state, (running) => drive(state, running, { kind: "transfer", to }).refusal),
    backup: backupSteps(state, (ended, work) => answered(state, ended, work), ENDED),
    spool: spoolSteps(state, (ended, work) => answered(state, ended, work), ENDED),
  };
}

/** Runs one turn to its end: the event's work, then whatever it made possible, then the timer (N1). */
function turn(state: NodeState, work: () => void): void {
  guard(state, () => {
    work();
    if (state.dead) return; // it was told to end
    if (state.halted === null) settle(state);
    arm(state);
  });
}

/** A turn that answers at once; `ended` when this instance has ended. */
function answered<T>(state: NodeState, ended: T, work: () => T): T {
  let answer = ended;
  turn(state, () => {
    answer = work();
  });
  return answer;
}

/** A turn in which the leader is asked for something that is no command. */
function ofLeader(state: NodeState, work: (running: Running) => MemberRefusal | null): MemberRefusal | null {
  return answered<MemberRefusal | null>(state, "not_running", () => {
    const running = serving(state);
    return running === null ? "not_running" : work(running);
  });
}

/** A turn of a client that needs the cluster, which is woken if it sleeps. */
function request(state: NodeState, work: () => void): void {
  turn(state, () => {
    if (state.running !== null && state.halted === null) noticeRequest(state, state.running, drive);
    work();
  });
}

/** What may go wrong inside the node is decided here and nowhere else (N2). */
function guard(state: NodeState, work: () => void): void {
  if (state.dead) return;
  try {
    work();
  } catch (error) {
    if (error instanceof AssertionError || error instanceof CorruptionError) halt(state, error);
    else die(state, error);
  }
}

function die(state: NodeState, error: unknown): void {
  state.dead = true;
  state.ports.log("error", "instance aborted", { error: String(error) });
  state.ports.abort(String(error));
}

/** Discards the failing output, remembers why, and ends the instance once that is durable. The data stay as they are. */
function halt(state: NodeState, error: Error): void {
  state.ports.log("error", "node halted", { reason: error.message });
  state.dead = true;
  try {
    state.ports.storage.write({ halted: error.message });
    state.ports.storage.afterSync(() => state.ports.abort(`halted: ${error.message}`));
  } catch (failure) {
    die(state, failure);
  }
}

function start(state: NodeState): void {
  const { storage } = state.ports;
  const loaded = storage.load();
  if (loaded.identity === null) {
    state.identity = { incarnation: newIncarnation(state.random), membership: { kind: "empty" } };
    storage.write({ identity: state.identity });
  } else state.identity = loaded.identity;
  if (loaded.halted !== null) {
    state.halted = loaded.halted;
    return;
  }
  const { membership } = state.identity;
  if (membership.kind !== "formed") state.helloAtMs = state.ports.clock.nowMs();
  if (membership.kind !== "formed" && membership.kind !== "lost") return;
  const running = openRunning(state, membership.clusterId, loaded);
  state.running = running;
  // This instance sleeps until it is wanted (sleep.ts S1).
  if (isOverdue(state, running)) wakeUp(state, running, drive);
}

/** Formed in this turn: there has never been a leader, so nobody is waited for. A lost node waits to be taken in. */
function beginIfMember(state: NodeState): void {
  const { membership } = state.identity;
  if (state.running !== null || (membership.kind !== "formed" && membership.kind !== "lost")) return;
  const running = openRunning(state, membership.clusterId, state.ports.storage.load());
  state.running = running;
  if (membership.kind === "formed") wakeUp(state, running, drive);
}

/** Feeds one event to the core and carries out what must leave or be written, in order (N1). */
function drive(state: NodeState, running: Running, event: Event): DriveResult {
  const { clock, storage } = state.ports;
  const output = state.core.step(running.raft, event, clock.nowMs(), clock.wallMs());
  for (const { to, message } of output.sendEarly) sendPeer(state, to, { kind: "raft", message });
  if (output.persist !== null) {
    const { hardState, truncateFrom, install, append, dropThrough, fence, receipt } = output.persist;
    storage.write({
      ...(hardState === null ? {} : { hardState }),
      ...(truncateFrom === null ? {} : { truncateFrom }),
      ...(install === null ? {} : { install }),
      ...(append.length === 0 ? {} : { append }),
      ...(dropThrough === null ? {} : { dropThrough }),
      // Any other write of this turn is a fence already.
      ...(fence === 0 || append.length > 0 || hardState !== null ? {} : { fence }),
    });
    for (const { payloadBytes } of append) running.appendedBytes += payloadBytes;
    if (install !== null) openInstalled(state, running, install.snapshot);
    if (append.length > 0 || fence > 0 || install !== null) {
      storage.afterSync(() => turn(state, () => void drive(state, running, { kind: "stored", receipt })));
    }
  }
  for (const { to, message } of output.sendLate) sendPeer(state, to, { kind: "raft", message });
  running.commitIndex = output.commitIndex;
  running.snapshotWanted = output.snapshotWanted;
  if (output.snapshotOffer !== null) wantSnapshot(state, running, output.snapshotOffer);
  running.wakeAtMs = output.wakeAtMs;
  for (const { context, index } of output.reads) onReadIndex(state, context, index);
  return output;
}

/** The end of a turn: apply what is committed, answer, propose what gathered, until nothing more moves. */
function settle(state: NodeState): void {
  beginIfMember(state);
  const { running } = state;
  const nowMs = state.ports.clock.nowMs();
  relayTopics(state, nowMs);
  if (nowMs >= state.sweepAtMs) {
    state.sweepAtMs = Math.min(sweepCalls(state, nowMs), sweepReads(state, nowMs));
  }
  runErrands(state, nowMs, drive);
  if (running === null) return;
  const { raft } = running;
  const leader = routableLeader(running);
  if (running.seenLeader !== leader || running.seenTerm !== raft.term) {
    running.seenLeader = leader;
    running.seenTerm = raft.term;
    askAgain(state);
    rerouteCalls(state, running);
  }
  noticeAdmission(state, running);
  applyCommitted(state, running);
  // Before this turn's own writes, which would hold them back.
  sendReplies(state, running);
  askForContext(state, running, drive);
  runDuties(state, running, nowMs);
  readmit(state, running, nowMs, drive);
  forwardQueued(state, running);
  proposeQueued(state, running, drive);
  applyCommitted(state, running);
  sendReplies(state, running);
  serveReads(state, running);
  announceLeaderChange(state, running, nowMs);
  pumpWatches(state, running, nowMs);
  sendWatchesAway(state, running);
  tellRenaming(state, running);
  serveSnapshot(state, running, nowMs, drive);
  dropIdleBackup(state, running, nowMs);
  checkDigests(state, running, nowMs);
  quiesceIfIdle(state, running, nowMs, drive);
  followSleep(state, running, nowMs);
  flushIfDue(state, running, nowMs);
  truncateLog(state, running, nowMs, drive);
  keepHouse(state, running, nowMs);
}

/** Arms the one timer, and the alarm behind it while this node is awake. */
function arm(state: NodeState): void {
  if (state.halted !== null) return; // a halted node arms nothing
  const { running } = state;
  let atMs = Math.min(state.helloAtMs, state.sweepAtMs, relayAtMs(state), errandsAtMs(state));
  if (running !== null) {
    const { wakeAtMs, flushAtMs, pumpAtMs, leaderlessAtMs } = running;
    atMs = Math.min(atMs, wakeAtMs, flushAtMs, pumpAtMs, snapshotAtMs(running), backupIdleAtMs(running));
    if (!running.asleep) {
      atMs = Math.min(atMs, leaderlessAtMs, dutiesAtMs(running));
    }
  }
  state.ports.wake.setTimer(atMs);
  // A lost node greets on, also when its instance has gone: nobody else would wake it.
  if (running === null || !running.asleep || state.identity.membership.kind === "lost") armWatchdog(state);
}

function tick(state: NodeState): void {
  if (state.running !== null && state.halted === null) drive(state, state.running, { kind: "tick" });
  sayHello(state);
}
