/**
 * The clients of one node: their watches stand in the runtime's hub under the connection's id, their topics here. A stream
 * ends with this instance; a socket does not, so what it holds is kept by a {@link Keeper} (client-sockets.ts).
 *
 * G1. Calls into the runtime are turns. While the runtime itself calls (`send`, `topic`), none is made: what follows from
 *     a client that is found gone waits for the end of that turn.
 * G2. A client's trouble is its own: whatever its sink throws ends that connection and nothing else.
 * G3. After `close` nothing of the connection is delivered, and nothing of it is left here, in the hub or in the table.
 */
import type { Connection, ConnectionSink, ConnectionSubscription } from "../api/backend.ts";
import { encodeWatchEvent } from "../api/encode.ts";
import { TOPICS_PER_CONNECTION_MAX, TOPICS_PER_NODE_MAX } from "../api/limits.ts";
import { isLastFrame } from "../api/watch-frames.ts";
import { assert } from "../base/assert.ts";
import { ConcordError } from "../base/errors.ts";
import type { Position } from "../kv/position.ts";
import type { Frame } from "../watch/frames.ts";
import type { SavedWatch, Subscribed, WatchOptions } from "../watch/hub.ts";
import type { Ports, Watchers } from "./ports.ts";
import type { Runtime } from "./runtime.ts";

/** Remembers what a connection holds, so that it outlives this instance. Every call is part of a turn. */
export interface Keeper {
  watchAdded(options: WatchOptions, position: Position): void;
  watchRemoved(watchId: number): void;
  topicAdded(topic: string): void;
  topicRemoved(topic: string): void;
  /** Frames have left: where the watches stand now. */
  moved(watches: readonly SavedWatch[]): void;
  closed(): void;
}

/** Of a connection that an earlier instance held. */
export interface RestoredConnection {
  readonly id: string;
  readonly sink: ConnectionSink;
  readonly keeper: Keeper;
  readonly watches: readonly { readonly options: WatchOptions; readonly saved: SavedWatch }[];
  readonly topics: readonly string[];
}

type Turn = <T>(work: () => T) => T;
type RuntimePart = Pick<Runtime, "watches">;

export class Connections implements Watchers {
  readonly encode = encodeWatchEvent;
  readonly #log: Ports["log"];
  readonly #clients = new Map<string, Client>();
  readonly #topics = new Map<string, Set<Client>>();
  #subscriptionsCount = 0;
  #restored: { readonly options: WatchOptions; readonly saved: SavedWatch }[] | null = [];
  #runtime: RuntimePart | null = null;
  #turn: Turn = (work) => work();
  /** The runtime is calling (G1). */
  #isCalled = false;

  constructor(log: Ports["log"]) {
    this.#log = log;
  }

  /** Before anything else is asked of it. */
  attachRuntime(runtime: RuntimePart, turn: Turn): void {
    this.#runtime = runtime;
    this.#turn = turn;
  }

  get count(): number {
    return this.#clients.size;
  }

  /** Of a stream, which ends with this instance. */
  connect(sink: ConnectionSink): Connection {
    return this.open(crypto.randomUUID(), sink, null);
  }

  open(id: string, sink: ConnectionSink, keeper: Keeper | null): Connection {
    assert(!this.#clients.has(id), `connection ${id} exists`);
    const client = new Client(this, id, sink, keeper);
    this.#clients.set(id, client);
    return client;
  }

  /** Takes over a connection before the runtime starts; its watches join the hub by {@link restore}. */
  adopt({ id, sink, keeper, watches, topics }: RestoredConnection): Connection {
    assert(this.#restored !== null, `connection ${id} comes after the watches were restored`);
    const client = new Client(this, id, sink, keeper);
    this.#clients.set(id, client);
    for (const topic of topics) this.#join(client, topic);
    this.#restored.push(...watches);
    return client;
  }

  // The port of the runtime.

  restore(): readonly { readonly options: WatchOptions; readonly saved: SavedWatch }[] {
    const restored = this.#restored ?? [];
    this.#restored = null;
    return restored;
  }

  /** Ends the connections whose watches nobody restored (the node has halted): silence would mean loss. */
  endUnrestored(): void {
    const ids = new Set(this.#restored?.map(({ options }) => options.connection));
    this.#restored = null;
    for (const id of ids) this.#clients.get(id)?.close();
  }

  send(frames: readonly Frame[], positionsOf: (connection: string) => readonly SavedWatch[]): void {
    const byConnection = new Map<string, Frame[]>();
    for (const frame of frames) {
      const list = byConnection.get(frame.connection);
      if (list === undefined) byConnection.set(frame.connection, [frame]);
      else list.push(frame);
    }
    this.#whileCalled(() => {
      for (const [id, list] of byConnection) {
        const client = this.#clients.get(id);
        if (client === undefined) continue; // it closed in this very turn
        this.#deliver(client, () => client.sink.onFrames(list));
        for (const frame of list) {
          if (frame.kind !== "leader_changed" && isLastFrame(frame)) client.watchEnded(frame.watchId);
        }
        if (!client.isClosed) client.keeper?.moved(positionsOf(id));
      }
    });
  }

  drop(connection: string): void {
    this.#whileCalled(() => this.#end(this.#clients.get(connection)));
  }

  /** All of them: topics alone are no reason to stay either. */
  dropAll(): void {
    this.#whileCalled(() => {
      for (const client of [...this.#clients.values()]) this.#end(client);
    });
  }

  #end(client: Client | undefined): void {
    client?.sink.onDropped?.();
    client?.close();
  }

  /** A stream belongs to one request, and ends with its watch. */
  renamed(): void {
    this.#whileCalled(() => {
      for (const client of [...this.#clients.values()]) if (client.keeper !== null) client.close();
    });
  }

  topic(topic: string, payload: string): void {
    this.#whileCalled(() => {
      for (const client of [...(this.#topics.get(topic) ?? [])]) {
        this.#deliver(client, () => client.sink.onTopic({ topic, payload }));
      }
    });
  }

  #whileCalled(work: () => void): void {
    const outer = this.#isCalled;
    this.#isCalled = true;
    try {
      work();
    } finally {
      this.#isCalled = outer;
    }
  }

  /** G2 */
  #deliver(client: Client, work: () => void): void {
    if (client.isClosed) return;
    try {
      work();
    } catch (error) {
      this.#log("error", "a connection failed", { connection: client.id, error: String(error) });
      client.close();
    }
  }

  // What the connections ask for.

  /** Part of a turn, into the runtime or into the table. */
  inTurn<T>(work: (watches: Runtime["watches"]) => T): T {
    const runtime = this.#runtime;
    assert(runtime !== null, "connections are attached to a runtime first");
    return this.#turn(() => work(runtime.watches));
  }

  join(client: Client, topic: string): void {
    if (client.topics.has(topic)) return;
    if (client.topics.size >= TOPICS_PER_CONNECTION_MAX) {
      const detail = `A connection subscribes to at most ${TOPICS_PER_CONNECTION_MAX} topics.`;
      throw new ConcordError({ code: "invalid_request", reason: "too_many_topics", detail });
    }
    if (this.#subscriptionsCount >= TOPICS_PER_NODE_MAX) {
      const detail = `This node holds ${TOPICS_PER_NODE_MAX} subscriptions, its most; another node may have room.`;
      throw new ConcordError({ code: "overloaded", reason: "too_many_topics", detail });
    }
    this.#join(client, topic);
    this.#turn(() => client.keeper?.topicAdded(topic));
  }

  #join(client: Client, topic: string): void {
    client.topics.add(topic);
    this.#subscriptionsCount += 1;
    const clients = this.#topics.get(topic);
    if (clients === undefined) this.#topics.set(topic, new Set([client]));
    else clients.add(client);
  }

  leave(client: Client, topic: string): void {
    if (!client.topics.delete(topic)) return;
    this.#subscriptionsCount -= 1;
    const clients = this.#topics.get(topic);
    clients?.delete(client);
    if (clients?.size === 0) this.#topics.delete(topic);
  }

  /** G3 */
  forget(client: Client): void {
    this.#clients.delete(client.id);
    for (const topic of [...client.topics]) this.leave(client, topic);
    const closeAll = () => {
      this.inTurn((watches) => {
        watches.closeConnection(client.id);
        client.keeper?.closed();
      });
    };
    if (this.#isCalled) queueMicrotask(closeAll);
    else closeAll();
  }
}

class Client implements Connection {
  readonly id: string;
  readonly sink: ConnectionSink;
  readonly keeper: Keeper | null;
  readonly topics = new Set<string>();
  readonly #connections: Connections;
  /** The watch that is being added, until it is known whether it lives. */
  #adding: number | null = null;
  #isClosed = false;

  constructor(connections: Connections, id: string, sink: ConnectionSink, keeper: Keeper | null) {
    this.#connections = connections;
    this.id = id;
    this.sink = sink;
    this.keeper = keeper;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  subscribe(subscription: ConnectionSubscription): Subscribed {
    if (this.#isClosed) {
      return { ok: false, error: { code: "invalid_request", reason: "closed", detail: "The connection is closed." } };
    }
    const { watchId, selector, includeValues, prevValues, filter } = subscription;
    return this.#connections.inTurn((watches) => {
      this.#adding = watchId;
      const subscribed = watches.subscribe({ ...subscription, connection: this.id });
      // Its last frame may have left within the call.
      if (subscribed.ok && this.#adding === watchId && !this.#isClosed) {
        const options = { connection: this.id, watchId, selector, includeValues, prevValues, filter };
        this.keeper?.watchAdded(options, subscribed.position);
      }
      this.#adding = null;
      return subscribed;
    });
  }

  /** The runtime says so. */
  watchEnded(watchId: number): void {
    if (this.#adding === watchId) this.#adding = null;
    else if (!this.#isClosed) this.keeper?.watchRemoved(watchId);
  }

  cancel(watchId: number): boolean {
    if (this.#isClosed) return false;
    return this.#connections.inTurn((watches) => {
      const cancelled = watches.cancel(this.id, watchId);
      if (cancelled) this.keeper?.watchRemoved(watchId);
      return cancelled;
    });
  }

  acknowledge(watchId: number, position: Position): void {
    if (this.#isClosed) return;
    this.#connections.inTurn((watches) => watches.acknowledge({ connection: this.id, watchId, position }));
  }

  requestProgress(watchId: number): boolean {
    return !this.#isClosed && this.#connections.inTurn((watches) => watches.requestProgress(this.id, watchId));
  }

  subscribeTopic(topic: string): void {
    if (!this.#isClosed) this.#connections.join(this, topic);
  }

  unsubscribeTopic(topic: string): void {
    if (this.#isClosed || !this.topics.has(topic)) return;
    this.#connections.leave(this, topic);
    this.#connections.inTurn(() => this.keeper?.topicRemoved(topic));
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#connections.forget(this);
  }
}
