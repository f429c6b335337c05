/**
 * Goal: a cluster of five processes survives what happens to processes and networks, and lets nobody in who has no secret
 * (design 02 §2, 05).
 * Method: real `workerd` processes that are killed (SIGKILL), paused (SIGSTOP), wiped and cut off from each other.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { LockHeldError } from "../../scripts/exclusive-lock.mjs";
import { type Bundle, buildBundle } from "../../scripts/local-cluster/bundle.ts";
import { startFive } from "../../scripts/local-cluster/five.ts";
import { freePort, freePortsFrom } from "../../scripts/local-cluster/ports.ts";
import { NODE_IDS, VerbError } from "../../scripts/local-cluster/verbs.ts";
import { startWorkerd } from "../../scripts/local-cluster/workerd.ts";
import { Concord } from "../../src/client/index.ts";
import { type FiveTest, startFiveTest } from "./five-cluster.ts";

/** Short, so that the test of sleep need not wait long; longer than any test leaves the cluster alone. */
const QUIESCE_AFTER_MS = 2000;
/** After so long without work the platform takes an object from memory. */
const EVICTED_AFTER_MS = 12_000;

const folder = mkdtempSync(join(tmpdir(), "concord-five-"));
let bundle: Bundle;
let cluster: FiveTest;

beforeAll(async () => {
  bundle = await buildBundle(join(folder, "build"));
  const variables = { QUIESCE_AFTER_MS: String(QUIESCE_AFTER_MS) };
  cluster = await startFiveTest({ folder: join(folder, "five"), bundle, variables });
  await cluster.settled();
});

/** Also where a test has failed: the next one finds a whole cluster. */
afterEach(async () => {
  await cluster.five.heal();
  for (const node of NODE_IDS) {
    if (cluster.five.state(node) === "paused") await cluster.five.resume(node);
  }
  await cluster.five.restart(...NODE_IDS.filter((node) => cluster.five.state(node) === "down"));
});

afterAll(async () => {
  await cluster?.five.stop();
  rmSync(folder, { recursive: true, force: true });
});

const othersThan = (...nodes: number[]) => NODE_IDS.filter((id) => !nodes.includes(id));

/** A write through the client, which repeats it until it is acknowledged. */
async function putBySdk(node: number, key: string): Promise<number> {
  const concord = Concord.connect({ url: cluster.five.urls[node - 1] ?? "", timeoutMs: 20_000 });
  try {
    return (await concord.kv.put(key, 1)).revision;
  } finally {
    await concord.close();
  }
}

test("five processes form one cluster; each serves its own node, and what is written on one is read on all", async () => {
  for (const node of NODE_IDS) {
    const written = await cluster.put(node, `/from/${node}`, node);
    expect([written.status, written.headers.get("concord-node")]).toEqual([200, String(node)]);
    for (const reader of NODE_IDS) {
      const { body, headers } = await cluster.get(reader, `/from/${node}`);
      expect([body?.value, headers.get("concord-node")]).toEqual([node, String(reader)]);
    }
  }
  const { body } = await cluster.send(3, "GET", "/v1/cluster");
  expect(body).toMatchObject({ digests: { equal: true } });
  expect(body?.nodes).toMatchObject(NODE_IDS.map((id) => ({ id, state: "formed" })));
});

test("peer routes are closed to callers without the secret, with a wrong one, and to forged headers", async () => {
  const forged = { "x-concord-peer": "1", "x-concord-object": "default/2", "x-concord-internal": "1" };
  for (const secret of [undefined, "", "wrong-wrong-wrong", "0".repeat(64)]) {
    const headers = secret === undefined ? forged : { ...forged, "x-concord-secret": secret };
    for (const path of ["message", "stream", "status", "digest?index=1"]) {
      const answer = await cluster.send(2, path === "message" ? "POST" : "GET", `/peer/${path}`, { headers });
      expect([answer.status, answer.body?.code]).toEqual([404, "not_found"]);
    }
  }
  const upgrade = await cluster.send(2, "GET", "/peer/stream", { headers: forged });
  const unknown = await cluster.send(2, "GET", "/no/route", { headers: forged });
  expect(upgrade.body).toEqual(unknown.body);
  expect((await cluster.send(2, "GET", "/v1/kv?key=a&node=3")).body?.reason).toBe("node");
  // Nothing of all that has reached the node, and nobody tells the secret.
  expect(cluster.output.filter((line) => /secret|[0-9a-f]{64}/.test(line))).toEqual([]);
});

test("a process with another secret, or with the URLs of peers mixed up, reaches nobody, and its log says which it is", async () => {
  const config = readFileSync(join(folder, "five", "node-1", "workerd.capnp"), "utf8");
  const secret = /"CLUSTER_SECRET", text = "(\w+)"/.exec(config)?.[1] ?? "";
  const peersFrom = (shift: number) =>
    Object.fromEntries(NODE_IDS.map((id) => [id, cluster.five.urls[(id - 1 + shift) % NODE_IDS.length] ?? ""]));
  for (const [name, given, shift, status] of [
    ["stranger", "another-secret-of-length", 0, 404],
    ["mixed-up", secret, 1, 421],
  ] as const) {
    const lines: string[] = [];
    const port = await freePort();
    const workerd = await startWorkerd({
      bundle,
      port,
      dataFolder: join(folder, name),
      separate: { nodeId: 1, peers: peersFrom(shift), secret: given },
      onLine: (line) => lines.push(line),
    });
    const ask = () => fetch(`${workerd.url}/v1/revision?timeout_ms=100`).then((response) => response.status);
    await expect.poll(() => ask().catch(() => 0), { timeout: 10_000 }).toBe(503);
    const told = () => lines.filter((line) => line.includes(`"peer not reached"`) && line.includes(`status ${status}`));
    await expect.poll(() => told().length, { timeout: 5000 }).toBe(4);
    await workerd.stop();
    expect(lines.join()).not.toContain(given);
  }
  // Nor has it harmed anybody.
  await cluster.settled();
});

test("with two nodes killed, the leader among them, writes go on", async () => {
  const leader = await cluster.settled();
  const [second = 0, ...rest] = othersThan(leader);
  await cluster.five.kill(leader, second);
  const killedAtMs = Date.now();
  for (const node of rest) expect(await putBySdk(node, `/two-down/${node}`)).toBeGreaterThan(0);
  expect(Date.now() - killedAtMs).toBeLessThan(8000);
  for (const node of rest) expect((await cluster.get(node, `/two-down/${rest[0]}`)).body?.value).toBe(1);
  await cluster.five.restart(leader, second);
  await cluster.settled();
  expect((await cluster.get(leader, `/two-down/${rest[0]}`)).body?.value).toBe(1);
});

test("with three killed nothing is acknowledged, and service returns by itself when one is back", async () => {
  const leader = await cluster.settled();
  const [first = 0, second = 0, ...rest] = othersThan(leader);
  await cluster.put(first, "/before", 1);
  await cluster.settled();
  await cluster.five.kill(leader, first, second);
  const refused = async (node: number): Promise<void> => {
    const { status, body } = await cluster.put(node, "/three-down", 1, "&timeout_ms=1500");
    expect([status, body?.code]).toEqual(status === 504 ? [504, "timeout"] : [503, "no_leader"]);
    expect((await cluster.get(node, "/before", "&timeout_ms=500")).status).toBeGreaterThanOrEqual(503);
    expect((await cluster.get(node, "/before", "&consistency=serializable")).body?.value).toBe(1);
  };
  await Promise.all(rest.map(refused));
  await cluster.five.restart(second);
  const [witness = 0] = rest;
  await expect.poll(async () => (await cluster.get(witness, "/before")).body?.value, { timeout: 10_000 }).toBe(1);
  expect(await putBySdk(witness, "/one-back")).toBeGreaterThan(0);
});

test("all five are killed at once under load: every acknowledged write is there", async () => {
  await cluster.settled();
  const acknowledged: string[] = [];
  let isOver = false;
  const writer = async (node: number, name: string): Promise<void> => {
    for (let n = 0; !isOver; n += 1) {
      const key = `/load/${node}/${name}/${n}`;
      // A broken connection says nothing of the write.
      const answer = await cluster.put(node, key, n).catch(() => null);
      if (answer?.status === 200) acknowledged.push(key);
      else if (answer === null) return;
    }
  };
  const writers = NODE_IDS.flatMap((node) => ["a", "b"].map((name) => writer(node, name)));
  await expect.poll(() => acknowledged.length, { timeout: 20_000 }).toBeGreaterThan(150);
  await cluster.five.kill(...NODE_IDS);
  isOver = true;
  await Promise.all(writers);
  await cluster.five.restart(...NODE_IDS);
  await cluster.settled();
  const found = new Set<unknown>();
  const concord = Concord.connect({ url: cluster.five.urls[2] ?? "" });
  for await (const { key } of concord.kv.list({ prefix: "/load/" })) found.add(key);
  await concord.close();
  expect(acknowledged.filter((key) => !found.has(key))).toEqual([]);
});

test("a paused leader is followed by another; when it goes on it serves no old state", async () => {
  const leader = await cluster.settled();
  const [witness = 0] = othersThan(leader);
  await cluster.put(witness, "/paused", "before");
  await cluster.five.pause(leader);
  const pausedAtMs = Date.now();
  await putBySdk(witness, "/paused");
  expect(Date.now() - pausedAtMs).toBeLessThan(8000);
  // Asked while it stands still, it answers when it goes on: with what holds by then.
  const asked = cluster.get(leader, "/paused");
  await cluster.five.resume(leader);
  expect((await asked).body?.value).toBe(1);
  expect(await cluster.settled()).not.toBe(leader);
});

test("of two sides of a partition the larger one serves, the smaller one does not, and after the heal all hold the same", async () => {
  const leader = await cluster.settled();
  const [companion = 0, ...larger] = othersThan(leader);
  const smaller = [leader, companion];
  await cluster.put(leader, "/split", "before");
  await cluster.settled();
  await cluster.five.partition([smaller, larger]);
  for (const node of larger) await putBySdk(node, "/split");
  const refused = async (node: number): Promise<void> => {
    const written = await cluster.put(node, "/split", "small", "&timeout_ms=1000");
    expect(written.status).toBeGreaterThanOrEqual(503);
    expect((await cluster.get(node, "/split", "&timeout_ms=300")).status).toBeGreaterThanOrEqual(503);
    expect((await cluster.get(node, "/split", "&consistency=serializable")).body?.value).toBe("before");
  };
  await Promise.all(smaller.map(refused));
  await cluster.five.heal();
  await cluster.settled();
  for (const node of smaller) expect((await cluster.get(node, "/split")).body?.value).toBe(1);
});

test("a leader that is heard but hears nobody gives way (S06)", async () => {
  const leader = await cluster.settled();
  const others = othersThan(leader);
  for (const from of others) await cluster.five.oneWay(from, leader);
  const [witness = 0] = others;
  expect(await putBySdk(witness, "/one-way")).toBeGreaterThan(0);
  await expect.poll(async () => (await cluster.own(leader))?.role, { timeout: 5000 }).not.toBe("leader");
  expect((await cluster.own(witness))?.leader).not.toBe(leader);
  await cluster.five.heal();
  await cluster.settled();
  expect((await cluster.get(leader, "/one-way")).body?.value).toBe(1);
});

test("a data folder in use, and a port in use, are refused; what cannot be done says why", async () => {
  const again = startFive({ folder: join(folder, "five"), bundle });
  await expect(again).rejects.toBeInstanceOf(LockHeldError);
  // All five are free but the one that is taken here.
  const first = await freePortsFrom(NODE_IDS.length);
  const port = first + 2;
  const server = createServer();
  await new Promise<void>((listening) => server.listen(port, "127.0.0.1", listening));
  const other = startFive({ folder: join(folder, "other"), bundle, basePort: first - 1 });
  await expect(other).rejects.toThrow(`port ${port} of 127.0.0.1 is in use`);
  server.close();
  // Nothing is left running or locked by it.
  const locks = readdirSync(join(folder, "other"), { recursive: true, encoding: "utf8" });
  expect(locks.filter((name) => name.endsWith(".lock"))).toEqual([]);
  await expect(cluster.five.resume(1)).rejects.toThrow("node 1 is not paused");
  await expect(cluster.five.kill(9)).rejects.toBeInstanceOf(VerbError);
});

test("an idle cluster sends nothing, all five objects go from memory, and one write wakes it", async () => {
  await cluster.settled();
  const quietAtMs = Date.now();
  const asleep = () => cluster.log.filter(({ message, atMs }) => message === "asleep" && atMs >= quietAtMs);
  await expect.poll(() => asleep().length, { timeout: 15_000 }).toBe(5);
  const asleepAtMs = Date.now();
  await new Promise((resolve) => setTimeout(resolve, 500));
  const bytes = cluster.five.bytesBetweenNodes();
  await new Promise((resolve) => setTimeout(resolve, EVICTED_AFTER_MS));
  expect(cluster.five.bytesBetweenNodes()).toBe(bytes);
  expect(cluster.log.filter(({ atMs }) => atMs > asleepAtMs + 500)).toEqual([]);
  const wokenAtMs = Date.now();
  expect((await cluster.put(4, "/awake", 1)).status).toBe(200);
  expect(Date.now() - wokenAtMs).toBeLessThan(2000);
  const started = cluster.log.filter(({ message, atMs }) => message === "instance started" && atMs >= wokenAtMs);
  expect(new Set(started.map(({ object }) => object)).size).toBe(5);
});

test("a cluster of another name has one object in each process", async () => {
  expect((await cluster.send(2, "POST", "/v1/clusters", { body: { name: "second" } })).status).toBe(201);
  const put = (node: number) => cluster.send(node, "PUT", "/c/second/v1/kv?key=/a", { body: node });
  await expect.poll(async () => (await put(5)).status, { timeout: 10_000 }).toBe(200);
  for (const node of NODE_IDS) {
    const { body, headers } = await cluster.send(node, "GET", "/c/second/v1/kv?key=/a");
    expect([body?.value, headers.get("concord-node")]).toEqual([5, String(node)]);
  }
  expect((await cluster.get(1, "/a")).status).toBe(404);
});

test("a wiped node is taken in again by itself, and counts as before; the others go on", async () => {
  const leader = await cluster.settled();
  const [wiped = 0, ...rest] = othersThan(leader);
  const before = await cluster.own(wiped);
  await cluster.five.wipe(wiped);
  expect(await putBySdk(leader, "/wiped")).toBeGreaterThan(0);
  const part = async () => {
    const own = await cluster.own(wiped);
    return own?.state === "formed" && own.incarnation !== before?.incarnation ? own.member : null;
  };
  await expect.poll(part, { timeout: 10_000 }).toBe("voter");
  await cluster.settled();
  expect((await cluster.get(wiped, "/wiped")).body?.code).toBeUndefined();
  // Two more may be gone: it completes the majority.
  await cluster.five.kill(...rest.slice(0, 2));
  expect((await cluster.put(leader, "/wiped", 2)).status).toBe(200);
});
