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
 */
import { entryAt } from "../../src/raft/log.ts";
import { isAsleep, leaderOf, type RaftState } from "../../src/raft/state.ts";
import type { Entry, Envelope, NodeId, Output } from "../../src/raft/types.ts";

interface Committed {
  readonly entry: Entry;
  /** The term in which it was first known to be committed. */
  readonly inTerm: number;
}

/** What a node would find on its disk if all its writes were through. */
export interface Written {
  term: number;
  votedFor: NodeId | null;
  /** Term of each entry. */
  readonly terms: number[];
}

export interface Safety {
  readonly leaders: Map<number, NodeId>;
  readonly contents: Map<string, { readonly before: number; readonly payload: string; readonly timeMs: number }>;
  readonly committed: Committed[];
}

export function createSafety(): Safety {
  return { leaders: new Map(), contents: new Map(), committed: [] };
}

export class SafetyError extends Error {
  override readonly name = "SafetyError";
}

export function claim(condition: boolean, text: string): asserts condition {
  if (!condition) throw new SafetyError(text);
}

/** C2 for entries that enter a log behind an entry of term `before`. */
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

/** Looks at one step of one node. `commitBefore` and `wasLeaderOf` describe the node before it. */
export function checkStep(
  safety: Safety,
  state: RaftState,
  output: Output,
  before: { readonly commit: number; readonly leaderOfTerm: number | null },
  written: Written,
): void {
  const { id } = state.config;
  write(safety, written, output);
  claim(written.term === state.term, `node ${id}: term ${state.term} in memory, ${written.term} written`);
  claim(
    written.votedFor === state.votedFor,
    `node ${id}: vote ${state.votedFor} in memory, ${written.votedFor} written`,
  );
  claim(written.terms.length === state.log.lastIndex, `node ${id}: log end ${state.log.lastIndex} in memory only`);
  claim(
    (written.terms.at(-1) ?? 0) === state.log.lastTerm,
    `node ${id}: last term ${state.log.lastTerm} in memory only`,
  );
  checkSends(state, output);
  checkSleep(state, output);
  if (state.role.kind === "leader" && before.leaderOfTerm !== state.term) checkNewLeader(safety, state);
  for (let index = before.commit + 1; index <= state.commit; index += 1) checkCommit(safety, state, index);
}

function write(safety: Safety, written: Written, output: Output): void {
  const { persist } = output;
  if (persist === null) return;
  if (persist.hardState !== null) {
    claim(persist.hardState.term >= written.term, `a write takes the term back from ${written.term}`);
    written.term = persist.hardState.term;
    written.votedFor = persist.hardState.votedFor;
  }
  if (persist.truncateFrom !== null) written.terms.length = persist.truncateFrom - 1;
  checkEntries(safety, persist.append, written.terms.at(-1) ?? 0);
  for (const { index, term } of persist.append) {
    claim(index === written.terms.length + 1, `a write leaves a hole before ${index}`);
    written.terms.push(term);
  }
  const { receipt } = persist;
  claim(receipt.index === written.terms.length, `receipt names ${receipt.index}, log ends at ${written.terms.length}`);
  claim(receipt.indexTerm === (written.terms.at(-1) ?? 0), `receipt names term ${receipt.indexTerm}`);
  claim(receipt.round === persist.fence, `receipt of round ${receipt.round}, fence ${persist.fence}`);
}

/** C7. */
function checkSleep(state: RaftState, output: Output): void {
  const { id } = state.config;
  const asleep = isAsleep(state);
  claim(asleep === (output.wakeAtMs === Number.POSITIVE_INFINITY), `node ${id} sleeps with a timer, or wakes without`);
  if (!asleep || leaderOf(state) === null) return;
  claim(state.commit === state.log.lastIndex, `node ${id} sleeps at commit ${state.commit} of ${state.log.lastIndex}`);
}

/** C6. */
function checkSends(state: RaftState, output: Output): void {
  const { id, fence } = state.config;
  const hardState = output.persist?.hardState ?? null;
  for (const { message, from } of output.sendEarly) {
    claim(from === id && message.kind === "append", `node ${id} sends ${message.kind} early`);
    claim(state.role.kind === "leader" && message.term === state.term, `node ${id} sends an append without leading`);
    claim(hardState === null, `node ${id} sends early while its hard state changes`);
  }
  for (const envelope of output.sendLate) checkPromise(state, output, envelope, fence);
}

function checkPromise(state: RaftState, output: Output, { message, from, to }: Envelope, fence: boolean): void {
  const { id } = state.config;
  claim(from === id && to !== id, `node ${id} sends a message from ${from} to ${to}`);
  claim(message.kind !== "append", `node ${id} sends an append late`);
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

/** C1 and C3. */
function checkNewLeader(safety: Safety, state: RaftState): void {
  const { id } = state.config;
  const other = safety.leaders.get(state.term);
  claim(other === undefined || other === id, `election safety: ${other} and ${id} lead term ${state.term}`);
  claim(other === undefined, `node ${id} became leader of term ${state.term} twice`);
  safety.leaders.set(state.term, id);
  for (const { entry, inTerm } of safety.committed) {
    if (inTerm >= state.term) continue;
    const own = entryAt(state.log, entry.index);
    claim(own?.term === entry.term, `leader completeness: ${id} in term ${state.term} lacks ${entry.index}`);
  }
}

/** C4. */
function checkCommit(safety: Safety, state: RaftState, index: number): void {
  const own = entryAt(state.log, index);
  claim(own !== undefined, `node ${state.config.id} commits ${index} beyond its log`);
  const previous = safety.committed[index - 2];
  claim(previous === undefined || previous.entry.timeMs <= own.timeMs, `the time of the log falls at ${index}`);
  const known = safety.committed[index - 1];
  if (known === undefined) {
    claim(index === safety.committed.length + 1, `entry ${index} is committed before ${index - 1}`);
    safety.committed.push({ entry: own, inTerm: state.term });
    return;
  }
  const same =
    known.entry.term === own.term && known.entry.payload === own.payload && known.entry.timeMs === own.timeMs;
  claim(same, `state-machine safety: node ${state.config.id} commits another entry at ${index}`);
}
