/** Five real nodes in the Workers runtime: forming, serving, and what is left of it when nodes go. */
import { abortAllDurableObjects, env, reset, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { afterEach, describe, expect, test } from "vitest";
import { FORMAT_VERSION, PROTOCOL_MAX } from "../../src/node-object/versions.ts";
import { NODES, TestCluster } from "./cluster-harness.ts";
import { eventually } from "./eventually.ts";
import { lines, quietConsole } from "./quiet-console.ts";

quietConsole();
afterEach(async () => await reset());

describe("a new cluster", () => {
  test("forms, elects one leader, and every node takes writes and linearizable reads", async () => {
    const cluster = new TestCluster();
    await cluster.leader();
    for (const id of NODES) {
      const written = await cluster.put(id, `/from/${id}`, { id });
      expect(written).toMatchObject({ status: 200, body: { revision: id } });
      const reader = 1 + (id % 5);
      const read = await cluster.get(reader, `/from/${id}`);
      expect(read).toMatchObject({ status: 200, body: { value: { id }, mod_revision: id, version: 1 } });
    }
  });

  test("shows five formed nodes, one leader and equal digests at a common index", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    await cluster.put(leader, "/a", 1);
    const { status, body } = await cluster.call(3, "/v1/cluster");
    expect(status).toBe(200);
    expect(body).toMatchObject({ name: cluster.name, leader, digests: { equal: true } });
    const nodes = body.nodes as { id: number; state: string; role: string; incarnation: number }[];
    expect(nodes.map((node) => node.id)).toEqual([...NODES]);
    expect(nodes.every((node) => node.state === "formed")).toBe(true);
    expect(nodes.filter((node) => node.role === "leader").map((node) => node.id)).toEqual([leader]);
    expect(new Set(nodes.map((node) => node.incarnation)).size).toBe(5);
  });

  test("shows who takes part, when the leader heard whom, and what each node holds", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    await cluster.put(leader, "/a", 1);
    const asked = 1 + (leader % 5);
    // The rows follow the applied state by half a second.
    const held = async () => {
      const { nodes } = await cluster.cluster(asked);
      return new Set(
        nodes.map(({ set_hash, set_hash_index, last_index }) => `${set_hash} ${last_index - set_hash_index}`),
      );
    };
    await eventually(async () => [...(await held())].map((text) => text.replace(/^\d+/, "n")), ["n 0"], 5000);
    const { membership, nodes } = await cluster.cluster(asked);
    expect(membership).toEqual({ node: leader, index: 0, committed: true, voters: [...NODES], learners: [] });
    expect(nodes.find(({ id }) => id === leader)?.last_contact_ms).toBe(0);
    for (const node of nodes) {
      expect(node.last_contact_ms).toBeLessThan(1000);
      expect(node).toMatchObject({
        member: "voter",
        first_index: 1,
        format: FORMAT_VERSION,
        protocol: PROTOCOL_MAX,
        colo: null,
      });
      expect(node).toMatchObject({ snapshot_out: null, snapshot_in: null });
    }
  });

  test("keeps an alarm 5 to 15 s ahead on every awake node, as a watchdog", async () => {
    const cluster = new TestCluster();
    await cluster.leader();
    for (const id of NODES) {
      const ahead = (await cluster.inside(id, (state) => state.storage.getAlarm()))! - Date.now();
      expect(ahead).toBeGreaterThan(3_000);
      expect(ahead).toBeLessThanOrEqual(15_000);
    }
  });
});

describe("waking", () => {
  test("a node that only its alarm wakes arms the next alarm and takes part again", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    await cluster.put(leader, "/a", 1);
    const sleeper = 1 + (leader % 5);
    await cluster.abort(sleeper);
    expect(await runDurableObjectAlarm(cluster.stub(sleeper))).toBe(true);
    const ahead = (await cluster.inside(sleeper, (state) => state.storage.getAlarm()))! - Date.now();
    expect(ahead).toBeGreaterThan(3_000);
    await cluster.converged();
  });

  test("a new instance leaves the alarm of the one before it alone, or an overdue one would be cancelled", async () => {
    const cluster = new TestCluster();
    await cluster.leader();
    const alarmOf = (id: number) => cluster.inside(id, (state) => state.storage.getAlarm());
    const before = await alarmOf(2);
    await cluster.abort(2);
    expect(await alarmOf(2)).toBe(before);
  });

  test("an object that is woken without its name remembers it", async () => {
    const cluster = new TestCluster();
    await cluster.status(1);
    const response = await runInDurableObject(cluster.stub(1), async (instance, state) => {
      Object.defineProperty(state.id, "name", { value: undefined });
      const Class = instance.constructor as new (
        ctx: DurableObjectState,
        env: unknown,
      ) => { fetch(r: Request): Promise<Response> };
      return await new Class(state, env).fetch(new Request("http://node/livez"));
    });
    expect(response.status).toBe(200);
    await cluster.abort(1);
  });
});

describe("routes", () => {
  test("peer routes do not exist without the internal header", async () => {
    const cluster = new TestCluster();
    for (const path of ["status", "digest?index=1", "message", "stream", "other"]) {
      const response = await cluster.stub(1).fetch(`http://node/peer/${path}`);
      expect(response.status, path).toBe(404);
      expect(await response.text()).toBe("");
    }
  });

  test("an object whose name is no node's answers 404 and stores nothing", async () => {
    for (const name of ["default", "default/0", "default/6", "default/1/", "/1", "default/01", "default/x"]) {
      const stub = env.NODES.get(env.NODES.idFromName(name));
      const response = await stub.fetch("http://node/v1/cluster");
      expect(response.status, name).toBe(404);
      expect(await response.json()).toMatchObject({ code: "not_found" });
    }
  });
});

describe("loss", () => {
  test("a cluster whose nodes are all reset at once goes on with all its data", async () => {
    const cluster = new TestCluster();
    const before = await cluster.leader();
    for (let n = 0; n < 20; n += 1) await cluster.put(1 + (n % 5), `/k/${n}`, n);
    const clusterId = (await cluster.cluster(before)).cluster_id;
    await abortAllDurableObjects();
    const after = await cluster.leader();
    expect((await cluster.cluster(after)).cluster_id).toBe(clusterId);
    const list = await cluster.call(after, "/v1/kv?prefix=/k/&limit=100");
    expect(list.body).toMatchObject({ count: 20, revision: 20 });
    expect(await cluster.put(after, "/k/20", 20)).toMatchObject({ status: 200, body: { revision: 21 } });
    await cluster.equalRows();
  });

  test("three of five nodes serve; two neither write nor read linearizably, but read what they have", async () => {
    const cluster = new TestCluster();
    await cluster.leader();
    await cluster.put(1, "/a", 1);
    await cluster.converged();
    await cluster.pause(1);
    await cluster.pause(2);
    await eventually(async () => (await cluster.put(3, "/b", 2)).status, 200, 10_000);
    const shown = await cluster.cluster(3);
    expect(shown.nodes.map((node) => node.state)).toEqual(["unreachable", "unreachable", "formed", "formed", "formed"]);
    await cluster.pause(3);
    const [write, read, stale] = await Promise.all([
      cluster.call(4, "/v1/kv?key=/c&timeout_ms=1500", { method: "PUT", body: 3 }),
      cluster.get(5, "/a", "&timeout_ms=1500"),
      cluster.get(4, "/a", "&consistency=serializable"),
    ]);
    expect([503, 504]).toContain(write.status);
    expect([503, 504]).toContain(read.status);
    expect(stale).toMatchObject({ status: 200, body: { value: 1 } });
    for (const id of [1, 2, 3]) await cluster.abort(id);
    await cluster.leader();
    expect((await cluster.get(1, "/b")).body).toMatchObject({ value: 2 });
  });

  test("a voter that comes back with empty storage neither votes nor acknowledges (S08)", async () => {
    const cluster = new TestCluster();
    await cluster.leader();
    await cluster.pause(4);
    await cluster.pause(5);
    await eventually(async () => (await cluster.put(1, "/x", "kept")).status, 200, 10_000);
    await cluster.wipe(3);
    await cluster.pause(1);
    await cluster.pause(2);
    await cluster.abort(4);
    await cluster.abort(5);
    // Nodes 3, 4 and 5 are a majority by number, but one of them has forgotten what it acknowledged.
    await eventually(async () => (await cluster.status(3))?.state, "lost", 5000);
    const write = await cluster.call(4, "/v1/kv?key=/y&timeout_ms=2500", { method: "PUT", body: 1 });
    expect([503, 504]).toContain(write.status);
    expect(await cluster.status(3)).toMatchObject({ role: null, term: 0, last_index: 0 });
    for (const id of [4, 5]) expect((await cluster.status(id))?.role).not.toBe("leader");
    await cluster.abort(1);
    await eventually(async () => (await cluster.get(4, "/x").catch(() => null))?.body.value, "kept", 10_000);
  });

  test("a voter that comes back with empty storage is taken in again, and has what the others have (S08)", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    const wiped = 1 + (leader % 5);
    for (const key of ["/a", "/b"]) await cluster.put(leader, key, key);
    const before = await cluster.status(wiped);
    await cluster.wipe(wiped);
    await eventually(async () => (await cluster.status(wiped))?.member, "voter", 10_000);
    const [shown] = (await cluster.converged()).filter(({ id }) => id === wiped);
    expect(shown).toMatchObject({ state: "formed", member: "voter" });
    expect(shown?.incarnation).not.toBe(before?.incarnation);
    expect((await cluster.get(wiped, "/b")).body.value).toBe("/b");
  });
});

describe("a node that cannot trust its disk", () => {
  test("halts, says so, arms nothing and leaves the others serving", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    const broken = 1 + (leader % 5);
    await cluster.put(leader, "/a", 1);
    await cluster.inside(broken, async (state) => {
      state.storage.sql.exec("UPDATE meta SET value = '[99,null]' WHERE key = 'hard_state'");
      await state.storage.sync();
    });
    await cluster.abort(broken);
    await eventually(async () => (await cluster.status(broken))?.state, "halted", 5000);
    expect((await cluster.status(broken))?.halted).toMatch(/^meta hard_state: checksum/);
    expect(await cluster.put(broken, "/b", 2)).toMatchObject({ status: 503, body: { code: "node_halted" } });
    expect(await cluster.get(broken, "/a")).toMatchObject({ status: 503, body: { code: "node_halted" } });
    // The alarm of its sound days fires once more and is not armed again.
    await runDurableObjectAlarm(cluster.stub(broken));
    expect(await cluster.inside(broken, (state) => state.storage.getAlarm())).toBeNull();
    await eventually(async () => (await cluster.put(leader, "/b", 2)).status, 200, 5000);
    const shown = await cluster.cluster(leader);
    expect(shown.nodes.find((node) => node.id === broken)?.state).toBe("halted");
  });

  test("a leader whose own write fails ends in that turn, and what it sent early is no acknowledgement (S01)", async () => {
    const cluster = new TestCluster();
    const leader = await cluster.leader();
    await cluster.put(leader, "/a", 1);
    await cluster.inside(leader, (state) => Object.assign(state, { marked: true }));
    await cluster.onStatement(leader, 1, () => {
      throw new Error("disk I/O error");
    });
    const write = cluster.put(leader, "/a", 2, { "idempotency-key": "one" });
    await expect(write).rejects.toThrow();
    expect(await cluster.inside(leader, (state) => "marked" in state)).toBe(false);
    expect(lines.some((line) => line.includes("disk I/O error"))).toBe(true);
    // Whether the entry survived is unknown to the client; under its key it ends applied once.
    await cluster.leader();
    const again = await cluster.put(leader, "/a", 2, { "idempotency-key": "one" });
    expect(again.status).toBe(200);
    expect((await cluster.get(leader, "/a")).body).toMatchObject({ value: 2, version: 2 });
    await cluster.equalRows();
  });
});
