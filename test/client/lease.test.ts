/** Leases over HTTP against the real state machine: the calls, and a keeper through what a network does (S30, S34, S84). */
import { describe, expect, test } from "vitest";
import { createApi } from "../../src/api/app.ts";
import { Concord } from "../../src/client/index.ts";
import { MachineBackend } from "../api/machine-backend.ts";
import { ProcessWorld } from "./process-world.ts";
import { connect, problem, type Step } from "./scripted-server.ts";

function createSetting() {
  const world = new ProcessWorld();
  const process = world.start();
  return { world, process, concord: process.concord, lease: process.concord.lease };
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

describe("calls", () => {
  test("a lease is renewed, for its TTL or for a new one", async () => {
    const { world, lease } = createSetting();
    const { id, expires_at_ms } = await lease.grant({ ttl_s: 5 });
    await world.advance(3_000);
    expect(await lease.keepAliveOnce(id)).toMatchObject({ id, ttl_s: 5, expires_at_ms: expires_at_ms + 3_000 });
    expect(await lease.keepAliveOnce(id, { ttl_s: 60 })).toMatchObject({ id, ttl_s: 60 });
    await world.advance(50_000);
    expect(await lease.info(id)).toMatchObject({ ttl_s: 60, remaining_ms: 10_000 });
    await world.advance(10_000);
    await expect(lease.keepAliveOnce(id)).rejects.toMatchObject({ code: "unknown_lease", retry: "no" });
    expect(await lease.info(id)).toBeNull();
  });

  test("leases are listed page by page, those of a `ttl` only if asked for", async () => {
    const { concord, lease } = createSetting();
    for (let ttl_s = 10; ttl_s < 15; ttl_s += 1) await lease.grant({ ttl_s, metadata: { ttl_s } });
    await concord.kv.put("a", 1, { ttl: 9 });
    const listed = await collect(lease.list({ limit: 2 }));
    expect(listed.map(({ id, ttl_s, keys_count, metadata }) => [id, ttl_s, keys_count, metadata])).toEqual(
      [1, 2, 3, 4, 5].map((id) => [id, id + 9, 0, { ttl_s: id + 9 }]),
    );
    expect((await collect(lease.list({ anonymous: true }))).at(-1)).toMatchObject({ anonymous: true, keys_count: 1 });
    expect(await lease.page({ limit: 2, after: 3 })).toMatchObject({ leases: [{ id: 4 }, { id: 5 }], next: null });
  });

  test("a keep-alive carries no idempotency key, and is repeated nonetheless (S30)", async () => {
    const done: Step = { status: 200, body: { id: 7, ttl_s: 9, expires_at_ms: 1, revision: 1 }, revision: 1 };
    const { server, concord } = connect([problem(503, "no_leader", "yes"), "break", done]);
    expect(await concord.lease.keepAliveOnce(7, { ttl_s: 9 })).toMatchObject({ id: 7 });
    expect(server.received.map(({ path }) => path)).toEqual(Array(3).fill("/v1/leases/7/keepalive"));
    expect(server.received.some(({ headers }) => headers.has("idempotency-key"))).toBe(false);
    expect(server.received.map(({ body }) => body)).toEqual(Array(3).fill({ ttl_s: 9 }));
  });

  test("a revoke and keep-alives at once, 200 times: behind the revoke it is never alive (S30)", async () => {
    const backend = new MachineBackend();
    const api = createApi(backend, { principal: "root", log: () => {} });
    const { lease } = Concord.connect({ fetch: (request) => api.fetch(request) });
    for (let round = 0; round < 200; round += 1) {
      const { id } = await lease.grant({ ttl_s: 10 });
      const renewing = () => lease.keepAliveOnce(id).catch(({ code }: { code: string }) => code);
      const before = [renewing(), renewing()];
      const revoked = lease.revoke(id);
      const during = [renewing(), renewing()];
      await revoked;
      expect(await renewing()).toBe("unknown_lease");
      for (const result of await Promise.all([...before, ...during])) {
        expect(typeof result === "string" ? result : result.ttl_s).toBeOneOf(["unknown_lease", 10]);
      }
      expect(await lease.info(id)).toBeNull();
    }
    expect(await collect(lease.list())).toEqual([]);
  });
});

describe("a keeper", () => {
  test("keeps a key alive, and takes it along when it is closed", async () => {
    const { world, concord, lease } = createSetting();
    const keeper = lease.keep({ ttl_s: 5, metadata: { who: "me" } });
    await concord.kv.put("/here", 1, { lease: await keeper.ready });
    await world.advance(60_000);
    expect([(await concord.kv.get("/here"))?.value, keeper.isLost]).toEqual([1, false]);
    await keeper.close();
    expect([await concord.kv.get("/here"), await world.leasesCount()]).toEqual([null, 0]);
  });

  test.each([3, 9])(
    "of %i s whose session's node answers pings alone goes another way in time (S84)",
    async (ttl_s) => {
      const world = new ProcessWorld("session");
      const process = world.start();
      const keeper = process.concord.lease.keep({ ttl_s });
      await keeper.ready;
      expect(process.sent.filter((what) => what !== "message")).toEqual([]);
      process.isSocketStuck = true;
      await world.advance(60_000);
      expect([keeper.isLost, await world.leasesCount()]).toEqual([false, 1]);
      expect(new Set(process.sent)).toContain("POST /v1/leases/1/keepalive");
    },
  );

  test("whose replies to the grant are lost has one lease (S34)", async () => {
    const { world, process, lease } = createSetting();
    process.delayMs = 20;
    const keeper = lease.keep({ ttl_s: 30 });
    await world.clock.advance(70);
    process.link = "down";
    await world.clock.advance(100);
    process.link = "up";
    process.delayMs = 0;
    const id = await world.until(keeper.ready);
    expect((await collect(lease.list())).map((listed) => listed.id)).toEqual([id]);
    expect(world.backend.logged.filter((payload) => payload.includes("lease_grant")).length).toBeGreaterThan(1);
    await keeper.close();
    expect(await world.leasesCount()).toBe(0);
  });

  test("that is closed in the same turn leaves no lease (S34)", async () => {
    const { world, lease } = createSetting();
    const keeper = lease.keep({ ttl_s: 30 });
    await world.until(keeper.close());
    await expect(keeper.ready).rejects.toMatchObject({ body: { reason: "closed" } });
    expect(await world.leasesCount()).toBe(0);
  });

  test("cut off with the leader that was deposed is lost before the others end its lease (S30)", async () => {
    const { world, process, lease } = createSetting();
    const keeper = lease.keep({ ttl_s: 9 });
    const id = await keeper.ready;
    await world.advance(4_000);
    process.link = "silent";
    let lostAtMs = 0;
    let endedAtMs = 0;
    await world.advance(12_000, async () => {
      if (keeper.isLost) lostAtMs ||= world.clock.nowMs();
      if ((await world.observer.concord.lease.info(id)) === null) endedAtMs ||= world.clock.nowMs();
    });
    expect(lostAtMs).toBeGreaterThan(0);
    expect(endedAtMs - lostAtMs).toBe(1_000);
    process.link = "up";
    await expect(lease.keepAliveOnce(id)).rejects.toMatchObject({ code: "unknown_lease" });
    expect((await keeper.lost).reason).toBe("time_over");
  });

  test("stands beside hundreds of its kind without a warning of the platform", async () => {
    const { world, lease } = createSetting();
    const warnings: Error[] = [];
    const note = (warning: Error) => void warnings.push(warning);
    process.on("warning", note);
    const keepers = Array.from({ length: 300 }, () => lease.keep({ ttl_s: 5 }));
    await world.advance(10_000);
    expect([keepers.filter(({ isLost }) => isLost).length, await world.leasesCount()]).toEqual([0, 300]);
    await world.until(Promise.all(keepers.map((keeper) => keeper.close())));
    process.off("warning", note);
    expect([warnings, await world.leasesCount()]).toEqual([[], 0]);
  });

  test("ends with its client: nothing more is sent, and the lease ends by its TTL", async () => {
    const { world, process, concord, lease } = createSetting();
    const keeper = lease.keep({ ttl_s: 5 });
    await keeper.ready;
    concord.close();
    const before = process.sent.length;
    await world.advance(10_000);
    expect([process.sent.length, await world.leasesCount()]).toEqual([before, 0]);
    await expect(keeper.close()).rejects.toMatchObject({ body: { reason: "closed" } });
  });

  test("puts its keys again after an outage, if it is told how", async () => {
    const { world, process, concord, lease } = createSetting();
    const keeper = lease.keep({ ttl_s: 5, regrant: (id) => concord.kv.put("/here", "again", { lease: id }) });
    await concord.kv.put("/here", "first", { lease: await keeper.ready });
    process.link = "down";
    await world.advance(20_000);
    expect(await world.keysUnder("/here")).toEqual([]);
    process.link = "up";
    await world.advance(5_000);
    expect([(await concord.kv.get("/here"))?.value, keeper.isLost, await world.leasesCount()]).toEqual([
      "again",
      false,
      1,
    ]);
    await keeper.close();
    expect(await world.keysUnder("/here")).toEqual([]);
  });
});
