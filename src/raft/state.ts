/**
 * The state record of the consensus core and the changes of role (Raft paper, figure 2 and section 5.1).
 * Must not: know what a payload means, read a clock, or keep anything that a crash may not lose besides the hard state
 * and the log, which the caller persists as `Output.persist` says.
 */
import { assert } from "../base/assert.ts";
import { nextInteger, type Random } from "../base/random.ts";
import type { RaftLog } from "./log.ts";
import type { Entry, Envelope, Message, NodeId, Output } from "./types.ts";

export interface RaftConfig {
  readonly id: NodeId;
  /** All voters, own id included: 1, 3, 5 or 7. */
  readonly voters: readonly NodeId[];
  readonly heartbeatMs: number;
  readonly electionTimeoutMsMin: number;
  readonly electionTimeoutMsMax: number;
  /** Confirmation rounds count only behind a storage write (design 02 §1, fence). */
  readonly fence: boolean;
}

export interface RaftState {
  readonly config: RaftConfig;
  readonly random: Random;
  readonly log: RaftLog;
  term: number;
  votedFor: NodeId | null;
  commit: number;
  /** Own entries up to here are durable (told by `stored`). */
  durableIndex: number;
  role: Role;
}

export type Role = Follower | PreCandidate | Candidate | Leader;

export interface Follower {
  readonly kind: "follower";
  leader: NodeId | null;
  /** When the leader of this term was last heard; votes are refused for an election timeout after it. */
  heardLeaderAtMs: number;
  electionAtMs: number;
  /** The timer has fired late once and was put off (a stalled thread must not campaign); it is not put off again. */
  postponed: boolean;
  /** No election timer (`electionAtMs` is Infinity) until anything happens (design 02 §4). */
  asleep: boolean;
  /** Without a leader, it has sent `wake` to the others: its timer does the rest, however often it is asked. */
  called: boolean;
}

export interface PreCandidate {
  readonly kind: "pre_candidate";
  readonly granted: Set<NodeId>;
  electionAtMs: number;
  postponed: boolean;
}

export interface Candidate {
  readonly kind: "candidate";
  /** Granted votes with the voter's wall clock: the term's time starts at their median (design 02 §3). */
  readonly granted: Map<NodeId, number>;
  electionAtMs: number;
  postponed: boolean;
}

export interface Leader {
  readonly kind: "leader";
  readonly progress: Map<NodeId, Progress>;
  /** Index of this term's `leader_start`: reads wait until it is committed (paper section 8). */
  readonly startIndex: number;
  readonly termWallMs: number;
  readonly termNowMs: number;
  heartbeatAtMs: number;
  /** The heartbeat timer has fired late and the quorum was not judged; the next heartbeat judges, late or not. */
  postponed: boolean;
  /** When peers that do not yet know the commit index are told; Infinity = they all will be by other messages. */
  commitNoticeAtMs: number;
  readonly reads: LeaderReads;
  /** Null while awake. Asleep, both timers are Infinity. */
  asleep: LeaderSleep | null;
}

export interface LeaderSleep {
  /** Members that did not hold the whole log, or were not heard, when the leader fell asleep: it did not tell them. */
  readonly lagging: readonly NodeId[];
}

/** What the leader knows of one follower (thesis section 10.2.1). Invariant: 0 <= match < next <= lastIndex + 1. */
export interface Progress {
  /** `probe`: one message at a time until the logs meet; `replicate`: pipelined, `next` runs ahead of `match`. */
  kind: "probe" | "replicate";
  match: number;
  next: number;
  /** Last index of each append in flight, oldest first (replicate only). */
  readonly inFlight: number[];
  /** A probe is out and unanswered. */
  probing: boolean;
  heardAtMs: number;
  sentCommit: number;
}

export interface ReadRequest {
  readonly from: NodeId;
  readonly context: number;
}

/** ReadIndex (thesis section 6.4): at most one confirmation round is under way, later reads wait for the next. */
export interface LeaderReads {
  waiting: ReadRequest[];
  round: ReadRound | null;
  lastRound: number;
}

export interface ReadRound {
  readonly id: number;
  readonly index: number;
  readonly requests: readonly ReadRequest[];
  readonly confirmed: Set<NodeId>;
}

const NEVER_MS = Number.NEGATIVE_INFINITY;

/** The output under construction: same fields as `Output`, writable. */
export interface MutableOutput {
  sendEarly: Envelope[];
  sendLate: Envelope[];
  truncateFrom: number | null;
  append: Entry[];
  fence: number;
  reads: { context: number; index: number }[];
  proposed: Output["proposed"];
}

export function emptyOutput(): MutableOutput {
  return { sendEarly: [], sendLate: [], truncateFrom: null, append: [], fence: 0, reads: [], proposed: null };
}

export function createRaft(options: {
  readonly config: RaftConfig;
  readonly random: Random;
  readonly log: RaftLog;
  readonly term: number;
  readonly votedFor: NodeId | null;
  /** Everything up to here is applied, so it is committed. */
  readonly commit: number;
  readonly nowMs: number;
  /** Start without an election timer: nothing happens until an event or a message asks for it (design 02 §4). */
  readonly asleep?: boolean;
}): RaftState {
  const { config, random, log, term, votedFor, commit, nowMs } = options;
  assert(config.voters.includes(config.id), `node ${config.id} is not a voter`);
  assert(term >= log.lastTerm, `term ${term} is below the log's last term ${log.lastTerm}`);
  assert(commit <= log.lastIndex, `commit ${commit} beyond the log's end ${log.lastIndex}`);
  const role = followerRole(null, NEVER_MS, 0);
  const state: RaftState = {
    config,
    random,
    log,
    term,
    votedFor,
    commit,
    durableIndex: log.lastIndex,
    role,
  };
  if (options.asleep === true) fallAsleep(role);
  else role.electionAtMs = electionTime(state, nowMs);
  return state;
}

export function majority(state: RaftState): number {
  return Math.floor(state.config.voters.length / 2) + 1;
}

export function electionTime(state: RaftState, nowMs: number): number {
  const { electionTimeoutMsMin, electionTimeoutMsMax } = state.config;
  return nowMs + nextInteger(state.random, electionTimeoutMsMin, electionTimeoutMsMax);
}

/** Follower of `leader` (null = not known yet) in `term`; a higher term forgets the vote. */
export function becomeFollower(state: RaftState, term: number, leader: NodeId | null, nowMs: number): void {
  assert(term >= state.term, `term fell from ${state.term} to ${term}`);
  if (term > state.term) {
    state.term = term;
    state.votedFor = null;
  }
  state.role = followerRole(leader, leader === null ? NEVER_MS : nowMs, electionTime(state, nowMs));
}

function followerRole(leader: NodeId | null, heardLeaderAtMs: number, electionAtMs: number): Follower {
  return { kind: "follower", leader, heardLeaderAtMs, electionAtMs, postponed: false, asleep: false, called: false };
}

/** The leader stays known, but as one that is not heard: it may be gone when this node wakes up, so votes are free. */
export function fallAsleep(role: Follower): void {
  role.asleep = true;
  role.heardLeaderAtMs = NEVER_MS;
  role.electionAtMs = Number.POSITIVE_INFINITY;
}

/** The leader that is known here. A sleeping follower's may be gone: ask `isAsleep` before relying on it. */
export function leaderOf(state: RaftState): NodeId | null {
  if (state.role.kind === "leader") return state.config.id;
  return state.role.kind === "follower" ? state.role.leader : null;
}

export function isAsleep({ role }: RaftState): boolean {
  if (role.kind === "leader") return role.asleep !== null;
  return role.kind === "follower" && role.asleep;
}

/** Members that did not follow this leader into its sleep; empty unless it leads and sleeps. Not empty: probe them. */
export function laggingPeers({ role }: RaftState): readonly NodeId[] {
  return role.kind === "leader" ? (role.asleep?.lagging ?? []) : [];
}

export function peersOf(state: RaftState): readonly NodeId[] {
  return state.config.voters.filter((id) => id !== state.config.id);
}

export function sendToPeers(state: RaftState, message: Message, out: MutableOutput): void {
  for (const to of peersOf(state)) out.sendLate.push({ from: state.config.id, to, message });
}

/** What an entry of this moment would carry as its time (design 02 §3); null on a node that does not lead. */
export function logTimeMs(state: RaftState, nowMs: number): number | null {
  return state.role.kind === "leader" ? leaderTimeMs(state.log, state.role, nowMs) : null;
}

/** A term's time begins at the median of its voters' clocks and advances with the leader's own; it never falls. */
export function leaderTimeMs(log: RaftLog, role: Leader, nowMs: number): number {
  const elapsedMs = Math.max(0, Math.floor(nowMs - role.termNowMs));
  return Math.max(log.lastTimeMs, role.termWallMs + elapsedMs);
}
