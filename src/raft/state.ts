/**
 * The state record of the consensus core and the changes of role (Raft paper, figure 2 and section 5.1).
 * Must not: know what a payload means, read a clock, or keep anything that a crash may not lose besides the hard state
 * and the log, which the caller persists as `Output.persist` says.
 */
import { assert } from "../base/assert.ts";
import { nextInteger, type Random } from "../base/random.ts";
import { newestMembership, type RaftLog } from "./log.ts";
import { hasMajority, majorityOf } from "./membership.ts";
import type {
  Entry,
  Envelope,
  Install,
  Membership,
  Message,
  NodeId,
  Output,
  Refusal,
  SnapshotPosition,
} from "./types.ts";

export interface RaftConfig {
  readonly id: NodeId;
  readonly heartbeatMs: number;
  readonly electionTimeoutMsMin: number;
  readonly electionTimeoutMsMax: number;
  /** Confirmation rounds count only behind a storage write (design 02 §1, fence). */
  readonly fence: boolean;
  /**
   * Whether the member of this id in a membership is this very node: the log may tell of an earlier storage behind the
   * id, and what that one might do is not for this one (S08). Absent: there is one storage for ever.
   */
  readonly isSelf?: (membership: Membership) => boolean;
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
  /** The highest term that is known to be durable here: told by `stored`, or by a vote that was asked for in it. */
  durableTerm: number;
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
  /** Of every other member, and of those that are leaving (`Progress.leftAt`). */
  readonly progress: Map<NodeId, Progress>;
  /** Index of this term's `leader_start`: reads wait until it is committed (paper section 8). */
  readonly startIndex: number;
  readonly termWallMs: number;
  readonly termNowMs: number;
  /** By so much was the log ahead of the voters' clocks when the term began: nobody can take that back. */
  readonly inheritedSkewMs: number;
  /** Since when its log time has been too far from the members' clocks (`clock-skew.ts`); Infinity = it is not. */
  skewedSinceMs: number;
  heartbeatAtMs: number;
  /** The heartbeat timer has fired late and the quorum was not judged; the next heartbeat judges, late or not. */
  postponed: boolean;
  /** When peers that do not yet know the commit index are told; Infinity = they all will be by other messages. */
  commitNoticeAtMs: number;
  readonly reads: LeaderReads;
  /** What followers whose entries are gone are offered; null: there is nothing, or nobody who needs it. */
  snapshot: SnapshotPosition | null;
  /** It is handing over, and takes no proposals meanwhile. */
  transfer: Transfer | null;
  /** Null while awake. Asleep, both timers are Infinity. */
  asleep: LeaderSleep | null;
}

export interface LeaderSleep {
  /** Members that did not hold the whole log, or were not heard, when the leader fell asleep: it did not tell them. */
  readonly lagging: readonly NodeId[];
}

/** A handover that is under way (thesis section 3.10). */
export interface Transfer {
  readonly to: NodeId;
  /** The leader gives it up then, and goes on. */
  readonly untilMs: number;
  /** When `timeout_now` was last sent: it is repeated, for it may be lost. */
  askedAtMs: number;
}

/**
 * What the leader knows of one follower (thesis section 10.2.1).
 * Invariant: 0 <= match < next <= lastIndex + 1, and base < next, so that the position before `next` is known.
 */
export interface Progress {
  /**
   * `probe`: one message at a time until the logs meet; `replicate`: pipelined, `next` runs ahead of `match`;
   * `snapshot`: it has said that it needs entries that are gone; gets heartbeats at the base, and offers of a snapshot.
   */
  kind: "probe" | "replicate" | "snapshot";
  match: number;
  next: number;
  /** Last index of each append in flight, oldest first (replicate only). */
  readonly inFlight: number[];
  /** A probe is out and unanswered. */
  probing: boolean;
  /** Of its last reply; where there is none yet, since when it is listened for (so also after a sleep). */
  heardAtMs: number;
  /** Of its last reply to this leader, asleep or not. */
  repliedAtMs: number;
  sentCommit: number;
  /** Its wall clock by its replies; null before the first one. */
  clock: ClockSample | null;
  /** Null for a member. Else the index of the entry that removed it: it hears of that, then it is forgotten. */
  leftAt: number | null;
}

/** `offsetMs`: how far a wall clock is ahead of this node's monotonic one. */
export interface ClockSample {
  readonly offsetMs: number;
  readonly atMs: number;
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
  install: Install | null;
  append: Entry[];
  dropThrough: SnapshotPosition | null;
  fence: number;
  reads: { context: number; index: number }[];
  proposed: Output["proposed"];
  refusal: Refusal | null;
  snapshotOffer: Output["snapshotOffer"];
}

export function emptyOutput(): MutableOutput {
  return {
    sendEarly: [],
    sendLate: [],
    truncateFrom: null,
    install: null,
    append: [],
    dropThrough: null,
    fence: 0,
    reads: [],
    proposed: null,
    refusal: null,
    snapshotOffer: null,
  };
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
  assert(term >= log.lastTerm, `term ${term} is below the log's last term ${log.lastTerm}`);
  assert(commit >= log.base.index, `commit ${commit} below the log's base ${log.base.index}`);
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
    durableTerm: term,
    role,
  };
  if (options.asleep === true) fallAsleep(role);
  else role.electionAtMs = electionTime(state, nowMs);
  return state;
}

/** The membership in force here: the last one in the log, committed or not (thesis 4.1). */
export function membershipOf(state: RaftState): Membership {
  return newestMembership(state.log).membership;
}

export function isVoter(state: RaftState, id: NodeId): boolean {
  return membershipOf(state).voters.includes(id);
}

export function isMember(state: RaftState, id: NodeId): boolean {
  const { voters, learners } = membershipOf(state);
  return voters.includes(id) || learners.includes(id);
}

export function majority(state: RaftState): number {
  return majorityOf(membershipOf(state));
}

/** True if a majority of the voters `agrees`; this node counts only if it votes itself. */
export function isQuorum(state: RaftState, agrees: (id: NodeId) => boolean): boolean {
  return hasMajority(membershipOf(state), agrees);
}

/**
 * A voter may campaign. So may one whose removal is not known to be committed: its log may be the only one that can
 * lead (thesis 4.2.2, a leader that crashed while it removed itself from an even number of voters).
 */
export function mayCampaign(state: RaftState): boolean {
  const { memberships } = state.log;
  const { index, membership } = newestMembership(state.log);
  if (votesIn(state, membership)) return true;
  const before = memberships[memberships.length - 2];
  return index > state.commit && before !== undefined && votesIn(state, before.membership);
}

function votesIn({ config }: RaftState, membership: Membership): boolean {
  return membership.voters.includes(config.id) && (config.isSelf?.(membership) ?? true);
}

/** A follower that has answered within an election timeout. */
export function isReachable(state: RaftState, progress: Progress, nowMs: number): boolean {
  return progress.heardAtMs + state.config.electionTimeoutMsMax >= nowMs;
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

/** The other voters. */
export function peersOf(state: RaftState): readonly NodeId[] {
  return membershipOf(state).voters.filter((id) => id !== state.config.id);
}

/** Every other member. */
export function followersOf(state: RaftState): readonly NodeId[] {
  return [...peersOf(state), ...membershipOf(state).learners.filter((id) => id !== state.config.id)];
}

export function send(state: RaftState, to: NodeId, message: Message, out: MutableOutput): void {
  out.sendLate.push({ from: state.config.id, to, message });
}

export function sendToPeers(state: RaftState, message: Message, out: MutableOutput): void {
  for (const to of peersOf(state)) send(state, to, message, out);
}

/** What an entry of this moment would carry as its time (design 02 §3); null on a node that does not lead. */
export function logTimeMs(state: RaftState, nowMs: number): number | null {
  return state.role.kind === "leader" ? leaderTimeMs(state.log, state.role, nowMs) : null;
}

/** The lower median: of three clocks one wrong one cannot choose it; of two it is the slower one. */
export function medianClock(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted[(sorted.length - 1) >> 1];
  assert(middle !== undefined, "a leader has at least its own clock");
  return Math.floor(middle);
}

/** A term's time begins at the median of its voters' clocks and advances with the leader's own; it never falls. */
export function leaderTimeMs(log: RaftLog, role: Leader, nowMs: number): number {
  const elapsedMs = Math.max(0, Math.floor(nowMs - role.termNowMs));
  return Math.max(log.lastTimeMs, role.termWallMs + elapsedMs);
}
