/** A watch over a real WebSocket of a real node: replay, live, refusals, credit, slow consumers, silent clients. */
import { reset } from "cloudflare:test";
import { afterEach, describe, expect, test } from "vitest";
import { NODES, TestCluster } from "./cluster-harness.ts";
import { eventually } from "./eventually.ts";
import { quietConsole } from "./quiet-console.ts";
import { clientRows, type Message, story, TestSocket, upgrade } from "./socket-client.ts";

quietConsole();
const now = Date.now;
afterEach(async () => {
  Date.now = now;
  await reset();
});

async function started(): Promise<TestCluster> {
  const cluster = new TestCluster();
  await cluster.leader();
  return cluster;
}

/** All nodes' clocks, which are this thread's. */
function advanceClock(ms: number): void {
  Date.now = () => now() + ms;
}

/** One revision that puts `count` values of `bytes` each. */
async function putMany(cluster: TestCluster, prefix: string, count: number, bytes: number): Promise<void> {
  const value = "x".repeat(bytes);
  const success = Array.from({ length: count }, (_, n) => ({ type: "put", key: `${prefix}${n}`, value }));
  const { status, body } = await cluster.txn(1, { success });
  expect(status, JSON.stringify(body)).toBe(200);
}

function acknowledging(socket: TestSocket): TestSocket {
  socket.onMessage = (frame) => {
    if (frame.position !== undefined) socket.send({ ack: frame.position });
  };
  return socket;
}

function weight(messages: readonly Message[]): number {
  return JSON.stringify(messages).length;
}

describe("GET /v1/watch over a WebSocket", () => {
  test("replays from history, says ready, goes on live, on any node", async () => {
    const cluster = await started();
    for (let n = 1; n <= 3; n += 1) await cluster.put(1, `/k/${n}`, { n });
    await cluster.converged();
    for (const node of NODES) {
      const watch = await TestSocket.open(cluster, node, "/v1/watch?prefix=/k/&from_revision=2");
      const ready = await watch.find((frame) => frame.kind === "ready");
      expect(ready).toEqual({ kind: "ready", revision: 3, position: "3" });
      expect(story(watch.messages)).toEqual(["put /k/2@2", "put /k/3@3"]);
      watch.socket.close(1000);
    }
    const live = await TestSocket.open(cluster, 2, "/v1/watch?prefix=/k/&after=3&prev_values=true");
    await live.find((frame) => frame.kind === "ready");
    await cluster.put(4, "/other", 1);
    await cluster.put(4, "/k/3", 4);
    await live.until(() => story(live.messages).length > 0);
    expect(live.messages.at(-1)).toMatchObject({ kind: "events", complete: true, position: "5" });
    expect(live.messages.at(-1).events).toMatchObject([{ key: "/k/3", value: 4, prev_value: { n: 3 }, version: 2 }]);
  });

  test("is told what was acknowledged though it is the first to come after all nodes were reset", async () => {
    const cluster = await started();
    for (let n = 1; n <= 5; n += 1) await cluster.put(n, `/k/${n}`, n);
    await Promise.all(NODES.map((id) => cluster.abort(id)));
    // Nobody asks for anything else, and the watchdogs are many seconds away.
    const openedAtMs = Date.now();
    const watches = await Promise.all(
      NODES.map((node) => TestSocket.open(cluster, node, "/v1/watch?prefix=/k/&after=4")),
    );
    for (const watch of watches) await watch.until(() => story(watch.messages).includes("put /k/5@5"));
    expect(Date.now() - openedAtMs).toBeLessThan(4000);
  });

  test("answers progress when it is asked for, ping by pong, and closes on anything else", async () => {
    const cluster = await started();
    const watch = await TestSocket.open(cluster, 1, "/v1/watch?prefix=/quiet/");
    await watch.find((frame) => frame.kind === "ready");
    await cluster.put(1, "/loud", 1);
    await cluster.converged();
    watch.send("ping");
    watch.send({ progress: true });
    await watch.find((frame) => frame.kind === "progress" && frame.revision === 1);
    expect(watch.pongs).toBe(1);
    watch.send({ ack: "1", progress: true });
    expect(await watch.closing()).toMatchObject({ code: 1008, reason: expect.stringContaining("ack") });
    await eventually(() => clientRows(cluster, 1), 0);
  });

  test("refuses before the upgrade, with a problem document", async () => {
    const cluster = await started();
    const cases: [path: string, status: number, code: string, reason?: string][] = [
      ["/v1/watch", 400, "invalid_selector", "empty_selector"],
      ["/v1/watch?key=a&prefix=b", 400, "invalid_selector", "ambiguous_selector"],
      ["/v1/watch?key=a&from_revision=1&after=1", 400, "invalid_request", "ambiguous_start"],
      ["/v1/watch?key=a&from_revision=0", 400, "invalid_request", "invalid_from_revision"],
      ["/v1/watch?key=a&after=01", 400, "invalid_request", "invalid_position"],
      ["/v1/watch?key=a&max_message_bytes=1", 400, "invalid_request", "invalid_max_message_bytes"],
      ["/v1/watch?key=%00a", 403, "forbidden", "system_prefix"],
      ["/v1/watch?key=a&cluster_id=other", 410, "cluster_changed"],
      ["/v1/session?node_id=1", 400, "invalid_request", "unknown_parameter"],
    ];
    for (const [path, status, code, reason] of cases) {
      const response = await upgrade(cluster, 1, path);
      expect(response.webSocket, path).toBeNull();
      expect(response.status, path).toBe(status);
      expect(await response.json(), path).toMatchObject({ code, ...(reason === undefined ? {} : { reason }) });
    }
    expect(await clientRows(cluster, 1)).toBe(0);
  });

  test("a start that is compacted is told by a frame, and the socket closes", async () => {
    const cluster = await started();
    for (let n = 1; n <= 4; n += 1) await cluster.put(1, "/k", n);
    expect((await cluster.call(1, "/v1/compact", { body: { revision: 3 } })).status).toBe(200);
    await cluster.converged();
    const watch = await TestSocket.open(cluster, 1, "/v1/watch?key=/k&from_revision=2");
    expect(await watch.closing()).toEqual({ code: 1000, reason: "compacted" });
    expect(watch.messages).toEqual([{ kind: "compacted", compact_revision: 3 }]);
    expect(await clientRows(cluster, 1)).toBe(0);
  });

  test("a client that goes leaves nothing behind", async () => {
    const cluster = await started();
    const watch = await TestSocket.open(cluster, 1, "/v1/watch?prefix=/");
    await watch.find((frame) => frame.kind === "ready");
    expect(await clientRows(cluster, 1)).toBe(2);
    watch.socket.close(1000, "done");
    await eventually(() => clientRows(cluster, 1), 0);
    await cluster.put(1, "/k", 1);
  });
});

describe("credit", () => {
  test("what is not acknowledged waits in history, and comes once it is", async () => {
    const cluster = await started();
    const watch = await TestSocket.open(cluster, 1, "/v1/watch?prefix=/k/");
    await watch.find((frame) => frame.kind === "ready");
    for (let n = 0; n < 16; n += 1) await putMany(cluster, `/k/${n}/`, 32, 1000);
    await cluster.converged();
    await cluster.call(1, "/v1/revision");
    const before = story(watch.messages).length;
    expect(weight(watch.messages)).toBeLessThan(300_000);
    expect(before).toBeLessThan(16 * 32);
    acknowledging(watch);
    watch.send({ ack: watch.messages.at(-1).position });
    await watch.until(() => story(watch.messages).length === 16 * 32);
    expect(new Set(story(watch.messages)).size).toBe(16 * 32);
  });

  test("who reads no more is cancelled with its position, resumes without a hole, and slows nobody (S47)", async () => {
    const cluster = await started();
    const path = "/v1/watch?prefix=/k/&from_revision=1";
    const paused = await TestSocket.open(cluster, 1, path);
    const reading = [
      acknowledging(await TestSocket.open(cluster, 1, path)),
      acknowledging(await TestSocket.open(cluster, 1, path)),
    ];
    const total = 12 * 100;
    for (let n = 0; n < 12; n += 1) await putMany(cluster, `/k/${n}/`, 100, 1000);
    for (const watch of reading) await watch.until(() => story(watch.messages).length === total);
    // It still answers pings: that shows nothing.
    paused.send("ping");
    await paused.until(() => paused.pongs > 0);
    expect(weight(paused.messages)).toBeLessThan(400_000);
    advanceClock(11_000);
    await cluster.leader();
    await cluster.put(1, "/other", 1);
    expect(await paused.closing(10_000)).toEqual({ code: 1000, reason: "slow_consumer" });
    const last = paused.messages.at(-1);
    expect(last.kind).toBe("slow_consumer");
    const resumed = acknowledging(await TestSocket.open(cluster, 1, `/v1/watch?prefix=/k/&after=${last.position}`));
    const had = story(paused.messages);
    await resumed.until(() => had.length + story(resumed.messages).length === total);
    expect([...had, ...story(resumed.messages)]).toEqual(story(reading[0]!.messages));
    expect(reading.map((watch) => watch.closed)).toEqual([null, null]);
  });
});

describe("a client that falls silent without a word", () => {
  test("is dropped when something is sent to it, if it has ever pinged", async () => {
    const cluster = await started();
    const pinging = await TestSocket.open(cluster, 1, "/v1/watch?prefix=/k/");
    const plain = await TestSocket.open(cluster, 1, "/v1/watch?prefix=/k/");
    pinging.send("ping");
    await pinging.until(() => pinging.pongs > 0);
    await plain.find((frame) => frame.kind === "ready");
    expect(await clientRows(cluster, 1)).toBe(4);
    advanceClock(91_000);
    await cluster.leader();
    await cluster.put(1, "/k/1", 1);
    expect(await pinging.closing()).toEqual({ code: 1001, reason: "silent" });
    await plain.until(() => story(plain.messages).length > 0);
    await eventually(() => clientRows(cluster, 1), 2);
  });

  test("is dropped when another client comes", async () => {
    const cluster = await started();
    const pinging = await TestSocket.open(cluster, 1, "/v1/watch?prefix=/k/");
    pinging.send("ping");
    await pinging.until(() => pinging.pongs > 0);
    advanceClock(91_000);
    await TestSocket.open(cluster, 1, "/v1/session");
    expect(await pinging.closing()).toEqual({ code: 1001, reason: "silent" });
    await eventually(() => clientRows(cluster, 1), 1);
  });
});
