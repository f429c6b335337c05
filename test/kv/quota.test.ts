import { describe, expect, test } from "vitest";
import type { Command } from "../../src/kv/command.ts";
import { isGrowing } from "../../src/kv/quota.ts";
import { del, get, Harness, okResult, put, txnCommand } from "./harness.ts";
import { weigh } from "./naive-model.ts";

describe("growing", () => {
  test.each<[boolean, string, Command]>([
    [true, "a put", txnCommand({ success: [put("k", 1)] })],
    [true, "a put in the branch that may not run", txnCommand({ success: [get("k")], failure: [put("k", 1)] })],
    [true, "a touch, which writes a version", txnCommand({ success: [{ type: "touch", key: "k", ttl: 5 }] })],
    [true, "a delete beside a put", txnCommand({ success: [del("a"), put("b", 1)] })],
    [true, "a grant", { kind: "lease_grant", ttl_s: 5 }],
    [false, "deletes and reads", txnCommand({ success: [del("k"), get("k")], failure: [get("k")] })],
    [false, "an empty txn", txnCommand({})],
    [false, "a keep-alive", { kind: "lease_keep_alive", items: [{ id: 1 }] }],
    [false, "a revoke", { kind: "lease_revoke", id: 1 }],
    [false, "an expiry", { kind: "lease_expire", leases: [{ id: 1, expires_at_ms: 1 }] }],
    [false, "a floor", { kind: "lease_floor", floor_ms: 1 }],
    [false, "a compaction", { kind: "compact", revision: 1 }],
    [false, "a removal", { kind: "compact_remove", rows_max: 1 }],
  ])("%s: %s", (growing, _what, command) => {
    expect(isGrowing(command)).toBe(growing);
  });
});

describe("logical bytes", () => {
  /** Runs `work`, checks the weight against the rows, and answers by how much it changed. */
  function change(h: Harness, work: () => void): number {
    const before = h.machine.logicalBytes;
    work();
    expect(h.machine.logicalBytes).toBe(weigh(h.store));
    return h.machine.logicalBytes - before;
  }

  test("rise with every put, also of the same value, and stand still for reads and refusals", () => {
    const h = new Harness();
    const first = change(h, () => h.put("k\u00e4", "\u{1F600}"));
    const second = change(h, () => h.put("k\u00e4", "\u{1F600}"));
    expect(first).toBeGreaterThan(second);
    expect(second).toBeGreaterThan(0);
    expect(change(h, () => h.do(get("k\u00e4")))).toBe(0);
    expect(change(h, () => h.txn({ success: [put("x", 1), put("y", 1, { lease: 7 })] }))).toBe(0);
  });

  test("fall with every delete, however long the key: the tombstone was paid for in advance", () => {
    const h = new Harness();
    for (const key of ["k", "\u0000\u0001\u0002".repeat(1365), "\u00ff".repeat(4096)]) {
      h.put(key, 1);
      expect(change(h, () => h.delete(key))).toBeLessThan(0);
    }
  });

  test("fall when leases end, and when removal takes rows; the rest weighs what it weighed", () => {
    const h = new Harness();
    h.put("kept", 1);
    const alone = h.machine.logicalBytes;
    expect(change(h, () => okResult(h.apply({ kind: "lease_grant", ttl_s: 5, metadata: { m: "x" } })))).toBeGreaterThan(
      0,
    );
    h.do(put("a", 1, { lease: 1 }), put("b", 1, { lease: 1, due_at_ms: 5 }), put("c", 1, { ttl: 5 }));
    h.put("kept", "v".repeat(1000));
    h.put("kept", 1);
    expect(change(h, () => okResult(h.apply({ kind: "lease_keep_alive", items: [{ id: 1, ttl_s: 9 }] })))).toBe(0);
    h.timeMs += 9000;
    const leases = [1, 2].map((id) => ({ id, expires_at_ms: h.lease(id)?.expires_at_ms ?? 0 }));
    expect(change(h, () => okResult(h.apply({ kind: "lease_expire", leases })))).toBeLessThan(0);
    expect(h.keys()).toEqual(["kept"]);
    expect(change(h, () => okResult(h.apply({ kind: "compact", revision: h.machine.revision })))).toBe(0);
    expect(change(h, () => okResult(h.apply({ kind: "compact_remove", rows_max: 1000 })))).toBeLessThan(-1000);
    expect(h.machine.logicalBytes).toBe(alone);
  });
});
