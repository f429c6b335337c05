/**
 * One life of a test node: the real runtime with its HTTP API, from a start to a kill, over ports in memory.
 *
 * N1. Every call into the runtime is a turn (ports.ts, P1). What it sends, and what waits for its writes, goes out at its
 *     end, if it was not aborted.
 * N2. Once it has ended, the runtime is made to end itself at its next look at the clock: no port is touched any more,
 *     and whoever waited for an answer hears that the connection broke.
 */
import { createApi } from "../api/app.ts";
import type { NodePosition, NodeSummary } from "../api/backend.ts";
import { assert } from "../base/assert.ts";
import { NodeBackend } from "../node-object/backend.ts";
import type { NodeReport } from "../node-object/cluster-status.ts";
import { Connections } from "../node-object/connections.ts";
import type { ErrandCall } from "../node-object/errands.ts";
import type { NodeConfig, NodeStorage, PeerEnvelope, Ports } from "../node-object/ports.ts";
import { createRuntime, type Runtime } from "../node-object/runtime.ts";
import type { NodeId } from "../raft/types.ts";
import type { MemoryDisk } from "./memory-disk.ts";
import type { Timeline } from "./timeline.ts";
import { type Turnstile, turnstiled } from "./turnstile.ts";

/** What a node sees of the cluster around it. */
export interface Surroundings {
  readonly timeline: Timeline;
  /** Lets requests in (turnstile.ts). */
  readonly turnstile: Turnstile;
  wallMs(): number;
  send(envelope: PeerEnvelope): void;
  /** Null: that node cannot be reached from this one. */
  peer(from: NodeId, to: NodeId): PeerNode | null;
  /** Something has happened on which code of the user may act: give it the time to. */
  noteActivity(): void;
  log(id: NodeId, ...line: Parameters<Ports["log"]>): void;
}

export interface PeerNode {
  report(): NodeReport;
  digestAt(index: number): string | null;
  administer(call: ErrandCall): void;
}

export interface InstanceParts {
  readonly config: NodeConfig;
  readonly disk: MemoryDisk;
  readonly surroundings: Surroundings;
  /** The alarm on the disk may have changed. */
  readonly onAlarmSet: () => void;
  /** The runtime has ended by itself, which it does over a broken invariant alone. */
  readonly onAbort: (reason: string) => void;
  /** It was asked to end, and for another instance to start. */
  readonly onRestart: (reason: string) => void;
}

/** One turn, and what leaves at its end. */
interface Turn {
  readonly sends: PeerEnvelope[];
  readonly syncs: (() => void)[];
  abortReason: string | null;
}

/** Who calls, as the Worker would say it of the holder of the root token. */
const PRINCIPAL = "root";

export class NodeInstance {
  readonly #parts: InstanceParts;
  readonly #runtime: Runtime;
  readonly #api: { fetch(request: Request): Response | Promise<Response> };
  readonly #onEnd = new Set<(error: Error) => void>();
  #turn: Turn | null = null;
  #isEnded = false;
  #connectionsCount = 0;
  #timerAtMs = Number.POSITIVE_INFINITY;
  /** At or before `#timerAtMs`, which heartbeats push on and on. */
  #armed: { readonly atMs: number; readonly cancel: () => void } | null = null;

  constructor(parts: InstanceParts) {
    this.#parts = parts;
    const { config, surroundings } = parts;
    const log: Ports["log"] = (...line) => surroundings.log(config.id, ...line);
    const connections = new Connections(log);
    const runtime = createRuntime(config, this.#ports(connections, log));
    const turn = <T>(work: () => T): T => this.turn(work);
    connections.attachRuntime(runtime, turn);
    const backend = new NodeBackend({
      runtime: this.#noting(runtime),
      turn,
      clusterName: "default",
      members: config.members,
      source: {
        report: async (id) => surroundings.peer(config.id, id)?.report() ?? null,
        digestAt: async (id, index) => surroundings.peer(config.id, id)?.digestAt(index) ?? null,
      },
      ask: (id, errand, timeoutMs) =>
        new Promise((respond) => {
          const node = surroundings.peer(config.id, id);
          if (node === null) respond(null);
          else node.administer({ errand, timeoutMs, respond });
        }),
      nowMs: () => surroundings.timeline.nowMs,
      connections: {
        connect: (sink) => {
          this.#connectionsCount += 1;
          return connections.open(`connection ${this.#connectionsCount}`, sink, null);
        },
      },
      wait: (ms) => new Promise((resolve) => surroundings.timeline.at(surroundings.timeline.nowMs + ms, resolve)),
    });
    this.#runtime = runtime;
    this.#api = createApi(turnstiled(backend, surroundings.turnstile), { principal: PRINCIPAL, log });
    this.turn(() => runtime.start());
  }

  receive(envelope: PeerEnvelope): void {
    this.turn(() => this.#runtime.onPeer(envelope));
  }

  fireAlarm(): void {
    this.turn(() => {
      this.#parts.disk.setAlarm(null);
      this.#runtime.onAlarm();
    });
  }

  status(): NodeSummary {
    return this.#runtime.status();
  }

  report(): NodeReport {
    return this.#runtime.report();
  }

  position(): NodePosition {
    return this.#runtime.position();
  }

  digestAt(index: number): string | null {
    return this.#runtime.digestAt(index);
  }

  administer(call: ErrandCall): void {
    const forget = this.onEnd(() => call.respond({ kind: "elsewhere", leader: null }));
    const respond: ErrandCall["respond"] = (reply) => {
      forget();
      this.#parts.surroundings.noteActivity();
      call.respond(reply);
    };
    this.turn(() => this.#runtime.administer({ ...call, respond }));
  }

  /** Answers a request. Rejects if this instance ends first. */
  handle(request: Request): Promise<Response> {
    return new Promise((resolve, reject) => {
      const forget = this.onEnd(reject);
      Promise.resolve(this.#api.fetch(request)).then(resolve, reject).finally(forget);
    });
  }

  /** Calls back when this instance ends, unless that is taken back. */
  onEnd(callback: (error: Error) => void): () => void {
    this.#onEnd.add(callback);
    return () => this.#onEnd.delete(callback);
  }

  /** N2 */
  end(reason: string): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#armed?.cancel();
    this.#runtime.onTimer();
    this.#parts.surroundings.noteActivity();
    for (const callback of [...this.#onEnd]) callback(new TypeError(`the connection broke: ${reason}`));
    this.#onEnd.clear();
  }

  turn<T>(work: () => T): T {
    if (this.#isEnded) return work();
    assert(this.#turn === null, "a turn within a turn");
    const turn: Turn = { sends: [], syncs: [], abortReason: null };
    this.#turn = turn;
    try {
      return work();
    } catch (error) {
      turn.abortReason ??= String(error);
      throw error;
    } finally {
      this.#turn = null;
      this.#endTurn(turn);
    }
  }

  #endTurn({ sends, syncs, abortReason }: Turn): void {
    const { disk, surroundings, onAlarmSet, onAbort } = this.#parts;
    disk.endTurn(abortReason === null ? "kept" : "undone");
    if (abortReason !== null) {
      this.end(abortReason);
      onAbort(abortReason);
      return;
    }
    for (const envelope of sends) surroundings.send(envelope);
    for (const done of syncs) this.#soon(done);
    onAlarmSet();
  }

  #soon(work: () => void): void {
    const { timeline } = this.#parts.surroundings;
    timeline.at(timeline.nowMs, () => {
      if (!this.#isEnded) this.turn(work);
    });
  }

  #ports(connections: Connections, log: Ports["log"]): Ports {
    const { disk, surroundings } = this.#parts;
    const { timeline } = surroundings;
    const inTurn = (): Turn => {
      assert(this.#turn !== null, "a port is used outside of a turn");
      return this.#turn;
    };
    const storage: NodeStorage = {
      load: () => disk.load(),
      write: (batch) => disk.write(batch),
      logIndexWithin: (bytesMax) => disk.logIndexWithin(bytesMax),
      readLog: (from, to, bytesMax) => disk.readLog(from, to, bytesMax),
      get: (key) => disk.get(key),
      scan: (range) => disk.scan(range),
      snapshot: disk.snapshot,
      staging: disk.staging,
      spool: disk.spool,
      scrub: disk.scrub,
      get stateHash() {
        return disk.stateHash;
      },
      cleanUp: () => disk.cleanUp(),
      get bytes() {
        return disk.bytes;
      },
      afterSync: (done) => inTurn().syncs.push(done),
    };
    return {
      storage,
      transport: { send: (envelope) => inTurn().sends.push(envelope), setResting: () => {} },
      clock: {
        nowMs: () => {
          if (this.#isEnded) throw new Error("this instance has ended"); // N2
          return timeline.nowMs;
        },
        wallMs: () => surroundings.wallMs(),
      },
      wake: {
        setTimer: (atMs) => {
          this.#timerAtMs = Math.ceil(atMs);
          this.#armTimer();
        },
        setAlarm: (atWallMs) => disk.setAlarm(atWallMs),
      },
      watchers: {
        encode: connections.encode,
        restore: () => connections.restore(),
        send: (frames, positionsOf) => {
          surroundings.noteActivity();
          connections.send(frames, positionsOf);
        },
        drop: (connection) => connections.drop(connection),
        dropAll: () => connections.dropAll(),
        renamed: () => connections.renamed(),
        topic: (topic, payload) => {
          surroundings.noteActivity();
          connections.topic(topic, payload);
        },
      },
      abort: (reason) => {
        if (this.#turn !== null) this.#turn.abortReason = reason;
      },
      restart: (reason) => {
        // When what was answered in this very instant has been read.
        timeline.at(timeline.nowMs + 1, () => {
          if (!this.#isEnded) this.#parts.onRestart(reason);
        });
      },
      log: (...line) => {
        if (!this.#isEnded) log(...line);
      },
    };
  }

  #armTimer(): void {
    const { timeline } = this.#parts.surroundings;
    const atMs = this.#timerAtMs;
    if (atMs === Number.POSITIVE_INFINITY || (this.#armed !== null && this.#armed.atMs <= atMs)) return;
    this.#armed?.cancel();
    this.#armed = { atMs, cancel: timeline.at(atMs, () => this.#onTimer()) };
  }

  #onTimer(): void {
    this.#armed = null;
    if (this.#parts.surroundings.timeline.nowMs < this.#timerAtMs) {
      this.#armTimer();
      return;
    }
    this.#timerAtMs = Number.POSITIVE_INFINITY;
    this.turn(() => this.#runtime.onTimer());
  }

  /** The runtime, with each of its answers told to the cluster. */
  #noting(runtime: Runtime): Runtime {
    const noted = <Answer>(respond: (answer: Answer) => void) => {
      return (answer: Answer): void => {
        this.#parts.surroundings.noteActivity();
        respond(answer);
      };
    };
    return {
      ...runtime,
      execute: (call) => runtime.execute({ ...call, respond: noted(call.respond) }),
      barrier: (call) => runtime.barrier({ ...call, respond: noted(call.respond) }),
      waitRevision: (call) => runtime.waitRevision({ ...call, respond: noted(call.respond) }),
      spool: {
        ...runtime.spool,
        settled: (respond) => runtime.spool.settled(() => noted(respond)(undefined)),
      },
    };
  }
}
