/**
 * Goal: a cluster is upgraded node by node under load. Old and new nodes are one cluster, whoever of them leads, nothing
 * that was acknowledged is lost, and what only new nodes can do waits for the last old one.
 * Method: five processes; a node that is held to the earlier version of the protocol behaves as one of that version does.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { NODE_IDS } from "../../scripts/local-cluster/verbs.ts";
import { type FiveTest, startFiveTest } from "./five-cluster.ts";

/** An election, or a transfer, on a busy machine. */
const PATIENCE = { timeout: 30_000, interval: 100 };
const folder = mkdtempSync(join(tmpdir(), "concord-versions-"));
const old = new Set<number>(NODE_IDS);
let cluster: FiveTest;

beforeAll(async () => {
  const variables = (node: number) => ({ LOG_KEEP_ENTRIES: "50", ...(old.has(node) ? { PROTOCOL_MAX: "1" } : {}) });
  cluster = await startFiveTest({ folder: join(folder, "five"), variables });
  await cluster.settled();
});

afterAll(async () => {
  await cluster?.five.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("five old nodes become five new ones, one after the other, and nothing is lost", async () => {
  const written: string[] = [];
  const write = async (through: number, count: number) => {
    for (let n = 0; n < count; n += 1) {
      const key = `/k${written.length}`;
      const { status } = await cluster.put(through, key, n);
      expect(status).toBe(200);
      written.push(key);
    }
  };
  const changes = () => cluster.log.filter(({ message }) => message === "taken in again").length;
  await write(1, 60);
  expect(
    (await cluster.send(1, "POST", "/v1/cluster/restore", { headers: { "content-type": "application/x-ndjson" } }))
      .body,
  ).toMatchObject({ code: "precondition_failed", reason: "older_member" });
  // A node that has lost its storage stays out while old nodes could not follow.
  await cluster.five.wipe(5);
  await expect.poll(async () => (await cluster.own(5))?.state, PATIENCE).toBe("lost");
  for (const node of [1, 2, 3, 4]) {
    old.delete(node);
    await cluster.five.restart(node);
    await expect.poll(() => cluster.leader(), PATIENCE).not.toBeNull();
    await write((node % 4) + 1, 30);
    await write(node, 30);
    if (node < 4) expect([changes(), (await cluster.own(5))?.state]).toEqual([0, "lost"]);
  }
  old.delete(5);
  await cluster.five.restart(5);
  await expect.poll(async () => (await cluster.own(5))?.member, PATIENCE).toBe("voter");
  await cluster.settled();
  for (const key of written) expect((await cluster.get(5, key)).status).toBe(200);
});
