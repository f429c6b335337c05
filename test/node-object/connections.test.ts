/** The registry of connections against a runtime that is told what to do, and the socket of one client. */
import { describe, expect, test } from "vitest";
import type { Connection, ConnectionSink, ConnectionSubscription } from "../../src/api/backend.ts";
import { TOPICS_PER_CONNECTION_MAX } from "../../src/api/limits.ts";
import { TopicWindow } from "../../src/api/topic-window.ts";
import { ConcordError } from "../../src/base/errors.ts";
import { endOf, REVISION_END } from "../../src/kv/position.ts";
import { HibernatingSocket, readAttachment } from "../../src/node-object/client-socket.ts";
import { Connections, type Keeper } from "../../src/node-object/connections.ts";
import type { Frame } from "../../src/watch/frames.ts";
import type { SavedWatch } from "../../src/watch/hub.ts";

const SUBSCRIPTION: ConnectionSubscription = {
  watchId: 0,
  selector: { key: "a" },
  includeValues: true,
  prevValues: false,
  filter: null,
  fromRevision: null,
};

class Rig {
  readonly calls: string[] = [];
  readonly logged: string[] = [];
  readonly connections = new Connections((_level, message) => void this.logged.push(message));
  /** What a subscription brings about within its call. */
  during: (connection: string) => void = () => {};
  /** Depth of turns: calls into the runtime while it calls would be its end. */
  inRuntime = false;

  constructor() {
    const enter = <T>(text: string, work: () => T): T => {
      if (this.inRuntime) throw new Error(`${text} within a turn of the runtime`);
      this.inRuntime = true;
      this.calls.push(text);
      try {
        return work();
      } finally {
        this.inRuntime = false;
      }
    };
    const watches = {
      subscribe: ({ connection, watchId }: { connection: string; watchId: number }) =>
        enter(`subscribe ${watchId}`, () => {
          this.during(connection);
          return { ok: true, position: endOf(3) } as const;
        }),
      cancel: (_connection: string, watchId: number) => enter(`cancel ${watchId}`, () => true),
      acknowledge: () => enter("acknowledge", () => {}),
      requestProgress: () => enter("progress", () => true),
      closeConnection: () => enter("close", () => {}),
    };
    this.connections.attachRuntime({ watches }, (work) => work());
  }

  /** A turn of the runtime that sends. */
  send(frames: readonly Frame[], saved: readonly SavedWatch[] = []): void {
    const outer = this.inRuntime;
    this.inRuntime = true;
    this.connections.send(frames, () => saved);
    this.inRuntime = outer;
  }

  publish(topic: string): void {
    this.inRuntime = true;
    this.connections.topic(topic, "1");
    this.inRuntime = false;
  }

  open(sink: Partial<ConnectionSink> = {}): { connection: Connection; kept: string[]; heard: string[] } {
    const kept: string[] = [];
    const heard: string[] = [];
    const keeper: Keeper = {
      watchAdded: ({ watchId }, position) => void kept.push(`+${watchId}@${position.revision}`),
      watchRemoved: (watchId) => void kept.push(`-${watchId}`),
      topicAdded: (topic) => void kept.push(`+${topic}`),
      topicRemoved: (topic) => void kept.push(`-${topic}`),
      moved: (watches) => void kept.push(`moved ${watches.length}`),
      closed: () => void kept.push("closed"),
    };
    const all: ConnectionSink = {
      onFrames: (frames) => void heard.push(...frames.map((frame) => frame.kind)),
      onTopic: (message) => void heard.push(`${message.topic} ${message.payload}`),
      ...sink,
    };
    return { connection: this.connections.open(crypto.randomUUID(), all, keeper), kept, heard };
  }
}

function ready(connection: string): Frame {
  return { kind: "ready", connection, watchId: 0, revision: 3, position: endOf(3) };
}

describe("connections", () => {
  test("frames go to whom they are for, and positions are kept with them", () => {
    const rig = new Rig();
    const one = rig.open();
    const other = rig.open();
    one.connection.subscribe(SUBSCRIPTION);
    rig.send([ready(one.connection.id), ready("gone"), ready(one.connection.id)]);
    expect([one.heard, other.heard]).toEqual([["ready", "ready"], []]);
    expect(one.kept).toEqual(["+0@3", "moved 0"]);
  });

  test("a watch that ends within the call that makes it is never written down", () => {
    const rig = new Rig();
    const { connection, kept, heard } = rig.open();
    rig.during = () => rig.send([{ kind: "compacted", connection: connection.id, watchId: 0, compactRevision: 9 }]);
    expect(connection.subscribe(SUBSCRIPTION).ok).toBe(true);
    expect([kept, heard]).toEqual([["moved 0"], ["compacted"]]);
    rig.during = () => {};
    connection.subscribe(SUBSCRIPTION);
    rig.send([{ kind: "resync", connection: connection.id, watchId: 0, revision: 9 }]);
    expect(kept.slice(1)).toEqual(["+0@3", "-0", "moved 0"]);
  });

  test("what fails in one client's sink ends that connection, behind the turn, and no other", async () => {
    const rig = new Rig();
    const failing = rig.open({
      onFrames: () => {
        throw new Error("broken sink");
      },
    });
    const sound = rig.open();
    rig.send([ready(failing.connection.id), ready(sound.connection.id)]);
    expect(sound.heard).toEqual(["ready"]);
    expect(rig.logged).toEqual(["a connection failed"]);
    expect(rig.calls).toEqual([]);
    await Promise.resolve();
    expect(rig.calls).toEqual(["close"]);
    expect(failing.kept).toEqual(["closed"]);
    rig.send([ready(failing.connection.id)]);
    expect(rig.logged).toHaveLength(1);
  });

  test("a closed connection takes nothing and asks for nothing", () => {
    const rig = new Rig();
    const { connection, heard } = rig.open();
    connection.subscribeTopic("t");
    connection.close();
    connection.close();
    expect(rig.calls).toEqual(["close"]);
    expect(connection.subscribe(SUBSCRIPTION)).toMatchObject({ ok: false, error: { reason: "closed" } });
    expect(connection.cancel(0)).toBe(false);
    connection.acknowledge(0, endOf(1));
    connection.requestProgress(0);
    connection.subscribeTopic("t");
    rig.publish("t");
    rig.send([ready(connection.id)]);
    expect([rig.calls, heard]).toEqual([["close"], []]);
  });

  test("topics: to subscribers once, within their limits, until they leave", () => {
    const rig = new Rig();
    const one = rig.open();
    const other = rig.open();
    one.connection.subscribeTopic("t");
    one.connection.subscribeTopic("t");
    other.connection.subscribeTopic("u");
    rig.publish("t");
    expect([one.heard, other.heard]).toEqual([["t 1"], []]);
    one.connection.unsubscribeTopic("t");
    one.connection.unsubscribeTopic("t");
    rig.publish("t");
    expect(one.heard).toEqual(["t 1"]);
    expect(one.kept).toEqual(["+t", "-t"]);
    for (let n = 0; n < TOPICS_PER_CONNECTION_MAX; n += 1) one.connection.subscribeTopic(`${n}`);
    expect(() => one.connection.subscribeTopic("one more")).toThrow(ConcordError);
    one.connection.subscribeTopic("0");
    one.connection.unsubscribeTopic("0");
    one.connection.subscribeTopic("one more");
  });

  test("a node holds 10 000 subscriptions of topics; who leaves makes room", () => {
    const rig = new Rig();
    const all = Array.from({ length: 100 }, () => rig.open().connection);
    for (const connection of all) for (let n = 0; n < 100; n += 1) connection.subscribeTopic(`${n}`);
    const { connection } = rig.open();
    expect(() => connection.subscribeTopic("t")).toThrow(/^overloaded \(too_many_topics\)/);
    all[0]!.close();
    connection.subscribeTopic("t");
  });

  test("restored connections hand their watches to the runtime once; those that it never takes are closed", () => {
    const rig = new Rig();
    const options = { ...SUBSCRIPTION, connection: "old" };
    const saved = { watchId: 0, position: endOf(5), ready: true };
    const kept: string[] = [];
    const keeper = { closed: () => void kept.push("closed") } as unknown as Keeper;
    const heard: string[] = [];
    const sink = { onFrames: () => {}, onTopic: ({ topic }: { topic: string }) => void heard.push(topic) };
    rig.connections.adopt({ id: "old", sink, keeper, watches: [{ options, saved }], topics: ["t"] });
    rig.publish("t");
    expect(heard).toEqual(["t"]);
    expect(rig.connections.restore()).toEqual([{ options, saved }]);
    expect(rig.connections.restore()).toEqual([]);
    rig.connections.endUnrestored();
    expect(kept).toEqual([]);
    const second = new Rig();
    second.connections.adopt({ id: "old", sink, keeper, watches: [{ options, saved }], topics: [] });
    second.connections.endUnrestored();
    expect([kept, second.calls]).toEqual([["closed"], ["close"]]);
  });
});

describe("the socket of a client", () => {
  function socketOf(saved: readonly SavedWatch[] = [], window = new TopicWindow()) {
    const [client, server] = Object.values(new WebSocketPair()) as [WebSocket, WebSocket];
    const gone: string[] = [];
    const options = {
      maxMessageBytes: null,
      window,
      saved,
      isSilent: () => false,
      onGone: (why: string) => void gone.push(why),
    };
    const received: string[] = [];
    client.addEventListener("message", (event) => void received.push(String(event.data)));
    const closed = new Promise<number>((resolve) => {
      client.addEventListener("close", (event) => resolve(event.code));
    });
    server.accept();
    client.accept();
    return { server, options, gone, received, closed };
  }

  test("100 watches with the largest numbers, and a full ledger of topics, fit the attachment", () => {
    const window = new TopicWindow();
    for (let n = 0; n < 1000; n += 1) window.admit({ topic: "t", payload: "1" });
    const { server, options } = socketOf([], window);
    const socket = new HibernatingSocket(server, options);
    const watches = Array.from({ length: 100 }, (_, n) => ({
      watchId: Number.MAX_SAFE_INTEGER - n,
      position: { revision: Number.MAX_SAFE_INTEGER - n, opIndex: REVISION_END - n },
      ready: n % 2 === 0,
    }));
    socket.moved(watches);
    expect(readAttachment(server.deserializeAttachment())).toEqual({ watches, topics: window.save() });
    // Room for as much again: the platform refuses 16 384 bytes.
    socket.moved([...watches, ...watches.map((watch) => ({ ...watch, watchId: watch.watchId - 1000 }))]);
  });

  test("what is said before it is accepted waits, with its end", async () => {
    const { server, options, gone, received, closed } = socketOf();
    const socket = new HibernatingSocket(null, options);
    socket.send("one");
    socket.send("two");
    socket.close(1000, "done");
    socket.send("three");
    expect(gone).toEqual([]);
    socket.accepted(server);
    expect(await closed).toBe(1000);
    expect([received, gone]).toEqual([["one", "two"], ["done"]]);
  });

  test("one that was never accepted says nothing", () => {
    const { options, gone } = socketOf();
    const socket = new HibernatingSocket(null, options);
    socket.send("one");
    socket.watchAdded({ watchId: 0, position: endOf(0), ready: false });
    socket.lost();
    socket.close(1012, "reconnect");
    expect(gone).toEqual([]);
  });

  test("a send that the platform refuses is the end of it, told once", () => {
    const { server, options, gone } = socketOf();
    const socket = new HibernatingSocket(server, options);
    server.close(1000);
    socket.send("one");
    socket.send("two");
    expect(gone).toEqual(["closed"]);
  });

  test("an attachment of another kind is none of ours", () => {
    for (const value of [null, undefined, 1, {}, { peer: 3 }, { watches: [1, "2"], topics: [] }, { watches: [] }]) {
      expect(readAttachment(value)).toBeNull();
    }
  });
});
