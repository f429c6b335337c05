import { describe, expect, test } from "vitest";
import {
  IDEMPOTENCY_ENTRIES_MAX,
  IDEMPOTENCY_KEPT_MS_MIN,
  IDEMPOTENCY_KEPT_REVISIONS_MIN,
} from "../../src/base/limits.ts";
import { canonicalCommand } from "../../src/kv/canonical.ts";
import type { Command, Idempotency, Operation } from "../../src/kv/command.ts";
import { applyEntries, openMachine } from "../../src/kv/machine.ts";
import { del, errorCode, get, Harness, okResult, put, txnCommand } from "./harness.ts";

const idem = (key: string, hash = "h", more: Partial<Idempotency> = {}): Idempotency => ({
  scope: "alice",
  key,
  hash,
  ...more,
});

function known(h: Harness, key: string, scope = "alice") {
  const result = h.query({ kind: "txn_result", scope, key });
  if (result.kind !== "txn_result") throw new Error("wrong kind");
  return result;
}

describe("a repeated request", () => {
  test("under the same key and hash gets the stored result and runs nothing", () => {
    const h = new Harness();
    const first = h.txn({ success: [put("k", 1, { prev_kv: true })] }, idem("K"));
    h.put("k", 2);
    h.expectUnchanged(() => {
      const again = h.txn({ success: [put("k", 1, { prev_kv: true })] }, idem("K"));
      expect(again).toEqual({ ...first, replayed: true });
    });
    expect(first).toMatchObject({ ok: true, revision: 1 });
    expect(first).not.toHaveProperty("replayed");
    expect(known(h, "K")).toMatchObject({ status: "known", outcome: first });
  });

  test("with another hash conflicts and writes nothing (S26)", () => {
    const h = new Harness();
    h.txn({ success: [put("k", 1)] }, idem("K", "h1"));
    h.expectUnchanged(() => {
      expect(errorCode(h.txn({ success: [put("k", 2)] }, idem("K", "h2")))).toBe("idempotency_conflict");
      expect(errorCode(h.apply({ kind: "lease_grant", ttl_s: 5 }, idem("K", "h3")))).toBe("idempotency_conflict");
    });
    expect(known(h, "K")).toMatchObject({ outcome: { ok: true } });
  });

  test("of another principal is another request (S26)", () => {
    const h = new Harness();
    h.txn({ success: [put("a", 1)] }, idem("K"));
    h.txn({ success: [put("b", 1)] }, idem("K", "other", { scope: "bob" }));
    expect(h.keys()).toEqual(["a", "b"]);
    expect(known(h, "K", "carol").status).toBe("unknown");
    // Neither part of the pair can run into the other.
    h.txn({ success: [put("c", 1)] }, idem("\u0001x", "1", { scope: "s" }));
    h.txn({ success: [put("d", 1)] }, idem("x", "2", { scope: "s\u0001" }));
    h.txn({ success: [put("e", 1)] }, idem("\u00e9\u{1F600}\u0000", "3"));
    expect(h.keys()).toEqual(["a", "b", "c", "d", "e"]);
    expect(known(h, "\u00e9\u{1F600}\u0000").status).toBe("known");
  });

  test("of ten equal requests in one batch runs once, and all get the same answer (S26)", () => {
    const h = new Harness();
    const proposal = { format: 1, command: txnCommand({ success: [put("k", 1)] }), idempotency: idem("K") };
    const payload = JSON.stringify(proposal);
    const entries = Array.from({ length: 10 }, (_, index) => ({ index: index + 1, timeMs: 5, payload }));
    const applied = applyEntries(h.machine, entries);
    expect(applied.map(({ outcome }) => outcome?.revision)).toEqual(Array.from({ length: 10 }, () => 1));
    expect(applied.flatMap(({ events }) => events)).toHaveLength(1);
    expect(applied.filter(({ outcome }) => outcome?.ok && outcome.replayed)).toHaveLength(9);
  });

  test("after a failed compare gets the failed compare, though it would succeed now", () => {
    const h = new Harness();
    const compare = [{ target: "exists", key: "k", op: "==", value: true } as const];
    const parts = { compare, success: [put("won", 1)], failure: [get("k")] };
    expect(h.run(parts, idem("K")).succeeded).toBe(false);
    h.put("k", 1);
    expect(h.run(parts, idem("K")).succeeded).toBe(false);
    expect(h.keys()).toEqual(["k"]);
  });

  test("after an apply error gets the same error, though it would succeed now", () => {
    const h = new Harness();
    const parts = { success: [put("k", 1, { lease: 1 })] };
    const first = h.txn(parts, idem("K"));
    expect(errorCode(first)).toBe("unknown_lease");
    h.grant(60);
    expect(h.txn(parts, idem("K"))).toEqual(first);
    expect(h.keys()).toEqual([]);
  });

  test("works for every write command", () => {
    const h = new Harness();
    h.put("k", 1);
    const grant: Command = { kind: "lease_grant", ttl_s: 60 };
    const first = h.apply(grant, idem("grant"));
    expect(h.apply(grant, idem("grant"))).toEqual({ ...first, replayed: true });
    expect(h.grant(60)).toBe(2);
    const revoke: Command = { kind: "lease_revoke", id: 1 };
    okResult(h.apply(revoke, idem("revoke")));
    expect(h.apply(revoke, idem("revoke"))).toMatchObject({ ok: true, replayed: true });
    const compact: Command = { kind: "compact", revision: 1 };
    okResult(h.apply(compact, idem("compact")));
    expect(h.apply(compact, idem("compact"))).toMatchObject({ ok: true, replayed: true });
  });

  test("finds its result after a restart, because it is in the state (S27)", () => {
    const h = new Harness();
    h.txn({ success: [put("k", 1)] }, idem("K"));
    h.restart();
    expect(h.txn({ success: [put("k", 1)] }, idem("K"))).toMatchObject({ ok: true, revision: 1, replayed: true });
  });

  test("whose first entry was lost runs once, and is unknown until then (S27)", () => {
    const h = new Harness();
    h.put("other", 1);
    expect(known(h, "K")).toEqual({ kind: "txn_result", status: "unknown", idem_floor: 0 });
    expect(h.txn({ success: [put("k", 1)] }, idem("K", "h", { since: 1 }))).toMatchObject({ ok: true, revision: 2 });
    expect(known(h, "K").status).toBe("known");
  });
});

describe("results over 32 KiB", () => {
  test("are kept without values, and say so; the first answer is whole", () => {
    const h = new Harness();
    h.put("k", "v".repeat(40_000), { metadata: { m: 1 } });
    const parts: { success: Operation[] } = {
      success: [
        get("k"),
        put("k", 2, { prev_kv: true }),
        put("l", "w".repeat(40_000)),
        { type: "delete", selector: { prefix: "l" }, prev_kv: true },
      ],
    };
    const whole = h.run(parts, idem("K"));
    expect(whole.values_dropped).toBeUndefined();
    expect(whole.responses[0]).toMatchObject({ kvs: [{ value: { json: "v".repeat(40_000) } }] });
    const kept = h.txn(parts, idem("K"));
    expect(kept).toMatchObject({
      ok: true,
      replayed: true,
      result: {
        succeeded: true,
        revision: 2,
        values_dropped: true,
        responses: [
          { kvs: [{ key: "k", value: { json: null }, mod_revision: 1 }], count: 1 },
          { key: "k", prev_kv: { key: "k", value: { json: null } } },
          { key: "l" },
          { deleted: 1, prev_kvs: [{ key: "l", value: { json: null } }] },
        ],
      },
    });
    expect(JSON.stringify(kept).length).toBeLessThan(2000);
  });

  test("whose keys alone are over it are kept as counts", () => {
    const h = new Harness();
    for (let from = 0; from < 1000; from += 100) {
      h.do(...Array.from({ length: 100 }, (_, index) => put(`${"k".repeat(200)}${from + index}`, 1)));
    }
    const parts: { success: Operation[] } = {
      success: [{ type: "get", selector: { prefix: "k" }, limit: 1000 }, put("x", 1, { prev_kv: true })],
    };
    h.run(parts, idem("K"));
    expect(h.txn(parts, idem("K"))).toMatchObject({
      result: {
        values_dropped: true,
        responses: [
          { kvs: [], count: 1000 },
          { type: "put", key: "x", prev_kv: null },
        ],
      },
    });
  });
});

describe("eviction", () => {
  const write = (h: Harness, count: number): void => {
    const base = h.machine.appliedIndex;
    const payload = JSON.stringify({ format: 1, command: txnCommand({ success: [put("busy", 1)] }) });
    const entry = (_: unknown, index: number) => ({ index: base + index + 1, timeMs: h.timeMs, payload });
    applyEntries(h.machine, Array.from({ length: count }, entry));
  };

  test("needs both ten minutes of log time and ten thousand revisions", () => {
    const h = new Harness();
    h.txn({ success: [put("k", 1)] }, idem("K"));
    write(h, IDEMPOTENCY_KEPT_REVISIONS_MIN + 10);
    expect(known(h, "K").status).toBe("known");
    h.timeMs += IDEMPOTENCY_KEPT_MS_MIN - 1;
    write(h, 1);
    expect(known(h, "K").status).toBe("known");
    h.timeMs += 1;
    write(h, 1);
    expect(known(h, "K")).toEqual({ kind: "txn_result", status: "unknown", idem_floor: 1 });

    const young = new Harness();
    young.txn({ success: [put("k", 1)] }, idem("K"));
    young.timeMs += 100 * IDEMPOTENCY_KEPT_MS_MIN;
    write(young, IDEMPOTENCY_KEPT_REVISIONS_MIN - 1);
    expect(known(young, "K").status).toBe("known");
    write(young, 1);
    expect(known(young, "K").status).toBe("unknown");
  });

  test("makes an unknown key with an older since expired, never a run", () => {
    const h = new Harness();
    h.put("a", 1);
    const parts = { success: [put("k", 1)] };
    h.txn(parts, idem("K", "h", { since: 1 }));
    h.timeMs += IDEMPOTENCY_KEPT_MS_MIN;
    write(h, IDEMPOTENCY_KEPT_REVISIONS_MIN + 1);
    h.expectUnchanged(() => {
      expect(h.txn(parts, idem("K", "h", { since: 1 }))).toMatchObject({ error: { code: "idempotency_expired" } });
      expect(known(h, "K").status).toBe("unknown");
    });
    const fresh = h.machine.revision;
    expect(h.txn(parts, idem("fresh", "h", { since: fresh }))).toMatchObject({ ok: true });
    expect(h.txn(parts, idem("without since"))).toMatchObject({ ok: true });
  });

  test("of a result that moved no revision also expires its since", () => {
    const h = new Harness();
    h.put("a", 1);
    const parts = { compare: [{ target: "exists", key: "k", op: "==", value: true } as const], success: [put("w", 1)] };
    expect(h.run(parts, idem("K", "h", { since: 1 })).succeeded).toBe(false);
    h.timeMs += IDEMPOTENCY_KEPT_MS_MIN;
    write(h, IDEMPOTENCY_KEPT_REVISIONS_MIN);
    h.put("k", 1);
    expect(errorCode(h.txn(parts, idem("K", "h", { since: 1 })))).toBe("idempotency_expired");
  });

  test("takes the oldest first beyond 100 000 results, and leaves no rows behind", () => {
    const h = new Harness();
    const command = txnCommand({ success: [del("absent")] });
    for (let from = 0; from < IDEMPOTENCY_ENTRIES_MAX + 10; from += 1000) {
      const count = Math.min(1000, IDEMPOTENCY_ENTRIES_MAX + 10 - from);
      const entries = Array.from({ length: count }, (_, index) => ({
        index: from + index + 1,
        timeMs: 1,
        payload: JSON.stringify({ format: 1, command, idempotency: idem(`K${from + index}`) }),
      }));
      applyEntries(h.machine, entries);
    }
    expect(known(h, "K9").status).toBe("unknown");
    expect(known(h, "K10").status).toBe("known");
    expect(known(h, "K10").idem_floor).toBe(1);
    const rows = h.store.rows().filter(([row]) => "io".includes(row.charAt(0)));
    expect(rows).toHaveLength(2 * IDEMPOTENCY_ENTRIES_MAX);
  });

  test("keeps the table within 64 MiB", () => {
    const h = new Harness();
    h.put("k", "v".repeat(30_000));
    for (let index = 0; index < 2400; index += 1) h.txn({ success: [get("k")] }, idem(`K${index}`));
    const kept = h.store.rows().filter(([row]) => row.startsWith("i"));
    const bytes = kept.reduce((sum, [row, text]) => sum + row.length + text.length, 0);
    expect(bytes).toBeLessThan(64 << 20);
    expect(bytes).toBeGreaterThan(60 << 20);
    expect(known(h, "K0").status).toBe("unknown");
    expect(known(h, "K2399").status).toBe("known");
  });

  test("is the same however the log is batched, and across restarts", () => {
    const whole = new Harness();
    for (let index = 0; index < 300; index += 1) {
      whole.timeMs += 60_000;
      whole.txn({ success: [put("k", index)] }, idem(`K${index % 250}`, String(index % 7)));
    }
    const again = new Harness();
    for (const entry of whole.log) {
      applyEntries(again.machine, [entry]);
      again.machine = openMachine(again.store);
    }
    expect(again.machine.digest).toBe(whole.machine.digest);
    expect(again.store.rows()).toEqual(whole.store.rows());
  });
});

describe("the canonical text of a command", () => {
  test("is equal for another property order and for defaults spelled out (S26)", () => {
    const brief: Command = txnCommand({
      compare: [{ target: "value", key: "k", op: "==", value: { json: { a: 1, b: [2] } } }],
      success: [put("k", { x: 1, y: 2 }), { type: "get", selector: { prefix: "p" }, limit: 5 }],
      failure: [{ type: "delete", selector: { key: "k" } }],
    });
    const long: Command = {
      failure: [{ selector: { key: "k" }, prev_kv: false, type: "delete" }],
      success: [
        {
          value: { json: { y: 2, x: 1 } },
          metadata: {},
          ignore_lease: false,
          ignore_value: false,
          revision_suffix: false,
          prev_kv: false,
          key: "k",
          type: "put",
        },
        { limit: 5, order: "asc", keys_only: false, count_only: false, selector: { prefix: "p" }, type: "get" },
      ],
      compare: [{ value: { json: { b: [2], a: 1 } }, op: "==", key: "k", target: "value" }],
      kind: "txn",
    };
    expect(canonicalCommand(long)).toBe(canonicalCommand(brief));
    expect(canonicalCommand({ kind: "lease_grant", metadata: {}, ttl_s: 5 })).toBe(
      canonicalCommand({ kind: "lease_grant", ttl_s: 5 }),
    );
  });

  test("differs where the meaning differs", () => {
    const texts = [
      txnCommand({ success: [put("k", 1)] }),
      txnCommand({ failure: [put("k", 1)] }),
      txnCommand({ success: [put("k", "1")] }),
      txnCommand({ success: [put("k", 1, { prev_kv: true })] }),
      txnCommand({ success: [put("k", 1, { metadata: { a: 1 } })] }),
      txnCommand({ success: [{ type: "put", key: "k", ignore_value: true }] }),
      txnCommand({ success: [{ type: "put", key: "k", ignore_value: true, metadata: {} }] }),
      txnCommand({ success: [{ type: "put", key: "k", value: { base64: "" } }] }),
      txnCommand({ compare: [{ target: "exists", key: "k", op: "==", value: false }] }),
      txnCommand({ compare: [{ target: "exists", key: "k", op: "==", value: true }] }),
      { kind: "lease_grant", ttl_s: 1 } as const,
      { kind: "lease_revoke", id: 1 } as const,
      { kind: "compact", revision: 1 } as const,
    ].map(canonicalCommand);
    expect(new Set(texts).size).toBe(texts.length);
  });
});
