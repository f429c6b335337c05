/**
 * The checks after every turn, incremental and cheap. They know the truth that no node knows: which entries are
 * committed, what the state after each of them is, who has led and voted.
 *
 * S1. At most one instance leads a term; at most one vote of a disk per term; a vote and an acknowledgement leave only
 *     when what they claim is durable.
 * S2. Two logs with an entry of the same index and term agree on it and on the term before it (paper 5.3, by induction).
 * S3. A committed entry never changes, and every later leader holds it.
 * S4. State after an entry is a function of the log: every node's digest equals that of an independent replay.
 */

import type { ChangeEvent, CommandResult, Outcome } from "../../src/kv/command.ts";
import { applyEntries, type Machine, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { forMachine } from "../../src/node-object/applying.ts";
import type { Identity, PeerEnvelope } from "../../src/node-object/ports.ts";
import { parseMembership } from "../../src/raft/membership.ts";
import type { Entry, Membership, NodeId } from "../../src/raft/types.ts";
import { isTainted } from "./damage.ts";
import { baseIndex, entryAt, lastIndex, termAt } from "./disk.ts";
import { type Host, hostOf, type Instance, type World } from "./host.ts";
import { isReplaced } from "./membership.ts";
import { Violation } from "./violation.ts";

export interface Safety {
  /** Off: only what a client or an operator could notice is judged, to show that the checks do not depend on S1, S2. */
  direct: boolean;
  /**
   * A cluster of one tells nobody before its turn is durable: a turn that is undone may have won a term or made an
   * entry, and a later instance may win and make the same again. Only what is committed counts there.
   */
  readonly alone: boolean;
  /** Instance that led each term. */
  readonly leaders: Map<number, Instance>;
  /** disk serial → term → candidate. */
  readonly votes: Map<number, Map<number, NodeId>>;
  /** By index: every entry ever written there, one for each term. */
  readonly written: Written[][];
  /** `committed[i]` is the committed entry of index i + 1. */
  readonly committed: Committed[];
  clusterId: string | null;
  /** The last one that was committed; null: that of the founding. */
  membership: Membership | null;
  readonly replay: Machine;
  readonly apply: typeof applyEntries;
  /** By revision: what watchers must see, each event with the one before it on its key. */
  readonly events: (readonly KnownEvent[])[];
  readonly latest: Map<string, ChangeEvent>;
}

export interface KnownEvent {
  readonly event: ChangeEvent;
  readonly before: ChangeEvent | null;
}

interface Written {
  readonly entry: Entry;
  readonly termBefore: number;
  readonly atMs: number;
}

export interface Committed {
  readonly entry: Entry;
  /** Term of the node that first knew it to be committed. */
  readonly declaredTerm: number;
  /** `world.steps` at that moment. */
  readonly atStep: number;
  /** Virtual time at which its leader wrote it. */
  readonly writtenAtMs: number;
  /** Revision, size and digest of the state after it. */
  readonly revision: number;
  readonly logicalBytes: number;
  readonly digest: string;
  readonly outcome: Outcome<CommandResult> | null;
  readonly events: readonly ChangeEvent[];
}

export function createSafety(size: number, apply: typeof applyEntries = applyEntries): Safety {
  return {
    direct: true,
    alone: size === 1,
    leaders: new Map(),
    votes: new Map(),
    written: [],
    committed: [],
    clusterId: null,
    membership: null,
    replay: openMachine(new MemoryStore()),
    apply,
    events: [[]],
    latest: new Map(),
  };
}

/** Right after `start`, within its turn. */
export function checkStarted(world: World, instance: Instance): void {
  const status = instance.runtime.status();
  const { committed } = world.safety;
  const { host } = instance;
  checkIdentity(world, host, host.disk.identity);
  if (status.halted !== null && !host.disk.damage.struck)
    throw new Violation("node never halts", `node ${host.id}: ${status.halted}`);
  if (status.applied_index > committed.length) {
    const detail = `node ${host.id} starts with ${status.applied_index} applied, ${committed.length} are committed`;
    throw new Violation("committed prefix is stable", detail);
  }
  instance.nextDigest = status.applied_index + 1;
  const truth = committed[status.applied_index - 1];
  if (truth !== undefined) compareDigest(instance, status.applied_index, status.digest, truth);
}

/** After each turn that took effect. */
export function checkTurn(world: World, instance: Instance): void {
  const { host, raft } = instance;
  const { safety } = world;
  if (!instance.superseded) {
    const { disk } = host;
    if (disk.halted !== null && !disk.damage.struck)
      throw new Violation("node never halts", `node ${host.id}: ${disk.halted}`);
    if (disk.writtenFrom <= lastIndex(disk)) checkWritten(safety, instance, world.now);
  }
  if (raft === null) return;
  if (raft.term < instance.seenTerm) {
    throw new Violation("one vote per term", `node ${host.id} fell from term ${instance.seenTerm} to ${raft.term}`);
  }
  instance.seenTerm = raft.term;
  if (raft.role.kind === "leader" && instance.leaderTerm !== raft.term) checkLeader(world, instance, raft.term);
  if (raft.commit !== instance.seenCommit) checkCommit(world, instance, raft.commit, raft.term);
  checkDigests(safety, instance);
}

function checkWritten(safety: Safety, instance: Instance, atMs: number): void {
  const { disk } = instance.host;
  for (let index = disk.writtenFrom; index <= lastIndex(disk); index += 1) {
    const entry = entryAt(disk, index);
    if (entry === undefined) continue; // written and dropped in one turn
    const termBefore = termAt(disk, index - 1) ?? 0;
    const others = safety.written[index] ?? [];
    safety.written[index] = others;
    const known = others.find((other) => other.entry.term === entry.term);
    if (known === undefined) others.push({ entry, termBefore, atMs });
    else if (safety.direct && !safety.alone && (!equalEntries(known.entry, entry) || known.termBefore !== termBefore)) {
      throw new Violation("log matching", `node ${instance.host.id}, entry ${index} of term ${entry.term}`);
    }
  }
  disk.writtenFrom = Number.POSITIVE_INFINITY;
}

/** Called with what has become durable: what a crash undid was never a cluster. */
export function checkIdentity(world: World, host: Host, identity: Identity | null): void {
  const { safety } = world;
  const { disk, id } = host;
  if (identity === disk.checkedIdentity) return;
  disk.checkedIdentity = identity;
  const membership = identity?.membership;
  if (membership?.kind !== "formed") return;
  safety.clusterId ??= membership.clusterId;
  if (membership.clusterId !== safety.clusterId) {
    throw new Violation("one cluster", `node ${id} is in ${membership.clusterId}, others in ${safety.clusterId}`);
  }
}

function checkLeader(world: World, instance: Instance, term: number): void {
  const { safety } = world;
  instance.leaderTerm = term;
  const other = safety.leaders.get(term);
  if (other !== undefined && other !== instance && !safety.alone) {
    throw new Violation("one leader per term", `nodes ${other.host.id} and ${instance.host.id} lead term ${term}`);
  }
  safety.leaders.set(term, instance);
  // By log matching the last committed entry of earlier terms stands for all before it.
  let index = safety.committed.length;
  while (index > 0 && safety.committed[index - 1]!.declaredTerm >= term) index -= 1;
  if (index === 0) return;
  if (isCovered(instance, index)) return;
  const held = entryOf(instance, index);
  if (held === undefined || held.term !== safety.committed[index - 1]!.entry.term) {
    const detail = `node ${instance.host.id}, leader of term ${term}, lacks committed entry ${index}`;
    throw new Violation("leader holds every committed entry", detail);
  }
}

function checkCommit(world: World, instance: Instance, commit: number, term: number): void {
  const { safety } = world;
  const { id } = instance.host;
  if (commit < instance.seenCommit) {
    throw new Violation("commit never falls", `node ${id} from ${instance.seenCommit} to ${commit}`);
  }
  for (let index = instance.seenCommit + 1; index <= commit; index += 1) {
    if (isCovered(instance, index)) continue;
    const entry = entryOf(instance, index);
    if (entry === undefined) {
      if (instance.superseded) continue; // Its disk is gone, and the entry is no longer in its memory.
      throw new Violation("committed prefix is stable", `node ${id} commits ${index}, which it does not have`);
    }
    const truth = safety.committed[index - 1];
    if (truth === undefined) declareCommitted(world, entry, term);
    else if (!equalEntries(truth.entry, entry)) {
      const detail = `entry ${index}: node ${id} has term ${entry.term}, committed is term ${truth.entry.term}`;
      throw new Violation("committed prefix is stable", detail);
    }
  }
  if (safety.direct && instance.raft?.role.kind === "leader" && !instance.superseded)
    checkBacking(world, instance, commit);
  instance.seenCommit = commit;
}

/** A leader commits what a majority of the voters holds durably. Whoever was wiped since may have held it. */
function checkBacking(world: World, leader: Instance, index: number): void {
  const entry = entryOf(leader, index);
  const membership = leader.committedUnder;
  if (membership === null) return;
  const holders = membership.voters.filter((id) => {
    const host = hostOf(world, id);
    const { disk, live } = host;
    const durable = live === null ? lastIndex(disk) : live.durableLastIndex;
    // What lies below a base was committed and is covered by the state.
    const holds = index <= baseIndex(disk) || termAt(disk, index) === entry?.term;
    return isReplaced(membership, host) || (index <= durable && holds);
  });
  const { voters } = membership;
  if (holders.length * 2 > voters.length) return;
  const detail = `node ${leader.host.id} commits ${index}, durable on ${holders.join()} of the voters ${voters.join()}`;
  throw new Violation("commit is backed by a majority", detail);
}

function declareCommitted(world: World, entry: Entry, declaredTerm: number): void {
  const { safety } = world;
  if (entry.index !== safety.committed.length + 1) {
    throw new Violation(
      "committed prefix is stable",
      `entry ${entry.index} committed after ${safety.committed.length}`,
    );
  }
  const before = safety.replay.revision;
  if (entry.kind === "membership") safety.membership = parseMembership(entry.payload);
  const { outcome, events, digest } = safety.apply(safety.replay, [forMachine(entry)])[0]!;
  const { revision, logicalBytes } = safety.replay;
  // Design 01 §1: dense, but for the jump that a restore makes.
  const jumps = entry.payload.includes('"restore_end"');
  if (revision !== before && revision !== before + 1 && !jumps) {
    throw new Violation("revisions are dense", `entry ${entry.index} moved the revision from ${before} to ${revision}`);
  }
  const writtenAtMs = safety.written[entry.index]?.find((one) => one.entry.term === entry.term)?.atMs ?? world.now;
  const atStep = world.steps;
  safety.committed.push({
    entry,
    declaredTerm,
    atStep,
    writtenAtMs,
    revision,
    logicalBytes,
    digest,
    outcome,
    events,
  });
  if (events.length === 0) return;
  safety.events.push(
    events.map((event) => {
      const before = safety.latest.get(event.key) ?? null;
      safety.latest.set(event.key, event);
      return { event, before };
    }),
  );
}

function checkDigests(safety: Safety, instance: Instance): void {
  for (;;) {
    const index = nextApplied(instance, instance.nextDigest);
    const digest = index === null ? null : instance.runtime.digestAt(index);
    if (index === null || digest === null) return;
    const truth = safety.committed[index - 1];
    if (truth === undefined) {
      const detail = `node ${instance.host.id} applied ${index}, ${safety.committed.length} are committed`;
      throw new Violation("committed prefix is stable", detail);
    }
    compareDigest(instance, index, digest, truth);
    instance.nextDigest = index + 1;
  }
}

/** The first entry from `index` on whose effect this instance holds: a snapshot takes it to where its log begins. */
export function nextApplied({ runtime, raft }: Instance, index: number): number | null {
  if (runtime.digestAt(index) !== null) return index;
  const base = raft?.log.base.index ?? 0;
  return base > index && runtime.digestAt(base) !== null ? base : null;
}

function compareDigest(instance: Instance, index: number, digest: string, truth: Committed): void {
  // Whoever has lost rows cannot know it yet; it must not stay so (corruption.ts).
  if (digest === truth.digest || isTainted(instance.host.disk)) return;
  const detail = `node ${instance.host.id} after entry ${index}: ${digest}, a replay of the log says ${truth.digest}`;
  throw new Violation("digests are equal", detail);
}

/** What a message claims must be durable when it leaves (S1). */
export function checkTransmit(world: World, instance: Instance, envelope: PeerEnvelope): void {
  if (envelope.body.kind !== "raft") return;
  const { message } = envelope.body;
  switch (message.kind) {
    case "vote":
      checkVote(world.safety, instance, message.term, instance.host.id);
      return;
    case "vote_reply":
      if (message.granted) checkVote(world.safety, instance, message.term, envelope.to);
      return;
    case "append_reply":
      if (!world.safety.direct || message.result.kind !== "matched") return;
      if (message.result.index > instance.durableLastIndex) {
        const detail = `node ${instance.host.id} acknowledges ${message.result.index}, durable is ${instance.durableLastIndex}`;
        throw new Violation("acknowledgement is durable before it leaves", detail);
      }
      return;
    default:
  }
}

function checkVote(safety: Safety, instance: Instance, term: number, candidate: NodeId): void {
  if (!safety.direct || safety.alone) return;
  const { disk, id } = instance.host;
  const votes = safety.votes.get(disk.serial) ?? new Map<number, NodeId>();
  safety.votes.set(disk.serial, votes);
  const before = votes.get(term);
  if (before !== undefined && before !== candidate) {
    throw new Violation("one vote per term", `node ${id} voted for ${before} and ${candidate} in term ${term}`);
  }
  votes.set(term, candidate);
  const { term: durableTerm, votedFor } = instance.durableHardState;
  if (durableTerm < term || (durableTerm === term && votedFor !== candidate)) {
    const detail = `node ${id} votes for ${candidate} in term ${term}, durable is term ${durableTerm}, vote ${votedFor}`;
    throw new Violation("vote is durable before it leaves", detail);
  }
}

/** What stands at or below the base of a log is gone: a snapshot covers it. */
function isCovered(instance: Instance, index: number): boolean {
  return !instance.superseded && index <= baseIndex(instance.host.disk);
}

function entryOf(instance: Instance, index: number): Entry | undefined {
  if (!instance.superseded) return entryAt(instance.host.disk, index);
  const log = instance.raft?.log;
  return log?.cached[index - (log.lastIndex - log.cached.length + 1)];
}

function equalEntries(left: Entry, right: Entry): boolean {
  return left === right || (left.term === right.term && left.payload === right.payload && left.timeMs === right.timeMs);
}
