/**
 * Goal: an administrator moves the leadership of five processes, and brings back a node that has halted (design 02 §6).
 * Method: real `workerd` processes, one node each, asked over HTTP by the client; a row of a node's database is damaged while
 * its process is down.
 */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildBundle } from "../../scripts/local-cluster/bundle.ts";
import { NODE_IDS } from "../../scripts/local-cluster/verbs.ts";
import type { NodeStatus } from "../../src/api/backend.ts";
import { ConcordAdmin } from "../../src/client/admin.ts";
import { type FiveTest, startFiveTest } from "./five-cluster.ts";

const folder = mkdtempSync(join(tmpdir(), "concord-admin-"));
const dataFolder = join(folder, "five");
let cluster: FiveTest;

beforeAll(async () => {
  cluster = await startFiveTest({ folder: dataFolder, bundle: await buildBundle(join(folder, "build")) });
  await cluster.settled();
});

afterAll(async () => {
  await cluster?.five.stop();
  rmSync(folder, { recursive: true, force: true });
});

function admin(node: number): ConcordAdmin["cluster"] {
  return ConcordAdmin.connect({ url: cluster.five.urls[node - 1] ?? "" }).cluster;
}

/** Another one, which is not asked about itself. */
function other(...nodes: readonly number[]): number {
  return NODE_IDS.find((id) => !nodes.includes(id)) ?? 1;
}

async function until(node: number, holds: (status: NodeStatus) => boolean): Promise<NodeStatus> {
  const deadlineMs = Date.now() + 20_000;
  for (;;) {
    const status = await cluster.own(node);
    if (status !== null && holds(status)) return status;
    if (Date.now() > deadlineMs) throw new Error(`node ${node} is ${JSON.stringify(status)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The objects of a process are SQLite files below its folder; that of the node is the one with a log. */
function damage(node: number): void {
  const files = readdirSync(dataFolder, { recursive: true, encoding: "utf8" })
    .filter((path) => path.split("/").some((part) => part === String(node) || part === `node-${node}`))
    .filter((path) => path.endsWith(".sqlite"));
  let damaged = 0;
  for (const path of files) {
    const database = new DatabaseSync(join(dataFolder, path));
    const tables = database.prepare("SELECT name FROM sqlite_master WHERE name = 'log'").all();
    if (tables.length > 0) {
      database.exec("UPDATE meta SET checksum = checksum + 1 WHERE key = 'hard_state'");
      damaged += 1;
    }
    database.close();
  }
  expect(damaged, files.join()).toBe(1);
}

test("leadership goes to the process that is named, asked at a third one", async () => {
  const leader = await cluster.settled();
  const to = other(leader);
  const moved = await admin(other(leader, to)).transfer(to);
  expect(moved).toMatchObject({ outcome: "done", leader: to });
  expect(await cluster.settled()).toBe(to);
});

test("a process that is asked to restart its instance comes back by itself", async () => {
  const leader = await cluster.settled();
  const node = other(leader);
  expect(await admin(leader).restart(node)).toMatchObject({ outcome: "under_way" });
  await cluster.settled();
  expect((await cluster.put(node, "/restarted", 1)).status).toBe(200);
});

test("a node that halted over a damaged row is repaired, asked at itself, and takes part again", async () => {
  const leader = await cluster.settled();
  for (let count = 0; count < 20; count += 1) await cluster.put(leader, `/k/${count}`, count);
  const node = other(leader);
  const { incarnation } = await until(node, () => true);
  await cluster.five.kill(node);
  damage(node);
  await cluster.five.restart(node);
  await until(node, ({ state }) => state === "halted");
  expect((await cluster.get(node, "/k/1")).body).toMatchObject({ code: "node_halted" });
  const refused = admin(node).repair(leader);
  await expect(refused).rejects.toMatchObject({ code: "admin_refused", reason: "not_halted" });
  expect(await admin(node).repair(node)).toMatchObject({ outcome: "under_way" });
  const back = await until(node, ({ state, member }) => state === "formed" && member === "voter");
  expect(back.incarnation).not.toBe(incarnation);
  await cluster.settled();
  expect((await cluster.get(node, "/k/19")).body?.value).toBe(19);
  expect((await cluster.put(node, "/after", 1)).status).toBe(200);
});

/** Server-sent events of a node, until they end. */
async function stream(node: number, path: string): Promise<{ readonly ended: Promise<unknown> }> {
  const headers = { accept: "text/event-stream" };
  const response = await fetch(`${cluster.five.urls[node - 1]}${path}`, {
    headers,
    signal: AbortSignal.timeout(20_000),
  });
  expect(response.status).toBe(200);
  return { ended: response.text() };
}

test("what the majority needs is not given up, also when the others have died just now", async () => {
  const leader = await cluster.settled();
  const [first = 0, second = 0, third = 0] = NODE_IDS.filter((id) => id !== leader);
  for (const isAsleep of [false, true]) {
    if (isAsleep) await until(leader, ({ quiescent }) => quiescent);
    await cluster.five.kill(first, second);
    const options = { timeoutMs: 3000 };
    const repair = admin(leader).repair(third, { ...options, force: true });
    await expect(repair).rejects.toMatchObject({ code: "admin_refused", reason: "would_cost_majority" });
    const removal = admin(leader).members.remove(third, options);
    await expect(removal).rejects.toMatchObject({ code: "admin_refused", reason: "quorum_unreachable" });
    expect((await cluster.put(third, "/still", 1)).status).toBe(200);
    await cluster.five.restart(first, second);
    await cluster.settled();
  }
});

test("a process leaves the cluster and comes back; meanwhile its clients are sent elsewhere", async () => {
  const leader = await cluster.settled();
  const node = other(leader);
  const { members } = admin(leader);
  const streams = ["/v1/watch?prefix=/k/", "/v1/topics/t"].map((path) => stream(node, path));
  const open = await Promise.all(streams);
  expect(await members.remove(node)).toMatchObject({ outcome: "done" });
  await Promise.all(open.map(({ ended }) => ended));
  await until(node, ({ member }) => member === null);
  expect(await cluster.get(node, "/k/1")).toMatchObject({ status: 503, body: { reason: "not_a_member" } });
  expect((await cluster.send(node, "GET", "/readyz")).status).toBe(503);
  expect(await admin(node).members.add(node)).toMatchObject({ outcome: "done" });
  await until(node, ({ member }) => member === "voter");
  await cluster.settled();
});
