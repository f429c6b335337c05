import { describe, expect, test } from "vitest";
import type { Operation } from "../../src/kv/command.ts";
import { del, errorCode, get, Harness, okResult, put } from "./harness.ts";

describe("put", () => {
  test("creates a record with version 1, then counts versions and keeps create_revision", () => {
    const h = new Harness();
    h.put("other", 0);
    h.put("k", { a: 1 });
    expect(h.record("k")).toEqual({
      key: "k",
      value: { json: { a: 1 } },
      create_revision: 2,
      mod_revision: 2,
      version: 1,
      lease_id: null,
      expires_at_ms: null,
      content_type: null,
      metadata: {},
    });
    h.put("k", 2);
    expect(h.record("k")).toMatchObject({ create_revision: 2, mod_revision: 3, version: 2, value: { json: 2 } });
  });

  test("delete and recreate resets create_revision and version", () => {
    const h = new Harness();
    h.put("k", 1);
    h.put("k", 2);
    h.delete("k");
    h.put("k", 3);
    expect(h.record("k")).toMatchObject({ create_revision: 4, mod_revision: 4, version: 1 });
  });

  test.each([null, "", 0, false, [], {}, { deep: [null, { x: "\u0000\n\u{1F600}" }] }])(
    "keeps the value %j",
    (json) => {
      const h = new Harness();
      h.put("k", json);
      expect(h.json("k")).toEqual(json);
    },
  );

  test("keeps bytes, content type and metadata, and a put without them clears them", () => {
    const h = new Harness();
    h.do({ type: "put", key: "k", value: { base64: "AAH/" }, content_type: "image/png", metadata: { by: "a\n" } });
    expect(h.record("k")).toMatchObject({
      value: { base64: "AAH/" },
      content_type: "image/png",
      metadata: { by: "a\n" },
    });
    h.put("k", 1);
    expect(h.record("k")).toMatchObject({ value: { json: 1 }, content_type: null, metadata: {} });
  });

  test("answers prev_kv only when asked: null for a new key, the record before for an old one", () => {
    const h = new Harness();
    expect(h.do(put("k", 1))).toEqual([{ type: "put", key: "k" }]);
    expect(h.do(put("new", 1, { prev_kv: true }))).toEqual([{ type: "put", key: "new", prev_kv: null }]);
    const [response] = h.do(put("k", 2, { prev_kv: true }));
    expect(response).toMatchObject({ prev_kv: { value: { json: 1 }, version: 1, mod_revision: 1 } });
  });

  test("ignore_value keeps value, content type, metadata and due time, and makes a new version", () => {
    const h = new Harness();
    h.put("k", 1, { content_type: "text/x", metadata: { a: 1 }, due_at_ms: 7 });
    h.do({ type: "put", key: "k", ignore_value: true, ttl: 9 });
    expect(h.record("k")).toMatchObject({
      value: { json: 1 },
      content_type: "text/x",
      metadata: { a: 1 },
      version: 2,
      expires_at_ms: h.timeMs + 9000,
    });
    expect(dueKeys(h)).toEqual(["k"]);
    h.do({ type: "put", key: "k", ignore_value: true, metadata: {} });
    expect(h.record("k")).toMatchObject({ content_type: "text/x", metadata: {}, lease_id: null });
  });

  test("ignore_value and ignore_lease on an absent key refuse the txn", () => {
    const h = new Harness();
    h.expectUnchanged(() => {
      expect(errorCode(h.txn({ success: [{ type: "put", key: "k", ignore_value: true }] }))).toBe("not_found");
      expect(errorCode(h.txn({ success: [put("k", 1, { ignore_lease: true })] }))).toBe("not_found");
    });
  });

  test("revision_suffix names the key after the commit's revision, with 16 digits", () => {
    const h = new Harness();
    h.put("a", 1);
    const suffixed: Operation = put("log/", "x", { revision_suffix: true });
    expect(h.do(suffixed, put("b", 1))).toMatchObject([{ key: "log/0000000000000002" }, { key: "b" }]);
    expect(h.do(suffixed)).toMatchObject([{ key: "log/0000000000000003" }]);
    expect(h.keys("log/")).toEqual(["log/0000000000000002", "log/0000000000000003"]);
    expect(h.record("log/0000000000000003")).toMatchObject({ mod_revision: 3, create_revision: 3 });
  });

  test("keys and rows made within one millisecond stay distinct and in order (S18)", () => {
    const h = new Harness();
    for (let count = 0; count < 3; count += 1) {
      h.do(put("task/", "t", { revision_suffix: true }), put(`due/${count}`, count, { due_at_ms: h.timeMs }));
      expect(h.grant(10)).toBe(count + 1);
    }
    expect(h.keys("task/").map((key) => Number(key.slice(5)))).toEqual([1, 2, 3]);
    expect(dueKeys(h)).toEqual(["due/0", "due/1", "due/2"]);
  });
});

describe("the due index", () => {
  test("follows put, overwrite and delete, in order of time", () => {
    const h = new Harness();
    h.put("late", 1, { due_at_ms: 2_000_000_000_000 });
    h.put("early", 1, { due_at_ms: 5 });
    expect(dueKeys(h)).toEqual(["early", "late"]);
    h.put("early", 1, { due_at_ms: 3_000_000_000_000 });
    expect(dueKeys(h)).toEqual(["late", "early"]);
    h.put("early", 1);
    expect(dueKeys(h)).toEqual(["late"]);
    h.delete("late");
    expect(dueKeys(h)).toEqual([]);
  });

  test("a due time 30 days ahead stays what it is (S35)", () => {
    const h = new Harness();
    h.put("k", 1, { due_at_ms: h.timeMs + 2_592_000_000 });
    const [row] = h.store.scan({ start: "d", end: "e", limit: 1 });
    expect(Number(row?.[0].slice(1, 17))).toBe(h.timeMs + 2_592_000_000);
  });
});

describe("delete", () => {
  test("of a key, prefix or range answers how many, and prev_kvs when asked", () => {
    const h = new Harness();
    h.do(put("a/1", 1), put("a/2", 2), put("b", 3), put("c", 4));
    expect(h.do(del("absent"))).toEqual([{ type: "delete", deleted: 0 }]);
    const [response] = h.do({ type: "delete", selector: { prefix: "a/" }, prev_kv: true });
    expect(response).toMatchObject({ deleted: 2, prev_kvs: [{ key: "a/1" }, { key: "a/2", value: { json: 2 } }] });
    expect(h.do({ type: "delete", selector: { range: { start: "b", end: "c" } } })).toMatchObject([{ deleted: 1 }]);
    expect(h.keys()).toEqual(["c"]);
    expect(h.do({ type: "delete", selector: { range: { start: "" } } })).toMatchObject([{ deleted: 1 }]);
  });

  test("of 150 keys is one revision with 150 events in key order (S15)", () => {
    const h = new Harness();
    const names = Array.from({ length: 150 }, (_, index) => `k/${String(index).padStart(3, "0")}`);
    for (let from = 0; from < 150; from += 75) h.do(...names.slice(from, from + 75).map((key) => put(key, 1)));
    h.events.length = 0;
    const { revision } = h.run({ success: [{ type: "delete", selector: { prefix: "k/" } }] });
    expect(h.events.map((event) => event.key)).toEqual(names);
    expect(h.events.map((event) => event.op_index)).toEqual(names.map((_, index) => index));
    expect(h.events.every((event) => event.revision === revision && event.type === "delete")).toBe(true);
  });

  test("of more than 10 000 keys refuses the whole txn, and of exactly 10 000 works", () => {
    const h = new Harness();
    for (let from = 0; from < 10_001; from += 128) {
      const count = Math.min(128, 10_001 - from);
      h.do(...Array.from({ length: count }, (_, index) => put(`k/${String(from + index).padStart(5, "0")}`, 1)));
    }
    h.expectUnchanged(() => {
      const outcome = h.txn({ success: [put("x", 1), { type: "delete", selector: { prefix: "k/" } }] });
      expect(errorCode(outcome)).toBe("too_many_keys");
    });
    const range = { start: "k/", end: "k/10000" };
    expect(h.do({ type: "delete", selector: { range } })).toEqual([{ type: "delete", deleted: 10_000 }]);
    expect(h.keys()).toEqual(["k/10000"]);
  });

  test("leaves a tombstone whose numbers are those of an absent key", () => {
    const h = new Harness();
    h.put("k", 1, { metadata: { a: 1 } });
    h.delete("k");
    expect(h.events[1]).toEqual({
      revision: 2,
      op_index: 0,
      type: "delete",
      key: "k",
      value: null,
      create_revision: 0,
      mod_revision: 2,
      version: 0,
      lease_id: null,
      expires_at_ms: null,
      content_type: null,
      metadata: {},
    });
    expect(h.history("k")[1]).toEqual(h.events[1]);
  });
});

describe("touch", () => {
  test("of an existing key is a new version with the same value and a new TTL", () => {
    const h = new Harness();
    h.put("k", { a: 1 }, { content_type: "x", metadata: { m: 1 }, ttl: 5, due_at_ms: 3 });
    h.timeMs += 1000;
    expect(h.do({ type: "touch", key: "k", ttl: 60 })).toEqual([{ type: "touch", expires_at_ms: h.timeMs + 60_000 }]);
    expect(h.record("k")).toMatchObject({
      value: { json: { a: 1 } },
      content_type: "x",
      metadata: { m: 1 },
      mod_revision: 2,
      version: 2,
      expires_at_ms: h.timeMs + 60_000,
    });
    expect(dueKeys(h)).toEqual(["k"]);
  });

  test("gives a key without TTL one, and takes a key off its lease", () => {
    const h = new Harness();
    const lease = h.grant(100);
    h.put("k", 1, { lease });
    h.do({ type: "touch", key: "k", ttl: 60 });
    expect(h.lease(lease)?.keys).toEqual([]);
    expect(h.record("k")?.lease_id).not.toBe(lease);
  });

  test("of an absent key answers not_found and changes nothing (S16)", () => {
    const h = new Harness();
    h.put("k", 1);
    h.expectUnchanged(() => {
      const result = h.run({ success: [{ type: "touch", key: "absent", ttl: 60 }] });
      expect(result).toMatchObject({ revision: 1, responses: [{ type: "touch", not_found: true }] });
    });
  });
});

describe("get in a txn", () => {
  test("answers key, prefix and range with limit, order, keys_only and count_only", () => {
    const h = new Harness();
    h.do(put("a", 1), put("b", 2), put("c", 3));
    const ask = (options: Partial<Operation & { type: "get" }>) =>
      h.do({ type: "get", selector: { prefix: "" }, limit: 10, ...options })[0];
    expect(h.do(get("b"))).toMatchObject([{ kvs: [{ key: "b", value: { json: 2 } }], count: 1, more: false }]);
    expect(h.do(get("x"))).toEqual([{ type: "get", kvs: [], count: 0, more: false }]);
    expect(ask({ limit: 2 })).toMatchObject({ kvs: [{ key: "a" }, { key: "b" }], count: 2, more: true });
    expect(ask({ limit: 3 })).toMatchObject({ count: 3, more: false });
    expect(ask({ limit: 1, order: "desc" })).toMatchObject({ kvs: [{ key: "c" }], more: true });
    expect(ask({ selector: { range: { start: "b" } }, keys_only: true })).toMatchObject({
      kvs: [
        { key: "b", value: { json: null }, version: 1 },
        { key: "c", value: { json: null } },
      ],
    });
    expect(ask({ limit: 1, count_only: true })).toEqual({ type: "get", kvs: [], count: 3, more: false });
  });

  test("at an older revision does not see the txn's own writes", () => {
    const h = new Harness();
    h.put("k", "old");
    h.put("k", "new");
    const atOne: Operation = { type: "get", selector: { key: "k" }, revision: 1 };
    const atTwo: Operation = { type: "get", selector: { prefix: "" }, limit: 5, revision: 2 };
    expect(h.do(put("k", "own"), atOne, atTwo, get("k"))).toMatchObject([
      {},
      { kvs: [{ value: { json: "old" } }] },
      { kvs: [{ value: { json: "new" } }] },
      { kvs: [{ value: { json: "own" } }] },
    ]);
  });

  test("whose reply is over 4 MiB refuses the whole txn, and fits as keys_only", () => {
    const h = new Harness();
    for (let index = 0; index < 5; index += 1) h.put(`k/${index}`, "v".repeat(1_000_000));
    const large: Operation = { type: "get", selector: { prefix: "k/" }, limit: 10 };
    h.expectUnchanged(() => {
      expect(errorCode(h.txn({ success: [put("x", 1), large] }))).toBe("result_too_large");
      expect(errorCode(h.txn({ success: Array.from({ length: 5 }, () => get("k/1")) }))).toBe("result_too_large");
      const deleteAll: Operation = { type: "delete", selector: { prefix: "k/" }, prev_kv: true };
      expect(errorCode(h.txn({ success: [deleteAll] }))).toBe("result_too_large");
    });
    expect(h.do({ ...large, keys_only: true })).toMatchObject([{ count: 5 }]);
    expect(h.do({ ...large, limit: 4 })).toMatchObject([{ count: 4, more: true }]);
  });
});

describe("a txn", () => {
  test("sees its own earlier writes: read-your-writes within a branch", () => {
    const h = new Harness();
    h.put("k", 0);
    const responses = h.do(
      put("k", 1),
      get("k"),
      put("k", 2, { prev_kv: true }),
      put("n", 1),
      { type: "get", selector: { prefix: "" }, limit: 10 },
      del("k"),
      get("k"),
      { type: "get", selector: { prefix: "" }, limit: 10, count_only: true },
      put("k", 3),
      get("k"),
    );
    expect(responses).toMatchObject([
      {},
      { kvs: [{ value: { json: 1 }, mod_revision: 2, version: 2 }] },
      { prev_kv: { value: { json: 1 } } },
      {},
      { kvs: [{ value: { json: 2 }, version: 3 }, { key: "n" }] },
      { deleted: 1 },
      { kvs: [] },
      { count: 1 },
      {},
      { kvs: [{ value: { json: 3 }, version: 1, create_revision: 2, mod_revision: 2 }] },
    ]);
    expect(h.history("k").map((event) => [event.revision, event.op_index, event.type])).toEqual([
      [1, 0, "put"],
      [2, 0, "put"],
      [2, 1, "put"],
      [2, 3, "delete"],
      [2, 4, "put"],
    ]);
  });

  test("evaluates its compares on the state before, and runs the failure branch when one fails", () => {
    const h = new Harness();
    h.put("k", 1);
    const result = h.run({
      compare: [{ target: "value", key: "k", op: "==", value: { json: 2 } }],
      success: [put("k", "no")],
      failure: [put("k", 9), get("k")],
    });
    expect(result).toMatchObject({ succeeded: false, revision: 2, responses: [{}, { kvs: [{ value: { json: 9 } }] }] });
  });

  test("with an operation that cannot be done has no effect at all (S22)", () => {
    const h = new Harness();
    h.put("k", 1, { ttl: 10 });
    const digestRows = h.store.rows().filter(([key]) => key !== "m");
    h.expectUnchanged(() => {
      const unknownLease = [put("y", 1), del("k"), put("t", 1, { ttl: 5 }), put("z", 1, { lease: 404 })];
      expect(errorCode(h.txn({ success: unknownLease }))).toBe("unknown_lease");
    });
    expect(h.store.rows().filter(([key]) => key !== "m")).toEqual(digestRows);
    expect(h.put("next", 1)).toBe(2);
    h.put("next", 1, { ttl: 5 });
    expect(h.record("next")?.lease_id).toBe(2);
  });

  test("that reads a compacted revision fails whole, whatever old rows are left (S22)", () => {
    const h = new Harness();
    h.put("k", 1);
    h.put("k", 2);
    okResult(h.apply({ kind: "compact", revision: 2 }));
    h.expectUnchanged(() => {
      const outcome = h.txn({ success: [{ type: "get", selector: { key: "k" }, revision: 1 }, put("x", 1)] });
      expect(outcome).toMatchObject({ ok: false, revision: 2, error: { code: "compacted", compact_revision: 2 } });
      const future = h.txn({ success: [put("x", 1), { type: "get", selector: { key: "k" }, revision: 3 }] });
      expect(future).toMatchObject({ error: { code: "revision_in_future" } });
    });
  });

  test("of 128 operations is one revision (S15)", () => {
    const h = new Harness();
    const { revision } = h.run({ success: Array.from({ length: 128 }, (_, index) => put(`k${index}`, index)) });
    expect(revision).toBe(1);
    expect(h.events.map((event) => event.op_index)).toEqual(Array.from({ length: 128 }, (_, index) => index));
  });
});

describe("the revision", () => {
  test("moves by one per command that changes a record, however many records it changes", () => {
    const h = new Harness();
    expect(h.put("a", 1)).toBe(1);
    expect(h.run({ success: [put("a", 1), put("b", 1), del("a")] }).revision).toBe(2);
    expect(h.put("b", 1)).toBe(3);
    expect(h.put("b", 1)).toBe(4);
  });

  test("does not move for commands that change nothing, and the next put is exactly one more (S16)", () => {
    const h = new Harness();
    h.put("a", 1);
    h.expectUnchanged(() => {
      const nothing = [
        h.run({ success: [del("missing")] }),
        h.run({ success: [{ type: "delete", selector: { prefix: "none/" } }] }),
        h.run({ success: [get("a"), get("b")] }),
        h.run({
          compare: [{ target: "exists", key: "b", op: "==", value: true }],
          success: [put("c", 1)],
          failure: [get("a")],
        }),
        h.run({ success: [{ type: "touch", key: "missing", ttl: 5 }] }),
        h.run({}),
      ];
      for (const result of nothing) expect(result.revision).toBe(1);
    });
    h.grant(10);
    okResult(h.apply({ kind: "lease_revoke", id: 1 }));
    okResult(h.apply({ kind: "compact", revision: 1 }));
    expect(h.machine.revision).toBe(1);
    expect(h.put("a", 2)).toBe(2);
  });
});

function dueKeys(h: Harness): string[] {
  return h.store.scan({ start: "d", end: "e", limit: 99 }).map(([row]) => row.slice(17));
}
