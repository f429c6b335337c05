/**
 * One open session: JSON-RPC 2.0 over one socket, many calls at a time, watches and topics beside them.
 *
 * N1. A connection is `opening` until the node has greeted, `open`, `retired` (what is under way may end, nothing new
 *     begins) and `closed`; it never goes back. `onGone` is called once, when it can take no more.
 * N2. When it ends, every call, watch and topic is told (pending-calls.ts P1).
 * N3. A pong shows that the socket lives and nothing else: a node that lets calls run out of time without a word is left
 *     too (S84). So is one that knows no leader for long, because another may.
 */
import type { WireChunk, WireTopicMessage, WireWatchFrame } from "../api/wire.ts";
import { ConcordError } from "../base/errors.ts";
import { ChunkJoiner } from "./chunks.ts";
import { ItemQueue } from "./item-queue.ts";
import { Liveness } from "./liveness.ts";
import type { ClientClock } from "./options.ts";
import { PendingCalls, type SessionRequest } from "./pending-calls.ts";
import { SessionTopics } from "./session-topics.ts";
import type { SocketLike } from "./socket.ts";
import { type Exchange, notSent } from "./transport.ts";

const OPEN_MS_MAX = 10_000;

export interface ConnectionOptions {
  readonly clock: ClientClock;
  /** How long the node may be without a leader. */
  readonly leaderlessMsMax: number;
  readonly onGone: () => void;
  readonly onOpen: () => void;
  /** There is a leader. */
  readonly onLeader: () => void;
}

/** What the node says first. */
interface Greeting {
  readonly cluster_id: string | null;
  readonly leader: number | null;
  /** Also without a leader: the node sleeps, and would find one. */
  readonly ready: boolean;
}

export class SessionConnection {
  /** Resolves when it is open, or never will be. */
  readonly opened: Promise<void>;
  readonly #topics: SessionTopics;
  readonly #socket: SocketLike;
  readonly #options: ConnectionOptions;
  readonly #calls: PendingCalls;
  readonly #liveness: Liveness;
  readonly #chunks = new ChunkJoiner();
  readonly #watches = new Map<number, ItemQueue<WireWatchFrame>>();
  readonly #cancelOpening: () => void;
  #phase: "opening" | "open" | "retired" | "closed" = "opening";
  #clusterId: string | null = null;
  #resolveOpened: () => void = () => {};
  #nextWatchId = 0;
  #heardAtMs = 0;
  #cancelLeaderless: (() => void) | null = null;

  constructor(socket: SocketLike, options: ConnectionOptions) {
    const { clock } = options;
    this.#socket = socket;
    this.#options = options;
    this.opened = new Promise((resolve) => {
      this.#resolveOpened = resolve;
    });
    this.#topics = new SessionTopics((method, params) => this.notify(method, params));
    this.#calls = new PendingCalls(clock, {
      send: (text) => this.#send(text),
      heardAtMs: () => this.#heardAtMs,
      onStuck: () => this.#drop("The node answers pings and no calls."),
    });
    this.#liveness = new Liveness(clock, {
      isInUse: () => this.#isInUse(),
      ping: () => this.#send("ping"),
      onDead: () => this.#drop("Nothing was heard from the node."),
      onIdle: () => this.#drop("The session was idle."),
    });
    this.#cancelOpening = clock.after(OPEN_MS_MAX, () => this.#drop("The session did not open in time."), true);
    socket.addEventListener("message", (event) => this.#onMessage((event as { readonly data?: unknown }).data));
    socket.addEventListener("close", () => this.#drop("The socket was closed."));
    socket.addEventListener("error", () => this.#drop("The socket failed."));
  }

  /** Null: the node belongs to none yet. */
  get clusterId(): string | null {
    return this.#clusterId;
  }

  get isOpen(): boolean {
    return this.#phase === "open";
  }

  /** Never rejects. */
  async call(request: SessionRequest): Promise<Exchange> {
    if (!this.isOpen) return notSent("The session ended before the request was sent.");
    const answered = this.#calls.add(request);
    this.#liveness.noteUse();
    const exchange = await answered;
    this.#onSettled();
    const { reply, error } = exchange;
    if (error === null) return { reply: { ...reply, clusterId: this.#clusterId }, error };
    // Such a node is of no use to anybody for a while; the others are.
    if (error.code === "node_halted" || error.code === "cluster_not_ready") this.retire(error);
    return exchange;
  }

  /** Tells, and is told nothing back. */
  notify(method: string, params: object): void {
    if (this.#phase !== "closed") this.#send(JSON.stringify({ jsonrpc: "2.0", method, params }));
  }

  /** A place for the frames of a watch, before the node knows of it. */
  addWatch(): { readonly watchId: number; readonly queue: ItemQueue<WireWatchFrame> } {
    const watchId = this.#nextWatchId;
    const queue = new ItemQueue<WireWatchFrame>();
    this.#nextWatchId += 1;
    this.#watches.set(watchId, queue);
    this.#liveness.noteUse();
    return { watchId, queue };
  }

  /** Frames that still come are nobody's. */
  removeWatch(watchId: number): void {
    this.#watches.delete(watchId);
    this.#onSettled();
  }

  addTopic(topic: string): ItemQueue<WireTopicMessage> {
    const queue = this.#topics.add(topic);
    this.#liveness.noteUse();
    return queue;
  }

  removeTopic(topic: string, queue: ItemQueue<WireTopicMessage>): boolean {
    const isLast = this.#topics.remove(topic, queue);
    this.#onSettled();
    return isLast;
  }

  /** Watches and topics go on elsewhere; calls under way get their answers here. */
  retire(error: ConcordError): void {
    if (this.#phase !== "open") return;
    this.#phase = "retired";
    this.#endStreams(error);
    this.#options.onGone();
    this.#onSettled();
  }

  close(): void {
    this.#drop("The client was closed.");
  }

  #isInUse(): boolean {
    return this.#calls.isInUse || this.#watches.size > 0 || !this.#topics.isEmpty;
  }

  #onSettled(): void {
    if (this.#phase === "closed") return;
    if (this.#phase === "retired" && !this.#isInUse()) this.#drop("The session is over.");
    else this.#liveness.noteUse();
  }

  #send(text: string): void {
    this.#liveness.noteSaid();
    try {
      this.#socket.send(text);
    } catch (cause) {
      // A socket that is closing refuses, and its `close` may be long in coming.
      this.#drop("The socket refused a message.", cause);
    }
  }

  #onMessage(data: unknown): void {
    if (this.#phase === "closed" || typeof data !== "string") return;
    this.#liveness.noteHeard();
    if (data === "pong") return;
    this.#heardAtMs = this.#options.clock.nowMs();
    try {
      this.#onText(data);
    } catch (cause) {
      this.#drop("The node sent what is no message.", cause);
    }
  }

  #onText(text: string): void {
    const message = JSON.parse(text);
    if (message.kind === "chunk") {
      const joined = this.#chunks.add(message as WireChunk);
      if (joined !== null) this.#onText(joined);
    } else if (message.method === undefined) this.#calls.answer(message);
    else this.#onNotification(message.method, message.params, text.length);
  }

  #onNotification(method: string, params: Readonly<Record<string, unknown>>, chars: number): void {
    switch (method) {
      case "session":
        this.#onGreeting(params as unknown as Greeting);
        break;
      case "leader_changed":
        this.#onLeader(params.leader as number | null);
        break;
      case "watch": {
        const { watch_id, ...frame } = params;
        this.#watches.get(watch_id as number)?.push(frame as unknown as WireWatchFrame, chars);
        break;
      }
      case "topic":
        this.#topics.onMessage(params as unknown as WireTopicMessage, chars);
        break;
      default:
      // A later version may tell more.
    }
  }

  #onGreeting({ cluster_id, leader, ready }: Greeting): void {
    if (this.#phase !== "opening") return;
    this.#phase = "open";
    this.#clusterId = cluster_id;
    this.#cancelOpening();
    this.#options.onOpen();
    if (leader !== null || !ready) this.#noteLeader(leader);
    this.#resolveOpened();
  }

  #onLeader(leader: number | null): void {
    this.#noteLeader(leader);
    for (const queue of this.#watches.values()) queue.push({ kind: "leader_changed", leader }, 0);
  }

  #noteLeader(leader: number | null): void {
    this.#cancelLeaderless?.();
    this.#cancelLeaderless = null;
    if (leader !== null) {
      this.#options.onLeader();
      return;
    }
    const detail = "This node knows no leader; another one may.";
    const onLeaderless = () => this.retire(new ConcordError({ code: "no_leader", detail }));
    this.#cancelLeaderless = this.#options.clock.after(this.#options.leaderlessMsMax, onLeaderless, true);
  }

  #endStreams(error: ConcordError): void {
    for (const queue of this.#watches.values()) queue.end(error);
    this.#watches.clear();
    this.#topics.end(error);
  }

  #drop(detail: string, cause?: unknown): void {
    const phase = this.#phase;
    if (phase === "closed") return;
    this.#phase = "closed";
    this.#liveness.stop();
    this.#cancelOpening();
    this.#cancelLeaderless?.();
    const error = new ConcordError({ code: "timeout", reason: "connection", detail }, { cause });
    this.#resolveOpened();
    this.#calls.endAll(error);
    this.#endStreams(error);
    try {
      this.#socket.close(1000, "");
    } catch {
      // It is closed, or was never open: either is what is wanted.
    }
    if (phase !== "retired") this.#options.onGone();
  }
}
