/**
 * Locks between processes: order, fairness, loss, and what a holder that was paused can still write (S38). Method: clients
 * over HTTP against the real state machine, in processes that can be paused, killed and cut off.
 */
import { describe, expect, test } from "vitest";
import { ConcordError, type Held, type LeaseLost } from "../../src/client/index.ts";
import { type Process, ProcessWorld } from "./process-world.ts";
import { TRANSPORTS, type TransportName } from "./streaming.ts";

const NAME = "/locks/a";

function createSetting(count = 2, transport?: TransportName) {
  const world = new ProcessWorld(transport);
  const processes = Array.from({ length: count }, () => world.start());
  const [a, b] = processes as [Process, Process];
  return { world, a, b, processes };
}

async function errorOf(promise: Promise<unknown>): Promise<ConcordError> {
  const error = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ConcordError);
  return error as ConcordError;
}

async function reasonOf(promise: Promise<unknown>): Promise<string> {
  const { code, body } = await errorOf(promise);
  return `${code} ${body.reason}`;
}

function lossesOf(held: Held): LeaseLost[] {
  const losses: LeaseLost[] = [];
  void held.lost.then((lost) => losses.push(lost));
  return losses;
}

/** Whether a promise has ended so far. */
function watchEnd(promise: Promise<unknown>): () => boolean {
  let hasEnded = false;
  const end = () => {
    hasEnded = true;
  };
  promise.then(end, end);
  return () => hasEnded;
}

describe.each(TRANSPORTS)("a lock over %s", (transport) => {
  test("is a key with a lease, whose create_revision is the fencing number", async () => {
    const { world, a } = createSetting(1, transport);
    const held = await a.concord.lock(NAME, { value: { host: "a" }, ttl_s: 10 });
    const record = await a.concord.kv.get(held.key);
    expect(record).toMatchObject({ value: { host: "a" }, create_revision: held.fencingRevision });
    expect(await a.concord.lease.info(record?.lease_id ?? 0)).toMatchObject({ ttl_s: 10, metadata: { queue: NAME } });
    expect([held.isLost, held.leaseId, held.signal.aborted]).toEqual([false, record?.lease_id, false]);
    await held.release();
    expect([await world.keysUnder("/locks"), await world.leasesCount(), held.isLost]).toEqual([[], 0, true]);
  });

  test("is handed on when it is released, and nobody asks meanwhile", async () => {
    const { world, a, b } = createSetting(2, transport);
    const first = await a.concord.lock(NAME);
    const waiting = b.concord.lock(NAME);
    await world.advance(4_000);
    const before = b.sent.length;
    await world.advance(900);
    expect([b.sent.length, (await world.keysUnder(NAME)).length]).toEqual([before, 2]);
    await first.release();
    await world.settle();
    const second = await waiting;
    expect(second.fencingRevision).toBeGreaterThan(first.fencingRevision);
    await second.release();
  });

  test("goes to those who wait in the order in which they came, and wakes one of them at a time", async () => {
    const { world, processes } = createSetting(5, transport);
    const order: number[] = [];
    const held: Held[] = [];
    for (const [index, { concord }] of processes.entries()) {
      void concord.lock(NAME).then((lock) => {
        order.push(index);
        held.push(lock);
      });
      await world.settle();
    }
    for (let turn = 0; turn < 5; turn += 1) {
      expect(order).toEqual([0, 1, 2, 3, 4].slice(0, turn + 1));
      const before = processes.map(({ sent }) => sent.length);
      await held[turn]?.release();
      await world.settle();
      const busy = processes.filter(({ sent }, index) => sent.length > (before[index] ?? 0)).length;
      expect(busy).toBe(turn === 4 ? 1 : 2);
    }
    expect(await world.leasesCount()).toBe(0);
  });

  test("of a process that dies goes on when its TTL is over", async () => {
    const { world, a, b } = createSetting(2, transport);
    await a.concord.lock(NAME, { ttl_s: 5 });
    const waiting = b.concord.lock(NAME, { ttl_s: 5 });
    const hasEnded = watchEnd(waiting);
    await world.advance(2_500);
    a.kill();
    await world.advance(3_900);
    expect(hasEnded()).toBe(false);
    await world.advance(1_200);
    expect(hasEnded()).toBe(true);
  });

  test("lives through an outage that is shorter than the TTL, for the holder and for who waits", async () => {
    const { world, a, b } = createSetting(2, transport);
    const held = await a.concord.lock(NAME, { ttl_s: 9 });
    const waiting = b.concord.lock(NAME, { ttl_s: 9 });
    await world.advance(2_500);
    for (const process of [a, b]) process.link = "down";
    await world.advance(4_500);
    for (const process of [a, b]) process.link = "up";
    await world.advance(20_000);
    expect([held.isLost, (await world.keysUnder(NAME)).length]).toEqual([false, 2]);
    await world.until(held.release());
    expect((await world.until(waiting)).isLost).toBe(false);
  });

  test("cannot be had while the cluster cannot be reached", async () => {
    const { world, a } = createSetting(1, transport);
    a.link = "down";
    expect((await errorOf(world.until(a.concord.lock(NAME)))).retry).not.toBe("no");
  });

  test("leaves one key and one lease when replies are lost (S34)", async () => {
    const { world, a } = createSetting(1, transport);
    a.delayMs = 10;
    const acquiring = a.concord.lock(NAME, { ttl_s: 30 });
    // The requests arrive, the replies find the link down.
    for (let turn = 0; turn < 40; turn += 1) {
      await world.clock.advance(10);
      a.link = turn % 3 === 0 ? "down" : "up";
    }
    a.link = "up";
    const held = await world.until(acquiring);
    expect([(await world.keysUnder(NAME)).length, await world.leasesCount()]).toEqual([1, 1]);
    await world.until(held.release());
    expect([(await world.keysUnder(NAME)).length, await world.leasesCount()]).toEqual([0, 0]);
  });
});

describe.each(TRANSPORTS)("a holder that is paused past its TTL, over %s (S38)", (transport) => {
  async function createPaused() {
    const setting = createSetting(2, transport);
    const { world, a, b } = setting;
    const held = await a.concord.lock(NAME, { ttl_s: 3 });
    const losses = lossesOf(held);
    const waiting = b.concord.lock(NAME, { ttl_s: 3 });
    await world.advance(500);
    a.pause();
    const other = await world.until(waiting, 5_000);
    await world.advance(2_000);
    return { ...setting, held, other, losses };
  }

  test("finds the lock with another one: a plain put succeeds, a guarded write fails", async () => {
    const { world, a, held, other, losses } = await createPaused();
    a.resume();
    await world.settle();
    expect(losses).toMatchObject([{ reason: "time_over" }]);
    expect((await a.concord.kv.put("/plain", 1)).revision).toBeGreaterThan(other.fencingRevision);
    const guarded = await a.concord.txn({ compare: held.guard, success: [{ type: "put", key: "/a", value: 1 }] });
    expect(guarded.succeeded).toBe(false);
    expect(await reasonOf(held.put("/a", 1))).toBe("precondition_failed lock_lost");
    expect(await a.concord.kv.get("/a")).toBeNull();
    expect((await other.put("/b", 1)).revision).toBeGreaterThan(0);
    expect(other.isLost).toBe(false);
  });

  test("knows it from its clock, before any timer has run", async () => {
    const { a, held, losses } = await createPaused();
    expect(held.isLost).toBe(true);
    const before = a.sent.length;
    expect(await reasonOf(held.delete("/a"))).toBe("precondition_failed lock_lost");
    expect([a.sent.length, losses.length]).toEqual([before, 1]);
  });

  test("is refused by the cluster where its clock stood still, and learns of the loss by that", async () => {
    const { world, a, held, losses } = await createPaused();
    a.resume(20_000);
    expect(held.isLost).toBe(false);
    expect(await reasonOf(world.until(held.put("/a", 1)))).toBe("precondition_failed lock_lost");
    await world.settle();
    expect([held.isLost, losses]).toMatchObject([true, [{ reason: "key_gone" }]]);
    expect(await a.concord.kv.get("/a")).toBeNull();
  });

  test("is told no later than its TTL if it is cut off instead", async () => {
    const { world, a, b } = createSetting(2, transport);
    const held = await a.concord.lock(NAME, { ttl_s: 3 });
    const waiting = b.concord.lock(NAME, { ttl_s: 3 });
    const losses = lossesOf(held);
    const hasEnded = watchEnd(waiting);
    await world.settle();
    a.link = "silent";
    let lostAtMs = 0;
    let takenAtMs = 0;
    const startMs = world.clock.nowMs();
    await world.advance(5_000, () => {
      if (losses.length > 0) lostAtMs ||= world.clock.nowMs() - startMs;
      if (hasEnded()) takenAtMs ||= world.clock.nowMs() - startMs;
    });
    expect(lostAtMs).toBeGreaterThan(1_900);
    expect(lostAtMs).toBeLessThan(takenAtMs);
    expect([takenAtMs > 2_900, takenAtMs < 3_300]).toEqual([true, true]);
  });
});

describe("one who waits and whose own lease ends (S38)", () => {
  test("does not take the turn of the key that is gone, but begins anew behind the others", async () => {
    const { world, processes } = createSetting(3);
    const [a, b, c] = processes as [Process, Process, Process];
    const first = await a.concord.lock(NAME, { ttl_s: 3 });
    const second = b.concord.lock(NAME, { ttl_s: 3 });
    await world.settle();
    const third = c.concord.lock(NAME, { ttl_s: 3 });
    const isTaken = watchEnd(second);
    await world.advance(500);
    b.pause();
    await world.advance(5_000);
    expect((await world.keysUnder(NAME)).length).toBe(2);
    await first.release();
    const held = await world.until(third);
    b.resume();
    await world.advance(10_000);
    expect([isTaken(), held.isLost, (await world.keysUnder(NAME)).length]).toEqual([false, false, 2]);
    await held.release();
    expect((await world.until(second)).fencingRevision).toBeGreaterThan(held.fencingRevision);
  });

  test("gives up if its time is over as well", async () => {
    const { world, a, b } = createSetting();
    const held = await a.concord.lock(NAME, { ttl_s: 30 });
    const waiting = reasonOf(b.concord.lock(NAME, { ttl_s: 3, timeoutMs: 4_000 }));
    await world.advance(500);
    b.pause();
    await world.advance(5_000);
    await held.release();
    b.resume();
    expect(await world.until(waiting)).toBe("precondition_failed lock_not_acquired");
    expect([await world.keysUnder(NAME), await world.leasesCount()]).toEqual([[], 0]);
  });

  test("is not fooled by a lock that is free when it wakes", async () => {
    const { world, a, b } = createSetting();
    const held = await a.concord.lock(NAME, { ttl_s: 30 });
    const waiting = b.concord.lock(NAME, { ttl_s: 3 });
    await world.advance(500);
    const [, stale] = await world.keysUnder(NAME);
    b.pause();
    await world.advance(5_000);
    await held.release();
    b.resume();
    const taken = await world.until(waiting);
    expect(taken.key).not.toBe(stale);
    expect(await world.keysUnder(NAME)).toEqual([taken.key]);
  });
});

describe("waiting", () => {
  test("ends by timeoutMs, and those behind close the gap", async () => {
    const { world, processes } = createSetting(3);
    const [a, b, c] = processes as [Process, Process, Process];
    const first = await a.concord.lock(NAME);
    const second = reasonOf(b.concord.lock(NAME, { timeoutMs: 2_000 }));
    await world.settle();
    const third = c.concord.lock(NAME);
    const isTaken = watchEnd(third);
    expect(await world.until(second)).toBe("precondition_failed lock_not_acquired");
    await world.advance(1_000);
    expect([isTaken(), (await world.keysUnder(NAME)).length, await world.leasesCount()]).toEqual([false, 2, 2]);
    await first.release();
    await world.until(third);
  });

  test("of no time at all takes what is free, and leaves no trace of what is not", async () => {
    const { world, a, b } = createSetting();
    const held = await a.concord.lock(NAME, { timeoutMs: 0 });
    const before = world.backend.logged.length;
    expect(await reasonOf(b.concord.lock(NAME, { timeoutMs: 0 }))).toBe("precondition_failed lock_not_acquired");
    expect(world.backend.logged.length).toBe(before);
    await held.release();
    expect((await b.concord.lock(NAME, { timeoutMs: 0 })).isLost).toBe(false);
  });

  test("of no time at all, by two at once, is given to one", async () => {
    const { world, processes } = createSetting(4);
    const tries = processes.map(({ concord }) => concord.lock(NAME, { timeoutMs: 0 }).catch((error: unknown) => error));
    const results = await Promise.all(tries);
    expect(results.filter((result) => !(result instanceof Error)).length).toBe(1);
    expect(await world.leasesCount()).toBe(1);
  });

  test("ends by the signal, and leaves the queue", async () => {
    const { world, a, b } = createSetting();
    await a.concord.lock(NAME);
    const controller = new AbortController();
    const waiting = reasonOf(b.concord.lock(NAME, { signal: controller.signal }));
    await world.advance(1_000);
    controller.abort();
    expect(await world.until(waiting)).toBe("timeout aborted");
    expect([(await world.keysUnder(NAME)).length, await world.leasesCount()]).toEqual([1, 1]);
    expect(await reasonOf(b.concord.lock(NAME, { signal: controller.signal }))).toBe("timeout aborted");
    expect(await world.leasesCount()).toBe(1);
  });

  test("is not disturbed by other queues whose names begin alike", async () => {
    const { a } = createSetting(1);
    await a.concord.lock(`${NAME}/b`);
    await a.concord.lock(`${NAME}b`);
    expect((await a.concord.lock(NAME, { timeoutMs: 0 })).isLost).toBe(false);
  });

  test("goes on when the history that it watches is compacted", async () => {
    const { world, a, b } = createSetting();
    const held = await a.concord.lock(NAME);
    const waiting = b.concord.lock(NAME);
    await world.settle();
    b.link = "down";
    await held.release();
    await a.concord.kv.put("x", 1);
    await world.backend.execute({ kind: "compact", revision: world.backend.revision }, null, { timeoutMs: 0 });
    b.link = "up";
    expect((await world.until(waiting)).isLost).toBe(false);
  });
});

describe("guarded writes", () => {
  async function createHeld() {
    const { world, a, b } = createSetting();
    const held = await a.concord.lock(NAME, { ttl_s: 30 });
    return { world, a, b, held };
  }

  test("are ordinary ones while the lock is held", async () => {
    const { a, held } = await createHeld();
    const { revision } = await held.put("/x", { n: 1 }, { metadata: { m: 1 } });
    expect(await held.put("/x", { n: 2 }, { prev_kv: true })).toMatchObject({
      key: "/x",
      prev_kv: { value: { n: 1 } },
    });
    expect((await held.put("/log/", 1, { revision_suffix: true })).key).toMatch(/^\/log\/[0-9]{16}$/);
    expect(await held.delete("/x")).toEqual({ revision: revision + 3, deleted: 1 });
    expect(await held.delete("/x")).toMatchObject({ deleted: 0 });
    expect(await a.concord.kv.get("/x")).toBeNull();
    await a.concord.kv.put("/mine", 1, { lease: held.leaseId ?? 0 });
    await held.release();
    expect(await a.concord.kv.get("/mine")).toBeNull();
  });

  test("of a txn tell a compare of its own that fails from a lock that is lost", async () => {
    const { a, held } = await createHeld();
    await a.concord.kv.put("/n", 1);
    const txn = (value: number) =>
      held.txn({
        compare: [{ target: "value", key: "/n", op: "==", value }],
        success: [{ type: "put", key: "/n", value: 2 }],
        failure: [{ type: "get", key: "/n" }],
      });
    const failed = await txn(7);
    expect(failed).toMatchObject({ succeeded: false, responses: [{ type: "get", kvs: [{ value: 1 }] }] });
    expect(failed.responses.length).toBe(1);
    expect((await txn(1)).succeeded).toBe(true);
    await a.concord.kv.delete(held.key);
    expect(await reasonOf(txn(2))).toBe("precondition_failed lock_lost");
    expect([held.isLost, (await held.lost).reason, held.signal.aborted]).toEqual([true, "key_gone", true]);
    expect((await a.concord.kv.get("/n"))?.value).toBe(2);
  });

  test("that only read are guarded too, and leave nothing in the log", async () => {
    const { world, a, held } = await createHeld();
    const before = world.backend.logged.length;
    expect((await held.txn({ success: [{ type: "get", key: "/n" }] })).succeeded).toBe(true);
    expect(world.backend.logged.length).toBe(before);
    await a.concord.kv.delete(held.key);
    expect(await reasonOf(held.txn({ success: [{ type: "get", key: "/n" }] }))).toBe("precondition_failed lock_lost");
  });

  test("never write in the branch of a failed compare", async () => {
    const { held } = await createHeld();
    const failure = [{ type: "put", key: "/x", value: 1 }] as never;
    expect(await reasonOf(held.txn({ failure }))).toBe("invalid_txn unguarded_failure");
  });

  test("are refused behind the release, without a request", async () => {
    const { a, held } = await createHeld();
    const losses = lossesOf(held);
    await held.release();
    const before = a.sent.length;
    expect(await reasonOf(held.put("/x", 1))).toBe("precondition_failed lock_lost");
    expect([a.sent.length, losses]).toEqual([before, []]);
  });

  test("are refused when somebody else has the key of a deleted and recreated name", async () => {
    const { a, held } = await createHeld();
    await a.concord.kv.delete(held.key);
    await a.concord.kv.put(held.key, "forged");
    expect(await reasonOf(held.put("/x", 1))).toBe("precondition_failed lock_lost");
  });
});

describe("lock.with", () => {
  test("holds the lock while the body runs, and gives its result", async () => {
    const { world, a } = createSetting(1);
    const result = await a.concord.lock.with(NAME, {}, async (held) => {
      expect((await world.keysUnder(NAME))[0]).toBe(held.key);
      return 7;
    });
    expect([result, await world.leasesCount()]).toEqual([7, 0]);
  });

  test("releases it when the body throws, and the error is that of the body", async () => {
    const { world, a } = createSetting(1);
    const failing = a.concord.lock.with(NAME, {}, () => {
      throw new RangeError("of the body");
    });
    await expect(failing).rejects.toThrow(RangeError);
    expect(await world.leasesCount()).toBe(0);
  });

  test("gives the result also if the cluster cannot be told of the release", async () => {
    const { world, a } = createSetting(1);
    const working = a.concord.lock.with(NAME, { ttl_s: 5 }, () => {
      a.link = "down";
      return 7;
    });
    expect(await world.until(working)).toBe(7);
    await world.advance(5_000);
    expect(await world.leasesCount()).toBe(0);
  });

  test("does not run the body without the lock", async () => {
    const { a, b } = createSetting();
    await a.concord.lock(NAME);
    let runs = 0;
    const body = () => {
      runs += 1;
    };
    expect(await reasonOf(b.concord.lock.with(NAME, { timeoutMs: 0 }, body))).toMatch(/lock_not_acquired/);
    expect(runs).toBe(0);
  });
});
