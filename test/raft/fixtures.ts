/**
 * One consensus core on its own: states made by hand, messages made by hand, outputs taken apart.
 * Everything here is plain data; the cluster harness builds on it.
 */
import { createRandom } from "../../src/base/random.ts";
import { createLog, entryAt, type LoadedLog, type LogReader, membershipEntries } from "../../src/raft/log.ts";
import { membershipPayload } from "../../src/raft/membership.ts";
import { createRaft, type Leader, majority, peersOf, type RaftConfig, type RaftState } from "../../src/raft/state.ts";
import { step } from "../../src/raft/step.ts";
import type {
  Entry,
  Envelope,
  Event,
  Membership,
  Message,
  NodeId,
  Output,
  ProposalPayload,
  SnapshotPosition,
} from "../../src/raft/types.ts";

export const HEARTBEAT_MS = 50;
export const ELECTION_MS_MIN = 300;
export const ELECTION_MS_MAX = 600;

export type Of<Kind extends Message["kind"]> = Extract<Message, { kind: Kind }>;

export function members(voters: readonly NodeId[], learners: readonly NodeId[] = [], extra?: string): Membership {
  return extra === undefined ? { voters, learners } : { voters, learners, extra };
}

/** Voters 1 to `size`. */
export function votersUpTo(size: number): Membership {
  return members(Array.from({ length: size }, (_, position) => position + 1));
}

/** The position of a snapshot whose last entry is (index, term), as `entry` makes it. */
export function positionOf(index: number, term: number, membership = votersUpTo(3)): SnapshotPosition {
  return { index, term, timeMs: index, membership };
}

export function configOf(id: NodeId, fence = false): RaftConfig {
  return {
    id,
    heartbeatMs: HEARTBEAT_MS,
    electionTimeoutMsMin: ELECTION_MS_MIN,
    electionTimeoutMsMax: ELECTION_MS_MAX,
    fence,
  };
}

export function entry(index: number, term: number, changes: Partial<Entry> = {}): Entry {
  const payload = changes.payload ?? `t${term}i${index}`;
  return { index, term, timeMs: index, kind: "command", payload, payloadBytes: payload.length, ...changes };
}

export function membershipEntry(index: number, term: number, membership: Membership): Entry {
  return entry(index, term, { kind: "membership", ...membershipPayload(membership) });
}

/** Entries with these terms, at indexes `first`, `first + 1`, … */
export function entriesOf(terms: readonly number[], first = 1): Entry[] {
  return terms.map((term, position) => entry(first + position, term));
}

/** `count` times `term`. */
export function times(count: number, term: number): number[] {
  return new Array<number>(count).fill(term);
}

/** A reader as the storage offers it: at least one entry, then as many as fit. */
export function readerOver(durable: () => readonly Entry[]): LogReader {
  return (from, to, bytesMax) => {
    const found: Entry[] = [];
    let bytes = 0;
    const entries = durable();
    const first = entries[0]?.index ?? 1;
    for (const candidate of entries.slice(Math.max(0, from - first), Math.max(0, to - first + 1))) {
      bytes += candidate.payloadBytes;
      if (found.length > 0 && bytes > bytesMax) break;
      found.push(candidate);
    }
    return found;
  };
}

/** What a storage with these rows tells a node that starts. */
export function loadedLog(read: LogReader, base: SnapshotPosition, last: Entry | undefined): LoadedLog {
  const end = last ?? base;
  return {
    base,
    lastIndex: end.index,
    lastTerm: end.term,
    lastTimeMs: end.timeMs,
    memberships: membershipEntries(read, base.index + 1, end.index, 1000),
  };
}

export interface RaftOptions {
  readonly id?: NodeId;
  /** Voters 1 to `size`, unless `base` says otherwise. */
  readonly size?: number;
  /** Where the log begins. */
  readonly base?: SnapshotPosition;
  readonly fence?: boolean;
  readonly isSelf?: (membership: Membership) => boolean;
  readonly seed?: number;
  /** Terms of the durable log. */
  readonly terms?: readonly number[];
  readonly entries?: readonly Entry[];
  readonly term?: number;
  readonly votedFor?: NodeId | null;
  readonly commit?: number;
  readonly nowMs?: number;
  readonly asleep?: boolean;
}

/** A follower that has just started from the given durable state. */
export function raft(options: RaftOptions = {}): RaftState {
  const base = options.base ?? positionOf(0, 0, votersUpTo(options.size ?? 3));
  const durable = options.entries ?? entriesOf(options.terms ?? [], base.index + 1);
  const read = readerOver(() => durable);
  const loaded = loadedLog(read, base, durable.at(-1));
  const config = configOf(options.id ?? 1, options.fence ?? false);
  return createRaft({
    config: options.isSelf === undefined ? config : { ...config, isSelf: options.isSelf },
    random: createRandom(options.seed ?? 1),
    log: createLog(read, loaded),
    term: options.term ?? loaded.lastTerm,
    votedFor: options.votedFor ?? null,
    commit: options.commit ?? base.index,
    nowMs: options.nowMs ?? 0,
    asleep: options.asleep ?? false,
  });
}

export function receive(state: RaftState, from: NodeId, message: Message, nowMs = 0, wallMs = nowMs): Output {
  return step(state, { kind: "message", from, message }, nowMs, wallMs);
}

export function happen(state: RaftState, event: Event, nowMs = 0, wallMs = nowMs): Output {
  return step(state, event, nowMs, wallMs);
}

export function tick(state: RaftState, nowMs: number): Output {
  return step(state, { kind: "tick" }, nowMs, nowMs);
}

/** The election timer runs out at this moment, whatever it was set to: pre-votes go out. Nothing of it for a leader. */
export function campaign(state: RaftState, nowMs = 0, wallMs = nowMs): Output {
  if (state.role.kind !== "leader") state.role.electionAtMs = nowMs;
  return step(state, { kind: "tick" }, nowMs, wallMs);
}

export function payload(text: string): ProposalPayload {
  return { payload: text, payloadBytes: text.length };
}

export function propose(state: RaftState, texts: readonly string[], nowMs = 0): Output {
  return step(state, { kind: "propose", payloads: texts.map(payload) }, nowMs, nowMs);
}

/** Tells the core that the writes of `output` are durable. */
export function stored(state: RaftState, output: Output, nowMs = 0): Output {
  const { persist } = output;
  if (persist === null) throw new Error("the output asked for no write");
  return step(state, { kind: "stored", receipt: persist.receipt }, nowMs, nowMs);
}

export function append(options: Partial<Omit<Of<"append">, "kind">>): Of<"append"> {
  return { kind: "append", term: 1, prevIndex: 0, prevTerm: 0, commit: 0, round: 0, entries: [], ...options };
}

export function matched(term: number, index: number, round = 0, wallMs = 0): Of<"append_reply"> {
  return { kind: "append_reply", term, result: { kind: "matched", index }, round, wallMs };
}

export function conflict(
  term: number,
  prevIndex: number,
  hint: { readonly index: number; readonly term: number },
): Of<"append_reply"> {
  return { kind: "append_reply", term, result: { kind: "conflict", prevIndex, ...hint }, round: 0, wallMs: 0 };
}

export function vote(term: number, lastIndex: number, lastTerm: number, transfer = false): Of<"vote"> {
  return { kind: "vote", term, lastIndex, lastTerm, transfer };
}

export function preVote(term: number, lastIndex: number, lastTerm: number): Of<"pre_vote"> {
  return { kind: "pre_vote", term, lastIndex, lastTerm };
}

/** Makes `state` the leader of the next term by the votes of a bare majority; returns the output of that moment. */
export function lead(state: RaftState, nowMs = 0, walls: readonly number[] = []): Output {
  let output = campaign(state, nowMs, walls[0] ?? nowMs);
  const term = state.term + 1;
  const voters = peersOf(state).slice(0, majority(state) - 1);
  for (const from of voters) receive(state, from, { kind: "pre_vote_reply", term, granted: true }, nowMs, walls[0]);
  voters.forEach((from, position) => {
    const wallMs = walls[position + 1] ?? nowMs;
    output = receive(state, from, { kind: "vote_reply", term, granted: true, wallMs }, nowMs, walls[0]);
  });
  if (state.role.kind !== "leader") throw new Error(`node ${state.config.id} is ${state.role.kind}, not leader`);
  return output;
}

/** As `lead`, and the `leader_start` entry is stored here, held by a majority and so committed. */
export function leadAndCommit(state: RaftState, nowMs = 0): Leader {
  const output = lead(state, nowMs);
  if (output.persist !== null) stored(state, output, nowMs);
  for (const from of peersOf(state).slice(0, majority(state) - 1)) {
    receive(state, from, matched(state.term, state.log.lastIndex), nowMs);
  }
  return leaderRole(state);
}

export function leaderRole(state: RaftState): Leader {
  if (state.role.kind !== "leader") throw new Error(`node ${state.config.id} is ${state.role.kind}, not leader`);
  return state.role;
}

export function followerOf(state: RaftState): NodeId | null {
  if (state.role.kind !== "follower") throw new Error(`node ${state.config.id} is ${state.role.kind}, not follower`);
  return state.role.leader;
}

export function electionAt(state: RaftState): number {
  if (state.role.kind === "leader") throw new Error("a leader has no election timer");
  return state.role.electionAtMs;
}

/** Messages of one kind in both sends of an output, in order; `to` narrows to one receiver. */
export function sent<Kind extends Message["kind"]>(output: Output, kind: Kind, to?: NodeId): Of<Kind>[] {
  return messagesIn([...output.sendEarly, ...output.sendLate], kind, to);
}

export function messagesIn<Kind extends Message["kind"]>(
  envelopes: readonly Envelope[],
  kind: Kind,
  to?: NodeId,
): Of<Kind>[] {
  return envelopes
    .filter((envelope) => to === undefined || envelope.to === to)
    .map((envelope) => envelope.message)
    .filter((message): message is Of<Kind> => message.kind === kind);
}

/** The only message of this kind in the output. */
export function theOnly<Kind extends Message["kind"]>(output: Output, kind: Kind, to?: NodeId): Of<Kind> {
  const found = sent(output, kind, to);
  const [first] = found;
  if (first === undefined || found.length !== 1) throw new Error(`${found.length} messages of kind ${kind}`);
  return first;
}

export function logTerms(state: RaftState): number[] {
  return logEntries(state).map((logged) => logged.term);
}

/** The entries behind the log's base. */
export function logEntries({ log }: RaftState): Entry[] {
  return Array.from({ length: log.lastIndex - log.base.index }, (_, position) => {
    const index = log.base.index + 1 + position;
    const logged = entryAt(log, index);
    if (logged === undefined) throw new Error(`no entry ${index}`);
    return logged;
  });
}

export function change(state: RaftState, membership: Membership, nowMs = 0): Output {
  return happen(state, { kind: "change_membership", membership }, nowMs);
}

/** Node 1 leads term 1 of this membership; everybody holds its first entry, which is committed. */
export function leading(membership: Membership): RaftState {
  const state = raft({ base: positionOf(0, 0, membership) });
  leadAndCommit(state);
  for (const id of leaderRole(state).progress.keys()) receive(state, id, matched(1, 1));
  return state;
}

/** The write of `output` is done here, and these nodes hold everything. */
export function settle(state: RaftState, output: Output, ...ids: readonly NodeId[]): void {
  stored(state, output);
  for (const id of ids) receive(state, id, matched(state.term, state.log.lastIndex));
}
