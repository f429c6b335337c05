/** Administration of a test cluster, where time and the network are ours: forming with fewer nodes, losing a majority. */
import { describe, expect, test } from "vitest";
import type { AdminOutcome, ClusterStatus } from "../../src/api/backend.ts";
import { startTestCluster, TestCluster } from "../../src/testing/cluster.ts";

interface Told {
  readonly status: number;
  readonly body: AdminOutcome & { readonly code?: string; readonly reason?: string };
}

async function ask(cluster: TestCluster, node: number, path: string, body: object = {}): Promise<Told> {
  const headers = { "content-type": "application/json" };
  const url = `http://concord/v1/cluster/${path}`;
  const request = new Request(url, { method: "POST", headers, body: JSON.stringify(body) });
  const response = await cluster.finish(cluster.fetch(request, { node }));
  return { status: response.status, body: (await response.json()) as Told["body"] };
}

async function shown(cluster: TestCluster, node: number): Promise<ClusterStatus> {
  const response = await cluster.finish(cluster.fetch(new Request("http://concord/v1/cluster"), { node }));
  return (await response.json()) as ClusterStatus;
}

/** Two of five cannot be reached, so nothing is formed by itself. */
async function unformed(): Promise<TestCluster> {
  const cluster = new TestCluster();
  await cluster.partition([[1, 2, 3]]);
  await cluster.advance(5000);
  expect(cluster.status(1)?.state).toBe("empty");
  return cluster;
}

describe("forming with fewer nodes", () => {
  test("makes a cluster of those that are named; the others come in when they are added", async () => {
    const cluster = await unformed();
    const formed = await ask(cluster, 2, "init", { members: [1, 2, 3] });
    expect(formed).toMatchObject({ status: 200, body: { outcome: "done" } });
    await cluster.advance(3000);
    expect((await shown(cluster, 1)).membership).toMatchObject({ voters: [1, 2, 3], learners: [] });
    expect(await ask(cluster, 3, "init", { members: [3, 2, 1] })).toMatchObject({ body: { outcome: "unchanged" } });
    const other = await ask(cluster, 3, "init", { members: [1, 2] });
    expect(other).toMatchObject({ status: 409, body: { code: "admin_refused", reason: "formed" } });
    await cluster.finish(cluster.client().kv.put("/a", 1));

    await cluster.heal();
    await cluster.advance(6000);
    expect(cluster.status(4)).toMatchObject({ state: "lost", member: null });
    for (const node of [4, 5]) {
      expect(await ask(cluster, node, "members", { add: node })).toMatchObject({ body: { outcome: "done" } });
      await cluster.advance(3000);
    }
    expect((await shown(cluster, 5)).membership).toMatchObject({ voters: [1, 2, 3, 4, 5], learners: [] });
    expect((await cluster.finish(cluster.client({ node: 5 }).kv.get("/a")))?.value).toBe(1);
    await cluster.close();
  });

  test("forms nothing while one of them does not answer, and does not come back to it later", async () => {
    const cluster = await unformed();
    const refused = await ask(cluster, 1, "init", { members: [1, 2, 4] });
    expect(refused).toMatchObject({ status: 409, body: { reason: "not_all_empty" } });
    await cluster.advance(5000);
    expect(cluster.status(1)?.state).toBe("empty");
    const away = await ask(cluster, 1, "init", { members: [4, 5] });
    expect(away).toMatchObject({ status: 504, body: { code: "timeout" } });
    await cluster.close();
  });

  test("forms nothing beside a cluster that a node which is not named belongs to", async () => {
    const cluster = await unformed();
    await ask(cluster, 1, "init", { members: [1, 2, 3] });
    await cluster.partition([[3, 4, 5], [1], [2]]);
    await cluster.advance(3000);
    const refused = await ask(cluster, 4, "init", { members: [4, 5] });
    expect(refused).toMatchObject({ status: 409, body: { reason: "formed" } });
    await cluster.close();
  });

  test("is not told to repair a leader that the majority needs, and goes on serving when it refuses", async () => {
    const cluster = await startTestCluster({ seed: 6 });
    const leader = cluster.leader() ?? 0;
    const others = cluster.nodes.filter((id) => id !== leader);
    const [first = 0, second = 0, ...down] = others;
    await cluster.partition([[leader, first, second], ...down.map((id) => [id])]);
    await cluster.finish(cluster.client({ node: first }).kv.put("/a", 1));
    const refused = await ask(cluster, leader, `nodes/${leader}/repair`, { force: true });
    expect(refused).toMatchObject({ status: 409, body: { reason: "would_cost_majority" } });
    await cluster.finish(cluster.client({ node: first }).kv.put("/a", 2));
    expect((await shown(cluster, first)).membership).toMatchObject({ voters: cluster.nodes, learners: [] });
    await cluster.close();
  });

  test("takes so many requests at a time, and refuses the others at once", async () => {
    const cluster = await startTestCluster({ seed: 5 });
    const leader = cluster.leader() ?? 0;
    await cluster.partition([[leader], cluster.nodes.filter((id) => id !== leader)]);
    const asked = Array.from({ length: 70 }, () => ask(cluster, leader, "members", { remove: leader === 1 ? 2 : 1 }));
    const reasons = (await Promise.all(asked)).map(({ body }) => body.reason ?? body.code ?? body.outcome);
    expect(reasons.filter((reason) => reason === "too_many").length).toBe(6);
    await cluster.close();
  });

  test("one node is a cluster; it is never asked to give up its state", async () => {
    const cluster = new TestCluster();
    await cluster.partition([[1], [2]]);
    expect(await ask(cluster, 1, "init", { members: [1] })).toMatchObject({ body: { outcome: "done" } });
    await cluster.advance(3000);
    const refused = await ask(cluster, 1, "nodes/1/repair", { force: true });
    expect(refused).toMatchObject({ status: 409, body: { reason: "would_cost_majority" } });
    const last = await ask(cluster, 1, "members", { remove: 1 });
    expect(last).toMatchObject({ status: 409, body: { reason: "invalid_membership" } });
    await cluster.close();
  });
});

describe("repair", () => {
  test("is done one node at a time: the second one waits until the first votes again", async () => {
    const cluster = await startTestCluster();
    await cluster.finish(cluster.client().kv.put("/a", 1));
    const leader = cluster.leader() ?? 0;
    const [first, second] = cluster.nodes.filter((node) => node !== leader);
    if (first === undefined || second === undefined) throw new Error("there are five nodes");
    const before = cluster.status(first)?.incarnation;
    const repaired = await ask(cluster, second, `nodes/${first}/repair`, { force: true });
    expect(repaired).toMatchObject({ status: 200, body: { outcome: "under_way" } });
    // Before it is back; the network takes it away meanwhile.
    await cluster.partition([cluster.nodes.filter((node) => node !== first)]);
    const refused = await ask(cluster, first, `nodes/${second}/repair`, { force: true });
    expect(refused.status).toBe(409);
    const pending = await ask(cluster, leader, `nodes/${second}/repair`, { force: true });
    expect(pending).toMatchObject({ status: 409, body: { reason: "change_pending" } });
    await cluster.heal();
    await cluster.advance(5000);
    expect(cluster.status(first)).toMatchObject({ state: "formed", member: "voter" });
    expect(cluster.status(first)?.incarnation).not.toBe(before);
    expect(await ask(cluster, first, `nodes/${second}/repair`, { force: true })).toMatchObject({ status: 200 });
    await cluster.advance(5000);
    expect(cluster.status(second)).toMatchObject({ state: "formed", member: "voter" });
    expect((await shown(cluster, 1)).digests?.equal).toBe(true);
    await cluster.close();
  });

  test("is refused while no leader is there, and nothing is lost", async () => {
    const cluster = await startTestCluster();
    await cluster.partition([[1, 2], [3, 4], [5]]);
    await cluster.advance(3000);
    const refused = await ask(cluster, 1, "nodes/2/repair", { force: true });
    expect(refused).toMatchObject({ status: 409, body: { reason: "would_cost_majority" } });
    expect(await ask(cluster, 1, "nodes/5/repair", { force: true })).toMatchObject({
      status: 409,
      body: { reason: "node_unreachable" },
    });
    expect(await ask(cluster, 1, "members", { remove: 5 })).toMatchObject({ status: 503, body: { code: "no_leader" } });
    await cluster.close();
  });
});

test("a sleeping cluster is woken by what its leader has to do", async () => {
  const cluster = await startTestCluster();
  await cluster.advance(30_000);
  expect(cluster.status(1)?.quiescent).toBe(true);
  expect(await ask(cluster, 1, "members", { remove: 2 })).toMatchObject({ status: 200, body: { outcome: "done" } });
  expect(await ask(cluster, 2, "members", { add: 2 })).toMatchObject({ status: 200, body: { outcome: "done" } });
  await cluster.advance(3000);
  expect((await shown(cluster, 1)).membership).toMatchObject({ voters: [1, 2, 3, 4, 5], learners: [] });
  await cluster.close();
});
