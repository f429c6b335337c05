import { describe, expect, test } from "vitest";
import { LEASE_GRACE_MS_MAX } from "../../src/base/limits.ts";
import type { CommandResult, SeenLease } from "../../src/kv/command.ts";
import { nextDue } from "../../src/kv/due-index.ts";
import { expiredLeases, nextLeaseExpiry } from "../../src/kv/lease-expiry.ts";
import { openMachine } from "../../src/kv/machine.ts";
import type { OrderedStore } from "../../src/kv/store.ts";
import { errorCode, Harness, okResult, put } from "./harness.ts";

const keepAlive = (h: Harness, ...items: { id: number; ttl_s?: number }[]) =>
  okResult(h.apply({ kind: "lease_keep_alive", items }));
const expire = (h: Harness, leases: readonly SeenLease[]) => okResult(h.apply({ kind: "lease_expire", leases }));
const seen = (h: Harness): SeenLease[] => expiredLeases(h.machine, h.timeMs);

/** Lets the leader end everything that is due; answers the results, one per command. */
function expireAll(h: Harness): CommandResult[] {
  const results: CommandResult[] = [];
  for (let due = seen(h); due.length > 0; due = seen(h)) results.push(expire(h, due));
  return results;
}

function fill(h: Harness, lease: number, count: number): void {
  for (let from = 0; from < count; from += 100) {
    const keys = Array.from({ length: Math.min(100, count - from) }, (_, at) => `${lease}/${from + at}`);
    h.do(...keys.map((key) => put(key, 1, { lease })));
  }
}

describe("a keep-alive", () => {
  test("renews many leases in one entry, each with its own answer, and moves no revision", () => {
    const h = new Harness();
    const [first, second] = [h.grant(10), h.grant(20)];
    h.put("timed", 1, { ttl: 10 });
    h.timeMs += 5000;
    h.expectUnchanged(() => undefined);
    const revision = h.machine.revision;
    expect(keepAlive(h, { id: first }, { id: 99 }, { id: second, ttl_s: 60 }, { id: 3 }, { id: first })).toEqual({
      kind: "lease_keep_alive",
      items: [
        { id: first, ttl_s: 10, expires_at_ms: h.timeMs + 10_000 },
        { id: 99, not_found: true },
        { id: second, ttl_s: 60, expires_at_ms: h.timeMs + 60_000 },
        // A TTL is a field of its record: only a touch renews it.
        { id: 3, not_found: true },
        { id: first, ttl_s: 10, expires_at_ms: h.timeMs + 10_000 },
      ],
    });
    expect(h.machine.revision).toBe(revision);
    h.timeMs += 1000;
    expect(keepAlive(h, { id: second })).toMatchObject({ items: [{ ttl_s: 60, expires_at_ms: h.timeMs + 60_000 }] });
    expect(h.lease(first)?.remaining_ms).toBe(9000);
  });

  test("keeps keys and metadata, also when the time has passed but nothing ended the lease", () => {
    const h = new Harness();
    okResult(h.apply({ kind: "lease_grant", ttl_s: 5, metadata: { owner: "a" } }));
    h.put("k", 1, { lease: 1 });
    h.timeMs += 60_000;
    keepAlive(h, { id: 1 });
    expect(h.lease(1)).toMatchObject({ remaining_ms: 5000, metadata: { owner: "a" }, keys: ["k"] });
    expect(seen(h)).toEqual([]);
  });

  test("repeated under its idempotency key answers the same and renews nothing", () => {
    const h = new Harness();
    const id = h.grant(10);
    const idempotency = { scope: "s", key: "K", hash: "1" };
    const first = h.apply({ kind: "lease_keep_alive", items: [{ id }] }, idempotency);
    h.timeMs += 3000;
    expect(h.apply({ kind: "lease_keep_alive", items: [{ id }] }, idempotency)).toEqual({ ...first, replayed: true });
    expect(h.lease(id)?.remaining_ms).toBe(7000);
  });

  test("behind a revoke says not found, and no lease reappears (S30)", () => {
    const h = new Harness();
    for (let round = 0; round < 200; round += 1) {
      const id = h.grant(10);
      const renewFirst = round % 2 === 0;
      if (renewFirst) expect(keepAlive(h, { id })).toMatchObject({ items: [{ ttl_s: 10 }] });
      okResult(h.apply({ kind: "lease_revoke", id }));
      expect(keepAlive(h, { id })).toMatchObject({ items: [{ id, not_found: true }] });
      expect(h.lease(id)).toBeNull();
    }
    expect(h.store.rows().filter(([row]) => "ael".includes(row.charAt(0)))).toEqual([]);
  });
});

describe("an expiry", () => {
  test("deletes 101 keys of one lease at one revision, in key order (S15)", () => {
    const h = new Harness();
    const id = h.grant(30);
    fill(h, id, 101);
    h.put("free", 1);
    h.timeMs += 30_000;
    const revision = h.machine.revision;
    h.events.length = 0;
    expect(expireAll(h)).toEqual([{ kind: "lease_expire", expired: [id], deleted: 101 }]);
    const sorted = Array.from({ length: 101 }, (_, at) => `${id}/${at}`).sort();
    expect(h.events.map((event) => [event.revision, event.op_index, event.type, event.key])).toEqual(
      sorted.map((key, at) => [revision + 1, at, "delete", key]),
    );
    expect(h.keys()).toEqual(["free"]);
    expect(h.lease(id)).toBeNull();
  });

  test("of 101 leases due at one tick takes 50, 50 and 1, each command at one revision (S15)", () => {
    const h = new Harness();
    for (let count = 0; count < 101; count += 1) h.put(`k/${count}`, 1, { lease: h.grant(30) });
    h.timeMs += 30_000;
    const revision = h.machine.revision;
    h.events.length = 0;
    expect(expireAll(h).map((result) => (result.kind === "lease_expire" ? result.expired.length : 0))).toEqual([
      50, 50, 1,
    ]);
    expect([...new Set(h.events.map((event) => event.revision))]).toEqual([revision + 1, revision + 2, revision + 3]);
    expect(h.events.length).toBe(101);
    expect(h.keys()).toEqual([]);
  });

  test("holds 10 000 keys: a whole lease goes, and what does not fit stays and is due again (S15)", () => {
    const h = new Harness();
    const [whole, other] = [h.grant(30), h.grant(30)];
    const empty = h.grant(31);
    fill(h, whole, 10_000);
    fill(h, other, 1);
    h.timeMs += 31_000;
    expect(seen(h)).toEqual([{ id: whole, expires_at_ms: h.timeMs - 1000 }]);
    const named = [whole, other, empty].map((id) => ({ id, expires_at_ms: h.lease(id)?.expires_at_ms ?? 0 }));
    h.events.length = 0;
    expect(expire(h, named)).toEqual({ kind: "lease_expire", expired: [whole, empty], deleted: 10_000 });
    expect([h.events.length, h.events[9999]?.op_index]).toEqual([10_000, 9999]);
    expect(new Set(h.events.map((event) => event.revision)).size).toBe(1);
    expect(h.lease(other)).toMatchObject({ keys: [`${other}/0`] });
    expect(expireAll(h)).toEqual([{ kind: "lease_expire", expired: [other], deleted: 1 }]);
    expect(h.keys()).toEqual([]);
  });

  test("ends at most 50 leases, whoever proposed more", () => {
    const h = new Harness();
    const named = Array.from({ length: 51 }, () => ({ id: h.grant(1), expires_at_ms: h.timeMs + 1000 }));
    h.timeMs += 1000;
    expect(expire(h, named)).toMatchObject({ expired: named.slice(0, 50).map(({ id }) => id) });
    expect(h.lease(51)).toMatchObject({ remaining_ms: 0 });
  });

  test("in front of a keep-alive ends the lease for good: nothing is revived (S32)", () => {
    const h = new Harness();
    const id = h.grant(5);
    h.put("k", 1, { lease: id });
    h.timeMs += 5000;
    const due = seen(h);
    expect(expire(h, due)).toMatchObject({ expired: [id], deleted: 1 });
    expect(keepAlive(h, { id })).toMatchObject({ items: [{ not_found: true }] });
    expect(errorCode(h.txn({ success: [put("k", 2, { lease: id })] }))).toBe("unknown_lease");
    h.expectUnchanged(() => expect(expire(h, due)).toEqual({ kind: "lease_expire", expired: [], deleted: 0 }));
    expect([h.lease(id), h.keys()]).toEqual([null, []]);
  });

  test("decided before a keep-alive that comes first in the log does nothing, however late it arrives (S29, S32)", () => {
    const h = new Harness();
    const id = h.grant(5);
    h.do(put("a", 1, { lease: id }), put("b", 1, { lease: id }));
    h.timeMs += 5000;
    const due = seen(h);
    keepAlive(h, { id });
    h.expectUnchanged(() => expect(expire(h, due)).toMatchObject({ expired: [] }));
    // Also when the renewed lease is due by then: the old decision is not about this one.
    h.timeMs += 60_000;
    h.expectUnchanged(() => expect(expire(h, due)).toMatchObject({ expired: [] }));
    expect(h.keys()).toEqual(["a", "b"]);
  });

  test("by a leader whose clock is ahead of the entry's time does nothing (S29)", () => {
    const h = new Harness();
    const id = h.grant(5);
    h.put("k", 1, { lease: id });
    const early = expiredLeases(h.machine, h.timeMs + 3_600_000);
    expect(early).toEqual([{ id, expires_at_ms: h.timeMs + 5000 }]);
    h.timeMs += 4999;
    h.expectUnchanged(() => expect(expire(h, early)).toMatchObject({ expired: [] }));
    h.timeMs += 1;
    expect(expire(h, early)).toMatchObject({ expired: [id] });
  });

  test("deletes exactly the keys attached then: not one that left, also one that came late", () => {
    const h = new Harness();
    const [id, other] = [h.grant(5), h.grant(60)];
    h.do(...["moved", "freed", "stays"].map((key) => put(key, 1, { lease: id })));
    h.timeMs += 5000;
    const due = seen(h);
    h.do(put("moved", 2, { lease: other }), put("freed", 2), put("late", 2, { lease: id }));
    h.events.length = 0;
    expect(expire(h, due)).toMatchObject({ deleted: 2 });
    expect(h.events.map((event) => event.key)).toEqual(["late", "stays"]);
    expect(h.keys()).toEqual(["freed", "moved"]);
  });

  test("of several leases orders events by lease as named, then by key; without keys it moves no revision", () => {
    const h = new Harness();
    const [first, second] = [h.grant(5), h.grant(4)];
    h.do(put("a", 1, { lease: first }), put("b", 1, { lease: second }), put("c", 1, { lease: first }));
    h.grant(4);
    h.timeMs += 5000;
    h.events.length = 0;
    expect(expire(h, seen(h))).toMatchObject({ expired: [second, 3, first], deleted: 3 });
    expect(h.events.map((event) => [event.op_index, event.key])).toEqual([
      [0, "b"],
      [1, "a"],
      [2, "c"],
    ]);
    const empty = h.grant(1);
    h.timeMs += 1000;
    const revision = h.machine.revision;
    expect(expire(h, seen(h))).toMatchObject({ expired: [empty], deleted: 0 });
    expect(h.machine.revision).toBe(revision);
  });

  test("ends a TTL like a lease, and a touch that comes first in the log keeps the record", () => {
    const h = new Harness();
    h.do(put("gone", 1, { ttl: 5 }), put("touched", 1, { ttl: 5 }));
    h.timeMs += 5000;
    const due = seen(h);
    expect(due.length).toBe(2);
    h.do({ type: "touch", key: "touched", ttl: 5 });
    expect(expire(h, due)).toMatchObject({ deleted: 1 });
    expect(h.keys()).toEqual(["touched"]);
  });
});

describe("what is due", () => {
  /** Counts scans and the rows that they return, and single reads. */
  function counting(inner: OrderedStore) {
    const counts = { scans: 0, rows: 0, gets: 0 };
    const store: OrderedStore = {
      get(key) {
        counts.gets += 1;
        return inner.get(key);
      },
      put: (key, value) => inner.put(key, value),
      delete: (key) => inner.delete(key),
      scan(range) {
        const rows = inner.scan(range);
        counts.scans += 1;
        counts.rows += rows.length;
        return rows;
      },
    };
    return { store, counts };
  }

  test("costs one row of the expiry index while nothing is due", () => {
    const h = new Harness();
    for (let count = 0; count < 300; count += 1) h.grant(30 + count);
    const { store, counts } = counting(h.store);
    const machine = openMachine(store);
    Object.assign(counts, { scans: 0, rows: 0, gets: 0 });
    expect(expiredLeases(machine, h.timeMs + 29_999)).toEqual([]);
    expect(counts).toEqual({ scans: 1, rows: 1, gets: 0 });
  });

  test("comes longest due first, within the keys of one command, and at least one lease", () => {
    const h = new Harness();
    const [late, early] = [h.grant(10), h.grant(5)];
    fill(h, early, 60);
    fill(h, late, 50);
    h.timeMs += 10_000;
    const ids = (keysMax: number, leasesMax = 50) =>
      expiredLeases(h.machine, h.timeMs, { leasesMax, keysMax }).map(({ id }) => id);
    expect(ids(110)).toEqual([early, late]);
    expect(ids(109)).toEqual([early]);
    expect(ids(10)).toEqual([early]);
    expect(ids(110, 1)).toEqual([early]);
    expect(expiredLeases(h.machine, h.timeMs - 1).map(({ id }) => id)).toEqual([early]);
  });

  test("is nothing for a lease of 30 days after a minute, and its time is a number that no timer takes at once (S35)", () => {
    const h = new Harness();
    const id = h.grant(2_592_000);
    h.put("later", 1, { due_at_ms: h.timeMs + 2_592_000_001 });
    const due = h.timeMs + 2_592_000_000;
    h.timeMs += 60_000;
    expect([seen(h), nextDue(h.machine, h.timeMs)]).toEqual([[], due]);
    expect(expire(h, [{ id, expires_at_ms: due }])).toMatchObject({ expired: [] });
  });

  test("is the same on every node after a restart, and a grant is never made twice (S34)", () => {
    const h = new Harness();
    const idempotency = { scope: "s", key: "K", hash: "1" };
    const first = okResult(h.apply({ kind: "lease_grant", ttl_s: 5 }, idempotency));
    h.timeMs += 1000;
    h.restart();
    expect(okResult(h.apply({ kind: "lease_grant", ttl_s: 5 }, idempotency))).toEqual(first);
    const list = h.query({ kind: "lease_list", limit: 10 });
    expect(list).toMatchObject({ leases: [{ id: 1, remaining_ms: 4000 }], next: null });
    h.restart();
    expect(h.query({ kind: "lease_list", limit: 10 })).toEqual(list);
    h.timeMs += 4000;
    expect(seen(h)).toEqual([{ id: 1, expires_at_ms: h.timeMs }]);
  });
});

describe("the floor after a change of leader", () => {
  test("holds every lease until it, in expiry, info, list and ttl compares", () => {
    const h = new Harness();
    const [short, long] = [h.grant(1), h.grant(60)];
    h.put("k", 1, { lease: short });
    h.timeMs += 10_000;
    const due = seen(h);
    expect(okResult(h.apply({ kind: "lease_floor", floor_ms: h.timeMs + 6000 }))).toEqual({
      kind: "lease_floor",
      floor_ms: h.timeMs + 6000,
    });
    expect(h.machine).toMatchObject({ leaseFloorMs: h.timeMs + 6000, revision: 1 });
    expect([seen(h), nextLeaseExpiry(h.machine)]).toEqual([[], h.timeMs + 6000]);
    h.expectUnchanged(() => expect(expire(h, due)).toMatchObject({ expired: [] }));
    expect(h.lease(short)).toMatchObject({ remaining_ms: 6000, expires_at_ms: h.timeMs + 6000 });
    expect(h.lease(long)).toMatchObject({ remaining_ms: 50_000 });
    expect(h.query({ kind: "lease_list", limit: 1 })).toMatchObject({ leases: [{ remaining_ms: 6000 }] });
    const ttl = (value: number) => h.run({ compare: [{ target: "ttl", key: "k", op: "==", value }] }).succeeded;
    expect(ttl(6)).toBe(true);
    h.timeMs += 5999;
    h.restart();
    h.expectUnchanged(() => expect(expire(h, due)).toMatchObject({ expired: [] }));
    h.timeMs += 1;
    expect(ttl(0)).toBe(true);
    // The floor moves no stored expiry, so what a leader saw before it is still the lease.
    expect(seen(h)).toEqual(due);
    expect(expire(h, due)).toMatchObject({ expired: [short], deleted: 1 });
  });

  test("never falls, and lies no further ahead than the longest grace", () => {
    const h = new Harness();
    const floor = (floor_ms: number) => okResult(h.apply({ kind: "lease_floor", floor_ms }));
    floor(h.timeMs + 5000);
    expect(floor(h.timeMs + 1000)).toMatchObject({ floor_ms: h.timeMs + 5000 });
    expect(floor(h.timeMs + 86_400_000)).toMatchObject({ floor_ms: h.timeMs + LEASE_GRACE_MS_MAX });
  });

  test("keeps a dead owner no longer than its TTL and one grace per change", () => {
    const h = new Harness();
    const id = h.grant(10);
    const end = h.timeMs + 10_000 + 3 * 2000;
    h.timeMs += 9000;
    for (let change = 0; change < 3; change += 1) {
      okResult(h.apply({ kind: "lease_floor", floor_ms: h.timeMs + 2000 }));
      h.timeMs += 1500;
    }
    h.timeMs = end;
    expect(expireAll(h)).toMatchObject([{ expired: [id] }]);
  });
});

describe("the list of leases", () => {
  test("comes by id in pages and hides TTLs unless asked", () => {
    const h = new Harness();
    h.grant(10);
    h.put("timed", 1, { ttl: 20 });
    for (const ttl of [30, 40]) h.grant(ttl);
    const page = (options: { after?: number; anonymous?: boolean }, limit = 2) => {
      const result = h.query({ kind: "lease_list", limit, ...options });
      if (result.kind !== "lease_list") throw new Error(result.kind);
      return [result.leases.map(({ id }) => id), result.next];
    };
    expect(page({})).toEqual([[1, 3], 3]);
    expect(page({ after: 3 })).toEqual([[4], null]);
    expect(page({}, 3)).toEqual([[1, 3, 4], null]);
    expect(page({ anonymous: true }, 3)).toEqual([[1, 2, 3], 3]);
    expect(page({ anonymous: true, after: 3 })).toEqual([[4], null]);
    expect(h.query({ kind: "lease_list", limit: 1, after: 1, anonymous: true })).toMatchObject({
      leases: [{ id: 2, ttl_s: 20, anonymous: true, keys_count: 1, metadata: {}, remaining_ms: 20_000 }],
    });
  });

  test("ends a page early behind a long stretch of TTLs and in front of a reply's size, and loses none", () => {
    const h = new Harness();
    h.grant(10);
    for (let from = 0; from < 4200; from += 100) {
      h.do(...Array.from({ length: 100 }, (_, at) => put(`t/${from + at}`, 1, { ttl: 20 })));
    }
    for (let count = 0; count < 1100; count += 1) {
      okResult(h.apply({ kind: "lease_grant", ttl_s: 30, metadata: { m: "m".repeat(4080) } }));
    }
    const ids: number[] = [];
    const sizes: number[] = [];
    let after: number | null = 0;
    while (after !== null) {
      const result = h.query({ kind: "lease_list", limit: 1000, ...(after === 0 ? {} : { after }) });
      if (result.kind !== "lease_list") throw new Error(result.kind);
      ids.push(...result.leases.map(({ id }) => id));
      sizes.push(JSON.stringify(result).length);
      after = result.next;
    }
    expect(ids).toEqual([1, ...Array.from({ length: 1100 }, (_, at) => 4202 + at)]);
    expect(Math.max(...sizes)).toBeLessThan(4 << 20);
    expect(sizes.length).toBeGreaterThan(2);
  });
});
