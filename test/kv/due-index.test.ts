import { describe, expect, test } from "vitest";
import type { Query } from "../../src/kv/command.ts";
import { nextDue, nextDueEntry } from "../../src/kv/due-index.ts";
import { Harness, okResult, put } from "./harness.ts";

function due(h: Harness, at_ms: number, options: Partial<Query & { kind: "due" }> = {}) {
  const result = h.query({ kind: "due", at_ms, limit: 100, ...options });
  if (result.kind !== "due") throw new Error(result.kind);
  return result;
}

describe("the due index", () => {
  test("lists what is due at or before a time, earliest first, equal times by key, with the record's revision", () => {
    const h = new Harness();
    h.do(put("b", 1, { due_at_ms: 20 }), put("a", 1, { due_at_ms: 20 }), put("\u0000sys", 1, { due_at_ms: 30 }));
    h.do(put("c", 1, { due_at_ms: 10 }), put("never", 1));
    expect(due(h, 9)).toEqual({ kind: "due", entries: [], more: false });
    expect(due(h, 20)).toEqual({
      kind: "due",
      entries: [
        { due_at_ms: 10, key: "c", mod_revision: 2 },
        { due_at_ms: 20, key: "a", mod_revision: 1 },
        { due_at_ms: 20, key: "b", mod_revision: 1 },
      ],
      more: false,
    });
    expect(due(h, Number.MAX_SAFE_INTEGER).entries.length).toBe(4);
  });

  test("pages go on behind the last entry, also between keys that only escaping tells apart", () => {
    const h = new Harness();
    const keys = ["a", "a\u0000", "a\u0001", "a\u0001b", "a\u0002", "ab", "b"];
    h.do(...keys.map((key) => put(key, 1, { due_at_ms: 5 })));
    const seen: string[] = [];
    let after: readonly [number, string] | undefined;
    for (let more = true; more; ) {
      const page = due(h, 5, { limit: 2, ...(after === undefined ? {} : { after }) });
      seen.push(...page.entries.map((entry) => entry.key));
      const last = page.entries.at(-1);
      if (last !== undefined) after = [last.due_at_ms, last.key];
      more = page.more;
    }
    expect(seen).toEqual(keys);
  });

  test("an entry leaves it with the next write, delete or end of its record, and nothing else ends it", () => {
    const h = new Harness();
    const lease = h.grant(1);
    h.do(...["put", "deleted", "kept"].map((key) => put(key, 1, { due_at_ms: 5 })));
    h.do(put("leased", 1, { due_at_ms: 5, lease }), put("moved", 1, { due_at_ms: 5 }));
    h.timeMs += 10_000_000;
    h.do(put("put", 2), put("moved", 2, { due_at_ms: 9 }));
    h.delete("deleted");
    h.do({ type: "touch", key: "kept", ttl: 60 });
    okResult(h.apply({ kind: "lease_revoke", id: lease }));
    expect(due(h, 100).entries).toEqual([
      { due_at_ms: 5, key: "kept", mod_revision: 5 },
      { due_at_ms: 9, key: "moved", mod_revision: 3 },
    ]);
  });
});

describe("the next due time", () => {
  test("is the earlier of the next lease and the next entry; null without both (S36)", () => {
    const h = new Harness();
    expect(nextDue(h.machine, h.timeMs)).toBeNull();
    h.put("later", 1, { due_at_ms: h.timeMs + 30_000 });
    expect(nextDue(h.machine, h.timeMs)).toBe(h.timeMs + 30_000);
    const id = h.grant(10);
    // A later timer does not overwrite an earlier one, nor the other way round.
    expect(nextDue(h.machine, h.timeMs)).toBe(h.timeMs + 10_000);
    h.put("sooner", 1, { due_at_ms: h.timeMs + 5000 });
    expect(nextDue(h.machine, h.timeMs)).toBe(h.timeMs + 5000);
    h.delete("sooner");
    okResult(h.apply({ kind: "lease_floor", floor_ms: h.timeMs + 20_000 }));
    expect(nextDue(h.machine, h.timeMs)).toBe(h.timeMs + 20_000);
    okResult(h.apply({ kind: "lease_revoke", id }));
    expect(nextDue(h.machine, h.timeMs)).toBe(h.timeMs + 30_000);
    h.delete("later");
    h.grant(7);
    expect([nextDue(h.machine, h.timeMs), nextDueEntry(h.store, h.timeMs)]).toEqual([h.timeMs + 20_000, null]);
  });

  test("of a lease is the step in which it ends, of an entry its own", () => {
    const h = new Harness();
    h.timeMs = 1_700_000_000_123;
    h.grant(10);
    expect(nextDue(h.machine, h.timeMs, 1000)).toBe(1_700_000_011_000);
    h.put("k", 1, { due_at_ms: 1_700_000_010_500 });
    expect(nextDue(h.machine, h.timeMs, 1000)).toBe(1_700_000_010_500);
  });

  test("tells of an entry however far ahead it is, and of an overdue one no more", () => {
    const h = new Harness();
    h.put("k", 1, { due_at_ms: Number.MAX_SAFE_INTEGER });
    expect(nextDue(h.machine, h.timeMs)).toBe(Number.MAX_SAFE_INTEGER);
    h.put("k", 1, { due_at_ms: h.timeMs + 1 });
    expect(nextDue(h.machine, h.timeMs)).toBe(h.timeMs + 1);
    // The alarm that is set to it must not find it again, and again (S37).
    expect(nextDue(h.machine, h.timeMs + 1)).toBeNull();
  });
});
