/**
 * People in the audience of a story: a client that watches over a connection of its own and reads, acknowledges, leaves and
 * comes back when the script says so. Whatever it is told is checked against the committed history (watch-check.ts), so a
 * story need only say what it is about.
 */
import type { Selector } from "../../../src/kv/command.ts";
import { endOf, type Position } from "../../../src/kv/position.ts";
import type { NodeId } from "../../../src/raft/types.ts";
import type { Frame } from "../../../src/watch/frames.ts";
import type { Subscribed } from "../../../src/watch/hub.ts";
import { createSocket, leave, type Socket, type SocketMessage, sendRequest, subscribeOver } from "../sockets.ts";
import { checkFrame, type Sight } from "../watch-check.ts";
import type { Stage } from "./stage.ts";

/** Where a watch begins: at a revision, behind a position, or now. */
export type Beginning = { readonly from: number } | { readonly after: Position } | "now";

let spectators = 0;

export class Spectator {
  readonly #stage: Stage;
  readonly #sight: Sight;
  readonly #unread: SocketMessage[] = [];
  #socket: Socket | null = null;
  #watchId = 0;
  /** Reads what arrives, and acknowledges it. */
  #reading = true;
  /** Every frame that was read, oldest first. */
  readonly frames: Frame[] = [];
  /** `revision key=value`, `revision key gone`. */
  readonly seen: string[] = [];
  subscribed: Subscribed | null = null;

  constructor(stage: Stage, selector: Selector = { prefix: "" }, prevValues = true) {
    spectators += 1;
    this.#stage = stage;
    const wants = { selector, includeValues: true, prevValues, filter: null };
    this.#sight = { name: `spectator ${spectators}`, wants, position: endOf(0), ready: false, events: 0 };
  }

  /** Everything up to here has been read. */
  get position(): Position {
    return this.#sight.position;
  }

  get connected(): boolean {
    return this.#socket !== null;
  }

  get node(): NodeId {
    if (this.#socket === null) throw new Error("not connected");
    return this.#socket.host.id;
  }

  /** Opens a connection and asks for the watch; the answer comes in a moment. */
  watch(node: NodeId, beginning: Beginning = "now"): this {
    this.leave();
    this.subscribed = null;
    this.#sight.ready = false;
    this.#watchId += 1;
    const watchId = this.#watchId;
    const { world } = this.#stage;
    const socket = createSocket(this.#stage.host(node), `${this.#sight.name} ${watchId}`, {
      receive: (from, message) => this.#receive(from, message),
      lost: (from) => {
        if (this.#socket === from) this.#socket = null;
      },
    });
    this.#socket = socket;
    const start =
      beginning === "now"
        ? { fromRevision: null }
        : "from" in beginning
          ? { fromRevision: beginning.from }
          : { fromRevision: null, afterPosition: beginning.after };
    sendRequest(world, socket, {
      label: "open",
      opens: true,
      watches: true,
      run: (runtime) => {
        const subscription = { connection: socket.id, watchId, ...this.#sight.wants, ...start };
        subscribeOver(socket, subscription, (one) => runtime.watches.subscribe(one));
      },
    });
    return this;
  }

  /** Comes back behind what it has read. */
  resume(node: NodeId): this {
    return this.watch(node, { after: this.position });
  }

  /** Goes without a word. */
  leave(): void {
    if (this.#socket !== null) leave(this.#stage.world, this.#socket, false);
    this.#socket = null;
    this.#unread.length = 0;
  }

  stopReading(): void {
    this.#reading = false;
  }

  readOn(): void {
    this.#reading = true;
    for (const message of this.#unread.splice(0)) this.#read(message);
  }

  askProgress(): void {
    const { id } = this.#connection();
    this.#request("progress?", (runtime) => runtime.watches.requestProgress(id, this.#watchId));
  }

  ofKind<Kind extends Frame["kind"]>(kind: Kind): Extract<Frame, { kind: Kind }>[] {
    return this.frames.filter((frame): frame is Extract<Frame, { kind: Kind }> => frame.kind === kind);
  }

  #connection(): Socket {
    if (this.#socket === null) throw new Error(`${this.#sight.name} is not connected`);
    return this.#socket;
  }

  #request(label: string, run: Parameters<typeof sendRequest>[2]["run"]): void {
    sendRequest(this.#stage.world, this.#connection(), { label, opens: false, watches: false, run });
  }

  #receive(socket: Socket, message: SocketMessage): void {
    if (this.#socket !== socket) return;
    if (this.#reading) this.#read(message);
    else this.#unread.push(message);
  }

  #read(message: SocketMessage): void {
    if (message.kind === "subscribed") {
      this.subscribed = message.result;
      if (message.result.ok) this.#sight.position = message.result.position;
      return;
    }
    const { frame } = message;
    this.frames.push(frame);
    if (frame.kind === "leader_changed") return;
    checkFrame(this.#stage.world.safety, this.#sight, frame);
    if (frame.kind === "events") {
      for (const { event } of frame.events) {
        const value = event.value !== null && "json" in event.value ? `=${event.value.json}` : " gone";
        this.seen.push(`${event.revision} ${event.key}${value}`);
      }
    }
    if (this.#socket === null || !("position" in frame) || frame.kind === "slow_consumer") return;
    const ack = { connection: this.#socket.id, watchId: this.#watchId, position: this.position };
    this.#request("ack", (runtime) => runtime.watches.acknowledge(ack));
  }
}
