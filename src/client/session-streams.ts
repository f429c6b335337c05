/**
 * Watches and topics over sessions: the calls' own one first, further ones when that is full. Where no session can be
 * had, a stream is opened as server-sent events.
 *
 * W1. A node is told to forget a watch whenever its client stops wanting it, also if the answer to its creation never
 *     came: what was asked for may exist (S48).
 * W2. A frame is acknowledged when it has been used: at the latest when `ACKNOWLEDGE_CHARS` are owed, or when nothing
 *     else is there to be used. So memory is bounded by what the node sends ahead.
 */
import type { WireTopicMessage, WireWatchCreated, WireWatchFrame } from "../api/wire.ts";
import { ConcordError } from "../base/errors.ts";
import { fault } from "./check.ts";
import type { ItemQueue, Next } from "./item-queue.ts";
import type { ResolvedOptions } from "./options.ts";
import { Session } from "./session.ts";
import type { SessionConnection } from "./session-connection.ts";
import type { OpenSocket } from "./socket.ts";
import type { OpenedWatch, Stream, Streams, WatchParameters, WatchStream } from "./streams.ts";

/** The node's own limit of watches, and of topics, per connection. */
const STREAMS_PER_SESSION_MAX = 100;
/** A quarter of what a node sends ahead of acknowledgements. */
const ACKNOWLEDGE_CHARS = 64 << 10;
/** How long the frame that answers a probe may take. */
const PROBE_MS_MAX = 30_000;

export class SessionStreams implements Streams {
  readonly #options: ResolvedOptions;
  readonly #openSocket: OpenSocket;
  readonly #http: Streams;
  /** Streams of each session. */
  readonly #counts: Map<Session, number>;

  constructor(
    options: ResolvedOptions,
    parts: { readonly openSocket: OpenSocket; readonly main: Session; readonly http: Streams },
  ) {
    this.#options = options;
    this.#openSocket = parts.openSocket;
    this.#http = parts.http;
    this.#counts = new Map([[parts.main, 0]]);
  }

  async openWatch(parameters: WatchParameters, signal: AbortSignal): Promise<OpenedWatch> {
    const timeoutMs = this.#options.attemptTimeoutMs;
    const opened = await this.#open(signal, async (connection, release) => {
      const stream = new SessionWatch({ connection, timeoutMs, clock: this.#options.clock, release });
      return await stream.create(parameters, signal);
    });
    return opened ?? (await this.#http.openWatch(parameters, signal));
  }

  async openTopic(topic: string, signal: AbortSignal): Promise<Stream<WireTopicMessage>> {
    const timeoutMs = this.#options.attemptTimeoutMs;
    const opened = await this.#open(signal, async (connection, release) => {
      return await new SessionTopic({ connection, topic, timeoutMs, release }).subscribe(signal);
    });
    return opened ?? (await this.#http.openTopic(topic, signal));
  }

  close(): void {
    for (const session of this.#counts.keys()) session.close();
  }

  /** Opens by `open` on a session with room; null: sockets do not work here. */
  async #open<T>(
    signal: AbortSignal,
    open: (connection: SessionConnection, release: () => void) => Promise<T>,
  ): Promise<T | null> {
    let session = [...this.#counts].find(([, count]) => count < STREAMS_PER_SESSION_MAX)?.[0];
    session ??= new Session(this.#options, this.#openSocket);
    const release = this.#take(session);
    try {
      const connection = await session.connectForLong(this.#options.attemptTimeoutMs, signal);
      if (connection !== null) return await open(connection, release);
    } catch (error) {
      release();
      throw error;
    }
    release();
    if (!session.isPromising) return null;
    throw fault("overloaded", "not_sent", "No session is open yet.");
  }

  #take(session: Session): () => void {
    let isTaken = true;
    const add = (change: number) => this.#counts.set(session, (this.#counts.get(session) ?? 0) + change);
    add(1);
    return () => {
      if (isTaken) add(-1);
      isTaken = false;
    };
  }
}

class SessionWatch implements WatchStream {
  readonly #connection: SessionConnection;
  readonly #clock: ResolvedOptions["clock"];
  readonly #timeoutMs: number;
  readonly #release: () => void;
  readonly #watchId: number;
  readonly #queue: ItemQueue<WireWatchFrame>;
  #handedChars = 0;
  #owed: { position: string; chars: number } | null = null;
  /** The node has forgotten it, or never knew it. */
  #isGone = false;
  #cancelProbe: (() => void) | null = null;

  constructor(options: {
    readonly connection: SessionConnection;
    readonly clock: ResolvedOptions["clock"];
    readonly timeoutMs: number;
    readonly release: () => void;
  }) {
    this.#connection = options.connection;
    this.#clock = options.clock;
    this.#timeoutMs = options.timeoutMs;
    this.#release = options.release;
    const { watchId, queue } = options.connection.addWatch();
    this.#watchId = watchId;
    this.#queue = queue;
  }

  /** @throws ConcordError; the stream is closed then. */
  async create(parameters: WatchParameters, signal: AbortSignal): Promise<OpenedWatch> {
    const { reply, error } = await this.#call("watch.create", parameters, signal);
    if (error !== null) {
      this.#isGone = error.code !== "timeout"; // W1
      this.close();
      throw error;
    }
    const { position, cluster_id, revision } = reply.result as WireWatchCreated;
    return { stream: this, position, clusterId: cluster_id, revision };
  }

  async next(): Promise<Next<WireWatchFrame>> {
    if (this.#queue.isEmpty) this.#acknowledgeOwed();
    const next = await this.#queue.next();
    this.#cancelProbe?.();
    this.#cancelProbe = null;
    if (next.error === null) {
      this.#handedChars = next.bytes;
      this.#isGone ||= isLast(next.item);
    } else this.#isGone = true;
    return next;
  }

  acknowledge(position: string): void {
    this.#owed = { position, chars: (this.#owed?.chars ?? 0) + this.#handedChars };
    if (this.#owed.chars >= ACKNOWLEDGE_CHARS) this.#acknowledgeOwed();
  }

  probe(): void {
    if (this.#cancelProbe !== null || this.#isGone) return;
    const dead = new ConcordError({
      code: "timeout",
      reason: "connection",
      detail: "The watch gives no sign of life.",
    });
    this.#cancelProbe = this.#clock.after(PROBE_MS_MAX, () => this.#queue.end(dead), true);
    void this.#call("watch.progress", {}).then(({ error }) => {
      // The node answers for itself, not for the watch; only that there is none tells something.
      if (error?.retry === "no") this.#queue.end(dead);
    });
  }

  close(): void {
    this.#cancelProbe?.();
    if (!this.#isGone && this.#connection.isOpen) void this.#call("watch.cancel", {});
    this.#isGone = true;
    this.#queue.end(fault("timeout", "aborted", "The watch was given up."));
    this.#connection.removeWatch(this.#watchId);
    this.#release();
  }

  #acknowledgeOwed(): void {
    if (this.#owed === null || this.#isGone) return;
    this.#connection.notify("watch.ack", { watch_id: this.#watchId, position: this.#owed.position });
    this.#owed = null;
  }

  async #call(method: string, parameters: object, signal?: AbortSignal) {
    const params = JSON.stringify({ watch_id: this.#watchId, ...parameters });
    const request = { method, params, timeoutMs: this.#timeoutMs };
    return await this.#connection.call(signal === undefined ? request : { ...request, signal });
  }
}

/** One subscriber of a topic; others on the same connection share the node's subscription. */
class SessionTopic implements Stream<WireTopicMessage> {
  readonly #connection: SessionConnection;
  readonly #topic: string;
  readonly #timeoutMs: number;
  readonly #release: () => void;
  readonly #queue: ItemQueue<WireTopicMessage>;

  constructor(options: {
    readonly connection: SessionConnection;
    readonly topic: string;
    readonly timeoutMs: number;
    readonly release: () => void;
  }) {
    this.#connection = options.connection;
    this.#topic = options.topic;
    this.#timeoutMs = options.timeoutMs;
    this.#release = options.release;
    this.#queue = options.connection.addTopic(options.topic);
  }

  /** Each subscriber asks, though one would do: none depends on what became of another's request. @throws ConcordError */
  async subscribe(signal: AbortSignal): Promise<this> {
    const { error } = await this.#call("topic.subscribe", signal);
    if (error === null) return this;
    this.close();
    throw error;
  }

  next(): Promise<Next<WireTopicMessage>> {
    return this.#queue.next();
  }

  close(): void {
    this.#queue.end(fault("timeout", "aborted", "The topic was given up."));
    const isLast = this.#connection.removeTopic(this.#topic, this.#queue);
    if (isLast && this.#connection.isOpen) void this.#call("topic.unsubscribe");
    this.#release();
  }

  async #call(method: string, signal?: AbortSignal) {
    const request = { method, params: JSON.stringify({ topic: this.#topic }), timeoutMs: this.#timeoutMs };
    return await this.#connection.call(signal === undefined ? request : { ...request, signal });
  }
}

function isLast(frame: WireWatchFrame): boolean {
  return ["compacted", "slow_consumer", "resync", "cluster_changed"].includes(frame.kind);
}
