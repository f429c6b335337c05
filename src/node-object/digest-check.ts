/**
 * Whether all nodes still have the same state (design 02 §5, Digests). Every node remembers the digests of its last
 * entries; now and then the leader asks the voters for theirs after one entry.
 *
 * D1. What a majority of the voters has is the state of the cluster. Who has another one has diverged: it halts, naming the
 *     entry, before it serves or spreads more of it. Also the leader itself.
 * D2. Without a majority nothing is concluded, and the log of the leader says that they differ.
 * D3. Only digests after the same entry are compared, and only a leader of the present term is believed.
 * D4. Nobody is woken for it, and nobody waits for it.
 */
import { assert } from "../base/assert.ts";
import { hasMajority } from "../raft/membership.ts";
import { isAsleep, leaderOf, membershipOf } from "../raft/state.ts";
import type { NodeId } from "../raft/types.ts";
import type { PeerBody } from "./ports.ts";
import { type NodeState, type Running, sendPeer } from "./runtime-state.ts";

export interface DigestCheck {
  /** The leader's question under way. */
  round: DigestRound | null;
  /** The next one, at the earliest. */
  askAtMs: number;
  /** The index of the last question that was decided. */
  decidedIndex: number;
  /** A question of the leader that this node will answer when it has applied that much. */
  asked: { readonly from: NodeId; readonly term: number; readonly index: number } | null;
}

interface DigestRound {
  readonly term: number;
  readonly index: number;
  readonly answers: Map<NodeId, string>;
  /** What a majority has; null: not known yet. */
  right: string | null;
}

const CHECK_EVERY_MS = 5000;

export function createDigestCheck(): DigestCheck {
  return { round: null, askAtMs: 0, decidedIndex: 0, asked: null };
}

/** Asks the voters, when it is time to and something was applied since the last time. Called in every turn. */
export function checkDigests(state: NodeState, running: Running, nowMs: number): void {
  const { raft, machine, digestCheck } = running;
  if (digestCheck.asked !== null) answerDigest(state, running);
  if (raft.role.kind !== "leader" || isAsleep(raft) || nowMs < digestCheck.askAtMs) return;
  digestCheck.askAtMs = nowMs + CHECK_EVERY_MS;
  const index = machine.appliedIndex;
  if (index === digestCheck.decidedIndex || index < raft.role.startIndex) return;
  digestCheck.round = { term: raft.term, index, answers: new Map([[state.config.id, machine.digest]]), right: null };
  for (const id of membershipOf(raft).voters) {
    if (id !== state.config.id) sendPeer(state, id, { kind: "digest_request", term: raft.term, index });
  }
}

export function onDigestRequest(
  state: NodeState,
  running: Running,
  from: NodeId,
  { term, index }: Extract<PeerBody, { kind: "digest_request" }>,
): void {
  running.digestCheck.asked = { from, term, index };
  answerDigest(state, running);
}

/** Once it has applied that much; never if it does not remember. */
function answerDigest(state: NodeState, running: Running): void {
  const { asked } = running.digestCheck;
  if (asked === null || running.machine.appliedIndex < asked.index) return;
  running.digestCheck.asked = null;
  const { from, term, index } = asked;
  const digest = running.digests.get(index);
  if (digest !== undefined) sendPeer(state, from, { kind: "digest_reply", term, index, digest });
}

export function onDigestReply(
  state: NodeState,
  running: Running,
  from: NodeId,
  { term, index, digest }: Extract<PeerBody, { kind: "digest_reply" }>,
): void {
  const { raft, digestCheck } = running;
  const { round } = digestCheck;
  if (round === null || round.index !== index || round.term !== term || raft.term !== term) return;
  const { answers } = round;
  answers.set(from, digest);
  if (round.right !== null) {
    tell(state, round, from, digest);
    return;
  }
  const given = new Set(answers.values());
  const right = [...given].find((one) => hasMajority(membershipOf(raft), (id) => answers.get(id) === one));
  if (right === undefined) {
    if (given.size > 1) state.ports.log("error", "digests differ", { index, node: from });
    return;
  }
  round.right = right;
  digestCheck.decidedIndex = index;
  for (const [id, theirs] of answers) tell(state, round, id, theirs);
  assertEqual(running, index, right);
}

/** D1 */
function tell(state: NodeState, { term, index, right }: DigestRound, id: NodeId, digest: string): void {
  if (right === null || digest === right || id === state.config.id) return;
  state.ports.log("error", "node has diverged", { node: id, index });
  sendPeer(state, id, { kind: "diverged", term, index, digest: right });
}

/** The leader says that a majority has another state. */
export function onDiverged(running: Running, from: NodeId, body: Extract<PeerBody, { kind: "diverged" }>): void {
  const { raft } = running;
  if (body.term !== raft.term || leaderOf(raft) !== from) return;
  assertEqual(running, body.index, body.digest);
}

/** D1. A broken invariant: the node halts. */
function assertEqual({ digests }: Running, index: number, digest: string): void {
  const own = digests.get(index);
  assert(own === undefined || own === digest, `diverged: digest ${own} after entry ${index}, a majority has ${digest}`);
}
