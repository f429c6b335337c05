/** A client's end of a WebSocket of a node: collects what comes, joins chunks, acknowledges when it is told to. */
import { PRINCIPAL_HEADER } from "../../src/api/call.ts";
import type { TestCluster } from "./cluster-harness.ts";

// biome-ignore lint/suspicious/noExplicitAny: a message in a test
export type Message = any;

export interface Closing {
  readonly code: number;
  readonly reason: string;
}

export class TestSocket {
  readonly socket: WebSocket;
  /** Everything that came, chunks joined. */
  readonly messages: Message[] = [];
  /** UTF-8 bytes of the longest message as it came. */
  longestBytes = 0;
  chunks = 0;
  pongs = 0;
  closed: Closing | null = null;
  /** Called with every message, for clients that acknowledge. */
  onMessage: (message: Message) => void = () => {};
  #waiting: (() => void)[] = [];
  #joined = "";
  #nextId = 1;

  constructor(socket: WebSocket) {
    this.socket = socket;
    socket.addEventListener("message", (event) => this.#take(String(event.data)));
    socket.addEventListener("close", (event) => {
      this.closed = { code: event.code, reason: event.reason };
      this.#wake();
    });
    socket.accept();
  }

  static async open(cluster: TestCluster, node: number, path: string, headers = {}): Promise<TestSocket> {
    const response = await upgrade(cluster, node, path, headers);
    if (response.webSocket === null) throw new Error(`${response.status}: ${await response.text()}`);
    return new TestSocket(response.webSocket);
  }

  send(message: unknown): void {
    this.socket.send(typeof message === "string" ? message : JSON.stringify(message));
  }

  /** The first message that `wanted` takes, from the beginning. */
  async find(wanted: (message: Message) => boolean, timeoutMs = 5000): Promise<Message> {
    await this.until(() => this.messages.some(wanted), timeoutMs);
    return this.messages.find(wanted);
  }

  /** Waits until `done` holds, which is asked after every message. */
  async until(done: () => boolean, timeoutMs = 5000): Promise<void> {
    const endMs = Date.now() + timeoutMs;
    while (!done()) {
      const leftMs = endMs - Date.now();
      if (leftMs <= 0) throw new Error(`not in time; came: ${JSON.stringify(this.messages).slice(0, 2000)}`);
      const more = Promise.withResolvers<void>();
      this.#waiting.push(more.resolve);
      const timer = setTimeout(more.resolve, leftMs);
      await more.promise;
      clearTimeout(timer);
    }
  }

  async closing(timeoutMs = 5000): Promise<Closing> {
    await this.until(() => this.closed !== null, timeoutMs);
    return this.closed!;
  }

  /** A request of a session, and its whole response. */
  async request(method: string, params: object = {}, timeoutMs = 5000): Promise<Message> {
    const id = this.#nextId;
    this.#nextId += 1;
    this.send({ jsonrpc: "2.0", id, method, params });
    return await this.find((message) => message.id === id, timeoutMs);
  }

  /** Its result; fails on an error. */
  async call(method: string, params: object = {}): Promise<Message> {
    const { result, error } = await this.request(method, params);
    if (error !== undefined) throw new Error(`${method}: ${JSON.stringify(error)}`);
    return result;
  }

  /** Frames of one watch of a session. */
  framesOf(watchId: number): Message[] {
    return this.messages
      .filter((one) => one.method === "watch" && one.params.watch_id === watchId)
      .map((one) => one.params);
  }

  #take(text: string): void {
    this.longestBytes = Math.max(this.longestBytes, new TextEncoder().encode(text).byteLength);
    if (text === "pong") this.pongs += 1;
    else {
      const message = JSON.parse(text);
      if (message.kind === "chunk") {
        this.chunks += 1;
        this.#joined += message.data;
        if (message.last) {
          this.#add(JSON.parse(this.#joined));
          this.#joined = "";
        }
      } else this.#add(message);
    }
    this.#wake();
  }

  #add(message: Message): void {
    this.messages.push(message);
    this.onMessage(message);
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}

/** One request for an upgrade, whatever the answer. */
export async function upgrade(cluster: TestCluster, node: number, path: string, headers = {}): Promise<Response> {
  const all = { upgrade: "websocket", [PRINCIPAL_HEADER]: "test", ...headers };
  return await cluster.stub(node).fetch(`http://node${path}`, { headers: all });
}

/** Events of all frames, as `put /k@3`. */
export function story(frames: readonly Message[]): string[] {
  return frames.flatMap((frame) =>
    (frame.events ?? []).map((event: Message) => `${event.type} ${event.key}@${event.revision}`),
  );
}

/** Rows that a node keeps for the sockets of its clients. */
export async function clientRows(cluster: TestCluster, node: number): Promise<number> {
  return await cluster.inside(node, (state) =>
    Number(state.storage.sql.exec("SELECT COUNT(*) AS n FROM clients").one().n),
  );
}
