import { beforeEach, describe, expect, test } from "vitest";
import { PEER_HEADER } from "../../src/api/separate-node.ts";
import { encodeFrames } from "../../src/node-object/codec.ts";
import { type PeerPlatform, PeerTransport } from "../../src/node-object/peer-transport.ts";
import type { PeerBody, PeerEnvelope } from "../../src/node-object/ports.ts";
import { eventually } from "./eventually.ts";

const MEMBERS = [1, 2, 3];
const heartbeat: PeerBody = {
  kind: "raft",
  message: { kind: "append", term: 1, prevIndex: 0, prevTerm: 0, commit: 0, round: 0, entries: [] },
};
const vote: PeerBody = { kind: "raft", message: { kind: "vote", term: 1, lastIndex: 0, lastTerm: 0, transfer: false } };

function envelope(from: number, to: number, body: PeerBody = heartbeat): PeerEnvelope {
  return { protocol: 2, speaks: 2, clusterId: "c", from, fromIncarnation: from, to, toIncarnation: to, body };
}

/** A node's transport with its platform: sockets are real, the network between objects is a function call. */
class TestNode {
  readonly id: number;
  readonly transport: PeerTransport;
  readonly received: PeerEnvelope[] = [];
  readonly requests: string[] = [];
  readonly warnings: string[] = [];
  readonly infos: string[] = [];
  readonly accepted: { readonly socket: WebSocket; readonly tags: readonly string[] }[] = [];
  reachable = true;
  /** When set, requests to this node wait for it. */
  held: Promise<void> | null = null;

  constructor(id: number, network: Network) {
    this.id = id;
    const platform: PeerPlatform = {
      stub: (to) => ({ fetch: (url, init) => network.fetch(this, to, new Request(url, init)) }),
      acceptWebSocket: (socket, tags) => this.#accept(socket, tags),
      getWebSockets: (tag) => this.accepted.filter((one) => one.tags.includes(tag)).map((one) => one.socket),
      nowMs: () => network.nowMs,
      receive: (one) => this.received.push(one),
      log: (level, message) => {
        (level === "warn" ? this.warnings : this.infos).push(message);
      },
    };
    this.transport = new PeerTransport(id, MEMBERS, platform);
  }

  async fetch(request: Request): Promise<Response> {
    if (new URL(request.url).pathname === "/peer/stream") return this.transport.onStreamRequest(request);
    return await this.transport.onMessageRequest(request);
  }

  #accept(socket: WebSocket, tags: string[]): void {
    const entry = { socket, tags };
    this.accepted.push(entry);
    socket.accept();
    socket.addEventListener("message", (event) => this.transport.onSocketMessage(socket, event.data as string));
    socket.addEventListener("close", () => {
      this.accepted.splice(this.accepted.indexOf(entry), 1);
    });
  }
}

class Network {
  nowMs = 1000;
  readonly nodes = new Map(MEMBERS.map((id) => [id, new TestNode(id, this)]));

  node(id: number): TestNode {
    return this.nodes.get(id)!;
  }

  async fetch(from: TestNode, to: number, request: Request): Promise<Response> {
    const target = this.node(to);
    from.requests.push(`${new URL(request.url).pathname} ${to}`);
    if (!target.reachable) throw new Error("unreachable");
    if (target.held !== null) await target.held;
    return await target.fetch(request);
  }
}

let network: Network;
let one: TestNode;
let two: TestNode;
beforeEach(() => {
  network = new Network();
  one = network.node(1);
  two = network.node(2);
});

/** Sends from 1 to 2 until a stream carries it, as heartbeats do. */
async function openStream(): Promise<void> {
  one.transport.send(envelope(1, 2));
  await eventually(() => two.accepted.length, 1);
  await eventually(() => two.received.length, 1);
  one.requests.length = 0;
  two.received.length = 0;
}

describe("ways", () => {
  test("the first frame goes by fetch while the stream is dialled, the next by stream", async () => {
    one.transport.send(envelope(1, 2));
    expect(one.requests).toEqual(["/peer/stream 2", "/peer/message 2"]);
    await eventually(() => two.received, [envelope(1, 2)]);
    await eventually(() => two.accepted.length, 1);
    one.transport.send(envelope(1, 2));
    await eventually(() => two.received.length, 2);
    expect(one.requests).toHaveLength(2);
  });

  test("one stream serves both directions", async () => {
    await openStream();
    two.transport.send(envelope(2, 1));
    await eventually(() => one.received, [envelope(2, 1)]);
    expect(two.requests).toEqual([]);
  });

  test("elections and hello go by fetch even beside a stream, and dial none", async () => {
    const hello: PeerBody = { kind: "hello", membership: { kind: "empty" }, reply: false, question: 0 };
    one.transport.send(envelope(1, 2, vote));
    one.transport.send(envelope(1, 2, hello));
    expect(one.requests).toEqual(["/peer/message 2", "/peer/message 2"]);
    await eventually(() => two.received.map((got) => got.body), [vote, hello]);
    two.received.length = 0;
    await openStream();
    one.transport.send(envelope(1, 2, vote));
    expect(one.requests).toEqual(["/peer/message 2"]);
  });

  test("send hands the frame over before it returns, on a stream in order", async () => {
    await openStream();
    const commits = [1, 2, 3, 4, 5];
    for (const commit of commits)
      one.transport.send(envelope(1, 2, { ...heartbeat, message: { ...heartbeat.message, commit } } as PeerBody));
    await eventually(() => two.received.length, 5);
    expect(two.received.map((got) => (got.body as { message: { commit: number } }).message.commit)).toEqual(commits);
  });

  test("a frame to a stranger or to oneself is dropped", () => {
    one.transport.send(envelope(1, 9));
    one.transport.send(envelope(1, 1));
    expect(one.requests).toEqual([]);
  });
});

describe("failures", () => {
  test("an unreachable peer is dialled again after a backoff that doubles up to a second", async () => {
    two.reachable = false;
    const dials: number[] = [];
    for (let elapsed = 0; elapsed < 5_000; elapsed += 10) {
      one.requests.length = 0;
      one.transport.send(envelope(1, 2));
      if (one.requests.includes("/peer/stream 2")) dials.push(elapsed);
      await Promise.resolve();
      await scheduler.wait(0);
      network.nowMs += 10;
    }
    const gaps = dials.slice(1).map((at, position) => at - (dials[position] ?? 0));
    expect(gaps.slice(0, 6)).toEqual([20, 40, 80, 160, 320, 640]);
    expect(Math.max(...gaps)).toBe(1000);
    two.reachable = true;
    network.nowMs += 1000;
    await openStream();
  });

  test("fetches in flight to one peer are bounded; what is over is dropped", async () => {
    let release = () => {};
    two.held = new Promise((resolve) => {
      release = resolve;
    });
    for (let sent = 0; sent < 200; sent += 1) one.transport.send(envelope(1, 2, vote));
    expect(one.requests).toHaveLength(64);
    one.transport.send(envelope(1, 3, vote));
    expect(one.requests).toHaveLength(65);
    release();
    await eventually(() => two.received.length, 64);
    await scheduler.wait(1);
    one.transport.send(envelope(1, 2, vote));
    await eventually(() => two.received.length, 65);
  });

  test("a stream that the peer closed is replaced", async () => {
    await openStream();
    two.accepted[0]?.socket.close(1012);
    await eventually(() => two.accepted.length, 0);
    network.nowMs += 100;
    one.transport.send(envelope(1, 2));
    expect(one.requests).toEqual(["/peer/stream 2", "/peer/message 2"]);
    await eventually(() => two.accepted.length, 1);
  });

  test("a stream that is silent for two seconds, and half a second after a second look, is given up", async () => {
    await openStream();
    for (let beat = 0; beat < 51; beat += 1) {
      one.transport.send(envelope(1, 2));
      network.nowMs += 50;
    }
    expect(one.requests).toEqual([]);
    network.nowMs += 50;
    one.transport.send(envelope(1, 2));
    expect(one.requests).toEqual(["/peer/stream 2", "/peer/message 2"]);
  });

  test("a stream whose answers wait behind a stall of the own thread is kept", async () => {
    await openStream();
    one.transport.send(envelope(1, 2));
    two.transport.send(envelope(2, 1));
    network.nowMs += 1900;
    one.transport.send(envelope(1, 2));
    network.nowMs += 600;
    one.transport.send(envelope(1, 2)); // noticed here; the answer is heard in a later turn
    await eventually(() => one.received.length, 1);
    for (let beat = 0; beat < 20; beat += 1) {
      network.nowMs += 50;
      one.transport.send(envelope(1, 2));
    }
    expect(one.requests).toEqual([]);
  });

  test("a stream that is answered is kept", async () => {
    await openStream();
    for (let beat = 0; beat < 100; beat += 1) {
      one.transport.send(envelope(1, 2));
      two.transport.send(envelope(2, 1));
      const beats = beat + 1;
      await eventually(() => one.received.length, beats);
      network.nowMs += 50;
    }
    expect(one.requests).toEqual([]);
  });

  test("a stream that nobody used for long is not taken for silent", async () => {
    await openStream();
    for (let use = 0; use < 3; use += 1) {
      one.transport.send(envelope(1, 2));
      network.nowMs += 3_600_000;
    }
    expect(one.requests).toEqual([]);
    await eventually(() => two.received.length, 3);
  });

  test("a peer that dials again replaces its earlier stream", async () => {
    await openStream();
    const request = new Request("http://node/peer/stream", { headers: { upgrade: "websocket", [PEER_HEADER]: "1" } });
    const response = two.transport.onStreamRequest(request);
    response.webSocket?.accept();
    expect(response.status).toBe(101);
    await eventually(() => two.accepted.length, 1);
  });

  test("a peer that hangs does not hold the places of its fetches, nor its dial, for ever", async () => {
    two.held = new Promise(() => {});
    one.transport.send(envelope(1, 2));
    for (let sent = 0; sent < 100; sent += 1) one.transport.send(envelope(1, 2, vote));
    expect(one.requests).toHaveLength(65);
    one.requests.length = 0;
    two.held = null;
    network.nowMs += 5000;
    one.transport.send(envelope(1, 2));
    expect(one.requests).toEqual([]);
    network.nowMs += 1;
    one.transport.send(envelope(1, 2));
    expect(one.requests).toEqual(["/peer/stream 2", "/peer/message 2"]);
    await eventually(() => two.received.length, 1);
    await eventually(() => two.accepted.length, 1);
  });

  test("a peer that stays away is reported once, until it is heard again", async () => {
    two.reachable = false;
    for (let beat = 0; beat < 50; beat += 1) {
      one.transport.send(envelope(1, 2));
      await scheduler.wait(0);
      network.nowMs += 100;
    }
    expect(one.infos).toEqual(["peer not reached"]);
    two.reachable = true;
    network.nowMs += 1000;
    await openStream();
    two.transport.send(envelope(2, 1));
    await eventually(() => one.received.length, 1);
    two.accepted[0]?.socket.close(1012);
    two.reachable = false;
    await eventually(() => two.accepted.length, 0);
    for (let beat = 0; beat < 50; beat += 1) {
      one.transport.send(envelope(1, 2));
      await scheduler.wait(0);
      network.nowMs += 100;
    }
    expect(one.infos).toEqual(["peer not reached", "peer not reached"]);
  });
});

describe("strangers", () => {
  const url = "http://node/peer/message";

  test("without the internal header, or naming no peer, peer routes do not exist", async () => {
    for (const named of [null, "", "0", "1", "9", "x", "2,3"]) {
      const headers: Record<string, string> = named === null ? {} : { [PEER_HEADER]: named };
      const post = new Request(url, { method: "POST", headers, body: frameOf(envelope(2, 1)) });
      expect((await one.transport.onMessageRequest(post)).status).toBe(404);
      const upgrade = new Request("http://node/peer/stream", { headers: { ...headers, upgrade: "websocket" } });
      expect(one.transport.onStreamRequest(upgrade).status).toBe(404);
    }
    expect(one.received).toEqual([]);
  });

  test("a stream without an upgrade is refused", () => {
    const request = new Request("http://node/peer/stream", { headers: { [PEER_HEADER]: "2" } });
    expect(one.transport.onStreamRequest(request).status).toBe(426);
  });

  test("frames that are malformed, of another sender or for another node are dropped", async () => {
    const frames = ["", "nonsense", frameOf(envelope(3, 1)), frameOf(envelope(2, 3))];
    for (const body of frames) {
      const request = new Request(url, { method: "POST", headers: { [PEER_HEADER]: "2" }, body });
      expect((await one.transport.onMessageRequest(request)).status).toBe(204);
    }
    expect(one.received).toEqual([]);
    expect(one.warnings).toHaveLength(4);
  });

  test("binary messages and sockets without an attachment are dropped", async () => {
    const [socket] = Object.values(new WebSocketPair());
    one.transport.onSocketMessage(socket!, frameOf(envelope(2, 1)));
    socket!.serializeAttachment({ peer: 2 });
    one.transport.onSocketMessage(socket!, new ArrayBuffer(4));
    expect(one.received).toEqual([]);
    one.transport.onSocketMessage(socket!, frameOf(envelope(2, 1)));
    expect(one.received).toEqual([envelope(2, 1)]);
  });
});

function frameOf(sent: PeerEnvelope): string {
  return encodeFrames(sent)[0] ?? "";
}
