/**
 * The links between the nodes of a local cluster, each cut in one direction or in both, as a network would cut them. One TCP
 * listener per directed pair: node `from` reaches node `to` through it.
 *
 * L1. A cut delays, it never corrupts: bytes that may not pass are held and go on, in order, when the link heals, if both
 *     ends still want them. An end that gave up meanwhile leaves the other one half open until then.
 * L2. A cut is of messages, not of connections: both streams that a pair of nodes may have, whoever opened them, lose the
 *     same direction.
 */
import { createServer, type Server, Socket } from "node:net";
import { HOST } from "./ports.ts";

/** What a cut direction of one connection holds before it stops reading; then the sender's own buffers fill. */
const HELD_BYTES_MAX = 1 << 20;

export interface LinkProxy {
  /** Where node `from` reaches node `to`. */
  portOf(from: number, to: number): number;
  /** What `from` sends to `to` does not arrive until `heal`. */
  cut(from: number, to: number): void;
  heal(): void;
  /** Cut directions as `from>to`, in the order in which they were cut. */
  cuts(): readonly string[];
  /** All that nodes have sent to each other and that was not cut off, in both directions. */
  bytesPassed(): number;
  close(): Promise<void>;
}

export async function startLinkProxy(ports: ReadonlyMap<number, number>): Promise<LinkProxy> {
  const cut = new Set<string>();
  const relays = new Set<Relay>();
  const servers: Server[] = [];
  const portOf = new Map<string, number>();
  let bytes = 0;
  for (const from of ports.keys()) {
    for (const [to, targetPort] of ports) {
      if (from === to) continue;
      const server = createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
        const relay = new Relay(client, targetPort, {
          isCutToTarget: () => cut.has(`${from}>${to}`),
          isCutToClient: () => cut.has(`${to}>${from}`),
          passed: (count) => {
            bytes += count;
          },
          ended: () => relays.delete(relay),
        });
        relays.add(relay);
      });
      servers.push(server);
      portOf.set(`${from}>${to}`, await listen(server));
    }
  }
  return {
    portOf(from, to) {
      const port = portOf.get(`${from}>${to}`);
      if (port === undefined) throw new Error(`there is no link from node ${from} to node ${to}`);
      return port;
    },
    cut: (from, to) => void cut.add(`${from}>${to}`),
    heal() {
      cut.clear();
      for (const relay of [...relays]) relay.heal();
    },
    cuts: () => [...cut],
    bytesPassed: () => bytes,
    async close() {
      for (const relay of [...relays]) relay.destroy();
      await Promise.all(servers.map((server) => new Promise((closed) => server.close(closed))));
    },
  };
}

function listen(server: Server): Promise<number> {
  return new Promise((settle, fail) => {
    server.once("error", fail);
    server.listen({ host: HOST, port: 0 }, () => {
      const address = server.address();
      if (typeof address === "object" && address !== null) settle(address.port);
      else fail(new Error("a listener has no port"));
    });
  });
}

interface RelayOptions {
  readonly isCutToTarget: () => boolean;
  readonly isCutToClient: () => boolean;
  readonly passed: (bytes: number) => void;
  readonly ended: () => void;
}

/** One connection of a node to another and its continuation, which opens with the first byte that may pass. */
class Relay {
  readonly #client: Socket;
  readonly #target = new Socket({ allowHalfOpen: true });
  readonly #directions: readonly Direction[];
  readonly #ended: () => void;
  #isOpened = false;

  constructor(client: Socket, targetPort: number, options: RelayOptions) {
    const target = this.#target;
    this.#client = client;
    this.#ended = options.ended;
    target.setNoDelay(true);
    const passing = (bytes: number): void => {
      options.passed(bytes);
      if (this.#isOpened) return;
      this.#isOpened = true;
      target.connect({ host: HOST, port: targetPort });
    };
    this.#directions = [
      new Direction(client, target, options.isCutToTarget, passing),
      new Direction(target, client, options.isCutToClient, passing),
    ];
    this.#watch(client, target, options.isCutToTarget);
    this.#watch(target, client, options.isCutToClient);
  }

  /** Hands on that an end has gone, unless the way there is cut: then the other end stays as it is until the heal (L1). */
  #watch(socket: Socket, other: Socket, isCut: () => boolean): void {
    // What an error means is what `close` says next.
    socket.on("error", () => {});
    socket.on("end", () => {
      if (!this.#isOpened) this.destroy();
      else if (isCut()) socket.destroy();
      else other.end();
    });
    socket.on("close", () => {
      if (!this.#isOpened || other.destroyed) this.destroy();
      else if (!isCut()) other.destroySoon();
    });
  }

  heal(): void {
    if (this.#client.destroyed || this.#target.destroyed) this.destroy();
    else for (const direction of this.#directions) direction.release();
  }

  destroy(): void {
    this.#client.destroy();
    this.#target.destroy();
    this.#ended();
  }
}

/** One direction of one connection. */
class Direction {
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #passing: (bytes: number) => void;
  #held: Buffer[] = [];
  #heldBytes = 0;

  constructor(from: Socket, to: Socket, isCut: () => boolean, passing: (bytes: number) => void) {
    this.#from = from;
    this.#to = to;
    this.#passing = passing;
    from.on("data", (chunk: Buffer) => {
      if (isCut()) this.#hold(chunk);
      else this.#write(chunk);
    });
    to.on("drain", () => {
      if (this.#heldBytes < HELD_BYTES_MAX) from.resume();
    });
  }

  #hold(chunk: Buffer): void {
    this.#held.push(chunk);
    this.#heldBytes += chunk.byteLength;
    if (this.#heldBytes >= HELD_BYTES_MAX) this.#from.pause();
  }

  #write(chunk: Buffer): void {
    this.#passing(chunk.byteLength);
    if (!this.#to.write(chunk)) this.#from.pause();
  }

  /** Nothing is held while nothing is cut, so bytes never change places. */
  release(): void {
    const held = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    this.#from.resume();
    for (const chunk of held) this.#write(chunk);
  }
}
