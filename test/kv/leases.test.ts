import { describe, expect, test } from "vitest";
import { applyEntries } from "../../src/kv/machine.ts";
import { del, errorCode, Harness, okResult, put } from "./harness.ts";

describe("a grant", () => {
  test("takes its id from the replicated counter and its expiry from the entry's time", () => {
    const h = new Harness();
    expect(okResult(h.apply({ kind: "lease_grant", ttl_s: 30, metadata: { owner: "a" } }))).toEqual({
      kind: "lease_grant",
      id: 1,
      ttl_s: 30,
      expires_at_ms: h.timeMs + 30_000,
    });
    h.timeMs += 10_000;
    expect(h.lease(1)).toEqual({
      id: 1,
      ttl_s: 30,
      expires_at_ms: h.timeMs + 20_000,
      remaining_ms: 20_000,
      anonymous: false,
      metadata: { owner: "a" },
      keys_count: 0,
      keys: [],
    });
    expect(h.grant(5)).toBe(2);
    expect(h.lease(3)).toBeNull();
    expect(h.machine.revision).toBe(0);
  });

  test("with an explicit id takes it once, and the counter never gives out an id that was chosen", () => {
    const h = new Harness();
    expect(h.grant(30, { id: 2 })).toBe(2);
    expect(errorCode(h.apply({ kind: "lease_grant", ttl_s: 30, id: 2 }))).toBe("lease_exists");
    okResult(h.apply({ kind: "lease_revoke", id: 2 }));
    expect(h.grant(30)).toBe(3);
    expect(h.grant(30, { id: Number.MAX_SAFE_INTEGER })).toBe(Number.MAX_SAFE_INTEGER);
    expect(h.grant(30)).toBe(4);
    h.restart();
    expect(h.grant(30)).toBe(5);
  });

  test("of 30 days does not end when a minute passes (S35)", () => {
    const h = new Harness();
    const id = h.grant(2_592_000);
    h.timeMs += 60_000;
    h.put("k", 1, { lease: id });
    expect(h.lease(id)).toMatchObject({ remaining_ms: 2_592_000_000 - 60_000, keys: ["k"] });
  });
});

test("there are at most 100 000 leases, TTLs included, and an ended one makes room", () => {
  const h = new Harness();
  const grant = JSON.stringify({ format: 1, command: { kind: "lease_grant", ttl_s: 60 } });
  for (let round = 0; round < 10; round += 1) {
    const start = h.machine.appliedIndex;
    const count = Math.min(10_000, 99_999 - start);
    const entry = (_: unknown, index: number) => ({ index: start + index + 1, timeMs: h.timeMs, payload: grant });
    applyEntries(h.machine, Array.from({ length: count }, entry));
  }
  h.put("timed", 1, { ttl: 5 });
  h.expectUnchanged(() => {
    expect(errorCode(h.apply({ kind: "lease_grant", ttl_s: 60 }))).toBe("lease_limit_exceeded");
    expect(errorCode(h.txn({ success: [put("x", 1), put("y", 1, { ttl: 5 })] }))).toBe("lease_limit_exceeded");
  });
  okResult(h.apply({ kind: "lease_revoke", id: 7 }));
  h.put("y", 1, { ttl: 5 });
  expect(errorCode(h.apply({ kind: "lease_grant", ttl_s: 60 }))).toBe("lease_limit_exceeded");
  h.delete("timed");
  expect(h.grant(60)).toBe(100_002);
});

describe("attaching", () => {
  test("a put with another lease moves the key, without a lease detaches it, with ignore_lease keeps it", () => {
    const h = new Harness();
    const [first, second] = [h.grant(30), h.grant(30)];
    h.put("k", 1, { lease: first });
    expect([h.lease(first)?.keys, h.lease(second)?.keys]).toEqual([["k"], []]);
    h.put("k", 2, { lease: first });
    expect(h.lease(first)).toMatchObject({ keys: ["k"], keys_count: 1 });
    h.put("k", 3, { lease: second });
    expect([h.lease(first)?.keys, h.lease(second)?.keys]).toEqual([[], ["k"]]);
    h.put("k", 4, { ignore_lease: true });
    expect(h.record("k")).toMatchObject({ lease_id: second, expires_at_ms: null });
    h.put("k", 5);
    expect([h.lease(first)?.keys_count, h.lease(second)?.keys_count]).toEqual([0, 0]);
    expect(h.record("k")?.lease_id).toBeNull();
  });

  test("a delete detaches, and a key made again later is not the lease's", () => {
    const h = new Harness();
    const id = h.grant(30);
    h.put("k", 1, { lease: id });
    h.delete("k");
    expect(h.lease(id)?.keys).toEqual([]);
    h.put("k", 2);
    expect(okResult(h.apply({ kind: "lease_revoke", id }))).toEqual({ kind: "lease_revoke", deleted: 0 });
    expect(h.json("k")).toBe(2);
  });

  test("to an unknown lease refuses the txn", () => {
    const h = new Harness();
    expect(errorCode(h.txn({ success: [put("a", 1), put("b", 1, { lease: 7 })] }))).toBe("unknown_lease");
    expect(h.keys()).toEqual([]);
  });

  test("stops at 10 000 keys per lease, and leaving makes room", () => {
    const h = new Harness();
    const id = h.grant(30);
    for (let from = 0; from < 10_000; from += 100) {
      h.do(...Array.from({ length: 100 }, (_, index) => put(`k/${from + index}`, 1, { lease: id })));
    }
    h.expectUnchanged(() => {
      const outcome = h.txn({ success: [put("x", 1), put("y", 1, { lease: id })] });
      expect(errorCode(outcome)).toBe("lease_limit_exceeded");
    });
    h.put("k/5", 2, { lease: id });
    h.delete("k/6");
    h.put("y", 1, { lease: id });
    expect(h.lease(id)?.keys_count).toBe(10_000);
    expect(okResult(h.apply({ kind: "lease_revoke", id }))).toMatchObject({ deleted: 10_000 });
    expect(h.keys()).toEqual([]);
  });
});

describe("a revoke", () => {
  test("deletes exactly the attached keys, at one revision, events in key order (S15)", () => {
    const h = new Harness();
    const id = h.grant(30);
    const names = Array.from({ length: 101 }, (_, index) => `k/${String(index).padStart(3, "0")}`);
    h.do(...[...names].reverse().map((key) => put(key, 1, { lease: id })));
    h.do(put("free", 1), put("k/050x", 1));
    h.events.length = 0;
    expect(h.apply({ kind: "lease_revoke", id })).toMatchObject({ ok: true, revision: 3, result: { deleted: 101 } });
    expect(h.events.map((event) => [event.revision, event.op_index, event.type, event.key])).toEqual(
      names.map((key, index) => [3, index, "delete", key]),
    );
    expect(h.keys()).toEqual(["free", "k/050x"]);
    expect(h.lease(id)).toBeNull();
    expect(errorCode(h.apply({ kind: "lease_revoke", id }))).toBe("unknown_lease");
  });

  test("without keys does not move the revision", () => {
    const h = new Harness();
    const id = h.grant(30);
    h.expectUnchanged(() => undefined);
    expect(h.apply({ kind: "lease_revoke", id })).toMatchObject({ ok: true, revision: 0, result: { deleted: 0 } });
  });
});

describe("a TTL on a put is an anonymous lease", () => {
  test("absolute from the entry's time, renewed in place by the next TTL", () => {
    const h = new Harness();
    h.put("k", 1, { ttl: 10 });
    const first = h.record("k");
    expect(first).toMatchObject({ lease_id: 1, expires_at_ms: h.timeMs + 10_000 });
    expect(h.lease(1)).toMatchObject({ anonymous: true, keys: ["k"], ttl_s: 10 });
    h.timeMs += 5000;
    h.put("k", 2, { ttl: 20 });
    expect(h.record("k")).toMatchObject({ lease_id: 1, expires_at_ms: h.timeMs + 20_000 });
    expect(h.record("k", 1)).toEqual(first);
    h.put("k", 3, { ignore_lease: true });
    expect(h.record("k")).toMatchObject({ lease_id: 1, expires_at_ms: h.timeMs + 20_000 });
  });

  test("ends when its key leaves it by put, delete or another lease, and nothing of it remains", () => {
    const h = new Harness();
    const lease = h.grant(30);
    h.do(put("a", 1, { ttl: 10 }), put("b", 1, { ttl: 10 }), put("c", 1, { ttl: 10 }));
    h.do(put("a", 2), del("b"), put("c", 2, { lease }));
    okResult(h.apply({ kind: "lease_revoke", id: lease }));
    const leaseTables = h.store.rows().filter(([row]) => "ael".includes(row.charAt(0)));
    expect(leaseTables).toEqual([]);
    expect(h.keys()).toEqual(["a"]);
  });

  test("takes no other key, and belongs to its record: it can be neither revoked nor kept alive", () => {
    const h = new Harness();
    h.put("k", 1, { ttl: 10 });
    expect(errorCode(h.txn({ success: [put("other", 1, { lease: 1 })] }))).toBe("unknown_lease");
    expect(errorCode(h.txn({ success: [put("k", 1, { lease: 1 })] }))).toBe("unknown_lease");
    h.timeMs += 1000;
    expect(errorCode(h.apply({ kind: "lease_revoke", id: 1 }))).toBe("unknown_lease");
    const kept = okResult(h.apply({ kind: "lease_keep_alive", items: [{ id: 1, ttl_s: 99 }] }));
    expect(kept).toEqual({ kind: "lease_keep_alive", items: [{ id: 1, not_found: true }] });
    expect(h.record("k")).toMatchObject({ lease_id: 1, expires_at_ms: h.timeMs + 9000 });
  });
});

test("a lease and a TTL live on when their time has passed: only a command ends them", () => {
  const h = new Harness();
  const id = h.grant(1);
  h.do(put("leased", 1, { lease: id }), put("timed", 1, { ttl: 1 }));
  h.timeMs += 1_000_000;
  h.put("other", 1);
  expect(h.keys()).toEqual(["leased", "other", "timed"]);
  expect(h.lease(id)).toMatchObject({ remaining_ms: 0 });
});
