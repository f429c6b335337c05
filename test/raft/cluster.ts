/**
 * A cluster of consensus cores driven by hand: every message, write, tick and crash happens because a test says so.
 * There is no network, no disk and no clock behind it; the only randomness is the seed inside each state.
 *
 * H1. Outputs are carried out in order. `sendEarly` leaves at once; `sendLate`, reads and the applied index wait for the
 *     writes of their own turn and of all turns before it; then `stored` is told.
 * H2. A crash loses everything that was not written. What left early before the crash stays in the pool.
 * H3. The pool keeps messages in the order of sending; a test delivers, drops, repeats or reorders them. A message to a
 *     crashed node or over a cut link vanishes when it is delivered.
 * H4. Every step is checked (`safety.ts`).
 * H5. A snapshot is its position: what lies at `staged` may be installed, and then the applied index is the snapshot's.
 *     Nodes outside of the first membership start with nothing and know nobody, as new ones do.
 */
import { createRandom } from "../../src/base/random.ts";
import { createLog, positionAt } from "../../src/raft/log.ts";
import { NO_MEMBERS } from "../../src/raft/membership.ts";
import { createRaft, isAsleep, membershipOf, type RaftState } from "../../src/raft/state.ts";
import { step } from "../../src/raft/step.ts";
import type { Envelope, Event, Membership, NodeId, Output, SnapshotPosition } from "../../src/raft/types.ts";
import { type ClusterNode, type Disk, holds, write } from "./cluster-node.ts";
import {
  configOf,
  entriesOf,
  loadedLog,
  logTerms,
  members,
  payload,
  positionOf,
  readerOver,
  votersUpTo,
} from "./fixtures.ts";
import { checkEntries, checkStep, createSafety, forgetTerm, type Safety } from "./safety.ts";

export { between, from, to } from "./envelopes.ts";

export interface ClusterOptions {
  readonly size: number;
  /** The first membership; by default all vote. */
  readonly voters?: readonly NodeId[];
  readonly learners?: readonly NodeId[];
  readonly fence?: boolean;
  readonly seed?: number;
  /** Terms of the log that a node starts with. */
  readonly logs?: Readonly<Record<NodeId, readonly number[]>>;
  /** Term that a node starts in; by default that of its last entry. */
  readonly terms?: Readonly<Record<NodeId, number>>;
  readonly votes?: Readonly<Record<NodeId, NodeId>>;
}

const STABLE_DELIVERIES_MAX = 100_000;

export class Cluster {
  readonly nodes: readonly ClusterNode[];
  readonly safety: Safety;
  pool: Envelope[] = [];
  /** Called with every envelope that reaches a running node. */
  onDelivery: (envelope: Envelope) => void = () => {};
  /** Called with every output, after the checks. */
  onOutput: (output: Output, id: NodeId) => void = () => {};
  readonly #cut = new Set<string>();
  readonly #options: ClusterOptions;

  constructor(options: ClusterOptions) {
    this.#options = options;
    const first =
      options.voters === undefined ? votersUpTo(options.size) : members(options.voters, options.learners ?? []);
    this.safety = createSafety(first);
    this.nodes = Array.from({ length: options.size }, (_, position) => {
      const id = position + 1;
      const entries = entriesOf(options.logs?.[id] ?? []);
      const term = options.terms?.[id] ?? entries.at(-1)?.term ?? 0;
      checkEntries(this.safety, entries, 0);
      const knows = first.voters.includes(id) || first.learners.includes(id);
      const base = positionOf(0, 0, knows ? first : NO_MEMBERS);
      return {
        id,
        disk: { term, votedFor: options.votes?.[id] ?? null, base, entries, applied: 0 },
        state: null,
        turns: [],
        held: false,
        written: { term: 0, votedFor: null, base, terms: [] },
        nowMs: 0,
        wallOffsetMs: 0,
        wakeAtMs: 0,
        starts: 0,
        reads: [],
        snapshotWanted: false,
        offered: null,
      };
    });
    for (const { id } of this.nodes) this.restart(id);
  }

  node(id: NodeId): ClusterNode {
    const node = this.nodes[id - 1];
    if (node === undefined) throw new Error(`no node ${id}`);
    return node;
  }

  state(id: NodeId): RaftState {
    const { state } = this.node(id);
    if (state === null) throw new Error(`node ${id} is down`);
    return state;
  }

  /** The running leader of the highest term, if any. */
  leader(): NodeId | null {
    let best: RaftState | null = null;
    for (const { state } of this.nodes) {
      if (state?.role.kind === "leader" && state.term > (best?.term ?? -1)) best = state;
    }
    return best?.config.id ?? null;
  }

  terms(id: NodeId): number[] {
    return logTerms(this.state(id));
  }

  // Events

  step(id: NodeId, event: Event): Output {
    const node = this.node(id);
    const state = this.state(id);
    const before = { commit: state.commit, leaderOfTerm: state.role.kind === "leader" ? state.term : null };
    const output = step(state, event, node.nowMs, node.nowMs + node.wallOffsetMs);
    const held = (voter: NodeId, index: number, term: number) => holds(this.node(voter).disk, index, term);
    checkStep(this.safety, state, output, before, node.written, held);
    this.onOutput(output, id);
    node.snapshotWanted = output.snapshotWanted;
    if (output.snapshotOffer !== null) node.offered = output.snapshotOffer.snapshot;
    node.wakeAtMs = output.wakeAtMs;
    this.pool.push(...output.sendEarly);
    node.turns.push(output);
    if (!node.held) this.flush(id);
    return output;
  }

  /** The node's election timer runs out at this moment; a sleeping one is woken for it. Nothing of it for a leader. */
  campaign(id: NodeId): Output {
    const state = this.state(id);
    if (isAsleep(state)) this.wake(id);
    if (state.role.kind !== "leader") state.role.electionAtMs = this.node(id).nowMs;
    return this.tick(id);
  }

  /** The caller wants the cluster to sleep; true if the node sleeps now. */
  quiesce(id: NodeId): boolean {
    this.step(id, { kind: "quiesce" });
    return isAsleep(this.state(id));
  }

  wake(id: NodeId): Output {
    return this.step(id, { kind: "wake" });
  }

  probe(id: NodeId): Output {
    return this.step(id, { kind: "probe" });
  }

  propose(id: NodeId, ...texts: readonly string[]): Output {
    return this.step(id, { kind: "propose", payloads: texts.map(payload) });
  }

  read(id: NodeId, context: number): Output {
    return this.step(id, { kind: "read", context });
  }

  tick(id: NodeId): Output {
    return this.step(id, { kind: "tick" });
  }

  change(id: NodeId, membership: Membership): Output {
    return this.step(id, { kind: "change_membership", membership });
  }

  transfer(id: NodeId, to: NodeId): Output {
    return this.step(id, { kind: "transfer", to });
  }

  /** Through what is applied, or less. */
  truncate(id: NodeId, index = this.applied(id)): Output {
    return this.step(id, { kind: "truncate_log", index });
  }

  /** What is applied and durable, as far as this instance of the node knows. */
  applied(id: NodeId): number {
    return Math.min(this.state(id).commit, this.node(id).disk.applied);
  }

  /** The node can serve a snapshot of what it has applied. */
  snapshot(id: NodeId): SnapshotPosition {
    const { log } = this.state(id);
    const snapshot = positionAt(log, Math.max(log.base.index, this.applied(id)));
    this.step(id, { kind: "snapshot_ready", snapshot });
    return snapshot;
  }

  /** The node has fetched a snapshot, by default the last one that it was offered. */
  stage(id: NodeId, snapshot = this.node(id).offered): Output {
    if (snapshot === null) throw new Error(`node ${id} was offered no snapshot`);
    return this.step(id, { kind: "snapshot_staged", snapshot });
  }

  /** Whoever wants a snapshot gets one, and whoever was offered one has fetched it. */
  serveSnapshots(): void {
    for (const { id, state, snapshotWanted } of this.nodes) if (state !== null && snapshotWanted) this.snapshot(id);
    for (const node of this.nodes) {
      if (node.state === null || node.offered === null) continue;
      this.stage(node.id);
      node.offered = null;
    }
  }

  membership(id: NodeId): Membership {
    return membershipOf(this.state(id));
  }

  /** Campaigns and delivers until the pool is empty; the node must have won. */
  elect(id: NodeId): void {
    this.campaign(id);
    this.stabilize();
    if (this.state(id).role.kind !== "leader") throw new Error(`node ${id} did not win`);
  }

  // Disk

  hold(id: NodeId): void {
    this.node(id).held = true;
  }

  release(id: NodeId): void {
    this.node(id).held = false;
    this.flush(id);
  }

  /** Carries out the oldest `count` turns that wait for the disk, by default all. */
  flush(id: NodeId, count = Number.POSITIVE_INFINITY): void {
    const node = this.node(id);
    for (let done = 0; done < count; done += 1) {
      const output = node.turns.shift();
      if (output === undefined) return;
      this.#carryOut(node, output);
    }
  }

  /** Memory is lost. Of the turns under way the oldest `turnsKept` reach the disk, but nothing of them leaves. */
  crash(id: NodeId, turnsKept = 0): void {
    const node = this.node(id);
    for (const output of node.turns.slice(0, turnsKept)) this.#write(node.disk, output);
    if (node.state !== null && node.disk.term < node.state.term) forgetTerm(this.safety, node.state.term, id);
    node.state = null;
    node.turns = [];
  }

  /** The platform drops a sleeping node from memory and starts it again when it is next needed: as another instance. */
  evict(id: NodeId): void {
    this.crash(id, Number.POSITIVE_INFINITY);
    this.restart(id, { asleep: true });
  }

  /** Starts from the disk, by default awake and as applied as the disk says. */
  restart(id: NodeId, options: { readonly applied?: number; readonly asleep?: boolean } = {}): void {
    const node = this.node(id);
    const { disk } = node;
    const read = readerOver(() => disk.entries);
    node.starts += 1;
    node.held = false;
    node.turns = [];
    node.snapshotWanted = false;
    node.offered = null;
    const { term, votedFor, base } = disk;
    node.written = { term, votedFor, base, terms: disk.entries.map((entry) => entry.term) };
    const log = createLog(read, loadedLog(read, base, disk.entries.at(-1)));
    const seed = (this.#options.seed ?? 1) * 1000 + id * 100 + node.starts;
    node.state = createRaft({
      config: configOf(id, this.#options.fence ?? false),
      random: createRandom(seed),
      log,
      term,
      votedFor,
      commit: Math.max(base.index, options.applied ?? disk.applied),
      nowMs: node.nowMs,
      asleep: options.asleep ?? false,
    });
    node.wakeAtMs = node.state.role.kind === "follower" ? node.state.role.electionAtMs : node.nowMs;
  }

  #carryOut(node: ClusterNode, output: Output): void {
    this.#write(node.disk, output);
    this.pool.push(...output.sendLate);
    node.reads.push(...output.reads);
    if (output.persist !== null) this.step(node.id, { kind: "stored", receipt: output.persist.receipt });
  }

  #write(disk: Disk, output: Output): void {
    write(disk, output);
    const first = output.persist?.append[0];
    if (first === undefined) return;
    const before = disk.entries[first.index - disk.base.index - 2]?.term ?? disk.base.term;
    checkEntries(this.safety, output.persist?.append ?? [], before);
  }

  // Network

  /** Cuts what `from` sends to `to`; the other direction stays. */
  cutOneWay(from: NodeId, to: NodeId): void {
    this.#cut.add(`${from}>${to}`);
  }

  cut(left: NodeId, right: NodeId): void {
    this.cutOneWay(left, right);
    this.cutOneWay(right, left);
  }

  /** Only nodes of the same group hear each other; a node that is not named is alone. */
  partition(...groups: readonly (readonly NodeId[])[]): void {
    this.#cut.clear();
    for (const { id: left } of this.nodes) {
      for (const { id: right } of this.nodes) {
        const together = groups.some((group) => group.includes(left) && group.includes(right));
        if (left !== right && !together) this.cutOneWay(left, right);
      }
    }
  }

  heal(): void {
    this.#cut.clear();
  }

  isCut(from: NodeId, to: NodeId): boolean {
    return this.#cut.has(`${from}>${to}`);
  }

  /** Delivers the message at `position` of the pool. */
  deliverAt(position: number): void {
    const [envelope] = this.pool.splice(position, 1);
    if (envelope !== undefined) this.hand(envelope);
  }

  /** Hands a message to its receiver as the network would: nothing happens over a cut link or to a crashed node. */
  hand(envelope: Envelope): void {
    const { from, to, message } = envelope;
    if (this.node(to).state === null || this.isCut(from, to)) return;
    if (message.kind === "append") checkEntries(this.safety, message.entries, message.prevTerm);
    this.onDelivery(envelope);
    this.step(to, { kind: "message", from, message });
  }

  /** Delivers the messages that are in the pool now and match; answers stay in the pool. */
  deliver(matches: (envelope: Envelope) => boolean = () => true): number {
    const taken = this.take(matches);
    for (const envelope of taken) this.hand(envelope);
    return taken.length;
  }

  /** Removes matching messages from the pool and returns them: to drop, keep for later or repeat. */
  take(matches: (envelope: Envelope) => boolean = () => true): Envelope[] {
    const taken = this.pool.filter(matches);
    this.pool = this.pool.filter((envelope) => !taken.includes(envelope));
    return taken;
  }

  /** Delivers everything, oldest first, until nothing is under way. */
  stabilize(): void {
    for (let count = 0; this.pool.length > 0; count += 1) {
      if (count > STABLE_DELIVERIES_MAX) throw new Error("the cluster does not come to rest");
      this.deliverAt(0);
    }
  }

  // Time

  /** Moves clocks without anybody noticing. */
  advance(ms: number, ids: readonly NodeId[] = this.nodes.map((node) => node.id)): void {
    for (const id of ids) this.node(id).nowMs += ms;
  }

  /** Time passes in small pieces: timers fire when due, messages and snapshots arrive at once. */
  pass(ms: number, pieceMs = 5): void {
    for (let passed = 0; passed < ms; passed += pieceMs) {
      this.advance(pieceMs);
      for (const { id, state, wakeAtMs, nowMs } of this.nodes) if (state !== null && wakeAtMs <= nowMs) this.tick(id);
      this.stabilize();
      this.serveSnapshots();
    }
  }

  /** Lets time pass until `done`, at most `msMax`; returns how long it took. */
  passUntil(done: () => boolean, msMax: number): number {
    for (let passed = 0; passed <= msMax; passed += 5) {
      if (done()) return passed;
      this.pass(5);
    }
    throw new Error(`not reached within ${msMax} ms`);
  }
}
