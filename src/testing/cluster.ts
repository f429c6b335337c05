/**
 * A whole cluster inside a test: real node runtimes and the real HTTP API, over storage, messages and time in memory.
 *
 * ```ts
 * const cluster = await startTestCluster();
 * const concord = cluster.client();
 * const { id } = await concord.lease.grant({ ttl_s: 30 });
 * await concord.kv.put("/workers/a", "here", { lease: id });
 * await cluster.advance(31_000);
 * expect(await concord.kv.get("/workers/a")).toBeNull();
 * await cluster.close();
 * ```
 *
 * C1. Time moves by `advance` and `finish` alone. A call needs none while the cluster has a leader: it completes while
 *     time stands still. Without one it waits, like its timeouts, for somebody to advance.
 * C2. Equal calls with an equal seed give an equal run: elections, messages and revisions. (The client's own
 *     idempotency keys are random; nothing depends on their values.)
 * C3. There are no timers and no files: a cluster that is not closed costs memory alone. One thing is real time: an open
 *     event stream keeps its node's keep-alive comments, and with them a Node process, going until it is closed.
 */
import type { NodeStatus, NodeSummary } from "../api/backend.ts";
import { assert } from "../base/assert.ts";
import {
  COMPACTION_HISTORY_BYTES_DEFAULT,
  COMPACTION_KEEP_MS_DEFAULT,
  COMPACTION_KEEP_REVISIONS_DEFAULT,
  HOUSEKEEPING_MS_DEFAULT,
  LOG_KEEP_BYTES_DEFAULT,
  LOG_KEEP_ENTRIES_DEFAULT,
  QUIESCE_AFTER_MS_DEFAULT,
  QUOTA_BYTES_DEFAULT,
} from "../base/limits.ts";
import { createRandom, nextFloat, nextInteger, type Random } from "../base/random.ts";
import { Concord } from "../client/concord.ts";
import type { ClientClock, ConnectOptions } from "../client/options.ts";
import type { NodeConfig, PeerEnvelope } from "../node-object/ports.ts";
import { PROTOCOL_MAX } from "../node-object/versions.ts";
import type { NodeId } from "../raft/types.ts";
import { eventLoopTurn } from "./event-loop.ts";
import { Gateway } from "./gateway.ts";
import type { NodeInstance, Surroundings } from "./node-instance.ts";
import { TestNode } from "./test-node.ts";
import { Timeline } from "./timeline.ts";
import { Turnstile } from "./turnstile.ts";

export interface TestClusterOptions {
  /** How many nodes: 1, 3, 5 or 7. Default 5. */
  readonly nodes?: number;
  /** Decides whatever is left to chance. Default 1. */
  readonly seed?: number;
  /** What the wall clocks of the nodes show at the beginning. Default the start of 2027. */
  readonly startMs?: number;
  /**
   * How long a message between nodes travels. Default 0: calls complete while time stands still. With any other value
   * they need `advance` or `finish`.
   */
  readonly messageDelayMs?: number;
  /** Called for each line of the nodes' logs. Default: none. */
  readonly onLog?: (line: TestLogLine) => void;
}

export interface TestLogLine {
  readonly node: number;
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number | boolean | null>>;
}

/** As `Concord.connect`, but for what the cluster itself provides. */
export interface TestClientOptions
  extends Pick<ConnectOptions, "timeoutMs" | "attemptTimeoutMs" | "idempotency" | "onClusterChanged"> {
  /** The one node that this client talks to. Default: the leader, or any node where any will do. */
  readonly node?: number;
}

const START_MS_DEFAULT = Date.UTC(2027, 0, 1);
const NODES_COUNTS: readonly number[] = [1, 3, 5, 7];
/** As in wrangler.toml. */
const TIMING = { heartbeatMs: 50, electionTimeoutMsMin: 300, electionTimeoutMsMax: 600 };
const FORMING_MS_MAX = 60_000;
const FINISH_MS_DEFAULT = 60_000;
/** Turns of the event loop in which nothing happens, after which nothing is expected to. */
const QUIET_TURNS = 4;
const SETTLE_TURNS_MAX = 100_000;

/** Starts a cluster and waits until it has formed and a leader answers. */
export async function startTestCluster(options: TestClusterOptions = {}): Promise<TestCluster> {
  const cluster = new TestCluster(options);
  await cluster.finish(untilItAnswers(cluster), FORMING_MS_MAX);
  return cluster;
}

async function untilItAnswers(cluster: TestCluster): Promise<void> {
  for (;;) {
    const { status } = await cluster.fetch(new Request("http://concord/v1/revision"));
    if (status === 200) return;
    await cluster.clock.sleep(TIMING.heartbeatMs);
  }
}

/** Made by {@link startTestCluster}. */
export class TestCluster {
  readonly #startMs: number;
  readonly #messageDelayMs: number;
  readonly #random: Random;
  readonly #timeline = new Timeline();
  readonly #nodes = new Map<NodeId, TestNode>();
  readonly #gateway: Gateway;
  readonly #clients: Concord[] = [];
  /** The group of each node; null: all reach each other. */
  #groups: ReadonlyMap<NodeId, number> | null = null;
  /** Counts what code of the user may act on. */
  #activity = 0;
  /** The last of the calls that move time: they follow one another. */
  #moving: Promise<void> = Promise.resolve();
  #failure: Error | null = null;
  #isClosed = false;

  /** Use {@link startTestCluster}, which also waits for a leader. */
  constructor(options: TestClusterOptions = {}) {
    const { nodes = 5, seed = 1, startMs = START_MS_DEFAULT, messageDelayMs = 0, onLog } = options;
    if (!NODES_COUNTS.includes(nodes)) throw new RangeError(`a cluster has 1, 3, 5 or 7 nodes, not ${nodes}`);
    checkDelay(messageDelayMs);
    this.#startMs = startMs;
    this.#messageDelayMs = messageDelayMs;
    this.#random = createRandom(seed);
    const turnstile = new Turnstile();
    this.#gateway = new Gateway({ turnstile, pick: (choice) => this.#pick(choice) });
    const surroundings: Surroundings = {
      timeline: this.#timeline,
      turnstile,
      wallMs: () => this.nowMs,
      send: (envelope) => this.#send(envelope),
      peer: (from, to) => (this.#isConnected(from, to) ? (this.#nodes.get(to)?.instance ?? null) : null),
      noteActivity: () => {
        this.#activity += 1;
      },
      log: (node, level, message, fields) => onLog?.({ node, level, message, fields }),
    };
    const members = Array.from({ length: nodes }, (_, position) => position + 1);
    for (const id of members) {
      const nextConfig = (): NodeConfig => ({ id, members, ...TIMING, ...BOUNDS, seed: this.#nextSeed() });
      const onAbort = (reason: string): void => {
        this.#failure ??= new Error(`node ${id} has ended by itself: ${reason}`);
      };
      this.#nodes.set(id, new TestNode({ nextConfig, surroundings, onAbort }));
    }
    for (const node of this.#nodes.values()) node.start();
  }

  /** The ids of the nodes, in order. */
  get nodes(): readonly number[] {
    return [...this.#nodes.keys()];
  }

  /** What the wall clocks of the nodes show. */
  get nowMs(): number {
    return this.#startMs + this.#timeline.nowMs;
  }

  /** The cluster's clock in the form that the client takes. */
  get clock(): ClientClock {
    return {
      nowMs: () => this.#timeline.nowMs,
      after: (delayMs, callback) => this.#after(delayMs, callback),
      sleep: (delayMs, signal) =>
        new Promise((resolve) => {
          const cancel = this.#after(delayMs, done);
          signal?.addEventListener("abort", done, { once: true });
          if (signal?.aborted === true) done();
          function done(): void {
            cancel();
            signal?.removeEventListener("abort", done);
            resolve();
          }
        }),
    };
  }

  /** A client on the cluster's clock. Its requests stay in the process, and it is closed with the cluster. */
  client(options: TestClientOptions = {}): Concord {
    this.#checkOpen();
    const { node = null, ...rest } = options;
    if (node !== null) this.#nodeOf(node);
    const random = createRandom(this.#nextSeed());
    const client = Concord.connect({
      ...rest,
      fetch: (request) => this.#fetch(request, node),
      clock: this.clock,
      random: () => nextFloat(random),
    });
    this.#clients.push(client);
    return client;
  }

  /** The HTTP API, as `fetch` of an address at which this cluster would be. WebSockets are not served. */
  fetch(request: Request, options: { readonly node?: number } = {}): Promise<Response> {
    return this.#fetch(request, options.node ?? null);
  }

  /**
   * Lets `ms` pass (whole milliseconds): every timer, alarm and message that falls into that time, in order, with the
   * promises of the test's own code between them. Calls follow one another.
   */
  async advance(ms: number): Promise<void> {
    checkDelay(ms);
    await this.#move(async () => {
      const untilMs = this.#timeline.nowMs + ms;
      await this.#settle();
      while (this.#timeline.nextAtMs <= untilMs) await this.#step();
      this.#timeline.jumpTo(untilMs);
      await this.#settle();
    });
  }

  /**
   * Lets time pass until `promise` is settled, and not longer; its outcome is the answer. Of all calls that need an
   * election, a timeout or a lease to end.
   * @throws Error if it is still pending after `withinMs`, by default a minute.
   */
  async finish<T>(promise: Promise<T>, withinMs: number = FINISH_MS_DEFAULT): Promise<T> {
    let isSettled = false;
    const note = (): void => {
      isSettled = true;
    };
    promise.then(note, note);
    await this.#move(async () => {
      const untilMs = this.#timeline.nowMs + withinMs;
      await this.#settle();
      while (!isSettled && this.#timeline.nextAtMs <= untilMs) {
        await this.#step();
        // Whatever is settled now was settled at this instant.
        await this.#settle();
      }
    });
    if (!isSettled) throw new Error(`the promise is still pending after ${withinMs} ms of the cluster's time`);
    return await promise;
  }

  /** The node that leads; null while none does. Of two that say so, the one of the later term does. */
  leader(): number | null {
    let best: NodeSummary | null = null;
    for (const { instance } of this.#nodes.values()) {
      const status = instance?.status();
      if (status?.role === "leader" && (best === null || status.term > best.term)) best = status;
    }
    return best?.id ?? null;
  }

  /** What a node says of itself; null while it is down. */
  status(node: number): NodeStatus | null {
    return this.#nodeOf(node).instance?.report().status ?? null;
  }

  /**
   * Ends a node at once: memory and connections are lost, storage stays. Requests to it fail until {@link restart}.
   * Harmless if it is down already. Answers its id.
   * @throws Error for `leader` while none leads.
   */
  async kill(node: number | "leader"): Promise<number> {
    const id = node === "leader" ? this.leader() : node;
    if (id === null) throw new Error("no node leads now");
    this.#nodeOf(id).kill();
    await this.#settleInTurn();
    return id;
  }

  /** Starts a node on the storage that it has; one that runs is killed first. */
  async restart(node: number): Promise<void> {
    this.#checkOpen();
    const place = this.#nodeOf(node);
    place.kill();
    place.start();
    await this.#settleInTurn();
  }

  /**
   * Cuts the network between groups of nodes, `[[1, 2], [3, 4, 5]]`, in place of any earlier partition. A node in no group
   * is alone. Clients still reach every node.
   */
  async partition(groups: readonly (readonly number[])[]): Promise<void> {
    const groupOf = new Map<NodeId, number>();
    for (const [group, members] of groups.entries()) {
      for (const node of members) {
        this.#nodeOf(node);
        if (groupOf.has(node)) throw new RangeError(`node ${node} is in two groups`);
        groupOf.set(node, group);
      }
    }
    this.#groups = groupOf;
    await this.#settleInTurn();
  }

  /** Ends the partition. */
  async heal(): Promise<void> {
    this.#groups = null;
    await this.#settleInTurn();
  }

  /**
   * Ends all nodes, and with them every stream, and closes the clients: their pending calls end as `timeout` (reason
   * `aborted`), later ones are `invalid_request` (reason `closed`). What waits for the clock otherwise waits for ever, since
   * time has ended.
   */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    for (const client of this.#clients) client.close();
    for (const node of this.#nodes.values()) node.kill();
    await this.#settleInTurn();
    this.#isClosed = true;
  }

  // --- time ----------------------------------------------------------------------------------------------------------

  async #move(work: () => Promise<void>): Promise<void> {
    this.#checkOpen();
    const moved = this.#moving.then(work);
    this.#moving = moved.catch(() => {}); // told to its own caller
    await moved;
    if (this.#failure !== null) throw this.#failure;
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new Error("the cluster is closed");
  }

  async #settleInTurn(): Promise<void> {
    await this.#move(() => this.#settle());
  }

  /** To the next instant at which something happens. */
  async #step(): Promise<void> {
    this.#timeline.jumpTo(this.#timeline.nextAtMs);
    const before = this.#activity;
    this.#timeline.runDue();
    if (this.#activity !== before) await this.#settle();
  }

  /** At this instant, until neither the cluster nor code that waits for it has anything left to do. */
  async #settle(): Promise<void> {
    let quietTurns = 0;
    for (let turns = 0; quietTurns < QUIET_TURNS; turns += 1) {
      assert(turns < SETTLE_TURNS_MAX, "the cluster or its clients come to no rest while time stands still");
      const before = this.#activity;
      this.#timeline.runDue();
      await eventLoopTurn();
      const isQuiet =
        this.#activity === before && !this.#gateway.isBusy && this.#timeline.nextAtMs > this.#timeline.nowMs;
      quietTurns = isQuiet ? quietTurns + 1 : 0;
    }
  }

  #after(delayMs: number, callback: () => void): () => void {
    const atMs = this.#timeline.nowMs + Math.max(0, Math.ceil(delayMs));
    return this.#timeline.at(atMs, () => {
      this.#activity += 1;
      callback();
    });
  }

  // --- nodes and the ways between them -------------------------------------------------------------------------------

  #nodeOf(id: number): TestNode {
    const node = this.#nodes.get(id);
    if (node === undefined) throw new RangeError(`there is no node ${id}; there are ${this.nodes.join(", ")}`);
    return node;
  }

  #nextSeed(): number {
    return nextInteger(this.#random, 1, 0x7fffffff);
  }

  #send(envelope: PeerEnvelope): void {
    const { from, to } = envelope;
    if (!this.#isConnected(from, to)) return;
    this.#timeline.at(this.#timeline.nowMs + this.#messageDelayMs, () => {
      if (this.#isConnected(from, to)) this.#nodes.get(to)?.receive(envelope);
    });
  }

  #isConnected(from: NodeId, to: NodeId): boolean {
    if (this.#groups === null || from === to) return true;
    const group = this.#groups.get(from);
    return group !== undefined && group === this.#groups.get(to);
  }

  async #fetch(request: Request, node: number | null): Promise<Response> {
    if (this.#isClosed) throw new TypeError("the cluster is closed");
    if (node !== null) this.#nodeOf(node);
    return await this.#gateway.fetch(request, node);
  }

  #pick(choice: { readonly node: number | null; readonly leaderFirst: boolean }): NodeInstance | null {
    const node = choice.node ?? (choice.leaderFirst ? this.leader() : null);
    if (node !== null) return this.#nodes.get(node)?.instance ?? null;
    const up = [...this.#nodes.values()].flatMap(({ instance }) => instance ?? []);
    return up[Math.floor(nextFloat(this.#random) * up.length)] ?? null;
  }
}

const BOUNDS = {
  fence: true,
  quiesceAfterMs: QUIESCE_AFTER_MS_DEFAULT,
  quotaBytes: QUOTA_BYTES_DEFAULT,
  logKeepEntries: LOG_KEEP_ENTRIES_DEFAULT,
  logKeepBytes: LOG_KEEP_BYTES_DEFAULT,
  housekeepingMs: HOUSEKEEPING_MS_DEFAULT,
  protocolMax: PROTOCOL_MAX,
  compaction: {
    keepRevisions: COMPACTION_KEEP_REVISIONS_DEFAULT,
    keepMs: COMPACTION_KEEP_MS_DEFAULT,
    historyBytesMax: COMPACTION_HISTORY_BYTES_DEFAULT,
  },
};

function checkDelay(ms: number): void {
  if (!Number.isSafeInteger(ms) || ms < 0) throw new RangeError(`${ms} is no whole number of milliseconds`);
}
