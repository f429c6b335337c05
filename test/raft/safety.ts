/**
 * The safety claims of Raft (paper, figure 3), checked after every step of a driven cluster, and the rules of `Output`.
 *
 * C1. Election safety: at most one leader in a term.
 * C2. Log matching: an entry (index, term) has one content and one predecessor, so equal entries have equal prefixes.
 * C3. Leader completeness: what was committed in a term stands in the log of every leader of a later one.
 * C4. State-machine safety: all nodes commit the same entry at an index.
 * C5. Nothing is kept in memory only: term, vote and log are what the outputs told the caller to write.
 * C6. Early sends are a leader's appends in a turn that leaves the hard state alone; promises are written first.
 * C7. Whoever sleeps holds nothing that is not committed, unless it has slept since it started; it needs no tick
 *     (design 02 §4).
 * C8. Elections and commitment by majorities of voters: the votes that were given, and the disks that hold the entry, are
 *     counted here, by the membership of the leader. Committed memberships are at most one voter apart (thesis 4.1).
 * C9. A log begins where the truth says: behind a committed entry, with its term, its time and its membership. A snapshot
 *     is taken in only ahead of the commit index.
 */
import { entryAt } from "../../src/raft/log.ts";
import { parseMembership, votersApart } from "../../src/raft/membership.ts";
import { isAsleep, isQuorum, leaderOf, membershipOf, peersOf, type RaftState } from "../../src/raft/state.ts";
import type {
  Entry,
  Envelope,
  Install,
  Membership,
  NodeId,
  Output,
  Persist,
  SnapshotPosition,
} from "../../src/raft/types.ts";

interface Committed {
  readonly entry: Entry;
  /** The term in which it was first known to be committed. */
  readonly inTerm: number;
}

/** What a node would find on its disk if all its writes were through. */
export interface Written {
  term: number;
  votedFor: NodeId | null;
  base: SnapshotPosition;
  /** Term of each entry behind the base. */
  terms: number[];
}

export interface Safety {
  readonly leaders: Map<number, NodeId>;
  readonly contents: Map<string, { readonly before: number; readonly payload: string; readonly timeMs: number }>;
  readonly committed: Committed[];
  /** The first membership, and every committed one, by the index of its entry. */
  readonly memberships: { readonly index: number; readonly membership: Membership }[];
  /** `term:candidate` → those who have given it their vote. */
  readonly votes: Map<string, Set<NodeId>>;
}

export function createSafety(first: Membership): Safety {
  return {
    leaders: new Map(),
    contents: new Map(),
    committed: [],
    memberships: [{ index: 0, membership: first }],
    votes: new Map(),
  };
}

/** True if the disk of `id` holds the entry, or what covers it. */
export type Holds = (id: NodeId, index: number, term: number) => boolean;

export class SafetyError extends Error {
  override readonly name = "SafetyError";
}

export function claim(condition: boolean, text: string): asserts condition {
  if (!condition) throw new SafetyError(text);
}

/** C2 for entries that a disk or a message holds, behind an entry of term `before`. */
export function checkEntries(safety: Safety, entries: readonly Entry[], before: number): void {
  let previous = before;
  for (const { index, term, payload, timeMs } of entries) {
    const key = `${index}:${term}`;
    const known = safety.contents.get(key);
    if (known === undefined) safety.contents.set(key, { before: previous, payload, timeMs });
    else {
      claim(
        known.before === previous,
        `log matching: entry ${key} stands behind terms ${known.before} and ${previous}`,
      );
      claim(known.payload === payload && known.timeMs === timeMs, `log matching: entry ${key} has two contents`);
    }
    previous = term;
  }
}

/** Looks at one step of one node. `before` describes the node before it. */
export function checkStep(
  safety: Safety,
  state: RaftState,
  output: Output,
  before: { readonly commit: number; readonly leaderOfTerm: number | null },
  written: Written,
  holds: Holds,
): void {
  const { id } = state.config;
  const { log } = state;
  write(safety, written, output, before.commit);
  claim(written.term === state.term, `node ${id}: term ${state.term} in memory, ${written.term} written`);
  claim(
    written.votedFor === state.votedFor,
    `node ${id}: vote ${state.votedFor} in memory, ${written.votedFor} written`,
  );
  claim(lastIndex(written) === log.lastIndex, `node ${id}: log end ${log.lastIndex} in memory only`);
  claim(termIn(written, log.lastIndex) === log.lastTerm, `node ${id}: last term ${log.lastTerm} in memory only`);
  claim(written.base === log.base, `node ${id}: base ${log.base.index} in memory, ${written.base.index} written`);
  checkSends(state, output, before);
  checkSleep(state, output);
  noteVotes(safety, state, output);
  if (state.role.kind === "leader" && before.leaderOfTerm !== state.term) checkNewLeader(safety, state);
  const leads = state.role.kind === "leader" || before.leaderOfTerm !== null;
  for (let index = before.commit + 1; index <= state.commit; index += 1) {
    if (index <= log.base.index) checkCovered(safety, state, index);
    else checkCommit(safety, state, index, leads ? holds : null);
  }
}

function lastIndex({ base, terms }: Written): number {
  return base.index + terms.length;
}

function termIn({ base, terms }: Written, index: number): number | undefined {
  return index === base.index ? base.term : terms[index - base.index - 1];
}

function write(safety: Safety, written: Written, output: Output, commit: number): void {
  const { persist } = output;
  if (persist === null) return;
  if (persist.hardState !== null) {
    claim(persist.hardState.term >= written.term, `a write takes the term back from ${written.term}`);
    written.term = persist.hardState.term;
    written.votedFor = persist.hardState.votedFor;
  }
  if (persist.truncateFrom !== null) {
    claim(persist.truncateFrom > written.base.index, `truncation at ${persist.truncateFrom}, below the base`);
    written.terms.length = persist.truncateFrom - 1 - written.base.index;
  }
  if (persist.install !== null) install(safety, written, persist.install, commit);
  for (const { index, term } of persist.append) {
    claim(index === lastIndex(written) + 1, `a write leaves a hole before ${index}`);
    written.terms.push(term);
  }
  if (persist.dropThrough !== null) drop(safety, written, persist.dropThrough);
  checkReceipt(written, persist);
}

/** What a crash undid, nobody has heard of: a single voter may win that term again. */
export function forgetTerm({ leaders }: Safety, term: number, id: NodeId): void {
  if (leaders.get(term) === id) leaders.delete(term);
}

function checkReceipt(written: Written, { receipt, fence }: Persist): void {
  claim(receipt.index === lastIndex(written), `receipt names ${receipt.index}, log ends at ${lastIndex(written)}`);
  claim(receipt.indexTerm === termIn(written, receipt.index), `receipt names term ${receipt.indexTerm}`);
  claim(receipt.round === fence, `receipt of round ${receipt.round}, fence ${fence}`);
}

/** C9. */
function install(safety: Safety, written: Written, { snapshot, keepsSuffix }: Install, commit: number): void {
  claim(snapshot.index > commit, `snapshot ${snapshot.index} is taken in at commit ${commit}`);
  checkPosition(safety, snapshot);
  const agrees = termIn(written, snapshot.index) === snapshot.term;
  claim(agrees === keepsSuffix, `the log has term ${termIn(written, snapshot.index)} at snapshot ${snapshot.index}`);
  written.terms = keepsSuffix ? written.terms.slice(snapshot.index - written.base.index) : [];
  written.base = snapshot;
}

/** C9. */
function drop(safety: Safety, written: Written, base: SnapshotPosition): void {
  claim(base.index > written.base.index, `the base falls from ${written.base.index} to ${base.index}`);
  claim(termIn(written, base.index) === base.term, `the base ${base.index} is not in the log`);
  checkPosition(safety, base);
  written.terms = written.terms.slice(base.index - written.base.index);
  written.base = base;
}

function checkPosition(safety: Safety, { index, term, timeMs, membership }: SnapshotPosition): void {
  const truth = safety.committed[index - 1]?.entry;
  claim(truth !== undefined, `position ${index} is not committed`);
  claim(truth.term === term && truth.timeMs === timeMs, `position ${index} of term ${term} and time ${timeMs}`);
  if (membership.voters.length === 0) return; // a node that was taken in later does not know
  const known = safety.memberships.findLast((candidate) => candidate.index <= index)?.membership;
  claim(JSON.stringify(known) === JSON.stringify(membership), `position ${index} has a membership of its own`);
}

/** C7. */
function checkSleep(state: RaftState, output: Output): void {
  const { id } = state.config;
  const asleep = isAsleep(state);
  claim(asleep === (output.wakeAtMs === Number.POSITIVE_INFINITY), `node ${id} sleeps with a timer, or wakes without`);
  if (!asleep || leaderOf(state) === null) return;
  claim(state.commit === state.log.lastIndex, `node ${id} sleeps at commit ${state.commit} of ${state.log.lastIndex}`);
}

/** C6. A leader that has removed itself says goodbye in the step in which it steps down. */
function checkSends(state: RaftState, output: Output, before: { readonly leaderOfTerm: number | null }): void {
  const { id, fence } = state.config;
  const hardState = output.persist?.hardState ?? null;
  for (const { message, from } of output.sendEarly) {
    claim(from === id && message.kind === "append", `node ${id} sends ${message.kind} early`);
    const leads = state.role.kind === "leader" || before.leaderOfTerm === state.term;
    claim(leads && message.term === state.term, `node ${id} sends an append without leading`);
    claim(hardState === null, `node ${id} sends early while its hard state changes`);
  }
  for (const envelope of output.sendLate) checkPromise(state, output, envelope, fence);
}

function checkPromise(state: RaftState, output: Output, { message, from, to }: Envelope, fence: boolean): void {
  const { id } = state.config;
  claim(from === id && to !== id, `node ${id} sends a message from ${from} to ${to}`);
  const alone = peersOf(state).length === 0 && state.durableTerm < state.term; // a single voter, just elected
  claim(message.kind !== "append" || alone, `node ${id} sends an append late`);
  if (message.kind === "vote_reply" && message.granted) {
    claim(state.votedFor === to && state.term === message.term, `node ${id} grants a vote that it did not note`);
  }
  if (message.kind === "vote") claim(state.votedFor === id, `node ${id} asks for votes without its own`);
  if (message.kind !== "append_reply") return;
  if (message.result.kind === "matched") {
    claim(message.result.index <= state.log.lastIndex, `node ${id} acknowledges what it does not hold`);
  }
  if (fence && message.round > 0 && state.role.kind === "follower" && state.role.leader === to) {
    claim(output.persist !== null, `node ${id} confirms round ${message.round} without a write`);
  }
}

function noteVotes({ votes }: Safety, state: RaftState, { sendLate }: Output): void {
  const note = (term: number, candidate: NodeId, voter: NodeId) => {
    const given = votes.get(`${term}:${candidate}`) ?? new Set();
    votes.set(`${term}:${candidate}`, given.add(voter));
  };
  const { id } = state.config;
  if (state.votedFor === id) note(state.term, id, id);
  for (const { message, to } of sendLate) {
    if (message.kind === "vote_reply" && message.granted) note(message.term, to, id);
  }
}

/** C1, C3 and C8. */
function checkNewLeader(safety: Safety, state: RaftState): void {
  const { id } = state.config;
  const other = safety.leaders.get(state.term);
  claim(other === undefined || other === id, `election safety: ${other} and ${id} lead term ${state.term}`);
  claim(other === undefined, `node ${id} became leader of term ${state.term} twice`);
  safety.leaders.set(state.term, id);
  const given = safety.votes.get(`${state.term}:${id}`);
  const voters = membershipOf(state).voters.join();
  claim(
    isQuorum(state, (voter) => given?.has(voter) === true),
    `election: ${id} leads term ${state.term} of voters ${voters} by the votes of ${[...(given ?? [])].join()}`,
  );
  const { base } = state.log;
  for (const { entry, inTerm } of safety.committed) {
    if (inTerm >= state.term || entry.index < base.index) continue;
    const own = entry.index === base.index ? base : entryAt(state.log, entry.index);
    claim(own?.term === entry.term, `leader completeness: ${id} in term ${state.term} lacks ${entry.index}`);
  }
}

/** C4 for what a snapshot brought: somebody has committed it before. */
function checkCovered(safety: Safety, { config, log: { base } }: RaftState, index: number): void {
  const known = safety.committed[index - 1];
  claim(known !== undefined, `node ${config.id} takes in ${index}, which nobody has committed`);
  claim(index < base.index || known.entry.term === base.term, `node ${config.id} begins behind another ${index}`);
}

/** C4 and C8. `holds` is null on a node that does not lead: it has only heard. */
function checkCommit(safety: Safety, state: RaftState, index: number, holds: Holds | null): void {
  const own = entryAt(state.log, index);
  claim(own !== undefined, `node ${state.config.id} commits ${index} beyond its log`);
  const previous = safety.committed[index - 2];
  claim(previous === undefined || previous.entry.timeMs <= own.timeMs, `the time of the log falls at ${index}`);
  const known = safety.committed[index - 1];
  if (known === undefined) {
    claim(index === safety.committed.length + 1, `entry ${index} is committed before ${index - 1}`);
    const voters = membershipOf(state).voters.join();
    claim(
      holds === null || isQuorum(state, (voter) => holds(voter, index, own.term)),
      `entry ${index} is committed without a majority of ${voters}`,
    );
    safety.committed.push({ entry: own, inTerm: state.term });
    if (own.kind === "membership") noteMembership(safety, own);
    return;
  }
  const same =
    known.entry.term === own.term && known.entry.payload === own.payload && known.entry.timeMs === own.timeMs;
  claim(same, `state-machine safety: node ${state.config.id} commits another entry at ${index}`);
}

/** C8. */
function noteMembership({ memberships }: Safety, { index, payload }: Entry): void {
  const membership = parseMembership(payload);
  const before = memberships.at(-1)?.membership;
  claim(membership !== null && before !== undefined, `entry ${index} is no membership`);
  claim(votersApart(before, membership) <= 1, `membership ${index} is more than one voter apart from the one before`);
  memberships.push({ index, membership });
}
