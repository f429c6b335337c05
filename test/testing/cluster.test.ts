/**
 * The test cluster as a user's tests see it: calls while time stands still, and all that happens when it moves. Every
 * cluster here is real but for its storage, its network and its clock.
 */
import { afterEach, expect, test, vi } from "vitest";
import { ConcordError } from "../../src/client/index.ts";
import { startTestCluster, type TestCluster, type TestClusterOptions } from "../../src/testing/index.ts";

const clusters: TestCluster[] = [];

async function start(options: TestClusterOptions = {}): Promise<TestCluster> {
  const cluster = await startTestCluster(options);
  clusters.push(cluster);
  return cluster;
}

afterEach(async () => {
  for (const cluster of clusters.splice(0)) await cluster.close();
});

test.for([1, 3, 5, 7])("with %i nodes, calls complete while time stands still", async (nodes) => {
  const cluster = await start({ nodes });
  const atMs = cluster.nowMs;
  const { revision } = await cluster.client().kv.put("/a", { n: 1 });
  for (const node of cluster.nodes) {
    const record = await cluster.client({ node }).kv.get("/a");
    expect(record).toMatchObject({ value: { n: 1 }, mod_revision: revision });
  }
  expect(cluster.nowMs).toBe(atMs);
});

test("a lease of 30 s takes its keys with it, and a watcher hears of it", async () => {
  const cluster = await start();
  const concord = cluster.client();
  const watch = concord.sync.watch({ prefix: "/workers/" });
  await watch.open();
  const { id } = await concord.lease.grant({ ttl_s: 30 });
  for (const name of ["a", "b"]) await concord.kv.put(`/workers/${name}`, "here", { lease: id });

  await cluster.advance(29_000);
  expect((await concord.kv.page({ prefix: "/workers/" })).records).toHaveLength(2);
  await cluster.advance(4_000);
  expect((await concord.kv.page({ prefix: "/workers/" })).records).toEqual([]);

  const seen: string[] = [];
  for await (const { type, key } of watch) {
    seen.push(`${type} ${key}`);
    if (seen.length === 4) break;
  }
  expect(seen).toEqual(["put /workers/a", "put /workers/b", "delete /workers/a", "delete /workers/b"]);
});

test("a lease that is kept alive lives on for as long as it is", async () => {
  const cluster = await start();
  const concord = cluster.client();
  const keeper = concord.lease.keep({ ttl_s: 30 });
  await concord.kv.put("/me", "here", { lease: await keeper.ready });
  await cluster.advance(10 * 60 * 1000);
  expect(await concord.kv.get("/me")).not.toBeNull();
  expect(keeper.isLost).toBe(false);
  await keeper.close();
  expect(await concord.kv.get("/me")).toBeNull();
});

test("when the leader is killed another one leads, and nothing that was acknowledged is lost", async () => {
  const cluster = await start();
  const concord = cluster.client();
  await concord.kv.put("/a", 1);
  const leader = cluster.leader();
  const killed = await cluster.kill("leader");
  expect(killed).toBe(leader);
  expect(cluster.leader()).toBeNull();
  await expect(cluster.kill("leader")).rejects.toThrow("no node leads");
  expect(cluster.status(killed)).toBeNull();

  await cluster.finish(concord.kv.put("/b", 2));
  expect(cluster.leader()).not.toBe(killed);
  expect(await concord.kv.get("/a")).toMatchObject({ value: 1 });

  await cluster.restart(killed);
  await cluster.advance(1_000);
  expect(cluster.status(killed)).toMatchObject({ role: "follower", revision: concord.revision });
});

test("a call that its node takes to the grave is made again elsewhere, and has one effect", async () => {
  const cluster = await start({ messageDelayMs: 5 });
  const concord = cluster.client();
  await cluster.finish(concord.kv.put("/n", 0));
  const record = await cluster.finish(concord.kv.get<number>("/n"));
  const writing = concord.kv.updateIf("/n", record?.mod_revision ?? 0, 1);
  await cluster.advance(7);
  await cluster.kill("leader");
  expect(await cluster.finish(writing)).toMatchObject({ succeeded: true });
  expect(await cluster.finish(concord.kv.get("/n"))).toMatchObject({ value: 1, version: 2 });
});

test("a minority that is cut off refuses, the majority goes on, and healing joins them", async () => {
  const cluster = await start();
  const leader = cluster.leader() ?? 0;
  const other = cluster.nodes.find((node) => node !== leader) ?? 0;
  const majority = cluster.nodes.filter((node) => node !== leader && node !== other);
  await cluster.partition([[leader, other], majority]);

  const inside = cluster.client({ node: other, timeoutMs: 3_000 });
  const error = await cluster.finish(inside.kv.put("/a", "minority").catch((reason: unknown) => reason));
  expect(error).toBeInstanceOf(ConcordError);
  expect(majority).toContain(cluster.leader());
  await cluster.client().kv.put("/b", "majority");

  await cluster.heal();
  expect(await cluster.finish(inside.kv.get("/b"))).toMatchObject({ value: "majority" });
});

test("a watch resumes on another node when its own is killed, without gap or repeat", async () => {
  const cluster = await start();
  const concord = cluster.client();
  const watch = concord.sync.watch({ prefix: "/" });
  const values: unknown[] = [];
  await watch.open();
  const watching = (async () => {
    for await (const event of watch) {
      values.push(event.value);
      if (values.length === 10) break;
    }
  })();
  for (let n = 0; n < 10; n += 1) {
    await cluster.finish(concord.kv.put("/n", n));
    // Whichever it is that serves the watch: each is killed once.
    if (n % 2 === 1) {
      const node = Math.ceil(n / 2);
      await cluster.kill(node);
      await cluster.advance(3_000);
      await cluster.restart(node);
    }
  }
  await cluster.finish(watching);
  expect(values).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test("managers elect one of them, and another one when it falls silent", async () => {
  const cluster = await start();
  const candidates = ["a", "b", "c"].map((name) => {
    const concord = cluster.client();
    const election = concord.election<string>("/manager");
    return { name, concord, leading: election.campaign(name, { ttl_s: 10 }) };
  });
  const first = await Promise.race(candidates.map(({ leading }) => leading));
  expect(first.key).toMatch(/^\/manager\//);
  const observer = cluster.client();
  const leaderName = async () => (await observer.election<string>("/manager").leader())?.value;
  expect(await leaderName()).toBe("a");
  await first.put("/plan", "of a");

  // It still runs, but nobody hears of it any more.
  await candidates[0]?.concord.close();
  await cluster.advance(13_000);
  expect(await leaderName()).toBe("b");
  const second = await (candidates[1]?.leading ?? Promise.reject(new Error("no candidate")));
  expect(second.fencingRevision).toBeGreaterThan(first.fencingRevision);
  await second.put("/plan", "of b");
});

test("an idle cluster sleeps, and the next call wakes it while time stands still", async () => {
  const cluster = await start();
  await cluster.client().kv.put("/a", 1);
  await cluster.advance(60_000);
  expect(cluster.nodes.map((node) => cluster.status(node)?.quiescent)).toEqual([true, true, true, true, true]);
  await cluster.client().kv.put("/a", 2);
  expect(cluster.status(cluster.leader() ?? 0)).toMatchObject({ quiescent: false, revision: 2 });
});

test("storage outlives every node of the cluster", async () => {
  const cluster = await start();
  await cluster.client().kv.put("/a", 1);
  for (const node of cluster.nodes) await cluster.kill(node);
  await expect(cluster.fetch(new Request("http://concord/v1/revision"))).rejects.toThrow("no node is up");
  for (const node of cluster.nodes) await cluster.restart(node);
  expect(await cluster.finish(cluster.client().kv.get("/a"))).toMatchObject({ value: 1 });
});

test("equal seeds give equal runs, and other seeds other ones", async () => {
  const story = async (seed: number): Promise<string> => {
    const lines: string[] = [];
    const cluster = await start({ seed, onLog: (line) => lines.push(JSON.stringify(line)) });
    const concord = cluster.client();
    await Promise.all(Array.from({ length: 20 }, (_, n) => concord.kv.put("/same", n)));
    const { events } = await concord.kv.historyPage("/same");
    lines.push(events.map(({ value }) => value).join(" "));
    await cluster.kill("leader");
    await cluster.finish(concord.kv.put("/a", 1));
    lines.push(`${cluster.leader()} at ${cluster.nowMs}`);
    return lines.join("\n");
  };
  const told = await story(3);
  expect(await story(3)).toBe(told);
  expect(await story(4)).not.toBe(told);
});

test("with a delay of messages a call takes as long as they travel", async () => {
  const cluster = await start({ messageDelayMs: 20 });
  const atMs = cluster.nowMs;
  const writing = cluster.client().kv.put("/a", 1);
  await cluster.finish(writing);
  expect(cluster.nowMs - atMs).toBeGreaterThanOrEqual(40);
  expect(cluster.nowMs - atMs).toBeLessThan(200);
});

test("fake timers of the test's own change nothing", async () => {
  vi.useFakeTimers();
  try {
    const cluster = await start();
    const concord = cluster.client();
    await concord.kv.put("/a", 1, { ttl: 5 });
    await cluster.advance(8_000);
    expect(await concord.kv.get("/a")).toBeNull();
  } finally {
    vi.useRealTimers();
  }
});

test("calls that move time follow one another", async () => {
  const cluster = await start();
  const atMs = cluster.nowMs;
  const slept: number[] = [];
  for (const delayMs of [300, 100, 200]) {
    void cluster.clock.sleep(delayMs).then(() => slept.push(cluster.nowMs - atMs));
  }
  await Promise.all([cluster.advance(150), cluster.advance(100), cluster.advance(0)]);
  expect([cluster.nowMs - atMs, slept]).toEqual([250, [100, 200]]);
  await expect(cluster.advance(0.5)).rejects.toThrow(RangeError);
  await expect(cluster.advance(-1)).rejects.toThrow(RangeError);
});

test("finish gives up on what never comes, and hands on what fails", async () => {
  const cluster = await start();
  const atMs = cluster.nowMs;
  await expect(cluster.finish(new Promise(() => {}), 5_000)).rejects.toThrow("still pending after 5000 ms");
  expect(cluster.nowMs - atMs).toBeLessThanOrEqual(5_000);
  await expect(cluster.finish(Promise.reject(new Error("mine")))).rejects.toThrow("mine");
  expect(await cluster.finish(Promise.resolve(1))).toBe(1);
});

test("what makes no sense is refused", async () => {
  const cluster = await start();
  await expect(startTestCluster({ nodes: 4 })).rejects.toThrow(RangeError);
  await expect(startTestCluster({ messageDelayMs: 0.5 })).rejects.toThrow(RangeError);
  await expect(cluster.kill(6)).rejects.toThrow(RangeError);
  await expect(cluster.partition([[1], [1, 2]])).rejects.toThrow(RangeError);
  expect(() => cluster.client({ node: 0 })).toThrow(RangeError);
  expect(() => cluster.status(9)).toThrow(RangeError);
});

test("a closed cluster ends its streams and takes no calls", async () => {
  const cluster = await start();
  const response = await cluster.fetch(new Request("http://concord/v1/watch?prefix=%2F"));
  const reading = response.text().catch(String);
  await cluster.close();
  expect(await reading).toContain("the connection broke");
  await expect(cluster.fetch(new Request("http://concord/v1/revision"))).rejects.toThrow("closed");
  await expect(cluster.advance(1)).rejects.toThrow("closed");
  await cluster.close();
});

test("a closed cluster closes its clients: what they wait for ends, and later calls are refused", async () => {
  const cluster = await start({ messageDelayMs: 5 });
  const concord = cluster.client();
  const pending = [concord.kv.put("/a", 1), concord.kv.get("/a"), concord.lock("/lock")].map((call) =>
    call.then(String, (error: ConcordError) => `${error.code} ${error.reason}`),
  );
  const watch = concord.sync.watch({ prefix: "/" }).next();
  await cluster.close();
  for (const outcome of await Promise.all(pending)) expect(outcome).toMatch(/aborted|closed/);
  expect((await watch).done).toBe(true);
  await expect(concord.kv.get("/a")).rejects.toMatchObject({ code: "invalid_request", reason: "closed" });
  await expect(concord.kv.list({ prefix: "" }).next()).rejects.toMatchObject({ reason: "closed" });
  await expect(concord.lease.keep({ ttl_s: 5 }).ready).rejects.toBeInstanceOf(ConcordError);
  expect(() => cluster.client()).toThrow("closed");
  for (const call of [cluster.kill(1), cluster.restart(1), cluster.heal(), cluster.finish(Promise.resolve())]) {
    await expect(call).rejects.toThrow("closed");
  }
  expect(cluster.status(1)).toBeNull();
});
