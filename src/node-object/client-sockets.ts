/**
 * WebSockets of clients that outlive this instance (design 01 §4, S50). Each is accepted hibernatable under the tag
 * `connection:<id>`; what it holds stands in a local table (client-rows.ts) and in its attachment (client-socket.ts), so
 * that a later instance goes on where this one stopped.
 *
 * O1. Sockets of peers have other tags and never get here.
 * O2. A socket without rows, and rows without a socket, are of no use: the one is closed, the others removed.
 * O3. A client that has ever pinged and then is silent for `SILENCE_MS_MAX` is gone, although its socket looks open
 *     (platform: known issues). It is dropped when something is sent to it or when another client comes; there is no timer.
 * O4. Messages of one client are begun in the order in which they came.
 */
import type { Connection, ConnectionSink, TopicMessage } from "../api/backend.ts";
import type { ApiContext } from "../api/caller.ts";
import { createProtocol } from "../api/stream-protocols.ts";
import type { SocketHost, SocketOpening, SocketProtocol } from "../api/stream-socket.ts";
import { TopicWindow } from "../api/topic-window.ts";
import { assert } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import { ConcordError } from "../base/errors.ts";
import { BODY_BYTES_MAX } from "../base/limits.ts";
import type { Position } from "../kv/position.ts";
import type { Frame } from "../watch/frames.ts";
import type { SavedWatch, WatchOptions } from "../watch/hub.ts";
import { ClientRows, type ClientSql, type ClientTerms, type StoredClient } from "./client-rows.ts";
import { closeSocket, HibernatingSocket, readAttachment } from "./client-socket.ts";
import type { Connections, Keeper } from "./connections.ts";

/** What this file needs of the Durable Object. */
export interface ClientPlatform {
  readonly sql: ClientSql;
  /** Accepts a socket that survives hibernation, under tags. */
  acceptWebSocket(socket: WebSocket, tags: string[]): void;
  getWebSockets(): WebSocket[];
  tagsOf(socket: WebSocket): string[];
  /** Lets the platform answer `ping` by `pong`, which wakes nobody. */
  answerPings(): void;
  /** When the platform last did so on this socket; null = never. */
  lastPingMs(socket: WebSocket): number | null;
  nowMs(): number;
}

export const SILENCE_MS_MAX = 90_000;
/** Looking for silent clients means looking at all of them. */
const SILENCE_CHECK_MS = 10_000;
/** Half of what the platform allows to one object. */
const SOCKETS_MAX = 16_384;
const TAG = "connection:";

export class ClientSockets implements SocketHost {
  readonly #connections: Connections;
  readonly #platform: ClientPlatform;
  readonly #rows: ClientRows;
  readonly #clients = new Map<string, Client>();
  #context: ApiContext | null = null;
  #silenceCheckAtMs = 0;
  /** Requests of all clients that are not answered yet. */
  #answering = 0;
  #inbox: { readonly client: Client; readonly text: string }[] = [];

  constructor(connections: Connections, platform: ClientPlatform) {
    this.#connections = connections;
    this.#platform = platform;
    this.#rows = new ClientRows(platform.sql);
  }

  /** What sessions call; before the first message. */
  serve(context: ApiContext): void {
    this.#context = context;
  }

  /** Part of the first turn of an instance: takes over the sockets that an earlier one accepted (O2). */
  load(): void {
    const stored = this.#rows.load();
    for (const socket of this.#platform.getWebSockets()) {
      const id = this.idOf(socket);
      if (id === null || socket.readyState !== WebSocket.OPEN) continue;
      const client = stored.get(id);
      if (client !== undefined && this.#takeOver(id, socket, client)) stored.delete(id);
      else closeSocket(socket, 1012, "reconnect");
    }
    for (const id of stored.keys()) this.#rows.removeClient(id);
  }

  #takeOver(id: string, socket: WebSocket, { terms, watches, topics }: StoredClient): boolean {
    const attachment = readAttachment(socket.deserializeAttachment());
    if (terms === null || attachment === null) return false;
    const restored = attachment.watches.flatMap((saved) => {
      const options = watches.get(saved.watchId);
      return options === undefined ? [] : [{ options, saved }];
    });
    // A watch without a position could only skip or repeat.
    if (restored.length < watches.size) return false;
    const window = new TopicWindow(attachment.topics);
    const client = this.#createClient(id, terms, { socket, window, saved: restored.map(({ saved }) => saved) });
    const connection = this.#connections.adopt({ id, sink: client, keeper: client, watches: restored, topics });
    client.connect(connection);
    return true;
  }

  /** @throws ConcordError */
  open(opening: SocketOpening): Response {
    this.#dropSilent();
    if (this.#clients.size >= SOCKETS_MAX) {
      const detail = `This node holds ${SOCKETS_MAX} sockets, its most; another node may have room.`;
      throw new ConcordError({ code: "overloaded", reason: "too_many_connections", detail });
    }
    const id = crypto.randomUUID();
    const { kind, principal, maxMessageBytes } = opening;
    const terms = { kind, principal, maxMessageBytes };
    const client = this.#createClient(id, terms, { socket: null, window: new TopicWindow(), saved: [] });
    const connection = this.#connections.open(id, client, client);
    client.connect(connection);
    try {
      begin(connection, opening);
    } catch (error) {
      connection.close();
      throw error;
    }
    return this.#accept(id, client, terms);
  }

  #accept(id: string, client: Client, terms: ClientTerms): Response {
    this.#connections.inTurn(() => this.#rows.addClient(id, terms));
    const pair = new WebSocketPair();
    this.#platform.answerPings();
    this.#platform.acceptWebSocket(pair[1], [`${TAG}${id}`]);
    client.socket.accepted(pair[1]);
    client.protocol.greet();
    return new Response(null, { status: 101, webSocket: pair[0] });
  }

  #createClient(
    id: string,
    terms: ClientTerms,
    parts: { readonly socket: WebSocket | null; readonly window: TopicWindow; readonly saved: readonly SavedWatch[] },
  ): Client {
    const socket: HibernatingSocket = new HibernatingSocket(parts.socket, {
      maxMessageBytes: terms.maxMessageBytes,
      window: parts.window,
      saved: parts.saved,
      isSilent: (one) => this.#isSilent(one, socket.heardAtMs),
      onGone: () => client.connection.close(),
    });
    const client: Client = new Client(id, socket, this.#rows, {
      protocol: (connection) => {
        const context = this.#context;
        assert(context !== null, "sockets are served a context first");
        return createProtocol(terms.kind, {
          socket,
          connection,
          window: parts.window,
          context,
          principal: terms.principal,
        });
      },
      onClosed: () => this.#clients.delete(id),
    });
    this.#clients.set(id, client);
    return client;
  }

  /** Null: the socket is no client's. */
  idOf(socket: WebSocket): string | null {
    const tag = this.#platform.tagsOf(socket).find((one) => one.startsWith(TAG));
    return tag === undefined ? null : tag.slice(TAG.length);
  }

  /**
   * The platform hands over the next message of a socket only when the turn of the one before it is durable, so a turn that
   * writes makes the whole pipeline of its client wait. Hence O4: a message is begun at once only while nothing is being
   * answered; else it joins those that are begun together, in order, in a turn of their own.
   */
  onMessage(socket: WebSocket, id: string, data: string | ArrayBuffer): void {
    const client = this.#clients.get(id);
    if (client === undefined) {
      closeSocket(socket, 1012, "reconnect");
      return;
    }
    client.socket.heardAtMs = this.#platform.nowMs();
    if (typeof data !== "string") client.socket.close(1003, "send text");
    else if (isTooLong(data)) client.socket.close(1009, `a message holds at most ${BODY_BYTES_MAX} bytes`);
    else if (data === "ping") client.socket.send("pong");
    else if (this.#answering === 0 && this.#inbox.length === 0) this.#begin(client, data);
    else this.#beginLater(client, data);
  }

  /** What is being answered needs the node, whose own timers keep this instance until then. */
  #begin(client: Client, text: string): void {
    const answered = client.onText(text);
    if (answered === undefined) return;
    this.#answering += 1;
    void answered.finally(() => {
      this.#answering -= 1;
    });
  }

  #beginLater(client: Client, text: string): void {
    this.#inbox.push({ client, text });
    if (this.#inbox.length > 1) return;
    setTimeout(() => {
      const inbox = this.#inbox;
      this.#inbox = [];
      for (const { client, text } of inbox) if (!client.socket.isClosed) this.#begin(client, text);
    }, 0);
  }

  onClosed(id: string): void {
    const client = this.#clients.get(id);
    client?.socket.lost();
    client?.connection.close();
  }

  #isSilent(socket: WebSocket, heardAtMs: number): boolean {
    const pingedAtMs = this.#platform.lastPingMs(socket);
    if (pingedAtMs === null) return false;
    return this.#platform.nowMs() - Math.max(pingedAtMs, heardAtMs) > SILENCE_MS_MAX;
  }

  /** O3 */
  #dropSilent(): void {
    const nowMs = this.#platform.nowMs();
    if (nowMs < this.#silenceCheckAtMs) return;
    this.#silenceCheckAtMs = nowMs + SILENCE_CHECK_MS;
    for (const client of [...this.#clients.values()]) client.socket.closeIfSilent();
  }
}

/** What a socket holds from its first moment on. @throws ConcordError */
function begin(connection: Connection, opening: SocketOpening): void {
  if (opening.kind === "topic") connection.subscribeTopic(opening.topic);
  if (opening.kind !== "watch") return;
  const subscribed = connection.subscribe(opening.subscription);
  if (!subscribed.ok) throw new ConcordError(subscribed.error);
}

function isTooLong(text: string): boolean {
  return text.length > BODY_BYTES_MAX || (text.length * 3 > BODY_BYTES_MAX && utf8Length(text) > BODY_BYTES_MAX);
}

interface ClientOptions {
  readonly protocol: (connection: Connection) => SocketProtocol;
  readonly onClosed: () => void;
}

/** One socket with its protocol; keeps its watches and topics in the rows. */
class Client implements ConnectionSink, Keeper {
  readonly socket: HibernatingSocket;
  readonly #id: string;
  readonly #rows: ClientRows;
  readonly #options: ClientOptions;
  #connection: Connection | null = null;
  #protocol: SocketProtocol | null = null;

  constructor(id: string, socket: HibernatingSocket, rows: ClientRows, options: ClientOptions) {
    this.#id = id;
    this.socket = socket;
    this.#rows = rows;
    this.#options = options;
  }

  connect(connection: Connection): void {
    this.#connection = connection;
  }

  get connection(): Connection {
    assert(this.#connection !== null, `socket ${this.#id} has no connection`);
    return this.#connection;
  }

  /** Built when it is first needed: many sockets of a woken node have nothing to say. */
  get protocol(): SocketProtocol {
    this.#protocol ??= this.#options.protocol(this.connection);
    return this.#protocol;
  }

  onText(text: string): void | Promise<void> {
    const answered = this.protocol.onText(text);
    // An acknowledgement of topics moves the window, which is part of the attachment.
    this.socket.save();
    return answered;
  }

  onFrames(frames: readonly Frame[]): void {
    this.protocol.onFrames(frames);
  }

  onTopic(message: TopicMessage): void {
    this.protocol.onTopic(message);
    this.socket.save();
  }

  watchAdded(options: WatchOptions, position: Position): void {
    this.#rows.addWatch(options);
    this.socket.watchAdded({ watchId: options.watchId, position, ready: false });
  }

  watchRemoved(watchId: number): void {
    this.#rows.removeWatch(this.#id, watchId);
    this.socket.watchRemoved(watchId);
  }

  topicAdded(topic: string): void {
    this.#rows.addTopic(this.#id, topic);
  }

  topicRemoved(topic: string): void {
    this.#rows.removeTopic(this.#id, topic);
  }

  moved(watches: readonly SavedWatch[]): void {
    this.socket.moved(watches);
  }

  closed(): void {
    this.socket.close(1012, "reconnect");
    this.#rows.removeClient(this.#id);
    this.#options.onClosed();
  }
}
