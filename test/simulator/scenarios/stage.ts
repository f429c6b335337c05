/**
 * The stage of the scripted stories: the simulated world with everything random taken out of it. Delays are constant,
 * faults happen only where the script says so, and time moves only when the script says so. All checks of the
 * simulator (safety.ts) look on, so that a story fails on any broken rule, not only on the one that it is about.
 */
import type { NodeSummary } from "../../../src/api/backend.ts";
import { LOG_KEEP_BYTES_DEFAULT } from "../../../src/base/limits.ts";
import type { Command, Idempotency, Query } from "../../../src/kv/command.ts";
import type { CompactionPolicy } from "../../../src/kv/history-marks.ts";
import type { Errand, ErrandReply } from "../../../src/node-object/errands.ts";
import type { PeerBody, PeerEnvelope } from "../../../src/node-object/ports.ts";
import type { Runtime } from "../../../src/node-object/runtime.ts";
import { PROTOCOL_MAX } from "../../../src/node-object/versions.ts";
import type { Message, NodeId } from "../../../src/raft/types.ts";
import type { HubLimits } from "../../../src/watch/limits.ts";
import { push } from "../event-queue.ts";
import { type Call, type CallTurn, type Host, hostOf, type Instance, type SimEvent, type World } from "../host.ts";
import { cut, mend, mendAll } from "../network.ts";
import { scheduleAlarm, scheduleTimer } from "../timers.ts";
import { runTurn } from "../turn.ts";
import {
  advance,
  crashHost,
  createWorld,
  runUntil,
  scheduleAct,
  sendCall,
  startInstance,
  supersedeHost,
  wipeHost,
} from "../world.ts";

import { faultyPorts, type StorageFaults, unseenHalting } from "./storage-faults.ts";
import { type Pending, type ReadAnswer, recordValue, type WriteAnswer } from "./vocabulary.ts";

export const HEARTBEAT_MS = 50;
export const ELECTION_MS_MIN = 300;
export const ELECTION_MS_MAX = 600;
/** One way, between any two nodes. */
export const HOP_MS = 0.5;
/** From the end of a turn that wrote to the moment at which it is durable. */
export const SYNC_MS = 0.5;
/**
 * Applied rows are on the disk this much later at the latest (the runtime's write-back buffer), and the leader has looked
 * whether anything is due.
 */
export const FLUSHED_MS = 1200;
const CLIENT_MS = 0.1;
const CHUNK_BYTES_MAX = 384 << 10;

/** What happens to a message that leaves a node: an instance = only this one gets it; undefined = the next rule decides. */
export type Verdict = "pass" | "drop" | "hold" | Instance | undefined;
export type Rule = (envelope: PeerEnvelope, sender: Instance) => Verdict;

export interface StageOptions {
  readonly size?: number;
  readonly seed?: number;
  readonly fence?: boolean;
  /** Absent: it never falls asleep. */
  readonly quiesceAfterMs?: number;
  readonly compaction?: CompactionPolicy;
  readonly logKeepEntries?: number;
  readonly logKeepBytes?: number;
  /** Absent: never, so that a node does nothing that the script does not say. */
  readonly housekeepingMs?: number;
  readonly chunkBytesMax?: number;
  readonly hubLimits?: Partial<HubLimits>;
}

export class Stage implements StorageFaults {
  readonly world: World;
  readonly ids: readonly NodeId[];
  /** Asked in order for every message that leaves a node; without a verdict it passes. */
  rules: Rule[] = [];
  /** Messages that a rule holds, oldest first. */
  held: { readonly envelope: PeerEnvelope; readonly sender: Instance }[] = [];
  onStatement: StorageFaults["onStatement"] = null;
  corrupt: StorageFaults["corrupt"] = null;
  readonly halted = new Map<NodeId, string>();

  constructor(options: StageOptions = {}) {
    const { size = 5, seed = 1, fence = true, quiesceAfterMs = Number.POSITIVE_INFINITY, hubLimits = {} } = options;
    this.world = createWorld({
      seed,
      size,
      fence,
      quiesceAfterMs,
      hubLimits,
      quotaBytes: 2 ** 32,
      logKeepEntries: options.logKeepEntries ?? 10_000,
      logKeepBytes: options.logKeepBytes ?? LOG_KEEP_BYTES_DEFAULT,
      housekeepingMs: options.housekeepingMs ?? Number.POSITIVE_INFINITY,
      chunkBytesMax: options.chunkBytesMax ?? CHUNK_BYTES_MAX,
      compaction: options.compaction ?? { keepRevisions: 0, keepMs: 0, historyBytesMax: 0 },
      heartbeatMs: HEARTBEAT_MS,
      electionTimeoutMsMin: ELECTION_MS_MIN,
      electionTimeoutMsMax: ELECTION_MS_MAX,
      freeze: true,
      traceLines: 60,
      mutation: {
        ports: (ports, config) => faultyPorts(this, this.host(config.id), ports, config),
        runtime: unseenHalting,
      },
    });
    const { network, timing, toOld } = this.world;
    network.delayMsMin = HOP_MS;
    network.delayMsMax = HOP_MS;
    timing.syncMsMin = SYNC_MS;
    timing.syncMsMax = SYNC_MS;
    timing.clientDelayMsMin = CLIENT_MS;
    timing.clientDelayMsMax = CLIENT_MS;
    toOld.old = 0;
    toOld.new = 0;
    toOld.read = 0;
    toOld.write = 0;
    this.ids = this.world.hosts.map((host) => host.id);
    for (const host of this.world.hosts) host.downUntil = Number.POSITIVE_INFINITY;
    this.world.intercept = (envelope, sender) => this.#route(envelope, sender);
  }

  // --- time ----------------------------------------------------------------------------------------------------------

  run(ms: number): void {
    runUntil(this.world, this.world.now + ms);
  }

  /** Lets the world go on until `condition` holds; the virtual time that it took. */
  until(what: string, condition: () => boolean, msMax = 10_000): number {
    const { world } = this;
    const from = world.now;
    while (!condition()) {
      if (world.now > from + msMax || !advance(world)) throw new Error(`${what}: not within ${msMax} ms`);
    }
    return world.now - from;
  }

  // --- nodes ---------------------------------------------------------------------------------------------------------

  host(id: NodeId): Host {
    return hostOf(this.world, id);
  }

  instance(id: NodeId): Instance {
    const { live } = this.host(id);
    if (live === null) throw new Error(`node ${id} does not run`);
    return live;
  }

  status(id: NodeId): NodeSummary {
    return this.instance(id).runtime.status();
  }

  start(...ids: readonly NodeId[]): void {
    for (const id of ids) {
      const host = this.host(id);
      host.downUntil = this.world.now;
      startInstance(this.world, host);
    }
  }

  /** Memory is lost and nothing runs until {@link start}. */
  crash(...ids: readonly NodeId[]): void {
    for (const id of ids) crashHost(this.world, this.host(id), Number.POSITIVE_INFINITY);
  }

  /** The disk is replaced by an empty one; nothing runs until {@link start}. */
  wipe(id: NodeId): void {
    wipeHost(this.world, this.host(id), Number.POSITIVE_INFINITY);
    this.halted.delete(id);
  }

  /** The node stands still with its memory; what arrives waits. */
  pause(...ids: readonly NodeId[]): void {
    for (const id of ids) this.host(id).pausedUntil = Number.POSITIVE_INFINITY;
  }

  resume(...ids: readonly NodeId[]): void {
    const { world } = this;
    for (const id of ids) {
      const host = this.host(id);
      host.pausedUntil = world.now;
      const events = world.queue.heap.splice(0);
      for (const event of events.sort((left, right) => left.seq - right.seq)) this.#requeue(host, event);
      host.alarmEventAt = Number.POSITIVE_INFINITY;
      scheduleAlarm(world, host);
      if (host.live === null) continue;
      host.live.timerEventAt = Number.POSITIVE_INFINITY;
      scheduleTimer(world, host.live);
    }
  }

  #requeue(host: Host, event: SimEvent): void {
    const waited = !Number.isFinite(event.at);
    if (waited && (event.kind === "timer" || event.kind === "alarm")) return; // armed anew
    if (waited && this.#hostOf(event) === host) event.at = this.world.now;
    push(this.world.queue, event);
  }

  #hostOf(event: SimEvent): Host | null {
    if ("host" in event) return event.host;
    return "instance" in event ? event.instance.host : null;
  }

  /** A new instance takes over the disk; the old one lives on and is returned. */
  supersede(id: NodeId): Instance {
    const old = this.instance(id);
    supersedeHost(this.world, this.host(id));
    return old;
  }

  /** Starts all nodes and waits until they are one cluster with a leader and the same state. */
  form(): NodeId {
    this.start(...this.ids);
    return this.settle();
  }

  /** The node that leads the highest term of all that run, if a majority of the cluster follows it. */
  leader(): NodeId | null {
    const running = this.#running();
    let found: NodeSummary | null = null;
    for (const status of running) {
      if (status.role === "leader" && (found === null || status.term > found.term)) found = status;
    }
    if (found === null) return null;
    const { id, term } = found;
    const followers = running.filter((status) => status.leader === id && status.term === term).length;
    return followers > this.ids.length / 2 ? id : null;
  }

  #running(): NodeSummary[] {
    const live = this.world.hosts.flatMap((host) => (host.live === null ? [] : [host.live]));
    return live.filter((instance) => instance.running).map((instance) => instance.runtime.status());
  }

  /** Somebody wants something of these nodes that needs the cluster: a node that has just started sleeps until then. */
  ask(...ids: readonly NodeId[]): void {
    for (const id of ids) this.read(id, { kind: "revision" });
  }

  /** Waits until there is a leader and all of `ids` have applied the same, everything; the leader. */
  settle(ids: readonly NodeId[] = this.ids): NodeId {
    if (this.#running().every(({ quiescent }) => quiescent)) this.ask(...ids);
    this.until(`nodes ${ids.join()} agree`, () => this.leader() !== null && this.agree(ids));
    const leader = this.leader();
    if (leader === null) throw new Error("no leader");
    return leader;
  }

  /** All of `ids` run, have applied all that they hold, and have the same state. */
  agree(ids: readonly NodeId[] = this.ids): boolean {
    if (ids.some((id) => this.host(id).live === null)) return false;
    const all = ids.map((id) => this.status(id));
    if (all.some((one) => one.state !== "formed" || one.applied_index !== one.last_index)) return false;
    return new Set(all.map((one) => `${one.applied_index} ${one.revision} ${one.digest}`)).size === 1;
  }

  /**
   * Makes `id` lead: nobody else may campaign, and the leader before it is not heard, until it does. Other rules stay.
   * `settled` false: the state of the nodes need not agree before or after.
   */
  lead(id: NodeId, settled = true): void {
    if (settled) this.settle(this.#running().map((status) => status.id));
    const before = this.leader();
    if (before === id) return;
    const rule: Rule = ({ from, body }) => {
      if (from === before) return "drop";
      const campaigns = body.kind === "raft" && (body.message.kind === "pre_vote" || body.message.kind === "vote");
      return campaigns && from !== id ? "drop" : undefined;
    };
    this.rules.unshift(rule);
    this.until(`node ${id} leads`, () => this.leader() === id);
    this.rules = this.rules.filter((each) => each !== rule);
    if (settled) this.settle(this.#running().map((status) => status.id));
  }

  /** The leader and the others, in ascending order. */
  cast(): [leader: NodeId, NodeId, NodeId, NodeId, NodeId] {
    const leader = this.leader();
    const others = this.ids.filter((id) => id !== leader);
    const [first, second, third, fourth] = others;
    if (leader === null || first === undefined || second === undefined || third === undefined || fourth === undefined) {
      throw new Error(`no leader and four others among ${this.ids.join()}`);
    }
    return [leader, first, second, third, fourth];
  }

  // --- the network ---------------------------------------------------------------------------------------------------

  /** Nothing goes from one of `from` to one of `to`. */
  cutOneWay(from: readonly NodeId[], to: readonly NodeId[]): void {
    for (const left of from) for (const right of to) if (left !== right) cut(this.world.network, left, right);
  }

  cutBothWays(left: readonly NodeId[], right: readonly NodeId[]): void {
    this.cutOneWay(left, right);
    this.cutOneWay(right, left);
  }

  mend(left: readonly NodeId[], right: readonly NodeId[]): void {
    for (const one of left) {
      for (const other of right) {
        mend(this.world.network, one, other);
        mend(this.world.network, other, one);
      }
    }
  }

  isolate(...ids: readonly NodeId[]): void {
    const others = this.ids.filter((id) => !ids.includes(id));
    this.cutBothWays(ids, others);
  }

  /** Ends all cuts and all rules. What is held stays held. */
  heal(): void {
    mendAll(this.world.network);
    this.rules = [];
  }

  /** Hands over what was held, in the order in which it was sent, at once. */
  release(select: (envelope: PeerEnvelope) => boolean = () => true): number {
    const chosen = this.held.filter(({ envelope }) => select(envelope));
    this.held = this.held.filter(({ envelope }) => !select(envelope));
    for (const { envelope } of chosen) this.deliver(envelope);
    this.run(0);
    return chosen.length;
  }

  /** Puts a message before its receiver: a repeated, late or forged one. */
  deliver(envelope: PeerEnvelope): void {
    const { world } = this;
    push(world.queue, { at: world.now, seq: 0, kind: "deliver", host: this.host(envelope.to), envelope, sender: null });
  }

  /** A message under the present identities of both nodes. */
  envelope(from: NodeId, to: NodeId, body: PeerBody): PeerEnvelope {
    const sender = this.host(from).disk.identity;
    const receiver = this.host(to).disk.identity;
    if (sender === null || receiver === null) throw new Error(`node ${from} or ${to} has no identity`);
    const { membership } = sender;
    return {
      protocol: PROTOCOL_MAX,
      speaks: PROTOCOL_MAX,
      clusterId: membership.kind === "empty" ? null : membership.clusterId,
      from,
      fromIncarnation: sender.incarnation,
      to,
      toIncarnation: receiver.incarnation,
      body,
    };
  }

  raft(from: NodeId, to: NodeId, message: Message): void {
    this.deliver(this.envelope(from, to, { kind: "raft", message }));
    this.run(0);
  }

  #route(envelope: PeerEnvelope, sender: Instance): boolean {
    for (const rule of this.rules) {
      const verdict = rule(envelope, sender);
      if (verdict === undefined) continue;
      if (verdict === "pass") return false;
      if (verdict === "hold") this.held.push({ envelope, sender });
      else if (verdict !== "drop") this.#handTo(verdict, envelope);
      return true;
    }
    return false;
  }

  #handTo(instance: Instance, envelope: PeerEnvelope): void {
    const { world } = this;
    scheduleAct(world, world.now + HOP_MS, "deliver", () => {
      if (instance.running) runTurn(world, instance, () => instance.runtime.onPeer(envelope));
    });
  }

  // --- clients -------------------------------------------------------------------------------------------------------

  /** Sends a write to a node, which handles it at once; the answer arrives while time goes on. */
  write(node: NodeId, command: Command, options: WriteOptions = {}): Pending<WriteAnswer> {
    const { idempotency, timeoutMs = 2000, old = false } = options;
    const proposal = { format: 1, command, ...(idempotency === undefined ? {} : { idempotency }) } as const;
    return this.#call<WriteAnswer>(node, old, (runtime, answer) => {
      runtime.execute({ proposal, timeoutMs, respond: (outcome) => answer(outcome) });
    });
  }

  /** As {@link write}, and goes on until the answer is there. */
  written(node: NodeId, command: Command, options: WriteOptions = {}): WriteAnswer {
    return this.answerTo(this.write(node, command, options));
  }

  /** A read behind a barrier, or from the node's own state as it is. */
  read(node: NodeId, query: Query, options: ReadOptions = {}): Pending<ReadAnswer> {
    const { timeoutMs = 2000, old = false, local = false } = options;
    return this.#call<ReadAnswer>(node, old, (runtime, answer, turn) => {
      if (local) {
        answer(runtime.query(query));
        return;
      }
      runtime.barrier({
        timeoutMs,
        respond(error) {
          if (error !== null) answer({ ok: false, revision: 0, error });
          else turn.defer(() => answer(runtime.query(query)));
        },
      });
    });
  }

  readNow(node: NodeId, query: Query, options: ReadOptions = {}): ReadAnswer {
    return this.answerTo(this.read(node, query, options));
  }

  /** The JSON value of `key` behind a barrier on `node`; null when absent. */
  value(node: NodeId, key: string): unknown {
    return recordValue(this.readNow(node, { kind: "get", key }));
  }

  /** What an administrator asks of one node. */
  administer(node: NodeId, errand: Errand, timeoutMs = 2000): Pending<ErrandReply> {
    return this.#call<ErrandReply>(node, false, (runtime, answer) => {
      runtime.administer({ errand, timeoutMs, respond: answer });
    });
  }

  answerTo<T>(pending: Pending<T>): T {
    this.until("an answer", () => pending.answer !== null || pending.lost !== null);
    if (pending.answer === null) throw new Error(`no answer, the connection is ${pending.lost}`);
    return pending.answer;
  }

  #call<T>(
    node: NodeId,
    old: boolean,
    run: (runtime: Runtime, answer: (value: T) => void, turn: CallTurn) => void,
  ): Pending<T> {
    const { world } = this;
    const pending: Pending<T> = { answer: null, lost: null };
    const call: Call = {
      label: `to node ${node}`,
      answered: false,
      reads: false,
      run(runtime, answer, turn) {
        const arrive = (value: T) =>
          answer(() => {
            pending.answer = value;
          });
        run(runtime, arrive, turn);
      },
      lost(kind) {
        pending.lost = kind;
      },
    };
    world.toOld.write = old ? 1 : 0;
    sendCall(world, node, call, 0);
    this.run(0);
    world.toOld.write = 0;
    return pending;
  }
}

export interface WriteOptions {
  readonly idempotency?: Idempotency;
  readonly timeoutMs?: number;
  /** Asks the superseded instance. */
  readonly old?: boolean;
}

export interface ReadOptions {
  readonly timeoutMs?: number;
  readonly old?: boolean;
  /** Without a barrier. */
  readonly local?: boolean;
}

/** A cluster that has formed, with its leader. */
export function formed(options: StageOptions = {}): Stage {
  const stage = new Stage(options);
  stage.form();
  return stage;
}
