/**
 * The node runtime: feeds one event at a time to the consensus core and carries its output out in order (design 02 §2).
 * The same file runs in the Durable Object and in the simulator; all I/O goes through the ports.
 *
 * N1. A turn = one call into the runtime. Early sends, then writes, then late sends, then apply, then answers.
 * N2. A broken invariant or a corrupt row halts the node for good (`halted` row); any other exception aborts the
 *     instance in the same turn. After either, this instance touches nothing any more.
 * N3. Applied rows are buffered and flushed together with the applied index; the log replays what a crash loses.
 * N4. Nothing is concluded across turns without asking the core again: role and term are re-read after every event.
 */
import type { NodePosition, NodeStatus } from "../api/backend.ts";
import { AssertionError, assert } from "../base/assert.ts";
import type { ErrorBody } from "../base/errors.ts";
import { createRandom, nextFloat, nextInteger } from "../base/random.ts";
import type { CommandResult, Outcome, Proposal, Query, QueryResult } from "../kv/command.ts";
import { type AppliedEntry, applyEntries, openMachine } from "../kv/machine.ts";
import { Overlay } from "../kv/overlay.ts";
import type { OrderedStore } from "../kv/store.ts";
import { createLog, entriesFrom } from "../raft/log.ts";
import { createRaft, leaderOf } from "../raft/state.ts";
import { step as raftStep } from "../raft/step.ts";
import type { Event } from "../raft/types.ts";
import {
  askAgain,
  askForContext,
  onReadIndex,
  openBarrier,
  serveReads,
  sweepReads,
  waitForRevision,
} from "./barriers.ts";
import { advanceForming, hearHello, type Membership } from "./forming.ts";
import {
  CorruptionError,
  type LoadedState,
  type NodeConfig,
  type NodeStorage,
  type PeerEnvelope,
  type Ports,
} from "./ports.ts";
import { type DriveResult, type NodeState, type Running, sendPeer } from "./runtime-state.ts";
import { position, queryState, status } from "./runtime-status.ts";
import { onApplied, onForward, onForwardReply, openCall, proposeQueued, rerouteCalls, sweepCalls } from "./waiters.ts";

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
  position(): NodePosition;
  status(): NodeStatus;
  /** Digest of the state after entry `index`, if this instance still remembers it. */
  digestAt(index: number): string | null;
}

/** Applied rows wait in memory at most this long, or until they are this many characters. */
const FLUSH_AFTER_MS = 500;
const FLUSH_CHARACTERS_MAX = 4 << 20;
/** The alarm is the watchdog of an awake node: it lies 5 to 15 s ahead (design 02 §3). */
const ALARM_AHEAD_MS_MIN = 5_000;
const ALARM_AHEAD_MS_MAX = 15_000;
/** A new instance lets the alarm of the one before it be for so long. */
const ALARM_LEFT_ALONE_MS = 1_000;
/** Pause between two rounds of hello, in heartbeats: while forming, and once the storage is known to be lost. */
const HELLO_HEARTBEATS = 4;
const HELLO_HEARTBEATS_LOST = 100;
const DIGESTS_KEPT_MAX = 4096;
const APPLY_ENTRIES_MAX = 1024;
const APPLY_BYTES_MAX = 4 << 20;

const ENDED: ErrorBody = {
  code: "node_halted",
  detail: "This instance of the node has ended; try again, or ask another node.",
};

export function createRuntime(
  config: NodeConfig,
  ports: Ports,
  core: { readonly step: typeof raftStep } = { step: raftStep },
): Runtime {
  const random = createRandom(config.seed);
  const state: NodeState = {
    config,
    ports,
    step: core.step,
    random,
    identity: { incarnation: 0, membership: { kind: "empty" } },
    dead: false,
    halted: null,
    running: null,
    answers: new Map(),
    helloAtMs: Number.POSITIVE_INFINITY,
    alarmAtWallMs: 0,
    nextId: nextInteger(random, 1, 2 ** 31) * 2 ** 16,
    calls: { open: new Map(), byIndex: new Map(), queue: [], queuedBytes: 0 },
    reads: { waiting: [], asked: null, confirmed: [], revisions: [] },
    sweepAtMs: Number.POSITIVE_INFINITY,
  };
  return {
    start: () => turn(state, () => start(state)),
    onTimer: () => turn(state, () => tick(state)),
    onAlarm: () =>
      turn(state, () => {
        state.alarmAtWallMs = 0; // it has fired: the end of this turn arms the next one
        tick(state);
      }),
    onPeer: (envelope) => turn(state, () => onPeer(state, envelope)),
    execute: ({ proposal, timeoutMs, respond }) => turn(state, () => openCall(state, proposal, timeoutMs, respond)),
    barrier: ({ timeoutMs, respond }) => turn(state, () => openBarrier(state, timeoutMs, respond)),
    waitRevision: ({ revision, timeoutMs, respond }) =>
      turn(state, () => waitForRevision(state, revision, timeoutMs, respond)),
    query: (query) => {
      let outcome: Outcome<QueryResult> = { ok: false, revision: 0, error: ENDED };
      // A row that a reader finds corrupt halts the node as any other does.
      guard(state, () => {
        outcome = queryState(state, query);
      });
      return outcome;
    },
    position: () => position(state),
    status: () => status(state),
    digestAt: (index) => state.running?.digests.get(index) ?? null,
  };
}

/** Runs one turn to its end: the event's work, then whatever it made possible, then the timer (N1). */
function turn(state: NodeState, work: () => void): void {
  guard(state, () => {
    work();
    if (state.halted === null) settle(state);
    arm(state);
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
    const incarnation = 1 + Math.floor(nextFloat(state.random) * 2 ** 48);
    state.identity = { incarnation, membership: { kind: "empty" } };
    storage.write({ identity: state.identity });
  } else {
    state.identity = loaded.identity;
    // An earlier instance has left an alarm. It may be overdue and about to fire: moved now, it would be cancelled.
    state.alarmAtWallMs = state.ports.clock.wallMs() + ALARM_AHEAD_MS_MIN + ALARM_LEFT_ALONE_MS;
  }
  if (loaded.halted !== null) {
    state.halted = loaded.halted;
    return;
  }
  enter(state);
}

/** Acts on the membership: a formed node runs, an unformed one asks around. */
function enter(state: NodeState): void {
  const { membership } = state.identity;
  if (membership.kind === "formed") {
    state.helloAtMs = Number.POSITIVE_INFINITY;
    if (state.running === null) state.running = run(state, membership.clusterId, state.ports.storage.load());
    return;
  }
  state.helloAtMs = state.ports.clock.nowMs();
}

function run(state: NodeState, clusterId: string, loaded: LoadedState): Running {
  const { config, ports } = state;
  const buffer = new Overlay(durableStore(ports.storage));
  const machine = openMachine(buffer);
  assert(
    machine.appliedIndex <= loaded.lastIndex,
    `applied ${machine.appliedIndex} beyond the log's end ${loaded.lastIndex}`,
  );
  const raft = createRaft({
    config: {
      id: config.id,
      voters: config.members,
      heartbeatMs: config.heartbeatMs,
      electionTimeoutMsMin: config.electionTimeoutMsMin,
      electionTimeoutMsMax: config.electionTimeoutMsMax,
      fence: config.fence,
    },
    random: state.random,
    log: createLog((from, to, bytesMax) => ports.storage.readLog(from, to, bytesMax), loaded),
    term: loaded.hardState.term,
    votedFor: loaded.hardState.votedFor,
    commit: machine.appliedIndex,
    nowMs: ports.clock.nowMs(),
  });
  return {
    clusterId,
    raft,
    wakeAtMs: raft.role.kind === "leader" ? 0 : raft.role.electionAtMs,
    commitIndex: raft.commit,
    machine,
    buffer,
    flushAtMs: Number.POSITIVE_INFINITY,
    seenLeader: null,
    seenTerm: raft.term,
    startTerm: raft.term,
    batches: [],
    taken: new Map(),
    digests: new Map([[machine.appliedIndex, machine.digest]]),
  };
}

/** The durable rows as an ordered store; rows change only by `flush`. */
function durableStore(storage: NodeStorage): OrderedStore {
  const refuse = (key: string) => assert(false, `row ${key} written past the buffer`);
  return { get: (key) => storage.get(key), scan: (range) => storage.scan(range), put: refuse, delete: refuse };
}

function onPeer(state: NodeState, envelope: PeerEnvelope): void {
  const { from, body } = envelope;
  if (envelope.to !== state.config.id || !state.config.members.includes(from) || from === state.config.id) return;
  if (body.kind === "hello") {
    onHello(state, envelope, body);
    return;
  }
  const { running, identity } = state;
  if (running === null || state.halted !== null || identity.membership.kind !== "formed") return;
  if (envelope.clusterId !== running.clusterId || envelope.toIncarnation !== identity.incarnation) return;
  const member = identity.membership.members.find(({ id }) => id === from);
  if (member?.incarnation !== envelope.fromIncarnation) return; // the storage behind that id is not the member's
  switch (body.kind) {
    case "raft":
      drive(state, running, { kind: "message", from, message: body.message });
      return;
    case "forward":
      onForward(state, running, from, body);
      return;
    case "forward_reply":
      onForwardReply(state, body.id, body.outcome);
      return;
  }
}

function onHello(
  state: NodeState,
  envelope: PeerEnvelope,
  hello: { readonly membership: Membership; readonly reply: boolean },
): void {
  const { from, fromIncarnation } = envelope;
  if (hello.reply) {
    // Only an answer to this very incarnation counts (forming F1).
    if (envelope.toIncarnation !== state.identity.incarnation) return;
    state.answers.set(from, { incarnation: fromIncarnation, membership: hello.membership });
  }
  if (state.halted === null) {
    const heard = { from, incarnation: fromIncarnation, membership: hello.membership };
    adopt(state, hearHello(state.identity, state.config, heard));
    adopt(
      state,
      advanceForming(state.identity, state.config, state.answers, () => newClusterId(state)),
    );
  }
  if (!hello.reply) sendHello(state, from, true, fromIncarnation);
}

function adopt(state: NodeState, membership: Membership): void {
  if (membership === state.identity.membership) return;
  state.identity = { incarnation: state.identity.incarnation, membership };
  state.ports.storage.write({ identity: state.identity });
  state.ports.log("info", "membership", {
    kind: membership.kind,
    cluster: membership.kind === "empty" ? null : membership.clusterId,
  });
  enter(state);
}

function sendHello(state: NodeState, to: number, reply: boolean, toIncarnation: number | null): void {
  const { membership, incarnation } = state.identity;
  const clusterId = membership.kind === "empty" ? null : membership.clusterId;
  state.ports.transport.send({
    protocol: 1,
    clusterId,
    from: state.config.id,
    fromIncarnation: incarnation,
    to,
    toIncarnation,
    body: { kind: "hello", membership, reply },
  });
}

function newClusterId(state: NodeState): string {
  let id = "";
  while (id.length < 24) id += nextInteger(state.random, 0, 15).toString(16);
  return id;
}

/** Feeds one event to the core and carries out what must leave or be written, in order (N1). */
function drive(state: NodeState, running: Running, event: Event): DriveResult {
  const { clock, storage } = state.ports;
  const output = state.step(running.raft, event, clock.nowMs(), clock.wallMs());
  for (const { to, message } of output.sendEarly) sendPeer(state, to, { kind: "raft", message });
  if (output.persist !== null) {
    const { hardState, truncateFrom, append, fence, receipt } = output.persist;
    storage.write({
      ...(hardState === null ? {} : { hardState }),
      ...(truncateFrom === null ? {} : { truncateFrom }),
      ...(append.length === 0 ? {} : { append }),
      // Any other write of this turn is a fence already.
      ...(fence === 0 || append.length > 0 || hardState !== null ? {} : { fence }),
    });
    if (append.length > 0 || fence > 0) {
      storage.afterSync(() => turn(state, () => void drive(state, running, { kind: "stored", receipt })));
    }
  }
  for (const { to, message } of output.sendLate) sendPeer(state, to, { kind: "raft", message });
  running.commitIndex = output.commitIndex;
  running.wakeAtMs = output.wakeAtMs;
  for (const { context, index } of output.reads) onReadIndex(state, context, index);
  return { proposed: output.proposed };
}

/** The end of a turn: apply what is committed, answer, propose what gathered, until nothing more moves. */
function settle(state: NodeState): void {
  const { running } = state;
  const nowMs = state.ports.clock.nowMs();
  if (nowMs >= state.sweepAtMs) {
    state.sweepAtMs = Math.min(sweepCalls(state, nowMs), sweepReads(state, nowMs));
  }
  if (running === null) return;
  const { raft } = running;
  if (running.seenLeader !== leaderOf(raft) || running.seenTerm !== raft.term) {
    running.seenLeader = leaderOf(raft);
    running.seenTerm = raft.term;
    askAgain(state);
    rerouteCalls(state, running);
  }
  applyCommitted(state, running);
  askForContext(state, running, drive);
  proposeQueued(state, running, drive);
  applyCommitted(state, running);
  serveReads(state, running);
  if (running.buffer.size > 0) {
    running.flushAtMs = Math.min(running.flushAtMs, nowMs + FLUSH_AFTER_MS);
    if (nowMs >= running.flushAtMs || running.buffer.characters >= FLUSH_CHARACTERS_MAX) flush(state, running);
  }
}

function applyCommitted(state: NodeState, running: Running): void {
  const { raft, machine, digests, commitIndex } = running;
  while (machine.appliedIndex < commitIndex) {
    const from = machine.appliedIndex + 1;
    const countMax = Math.min(APPLY_ENTRIES_MAX, commitIndex - machine.appliedIndex);
    const entries = entriesFrom(raft.log, from, countMax, APPLY_BYTES_MAX);
    const applied = applyEntries(machine, entries satisfies readonly AppliedEntry[]);
    applied.forEach((one, position) => {
      digests.set(one.index, one.digest);
      digests.delete(one.index - DIGESTS_KEPT_MAX);
      onApplied(state, one, entries[position]?.term ?? 0);
    });
  }
}

/** Makes the buffered rows durable, with the applied index among them (N3). */
function flush(state: NodeState, running: Running): void {
  running.flushAtMs = Number.POSITIVE_INFINITY;
  state.ports.storage.write({ state: running.buffer.drain() });
}

function tick(state: NodeState): void {
  const nowMs = state.ports.clock.nowMs();
  if (state.running !== null && state.halted === null) drive(state, state.running, { kind: "tick" });
  if (nowMs < state.helloAtMs) return;
  const heartbeats = state.identity.membership.kind === "lost" ? HELLO_HEARTBEATS_LOST : HELLO_HEARTBEATS;
  state.helloAtMs = nowMs + heartbeats * state.config.heartbeatMs;
  for (const id of state.config.members) if (id !== state.config.id) sendHello(state, id, false, null);
  adopt(
    state,
    advanceForming(state.identity, state.config, state.answers, () => newClusterId(state)),
  );
}

/** Arms the one timer, and the alarm behind it while this node is awake. */
function arm(state: NodeState): void {
  if (state.halted !== null) return; // a halted node arms nothing
  const { clock, wake } = state.ports;
  let atMs = Math.min(state.helloAtMs, state.sweepAtMs);
  if (state.running !== null) atMs = Math.min(atMs, state.running.wakeAtMs, state.running.flushAtMs);
  if (atMs < Number.POSITIVE_INFINITY) wake.setTimer(atMs);
  const wallMs = clock.wallMs();
  const ahead = state.alarmAtWallMs - wallMs;
  if (ahead >= ALARM_AHEAD_MS_MIN && ahead <= ALARM_AHEAD_MS_MAX) return;
  state.alarmAtWallMs = wallMs + ALARM_AHEAD_MS_MAX;
  wake.setAlarm(state.alarmAtWallMs);
}
