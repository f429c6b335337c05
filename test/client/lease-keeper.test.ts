/**
 * The keeper of one lease: when it renews, when it gives up, what it leaves behind (design 01 §3; S30, S34, S84).
 * Method: a lease server behind a scripted network, on one driven clock.
 */
import { describe, expect, test } from "vitest";
import { ConcordError } from "../../src/client/index.ts";
import { type KeepOptions, LeaseKeeper, type LeaseLost, leaseTimes } from "../../src/client/lease-keeper.ts";
import { type CallKind, contextOf, GOOD, LeaseServer, SILENT } from "./lease-server.ts";

function createSetting(options: Partial<KeepOptions> = {}) {
  const server = new LeaseServer();
  const closing = new AbortController();
  const keep = (more: Partial<KeepOptions> = {}) =>
    new LeaseKeeper(server, contextOf(server, { closing: closing.signal }), { ttl_s: 9, ...options, ...more });
  return { server, clock: server.clock, closing, keep };
}

/** Times since the first call, of one kind. */
function timesOf(server: LeaseServer, kind: CallKind): number[] {
  const [first] = server.sent;
  return server.sent.filter((call) => call.kind === kind).map(({ sentMs }) => sentMs - (first?.sentMs ?? 0));
}

function watchLoss(keeper: LeaseKeeper) {
  const told: LeaseLost[] = [];
  let aborts = 0;
  void keeper.lost.then((lost) => told.push(lost));
  keeper.signal.addEventListener("abort", () => {
    aborts += 1;
  });
  return { told, aborts: () => aborts };
}

async function errorOf(promise: Promise<unknown>): Promise<ConcordError> {
  const error = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ConcordError);
  return error as ConcordError;
}

describe("renewing", () => {
  test("happens every third of the TTL, and the lease lives", async () => {
    const { server, clock, keep } = createSetting();
    const keeper = keep({ metadata: { owner: "a" } });
    await clock.advance(20_000);
    expect(await keeper.ready).toBe(1);
    expect(timesOf(server, "keepAlive")).toEqual([3_000, 6_000, 9_000, 12_000, 15_000, 18_000]);
    expect([keeper.isLost, keeper.id, server.isAlive(1)]).toEqual([false, 1, true]);
  });

  test("goes on when the machine is asleep for less than is left", async () => {
    const { server, clock, keep } = createSetting();
    const keeper = keep();
    await clock.advance(1_000);
    clock.leap(6_500);
    await clock.advance(10);
    expect([keeper.isLost, timesOf(server, "keepAlive")]).toEqual([false, [7_500]]);
  });

  test("takes over a TTL that somebody else has set", async () => {
    const { server, clock, keep } = createSetting();
    keep();
    await clock.advance(100);
    const lease = server.leases.get(1);
    if (lease !== undefined) lease.ttlS = 30;
    await clock.advance(25_000);
    expect(timesOf(server, "keepAlive")).toEqual([3_000, 13_000, 23_000]);
  });

  test("of a lease of a year waits for months, not for a timer that overflows (S35)", async () => {
    const { server, clock, keep } = createSetting();
    keep({ ttl_s: 365 * 86_400 });
    await clock.advance(100 * 86_400_000);
    expect(timesOf(server, "keepAlive")).toEqual([]);
    await clock.advance(22 * 86_400_000);
    expect(timesOf(server, "keepAlive").length).toBe(1);
  });
});

describe("what a TTL means", () => {
  test.each([
    [30, { trustedMs: 29_000, renewAfterMs: 10_000, attemptMs: 5_000 }],
    [9, { trustedMs: 8_000, renewAfterMs: 3_000, attemptMs: 1_500 }],
    [3, { trustedMs: 2_000, renewAfterMs: 1_000, attemptMs: 500 }],
  ])("%i s", (ttlS, times) => {
    expect(leaseTimes(ttlS)).toMatchObject(times);
  });

  test("the shortest one keeps two thirds, and renews halfway", () => {
    const { trustedMs, renewAfterMs } = leaseTimes(1);
    expect([Math.round(trustedMs), Math.round(renewAfterMs)]).toEqual([667, 333]);
  });
});

describe("errors", () => {
  test.each(["no_leader", "timeout", "forbidden"] as const)(
    "`%s` from 3 s to 7 s does not lose it (S84)",
    async (code) => {
      const { server, clock, keep } = createSetting();
      const startMs = clock.nowMs();
      server.fateOf = (_kind, nowMs) =>
        nowMs - startMs >= 3_000 && nowMs - startMs < 7_000 ? { ...GOOD, refusal: code } : GOOD;
      const keeper = keep();
      await clock.advance(9_000);
      const calls = timesOf(server, "keepAlive");
      expect([keeper.isLost, server.isAlive(1)]).toEqual([false, true]);
      expect(calls.filter((atMs) => atMs >= 7_000 && atMs < 7_500).length).toBe(1);
      expect(calls.length).toBeLessThan(50);
    },
  );

  test("that do not end lose it once, when the time since the last success that was sent is over", async () => {
    const { server, clock, keep } = createSetting();
    const keeper = keep();
    const { told, aborts } = watchLoss(keeper);
    await clock.advance(3_500);
    server.fateOf = () => ({ ...GOOD, refusal: "no_leader" });
    await clock.advance(7_499);
    expect(told).toEqual([]);
    await clock.advance(2);
    expect(told).toMatchObject([{ id: 1, reason: "time_over", cause: { code: "no_leader" } }]);
    expect(server.isAlive(1)).toBe(true);
    await clock.advance(30_000);
    expect([told.length, aborts(), keeper.isLost, keeper.id, clock.timersCount]).toEqual([1, 1, true, null, 0]);
    expect(keeper.signal.reason).toMatchObject({ code: "unknown_lease", body: { reason: "time_over" } });
  });

  test("`unknown_lease` loses it at once, whatever the clock says (S30)", async () => {
    const { server, clock, keep } = createSetting();
    const { told } = watchLoss(keep());
    await clock.advance(1_000);
    server.leases.set(1, { ttlS: 9, expiresAtMs: 0 });
    await clock.advance(2_100);
    expect(told).toMatchObject([{ id: 1, reason: "unknown_lease" }]);
    await clock.advance(10_000);
    expect(timesOf(server, "keepAlive").length).toBe(1);
  });
});

describe("deadlines (S84)", () => {
  test("a server that is silent about keep-alives is asked again and again, and believed nothing", async () => {
    const { server, clock, keep } = createSetting();
    server.fateOf = (kind) => (kind === "keepAlive" ? SILENT : GOOD);
    const { told } = watchLoss(keep());
    await clock.advance(7_999);
    expect(told).toEqual([]);
    expect(timesOf(server, "keepAlive").length).toBe(4);
    expect(server.sent.slice(1).map(({ attempt }) => attempt)).toEqual([1, 3, 5, 7]);
    await clock.advance(1);
    expect(told).toMatchObject([{ reason: "time_over", cause: { code: "timeout" } }]);
  });

  test("a grant with 2 s is followed by keep-alives with times of their own", async () => {
    const { server, clock, keep } = createSetting();
    const keeper = keep({ timeoutMs: 2_000 });
    await clock.advance(20_000);
    const [grant, ...rest] = server.sent;
    expect(grant?.timeoutMs).toBe(2_000);
    expect(rest.map(({ timeoutMs }) => timeoutMs)).toEqual(rest.map(() => 5_000)); // 3 s of 8 are over
    expect([rest.length, keeper.isLost]).toEqual([6, false]);
  });

  test("an answer that takes longer than an attempt renews from when it was asked for, though others were asked beside", async () => {
    const { server, clock, keep } = createSetting();
    server.fateOf = (kind) => (kind === "keepAlive" ? { requestMs: 10, replyMs: 3_000 } : GOOD);
    const keeper = keep();
    await clock.advance(60_000);
    expect([keeper.isLost, server.isAlive(1)]).toEqual([false, true]);
    const beside = server.sent.filter(({ sentMs }) => sentMs > clock.nowMs() - 6_000).length;
    expect(beside).toBeLessThanOrEqual(4);
  });

  test("an answer that is late and bad counts as well", async () => {
    const { server, clock, keep } = createSetting();
    server.fateOf = (kind) => (kind === "keepAlive" ? { requestMs: 10, replyMs: 2_500 } : GOOD);
    const { told } = watchLoss(keep());
    await clock.advance(1_000);
    server.leases.set(1, { ttlS: 9, expiresAtMs: 0 });
    await clock.advance(4_600);
    expect(told).toMatchObject([{ id: 1, reason: "unknown_lease" }]);
  });

  test("no attempt lasts beyond the time that is left", async () => {
    const { server, clock, keep } = createSetting();
    const startMs = clock.nowMs();
    server.fateOf = (kind) => (kind === "keepAlive" ? SILENT : GOOD);
    keep();
    await clock.advance(9_000);
    for (const { sentMs, timeoutMs } of server.sent.slice(1)) {
      expect(sentMs + timeoutMs - startMs).toBeLessThanOrEqual(8_000);
    }
  });

  test("behind a sleep of 20 s the clock is asked first: lost, and no keep-alive is sent", async () => {
    const { server, clock, keep } = createSetting();
    const { told } = watchLoss(keep());
    await clock.advance(1_000);
    clock.leap(20_000);
    await clock.advance(0);
    expect(told).toMatchObject([{ reason: "time_over", cause: null }]);
    expect(timesOf(server, "keepAlive")).toEqual([]);
  });

  test("behind a sleep `isLost` is true before any timer has run", async () => {
    const { clock, keep } = createSetting();
    const keeper = keep();
    const { told, aborts } = watchLoss(keeper);
    await clock.advance(1_000);
    clock.leap(20_000);
    expect([keeper.isLost, aborts()]).toEqual([true, 1]);
    await clock.advance(1);
    expect(told.length).toBe(1);
  });
});

describe("granting (S34)", () => {
  test("fails as the call does", async () => {
    const { server, clock, keep } = createSetting();
    server.fateOf = () => ({ ...GOOD, refusal: "forbidden" });
    const keeper = keep();
    const ready = errorOf(keeper.ready);
    await clock.advance(10);
    expect((await ready).code).toBe("forbidden");
    await keeper.close();
    expect([server.sent.length, keeper.isLost, keeper.id]).toEqual([1, false, null]);
  });

  test("is done with the time since it was sent, not since it was answered", async () => {
    const { server, clock, keep } = createSetting();
    server.fateOf = (kind) => (kind === "grant" ? { requestMs: 10, replyMs: 4_000 } : SILENT);
    const { told } = watchLoss(keep());
    await clock.advance(7_999);
    expect([timesOf(server, "keepAlive")[0], told.length]).toEqual([4_010, 0]);
    await clock.advance(1);
    expect(told.length).toBe(1);
  });

  test("that took longer than the TTL asks whether the lease lives, before anybody is told of it", async () => {
    const { server, clock, keep } = createSetting();
    server.fateOf = (kind) => (kind === "grant" ? { requestMs: 8_500, replyMs: 100 } : GOOD);
    const alive = keep();
    await clock.advance(9_000);
    expect([await alive.ready, alive.isLost, timesOf(server, "keepAlive")]).toEqual([1, false, [8_600]]);
    server.fateOf = (kind) => (kind === "grant" ? { requestMs: 100, replyMs: 9_500 } : GOOD);
    const dead = errorOf(keep().ready);
    await clock.advance(10_000);
    expect((await dead).code).toBe("unknown_lease");
  });

  test("and closing before the answer leaves no lease", async () => {
    const { server, clock, keep } = createSetting();
    server.fateOf = () => ({ requestMs: 500, replyMs: 500 });
    const keeper = keep();
    const ready = errorOf(keeper.ready);
    const closed = keeper.close();
    await clock.advance(3_000);
    await closed;
    expect([(await ready).body.reason, server.leases.size, server.aliveCount]).toEqual(["closed", 1, 0]);
    expect(timesOf(server, "keepAlive")).toEqual([]);
  });

  test("whose reply is lost is asked for again when closing: one lease, and that one is revoked", async () => {
    const { server, clock, keep } = createSetting();
    server.fateOf = (kind) => (kind === "grant" ? { requestMs: 1, replyMs: null } : GOOD);
    const keeper = keep({ ttl_s: 60 });
    const ready = errorOf(keeper.ready);
    await clock.advance(10_000);
    expect([(await ready).code, server.aliveCount]).toEqual(["timeout", 1]);
    server.fateOf = () => GOOD;
    const closed = keeper.close();
    await clock.advance(10);
    await closed;
    expect([server.leases.size, server.aliveCount]).toEqual([1, 0]);
  });
});

describe("closing", () => {
  test("revokes, once, and tells no loss", async () => {
    const { server, clock, keep } = createSetting();
    const keeper = keep();
    const { told, aborts } = watchLoss(keeper);
    await clock.advance(4_000);
    const closed = keeper.close();
    expect(keeper.close()).toBe(closed);
    await clock.advance(10);
    await closed;
    await clock.advance(60_000);
    expect([server.aliveCount, told.length, aborts(), keeper.isLost]).toEqual([0, 0, 0, false]);
    expect([timesOf(server, "revoke"), clock.timersCount]).toEqual([[4_000], 0]);
  });

  test("while a keep-alive is under way ends it", async () => {
    const { server, clock, keep } = createSetting();
    server.fateOf = (kind) => (kind === "keepAlive" ? SILENT : GOOD);
    const keeper = keep();
    await clock.advance(3_100);
    const closed = keeper.close();
    await clock.advance(20_000);
    await closed;
    expect([timesOf(server, "keepAlive").length, keeper.isLost, server.aliveCount]).toEqual([1, false, 0]);
  });

  test("a lease that has ended already is no error", async () => {
    const { server, clock, keep } = createSetting();
    const keeper = keep();
    await clock.advance(100);
    server.leases.set(1, { ttlS: 9, expiresAtMs: 0 });
    const closed = keeper.close();
    await clock.advance(10);
    await expect(closed).resolves.toBeUndefined();
  });

  test("says so when the cluster cannot be told, and the lease ends by itself", async () => {
    const { server, clock, keep } = createSetting();
    const keeper = keep();
    await clock.advance(100);
    server.fateOf = () => SILENT;
    const closed = errorOf(keeper.close());
    await clock.advance(10_000);
    expect([(await closed).code, server.aliveCount]).toEqual(["timeout", 0]);
  });

  test("the client stops everything without a word", async () => {
    const { server, clock, closing, keep } = createSetting();
    const keeper = keep();
    const { told } = watchLoss(keeper);
    await clock.advance(3_500);
    closing.abort();
    await clock.advance(20_000);
    expect([timesOf(server, "keepAlive").length, told.length, clock.timersCount]).toEqual([1, 0, 0]);
    expect([keeper.id, keeper.isLost]).toEqual([null, false]);
  });
});

describe("abandoning", () => {
  test("tells loss once and stops renewing", async () => {
    const { server, clock, keep } = createSetting();
    const keeper = keep();
    const { told } = watchLoss(keeper);
    await clock.advance(100);
    keeper.abandon();
    keeper.abandon();
    await clock.advance(20_000);
    expect(told).toEqual([{ id: 1, reason: "key_gone", cause: null }]);
    expect(timesOf(server, "keepAlive")).toEqual([]);
  });
});

describe("re-granting", () => {
  function createRegrant(outcomes: (Error | null)[] = []) {
    const setting = createSetting();
    const put: number[] = [];
    const keeper = setting.keep({
      regrant: async (id) => {
        put.push(id);
        const error = outcomes.shift();
        if (error !== undefined && error !== null) throw error;
      },
    });
    return { ...setting, keeper, put, ...watchLoss(keeper) };
  }

  test("replaces a lost lease, and puts the keys again", async () => {
    const { server, clock, keeper, put, told } = createRegrant();
    await clock.advance(1_000);
    clock.leap(20_000);
    await clock.advance(100);
    expect([put, keeper.id, keeper.isLost]).toEqual([[2], 2, false]);
    await clock.advance(30_000);
    expect([server.isAlive(2), put, told]).toEqual([true, [2], []]);
    const closed = keeper.close();
    await clock.advance(10);
    await closed;
    expect(server.aliveCount).toBe(0);
  });

  test("waits for an outage to end, for as long as it takes, and makes one lease", async () => {
    const { server, clock, put } = createRegrant();
    await clock.advance(1_000);
    server.fateOf = (kind) => (kind === "grant" ? { requestMs: 1, replyMs: null } : SILENT);
    await clock.advance(60_000);
    expect(put).toEqual([]);
    server.fateOf = () => GOOD;
    await clock.advance(60_000);
    expect(put.length).toBe(1);
    expect(server.isAlive(put[0] ?? 0)).toBe(true);
    expect(server.aliveCount).toBe(1);
  });

  test("repeats what fails for the moment, and gives up on what fails for good", async () => {
    const busy = new ConcordError({ code: "no_leader", detail: "x" });
    const { clock, put, told } = createRegrant([busy, busy, null, new RangeError("no")]);
    await clock.advance(100);
    clock.leap(20_000);
    await clock.advance(3_000);
    expect([put, told]).toEqual([[2, 2, 2], []]);
    clock.leap(20_000);
    await clock.advance(60_000);
    expect(put).toEqual([2, 2, 2, 3]);
    expect(told).toMatchObject([{ id: 2, reason: "regrant_failed", cause: { name: "RangeError" } }]);
  });

  test("of a lease that ends while its keys are put begins anew", async () => {
    const gone = new ConcordError({ code: "unknown_lease", detail: "x" });
    const { clock, keeper, put, told } = createRegrant([gone, null]);
    await clock.advance(100);
    clock.leap(20_000);
    await clock.advance(1_000);
    expect([put, keeper.id, told]).toEqual([[2, 3], 3, []]);
  });

  test("ends by close, also between two leases", async () => {
    const { server, clock, keeper, put } = createRegrant();
    await clock.advance(100);
    clock.leap(20_000);
    server.fateOf = () => ({ requestMs: 100, replyMs: 100 });
    await clock.advance(50);
    const closed = keeper.close();
    await clock.advance(20_000);
    await closed;
    expect([server.leases.size, server.aliveCount, put, clock.timersCount]).toEqual([2, 0, [], 0]);
  });
});
