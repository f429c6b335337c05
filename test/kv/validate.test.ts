import { describe, expect, test } from "vitest";
import type { JsonValue } from "../../src/base/json.ts";
import { LEASE_TTL_S_MAX } from "../../src/base/limits.ts";
import { canonicalCommand } from "../../src/kv/canonical.ts";
import type { Command, Compare, Operation, Query, Selector } from "../../src/kv/command.ts";
import {
  DEFAULT_LIMITS,
  validateCommand,
  validateIdempotency,
  validateProposal,
  validateQuery,
} from "../../src/kv/validate.ts";
import { Harness, put, txnCommand } from "./harness.ts";

const reasonOf = (command: Command): string | null => validateCommand(command)?.reason ?? null;
const ofOperation = (operation: Operation) => validateCommand(txnCommand({ success: [operation] }));
const ofCompare = (compare: object) => validateCommand(txnCommand({ compare: [compare as Compare] }));
const ofQuery = (query: Query) => validateQuery(query);

const nested = (depth: number): JsonValue => {
  let value: JsonValue = 1;
  for (let level = 0; level < depth; level += 1) value = level % 2 === 0 ? [value] : { a: value };
  return value;
};
/** A JSON string whose text has exactly `bytes` bytes, quotes included. */
const ofBytes = (bytes: number): string => "v".repeat(bytes - 2);

test("a plain put, get, delete, touch, grant, revoke and compact are admitted", () => {
  const operations: Operation[] = [
    put("k", null),
    put("k", 1, { ttl: 1, prev_kv: true, content_type: "text/plain", metadata: { a: 1 }, due_at_ms: 0 }),
    put("k", 1, { lease: 1 }),
    put("k", 1, { ignore_lease: true }),
    put("k/", 1, { revision_suffix: true }),
    { type: "put", key: "k", ignore_value: true },
    { type: "put", key: "k", value: { base64: "AQI=" } },
    { type: "put", key: "\u0000system", value: { base64: "" } },
    { type: "get", selector: { key: "k" } },
    { type: "get", selector: { prefix: "" }, limit: 1000 },
    { type: "get", selector: { range: { start: "", end: "b" } }, limit: 1, revision: 0, order: "desc" },
    { type: "delete", selector: { prefix: "k" } },
    { type: "touch", key: "k", ttl: LEASE_TTL_S_MAX },
  ];
  for (const operation of operations) expect(ofOperation(operation)).toBeNull();
  expect(validateCommand({ kind: "lease_grant", ttl_s: 2_592_000, metadata: {}, id: 7 })).toBeNull();
  expect(validateCommand({ kind: "lease_revoke", id: 1 })).toBeNull();
  expect(validateCommand({ kind: "compact", revision: 0 })).toBeNull();
});

describe("keys and values", () => {
  test.each<[string, Operation, string, string]>([
    ["an empty key", put("", 1), "invalid_kv", "key_empty"],
    ["a key of 4097 bytes", put("k".repeat(4097), 1), "invalid_kv", "key_too_large"],
    ["a suffix past 4096", put("k".repeat(4081), 1, { revision_suffix: true }), "invalid_kv", "key_too_large"],
    ["a key that is not bytes", put("\u{1F600}", 1), "invalid_kv", "key_not_bytes"],
    ["a value over 1 MiB", put("k", ofBytes((1 << 20) + 1)), "invalid_kv", "value_too_large"],
    ["bytes over 1 MiB", bytes("A".repeat(1398108)), "invalid_kv", "value_too_large"],
    ["base64 without padding", bytes("AQI"), "invalid_kv", "invalid_base64"],
    ["base64 with stray bits", bytes("AQJ="), "invalid_kv", "invalid_base64"],
    ["base64 of another alphabet", bytes("A_-="), "invalid_kv", "invalid_base64"],
    ["padding alone", bytes("===="), "invalid_kv", "invalid_base64"],
    ["nesting of 101", put("k", nested(101)), "invalid_kv", "depth_exceeded"],
    ["a number that is not JSON", put("k", Number.NaN), "invalid_kv", "not_json"],
    ["metadata over 4 KiB", put("k", 1, { metadata: { a: ofBytes(4096) } }), "invalid_kv", "metadata_too_large"],
    ["metadata that is a list", put("k", 1, { metadata: [] as never }), "invalid_kv", "metadata_not_object"],
    ["metadata that is null", put("k", 1, { metadata: null as never }), "invalid_kv", "metadata_not_object"],
    ["deep metadata", put("k", 1, { metadata: { a: nested(100) } }), "invalid_kv", "depth_exceeded"],
    ["a content type of 257 B", put("k", 1, { content_type: "x".repeat(257) }), "invalid_kv", "content_type_too_large"],
    ["ttl and lease", put("k", 1, { ttl: 5, lease: 1 }), "invalid_kv", "ttl_and_lease_conflict"],
    ["ignore_lease and ttl", put("k", 1, { ignore_lease: true, ttl: 5 }), "invalid_kv", "ignore_lease_conflict"],
    ["ignore_lease and lease", put("k", 1, { ignore_lease: true, lease: 5 }), "invalid_kv", "ignore_lease_conflict"],
    ["ignore_value and a value", put("k", 1, { ignore_value: true }), "invalid_kv", "ignore_value_conflict"],
    ["no value", { type: "put", key: "k" }, "invalid_kv", "missing_value"],
    ["a negative due time", put("k", 1, { due_at_ms: -1 }), "invalid_kv", "invalid_due_at"],
    ["a due time beyond integers", put("k", 1, { due_at_ms: 1e18 }), "invalid_kv", "invalid_due_at"],
    ["lease 0", put("k", 1, { lease: 0 }), "invalid_lease", "invalid_lease_id"],
  ])("%s is refused", (_what, operation, code, reason) => {
    expect(ofOperation(operation)).toMatchObject({ code, reason });
  });

  test("the largest of each is admitted, and applied", () => {
    const h = new Harness();
    const largest: Operation[] = [
      put("k".repeat(4096), 1),
      put("k".repeat(4080), 1, { revision_suffix: true }),
      put("k", ofBytes(1 << 20), { metadata: { a: ofBytes(4090) }, content_type: "x".repeat(256) }),
      bytes("A".repeat(1398100)),
      put("k", nested(100)),
      put("k", "\u{1F600}".repeat(262_000)),
    ];
    for (const operation of largest) {
      expect(ofOperation(operation)).toBeNull();
      h.do(operation);
    }
    for (const [row, text] of h.store.rows()) expect(row.length + text.length).toBeLessThan(1_900_000);
  });

  test("nesting far beyond the stack's depth is refused, not thrown", () => {
    expect(ofOperation(put("k", nested(100_000)))).toMatchObject({ reason: "depth_exceeded" });
    expect(ofCompare({ target: "field", key: "k", path: [], op: "==", value: nested(100_000) })).toMatchObject({
      code: "invalid_txn",
      reason: "depth_exceeded",
    });
  });
});

describe("TTLs (S35)", () => {
  const bad = [
    0,
    -1,
    0.5,
    Number.NaN,
    1e18,
    Number.POSITIVE_INFINITY,
    LEASE_TTL_S_MAX + 1,
    "5" as never,
    null as never,
  ];

  test.each(bad)("%s is refused everywhere", (ttl) => {
    expect(validateCommand({ kind: "lease_grant", ttl_s: ttl })).toMatchObject({
      code: "invalid_lease",
      reason: "invalid_ttl",
    });
    expect(ofOperation(put("k", 1, { ttl }))).toMatchObject({ code: "invalid_kv", reason: "invalid_ttl" });
    expect(ofOperation({ type: "touch", key: "k", ttl })).toMatchObject({ code: "invalid_kv", reason: "invalid_ttl" });
  });

  test.each([1, 2_592_000, LEASE_TTL_S_MAX])("%s s is admitted", (ttl) => {
    expect(validateCommand({ kind: "lease_grant", ttl_s: ttl })).toBeNull();
    expect(ofOperation(put("k", 1, { ttl }))).toBeNull();
  });
});

describe("lease commands", () => {
  test.each([0, -1, 0.5, Number.NaN, 2 ** 53])("id %s is refused", (id) => {
    const expected = { code: "invalid_lease", reason: "invalid_lease_id" };
    expect(validateCommand({ kind: "lease_grant", ttl_s: 5, id })).toMatchObject(expected);
    expect(validateCommand({ kind: "lease_revoke", id })).toMatchObject(expected);
    expect(ofQuery({ kind: "lease", id })).toMatchObject(expected);
  });

  test("metadata follows the rules of records under its own code", () => {
    expect(validateCommand({ kind: "lease_grant", ttl_s: 5, metadata: [] as never })).toMatchObject({
      code: "invalid_lease",
      reason: "metadata_not_object",
    });
  });
});

describe("txns", () => {
  const exists: Compare = { target: "exists", key: "k", op: "==", value: true };

  test("have at most 64 compares and 128 operations per branch", () => {
    const many = <T>(count: number, item: T): T[] => Array.from({ length: count }, () => item);
    expect(reasonOf(txnCommand({ compare: many(64, exists), success: many(128, put("k", 1)) }))).toBeNull();
    expect(reasonOf(txnCommand({ compare: many(65, exists) }))).toBe("too_many_compares");
    expect(reasonOf(txnCommand({ success: many(129, put("k", 1)) }))).toBe("too_many_operations");
    expect(reasonOf(txnCommand({ failure: many(129, put("k", 1)) }))).toBe("too_many_operations");
  });

  test("have at most 1 500 000 bytes as encoded in the entry, escapes and UTF-8 counted", () => {
    const halves = (bytes: number): Command =>
      txnCommand({ success: [put("a", ofBytes(bytes)), put("b", ofBytes(bytes))] });
    expect(reasonOf(halves(749_000))).toBeNull();
    expect(validateCommand(halves(750_000))).toMatchObject({ code: "invalid_txn", reason: "txn_too_large" });
    expect(
      reasonOf(txnCommand({ success: [put("a", "\u00e9".repeat(400_000)), put("b", "\u00e9".repeat(400_000))] })),
    ).toBe("txn_too_large");
    const proposal = { format: 1, command: halves(749_900) } as const;
    expect(validateProposal(proposal)?.reason).toBeUndefined();
    expect(validateProposal(proposal, undefined, "x".repeat(1_500_001))?.reason).toBe("txn_too_large");
  });

  test.each(["value", "lease", "exists"] as const)("%s cannot be compared by order", (target) => {
    for (const op of [">", ">=", "<", "<=", "=", "in"]) {
      expect(ofCompare({ target, key: "k", op, value: target === "exists" ? true : null })).toMatchObject({
        code: "invalid_txn",
        reason: "unsupported_op",
      });
    }
  });

  test.each<[string, object, string]>([
    ["exists with a number", { target: "exists", key: "k", op: "==", value: 1 }, "invalid_compare_value"],
    ["version with null", { target: "version", key: "k", op: "==", value: null }, "invalid_compare_value"],
    [
      "mod_revision with a fraction",
      { target: "mod_revision", key: "k", op: ">", value: 0.5 },
      "invalid_compare_value",
    ],
    ["lease with text", { target: "lease", key: "k", op: "==", value: "1" }, "invalid_compare_value"],
    ["ttl with NaN", { target: "ttl", key: "k", op: "<", value: Number.NaN }, "invalid_compare_value"],
    ["a path with a fraction", { target: "field", key: "k", path: [0.5], op: "==", value: 1 }, "invalid_path"],
    ["a path with a negative", { target: "field", key: "k", path: [-1], op: "==", value: 1 }, "invalid_path"],
    [
      "a path of 101 steps",
      { target: "field", key: "k", path: Array(101).fill("a"), op: "==", value: 1 },
      "invalid_path",
    ],
    ["an empty key", { target: "exists", key: "", op: "==", value: true }, "key_empty"],
    ["bytes that are not base64", { target: "value", key: "k", op: "==", value: { base64: "?" } }, "invalid_base64"],
  ])("%s is refused", (_what, compare, reason) => {
    expect(ofCompare(compare)).toMatchObject({ reason });
  });

  test("name the place of the problem", () => {
    const detail = validateCommand(txnCommand({ success: [put("k", 1)], failure: [put("k", 1), put("", 1)] }))?.detail;
    expect(detail).toContain("failure[1].key");
  });
});

describe("selectors", () => {
  const cases: [string, Selector, string][] = [
    ["an empty selector", {} as Selector, "empty_selector"],
    ["two selectors in one", { key: "a", prefix: "a" } as Selector, "ambiguous_selector"],
    ["an empty key", { key: "" }, "key_empty"],
    ["a reversed range", { range: { start: "b", end: "a" } }, "range_reversed"],
    ["a range that ends before all keys", { range: { start: "b", end: "" } }, "range_reversed"],
    ["an empty range", { range: { start: "a", end: "a" } }, "range_empty"],
    ["a start that is too long", { range: { start: "a".repeat(4097) } }, "key_too_large"],
  ];
  test.each(cases)("%s is refused in get, delete and list alike", (_what, selector, reason) => {
    expect(ofOperation({ type: "get", selector, limit: 1 })).toMatchObject({ reason });
    expect(ofOperation({ type: "delete", selector })).toMatchObject({ reason });
    expect(ofQuery(listQuery({ selector }))).toMatchObject({ reason });
  });

  test("a get of a prefix or range needs a limit of 1 to 1000", () => {
    const ask = (selector: Selector, limit?: number) =>
      ofOperation({ type: "get", selector, ...(limit === undefined ? {} : { limit }) });
    for (const selector of [{ prefix: "a" }, { range: { start: "a" } }]) {
      expect(ask(selector)).toMatchObject({ code: "invalid_selector", reason: "missing_range_limit" });
      expect(ask(selector, 1001)).toMatchObject({ code: "invalid_selector", reason: "range_limit_too_large" });
      expect(ask(selector, 0)).toMatchObject({ reason: "invalid_limit" });
      expect(ask(selector, 1.5)).toMatchObject({ reason: "invalid_limit" });
      expect(ask(selector, 1000)).toBeNull();
    }
    expect(ask({ key: "a" })).toBeNull();
  });
});

describe("queries", () => {
  test("of every kind are admitted in their plain form", () => {
    const queries: Query[] = [
      { kind: "get", key: "k", revision: 3 },
      { kind: "get_many", keys: ["a", "b"] },
      listQuery({ after: "k", revision: 1 }),
      { kind: "history", key: "k", limit: 1000, from: 1, to: 1, after: [1, 0] },
      { kind: "txn", compare: [], success: [{ type: "get", selector: { key: "k" } }], failure: [] },
      { kind: "txn_result", scope: "s", key: "k" },
      { kind: "lease", id: 1 },
      { kind: "revision" },
    ];
    for (const query of queries) expect(ofQuery(query)).toBeNull();
  });

  test.each<[string, Query, string]>([
    ["get of an empty key", { kind: "get", key: "" }, "key_empty"],
    ["get at a fraction", { kind: "get", key: "k", revision: 0.5 }, "invalid_revision"],
    ["get_many of 501", { kind: "get_many", keys: Array(501).fill("k") }, "too_many_keys"],
    ["get_many of an empty key", { kind: "get_many", keys: ["a", ""] }, "key_empty"],
    ["list of 1001", listQuery({ limit: 1001 }), "range_limit_too_large"],
    ["list of none", listQuery({ limit: 0 }), "invalid_limit"],
    ["history backwards", { kind: "history", key: "k", limit: 1, from: 3, to: 2 }, "range_reversed"],
    ["history after nonsense", { kind: "history", key: "k", limit: 1, after: [-1, 0] }, "invalid_revision"],
    ["a txn that writes", { kind: "txn", compare: [], success: [], failure: [put("k", 1)] }, "write_in_read"],
  ])("%s is refused", (_what, query, reason) => {
    expect(ofQuery(query)).toMatchObject({ reason });
  });

  test("get_many of 101 keys is one query (S15)", () => {
    const h = new Harness();
    h.put("k50", 1);
    const query: Query = { kind: "get_many", keys: Array.from({ length: 101 }, (_, index) => `k${index}`) };
    expect(ofQuery(query)).toBeNull();
    expect(h.query(query)).toMatchObject({ records: { length: 101, 50: { key: "k50" }, 51: null } });
  });
});

describe("idempotency keys", () => {
  const check = (more: object) => validateIdempotency({ scope: "s", key: "k", hash: "h", ...more });

  test("have 1 to 256 bytes (S26)", () => {
    for (const key of ["", "k".repeat(257), "k".repeat(10_000), "\u00e9".repeat(129), "\ud800"]) {
      expect(check({ key })).toMatchObject({ reason: "idempotency_key_size" });
    }
    expect(check({ key: "k".repeat(256) })).toBeNull();
    expect(check({ key: "\u00e9".repeat(128) })).toBeNull();
  });

  test("come with a hash of one line, and a since that is a revision", () => {
    expect(check({ hash: "" })).toMatchObject({ reason: "idempotency_hash" });
    expect(check({ hash: "a\nb" })).toMatchObject({ reason: "idempotency_hash" });
    expect(check({ since: -1 })).toMatchObject({ reason: "idempotency_since" });
    expect(check({ since: 0 })).toBeNull();
  });
});

describe("configured limits", () => {
  const command = txnCommand({ success: [put("key", "value")] });

  test("may be lowered, and an attempt to raise one has no effect", () => {
    expect(validateCommand(command, { valueBytesMax: 7 })).toBeNull();
    expect(validateCommand(command, { valueBytesMax: 6 })?.reason).toBe("value_too_large");
    expect(validateCommand(command, { keyBytesMax: 2 })?.reason).toBe("key_too_large");
    const raised = { keyBytesMax: 1e9, comparesMax: 1e9 };
    expect(validateCommand(txnCommand({ success: [put("k".repeat(4097), 1)] }), raised)?.reason).toBe("key_too_large");
    expect(DEFAULT_LIMITS.keyBytesMax).toBe(4096);
  });

  test("do not exist for apply: what one node would not admit, every node applies (S12)", () => {
    const h = new Harness();
    expect(validateCommand(command, { valueBytesMax: 1 })).not.toBeNull();
    h.apply(command);
    expect(h.json("key")).toBe("value");
  });
});

function bytes(base64: string): Operation {
  return { type: "put", key: "k", value: { base64 } };
}

function listQuery(options: Partial<Query & { kind: "list" }>): Query {
  return {
    kind: "list",
    selector: { prefix: "" },
    limit: 10,
    order: "asc",
    keys_only: false,
    count_only: false,
    ...options,
  };
}

describe("leases, expiry and removal", () => {
  const items = (count: number) => Array.from({ length: count }, (_, at) => ({ id: at + 1 }));
  const leases = (count: number) => items(count).map(({ id }) => ({ id, expires_at_ms: 1 }));

  test.each<Command>([
    { kind: "lease_keep_alive", items: items(500) },
    { kind: "lease_keep_alive", items: [{ id: 1, ttl_s: LEASE_TTL_S_MAX }] },
    { kind: "lease_expire", leases: leases(50) },
    { kind: "lease_floor", floor_ms: 0 },
    { kind: "compact_remove", rows_max: 1 },
    { kind: "compact_remove", rows_max: 2000 },
  ])("$kind at its limit is admitted", (command) => {
    expect(validateCommand(command)).toBeNull();
  });

  test.each<[string, Command, string]>([
    ["no items", { kind: "lease_keep_alive", items: [] }, "no_leases"],
    ["501 items", { kind: "lease_keep_alive", items: items(501) }, "too_many_leases"],
    ["a keep-alive of lease 0", { kind: "lease_keep_alive", items: [{ id: 0 }] }, "invalid_lease_id"],
    ...[0, -1, 0.5, Number.NaN, LEASE_TTL_S_MAX + 1].map((ttl_s): [string, Command, string] => [
      `a keep-alive for ${ttl_s} s`,
      { kind: "lease_keep_alive", items: [{ id: 1 }, { id: 2, ttl_s }] },
      "invalid_ttl",
    ]),
    ["no leases", { kind: "lease_expire", leases: [] }, "no_leases"],
    ["51 leases", { kind: "lease_expire", leases: leases(51) }, "too_many_leases"],
    ["an expiry of lease 0", { kind: "lease_expire", leases: [{ id: 0, expires_at_ms: 1 }] }, "invalid_lease_id"],
    ["a fractional time", { kind: "lease_expire", leases: [{ id: 1, expires_at_ms: 1.5 }] }, "invalid_time"],
    ["a negative floor", { kind: "lease_floor", floor_ms: -1 }, "invalid_time"],
    ["no rows", { kind: "compact_remove", rows_max: 0 }, "invalid_rows_max"],
    ["2001 rows", { kind: "compact_remove", rows_max: 2001 }, "invalid_rows_max"],
  ])("%s is refused", (_what, command, reason) => {
    expect(reasonOf(command)).toBe(reason);
  });

  test("a keep-alive is the same request whatever the order of its properties, not of its items", () => {
    const text = (...list: { id: number; ttl_s?: number }[]) =>
      canonicalCommand({ kind: "lease_keep_alive", items: list });
    expect(text({ id: 1, ttl_s: 5 }, { id: 2 })).toBe(text({ ttl_s: 5, id: 1 }, { id: 2, ttl_s: undefined as never }));
    expect(text({ id: 1 }, { id: 2 })).not.toBe(text({ id: 2 }, { id: 1 }));
    expect(text({ id: 1 })).not.toBe(text({ id: 1, ttl_s: 5 }));
  });

  test.each<[string, Query, string | null]>([
    ["changes", { kind: "changes", selector: { prefix: "" }, after: [0, 99_999], limit: 1000 }, null],
    [
      "changes by 1001",
      { kind: "changes", selector: { key: "k" }, after: [0, 0], limit: 1001 },
      "range_limit_too_large",
    ],
    ["changes of nothing", { kind: "changes", selector: {} as never, after: [0, 0], limit: 1 }, "empty_selector"],
    [
      "changes past an end",
      { kind: "changes", selector: { key: "k" }, after: [0, 100_000], limit: 1 },
      "invalid_position",
    ],
    ["changes at -1", { kind: "changes", selector: { key: "k" }, after: [-1, 0], limit: 1 }, "invalid_position"],
    ["leases", { kind: "lease_list", limit: 1000, after: 1, anonymous: true }, null],
    ["leases behind 0", { kind: "lease_list", limit: 1, after: 0 }, "invalid_lease_id"],
    ["no leases", { kind: "lease_list", limit: 0 }, "invalid_limit"],
    ["due entries", { kind: "due", at_ms: 0, limit: 1, after: [0, "k"] }, null],
    ["due entries at no time", { kind: "due", at_ms: -1, limit: 1 }, "invalid_time"],
    ["due entries behind no key", { kind: "due", at_ms: 1, limit: 1, after: [0, ""] }, "key_empty"],
  ])("a query of %s", (_what, query, reason) => {
    expect(ofQuery(query)?.reason ?? null).toBe(reason);
  });
});
