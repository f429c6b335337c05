/** Administration of five real nodes in the Workers runtime: what an operator asks at any node, and what becomes of it. */
import { reset } from "cloudflare:test";
import { afterEach, describe, expect, test } from "vitest";
import { ROOT_PRINCIPAL } from "../../src/api/access.ts";
import type { ClusterStatus, NodeStatus } from "../../src/api/backend.ts";
import { PRINCIPAL_HEADER } from "../../src/api/call.ts";
import { NODES, type Reply, TestCluster } from "./cluster-harness.ts";
import { eventually } from "./eventually.ts";
import { quietConsole } from "./quiet-console.ts";

quietConsole();
afterEach(async () => await reset());

async function ask(cluster: TestCluster, at: number, path: string, body: unknown = {}): Promise<Reply> {
  const headers = { [PRINCIPAL_HEADER]: ROOT_PRINCIPAL };
  return await cluster.call(at, `/v1/cluster/${path}`, { body, headers });
}

function nodeOf({ nodes }: ClusterStatus, id: number): NodeStatus {
  const found = nodes.find((node) => node.id === id);
  if (found === undefined) throw new Error(`no node ${id}`);
  return found;
}

/** The next ones behind it. */
function following(id: number, steps: number): number {
  return 1 + ((id - 1 + steps) % NODES.length);
}

async function membersAt(cluster: TestCluster, at: number) {
  const { membership } = await cluster.cluster(at);
  return { voters: membership?.voters, learners: membership?.learners, committed: membership?.committed };
}

/** Corrupts what a node reads when it starts, and lets it find that out. */
async function halt(cluster: TestCluster, id: number): Promise<void> {
  await cluster.inside(id, async (state) => {
    state.storage.sql.exec("UPDATE state SET value = 'x' || value WHERE key = (SELECT max(key) FROM state)");
    state.storage.sql.exec("UPDATE meta SET checksum = checksum + 1 WHERE key = 'hard_state'");
    await state.storage.sync();
  });
  await cluster.abort(id);
  await eventually(async () => (await cluster.status(id))?.state, "halted", 5000);
}

describe("leadership", () => {
  test("is handed to the voter that is named, or to any, asked at any node", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    const to = following(leader, 1);
    const moved = await ask(cluster, following(leader, 2), "leader/transfer", { to });
    expect(moved).toMatchObject({ status: 200, body: { outcome: "done", leader: to } });
    expect(await cluster.leader()).toBe(to);
    const again = await ask(cluster, following(leader, 2), "leader/transfer", { to });
    expect(again).toMatchObject({ status: 200, body: { outcome: "unchanged", leader: to } });
    const any = await ask(cluster, to, "leader/transfer");
    expect(any).toMatchObject({ status: 200, body: { outcome: "done" } });
    expect(any.body.leader).not.toBe(to);
  });

  test("goes to no node that is not there", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    const reply = await ask(cluster, leader, "leader/transfer", { to: 9 });
    expect(reply).toMatchObject({ status: 400, body: { code: "invalid_request", reason: "unknown_node" } });
  });
});

describe("membership", () => {
  test("lets a node go and takes it in again; it votes when it has caught up", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    const [at, gone] = [following(leader, 1), following(leader, 2)];
    const others = NODES.filter((id) => id !== gone);
    const removed = await ask(cluster, at, "members", { remove: gone });
    expect(removed).toMatchObject({ status: 200, body: { outcome: "done", membership: { voters: others } } });
    expect(await ask(cluster, at, "members", { remove: gone })).toMatchObject({ body: { outcome: "unchanged" } });
    const refused = await ask(cluster, at, "members?timeout_ms=300", { promote: gone });
    expect(refused).toMatchObject({ status: 409, body: { code: "admin_refused", reason: "not_a_member" } });
    await cluster.put(at, "/without", 1);
    // The others serve its clients meanwhile: the Worker goes on to them.
    await eventually(async () => (await cluster.get(gone, "/without")).body.reason, "not_a_member");
    // Asked at the very node.
    const added = await ask(cluster, gone, "members", { add: gone });
    expect(added).toMatchObject({ status: 200, body: { outcome: "done" } });
    const promoted = await ask(cluster, at, "members", { promote: gone });
    expect(promoted.body.outcome).toMatch(/done|unchanged/);
    expect(await ask(cluster, at, "leader/transfer", { to: gone })).toMatchObject({ body: { outcome: "done" } });
    // Also who leads may go, and is not asked for the leader afterwards.
    expect(await ask(cluster, gone, "members", { remove: gone })).toMatchObject({ body: { outcome: "done" } });
    expect(await ask(cluster, gone, "members", { add: gone })).toMatchObject({ body: { outcome: "done" } });
    await eventually(() => membersAt(cluster, at), { voters: [...NODES], learners: [], committed: true }, 5000);
    await cluster.converged();
  });

  test("changes nothing that no majority could commit, and says so when the time is over", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    const [first, second, third] = [following(leader, 1), following(leader, 2), following(leader, 3)];
    await cluster.pause(first);
    await cluster.pause(second);
    await scheduler.wait(700);
    const reply = await ask(cluster, leader, "members?timeout_ms=500", { remove: third });
    expect(reply).toMatchObject({ status: 409, body: { reason: "quorum_unreachable" } });
    const repair = await ask(cluster, leader, `nodes/${third}/repair?timeout_ms=500`, { force: true });
    expect(repair).toMatchObject({ status: 409, body: { reason: "would_cost_majority" } });
    const incarnation = (await cluster.status(third))?.incarnation;
    expect(nodeOf(await cluster.cluster(leader), third)).toMatchObject({ state: "formed", incarnation });
    await cluster.abort(first);
    await cluster.abort(second);
    await cluster.converged();
  }, 20_000);
});

describe("a node", () => {
  test("that is restarted is another instance on the same storage", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    await cluster.put(leader, "/a", 1);
    await cluster.converged();
    const target = following(leader, 1);
    await cluster.inside(target, (state) => Object.assign(state, { marked: true }));
    const isMarked = () => cluster.inside(target, (state) => "marked" in state);
    expect(await isMarked()).toBe(true);
    for (const at of [leader, target]) {
      await cluster.inside(target, (state) => Object.assign(state, { marked: true }));
      const reply = await ask(cluster, at, `nodes/${target}/restart`);
      expect(reply).toMatchObject({ status: 200, body: { outcome: "under_way" } });
      await eventually(async () => await isMarked().catch(() => true), false, 5000);
    }
    await cluster.converged();
    expect((await cluster.get(target, "/a")).status).toBe(200);
  });

  test("that has halted over a corrupt row is repaired, asked at itself, and votes again", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    await cluster.put(leader, "/a", 1);
    await cluster.converged();
    const victim = following(leader, 1);
    const before = nodeOf(await cluster.cluster(leader), victim).incarnation;
    await halt(cluster, victim);
    expect((await cluster.get(victim, "/a")).body).toMatchObject({ code: "node_halted" });
    const well = await ask(cluster, victim, `nodes/${leader}/repair`);
    expect(well).toMatchObject({ status: 409, body: { reason: "not_halted" } });
    const reply = await ask(cluster, victim, `nodes/${victim}/repair`);
    expect(reply).toMatchObject({ status: 200, body: { outcome: "under_way" } });
    await eventually(
      async () => {
        const { state, member, incarnation } = nodeOf(await cluster.cluster(leader), victim);
        return { state, member, isNew: incarnation !== before };
      },
      { state: "formed", member: "voter", isNew: true },
      10_000,
    );
    await cluster.put(victim, "/b", 2);
    await cluster.equalRows();
    expect(await membersAt(cluster, victim)).toEqual({ voters: [...NODES], learners: [], committed: true });
  }, 30_000);

  test("that leads hands over before it gives up its state", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    await cluster.put(leader, "/a", 1);
    const reply = await ask(cluster, following(leader, 1), `nodes/${leader}/repair`, { force: true });
    expect(reply).toMatchObject({ status: 200, body: { outcome: "under_way" } });
    await eventually(async () => nodeOf(await cluster.cluster(following(leader, 1)), leader).member, "voter", 10_000);
    await cluster.equalRows();
  }, 30_000);
});
