/** Requests over a limit, with parameters that mean nothing, or for the system's keys. */
import type { Harness } from "./harness.ts";
import { COMPARE, PUT, type Refusal, refused, repeat, text, txn } from "./refusal.ts";

const KEY_TOO_LARGE = "k".repeat(4097);

export const LIMITS: readonly Refusal[] = [
  {
    claim: "65 compares",
    ask: (harness) => harness.post("/v1/txn", { compare: repeat(65, COMPARE) }),
    expected: refused(400, "invalid_txn", "too_many_compares"),
  },
  {
    claim: "129 operations in a branch",
    ask: (harness) => harness.post("/v1/txn", { failure: repeat(129, PUT) }),
    expected: refused(400, "invalid_txn", "too_many_operations"),
  },
  {
    claim: "a key of 4097 bytes in a query",
    ask: (harness) => harness.put(`/v1/kv?key=${KEY_TOO_LARGE}`, 1),
    expected: refused(400, "invalid_kv", "key_too_large"),
  },
  {
    claim: "a key of 4097 bytes in a txn",
    ask: txn([{ ...PUT, key: KEY_TOO_LARGE }]),
    expected: refused(400, "invalid_kv", "key_too_large"),
    detail: /^success\[0\]\.key/,
  },
  {
    claim: "a key that its revision suffix makes too long",
    ask: txn([{ ...PUT, key: "k".repeat(4090), revision_suffix: true }]),
    expected: refused(400, "invalid_kv", "key_too_large"),
  },
  {
    claim: "an empty key",
    ask: (harness) => harness.put("/v1/kv?key=", 1),
    expected: refused(400, "invalid_kv", "key_empty"),
  },
  {
    claim: "an empty key in a path",
    ask: (harness) => harness.put("/v1/kv/", 1),
    expected: refused(400, "invalid_kv", "key_empty"),
  },
  {
    claim: "a lone surrogate in a key",
    ask: text("/v1/txn", '{"success":[{"type":"put","key":"a\\ud800","value":1}]}'),
    expected: refused(400, "invalid_txn", "lone_surrogate"),
  },
  {
    claim: "a lone surrogate in a batch",
    ask: text("/v1/kv/batch", '{"op":"get_many","keys":["\\udc00"]}'),
    expected: refused(400, "invalid_kv", "lone_surrogate"),
  },
  {
    claim: "a surrogate encoded in a URL",
    ask: (harness) => harness.get("/v1/kv?key=%ED%A0%80"),
    expected: refused(400, "invalid_kv", "malformed_encoding"),
  },
  {
    claim: "broken percent-encoding in a path",
    ask: (harness) => harness.get("/v1/kv/%FF"),
    expected: refused(400, "invalid_kv", "malformed_encoding"),
  },
  {
    claim: "a value over 1 MiB",
    ask: (harness) => harness.send("PUT", "/v1/kv?key=a", { body: new Uint8Array((1 << 20) + 1) }),
    expected: refused(400, "invalid_kv", "value_too_large"),
  },
  {
    claim: "metadata over 4 KiB",
    ask: txn([{ ...PUT, metadata: { text: "x".repeat(4096) } }]),
    expected: refused(400, "invalid_kv", "metadata_too_large"),
  },
  {
    claim: "a content type over 256 bytes",
    ask: txn([{ ...PUT, content_type: `text/${"x".repeat(252)}` }]),
    expected: refused(400, "invalid_kv", "content_type_too_large"),
  },
  {
    claim: "a txn over 1.5 MB",
    ask: txn(repeat(2, { ...PUT, value: "x".repeat(800_000) })),
    expected: refused(400, "invalid_txn", "txn_too_large"),
  },
  {
    claim: "ttl and lease together",
    ask: txn([{ ...PUT, ttl: 5, lease: 1 }]),
    expected: refused(400, "invalid_kv", "ttl_and_lease_conflict"),
  },
  {
    claim: "ttl and lease together in a query",
    ask: (harness) => harness.put("/v1/kv?key=a&ttl=5&lease=1", 1),
    expected: refused(400, "invalid_kv", "ttl_and_lease_conflict"),
  },
  {
    claim: "ignore_lease with a lease",
    ask: txn([{ ...PUT, ignore_lease: true, lease: 1 }]),
    expected: refused(400, "invalid_kv", "ignore_lease_conflict"),
  },
  {
    claim: "ignore_value with a value",
    ask: txn([{ ...PUT, ignore_value: true }]),
    expected: refused(400, "invalid_kv", "ignore_value_conflict"),
  },
  {
    claim: "a due date that is no time",
    ask: txn([{ ...PUT, due_at_ms: -1 }]),
    expected: refused(400, "invalid_kv", "invalid_due_at"),
  },
  {
    claim: "a get of a prefix without a limit",
    ask: txn([{ type: "get", prefix: "a" }]),
    expected: refused(400, "invalid_selector", "missing_range_limit"),
  },
  {
    claim: "a get of 1001 records",
    ask: txn([{ type: "get", prefix: "a", limit: 1001 }]),
    expected: refused(400, "invalid_selector", "range_limit_too_large"),
  },
  {
    claim: "a list of 1001 records",
    ask: (harness) => harness.get("/v1/kv?prefix=a&limit=1001"),
    expected: refused(400, "invalid_selector", "range_limit_too_large"),
  },
  {
    claim: "a list of no records",
    ask: (harness) => harness.get("/v1/kv?prefix=a&limit=0"),
    expected: refused(400, "invalid_selector", "invalid_limit"),
  },
  {
    claim: "a range that ends before it starts",
    ask: (harness) => harness.get("/v1/kv?start=b&end=a"),
    expected: refused(400, "invalid_selector", "range_reversed"),
  },
  {
    claim: "an empty range",
    ask: txn([{ type: "delete", range: { start: "a", end: "a" } }]),
    expected: refused(400, "invalid_selector", "range_empty"),
  },
  {
    claim: "a list of nothing",
    ask: (harness) => harness.get("/v1/kv"),
    expected: refused(400, "invalid_selector", "empty_selector"),
  },
  {
    claim: "a list by prefix and range",
    ask: (harness) => harness.get("/v1/kv?prefix=a&end=b"),
    expected: refused(400, "invalid_selector", "ambiguous_selector"),
  },
  {
    claim: "a batch of 501 keys",
    ask: (harness) => harness.post("/v1/kv/batch", { op: "delete_many", keys: repeat(501, "a") }),
    expected: refused(400, "invalid_kv", "too_many_keys"),
  },
  {
    claim: "a batch of none",
    ask: (harness) => harness.post("/v1/kv/batch", { op: "get_many", keys: [] }),
    expected: refused(400, "invalid_kv", "empty_batch"),
  },
  {
    claim: "a batch with a bad item behind 128 good ones",
    ask: (harness) => harness.post("/v1/kv/batch", { op: "delete_many", keys: [...repeat(300, "a"), ""] }),
    expected: refused(400, "invalid_kv", "key_empty"),
    detail: /^keys\[300\]/,
  },
  {
    claim: "a batch over 1.5 MB",
    ask: (harness) =>
      harness.post("/v1/kv/batch", { op: "put_many", items: repeat(300, { key: "a", value: "x".repeat(6000) }) }),
    expected: refused(400, "invalid_txn", "txn_too_large"),
  },
  ...[0, -1, 0.5, 1e18].map((ttl_s) => ({
    claim: `a lease of ${ttl_s} seconds (S35)`,
    ask: (harness: Harness) => harness.post("/v1/leases", { ttl_s }),
    expected: refused(400, "invalid_lease", "invalid_ttl"),
  })),
  ...["0", "-1", "0.5", "NaN", "1e9", ""].map((ttl) => ({
    claim: `a put with the ttl ${JSON.stringify(ttl)} (S35)`,
    ask: (harness: Harness) => harness.put(`/v1/kv?key=a&ttl=${ttl}`, 1),
    expected: refused(400, "invalid_kv", "invalid_ttl"),
  })),
  {
    claim: "a touch with a ttl of 0",
    ask: txn([{ type: "touch", key: "a", ttl: 0 }]),
    expected: refused(400, "invalid_kv", "invalid_ttl"),
  },
  {
    claim: "a lease id of 0",
    ask: (harness) => harness.post("/v1/leases", { ttl_s: 5, id: 0 }),
    expected: refused(400, "invalid_lease", "invalid_lease_id"),
  },
  {
    claim: "a lease id that is a word",
    ask: (harness) => harness.get("/v1/leases/abc"),
    expected: refused(400, "invalid_lease", "invalid_lease_id"),
  },
  ...["01", "+1", "-1", "1.0", "9007199254740992"].map((id) => ({
    claim: `a lease id written as ${id}`,
    ask: (harness: Harness) => harness.get(`/v1/leases/${id}`),
    expected: refused(400, "invalid_lease", "invalid_lease_id"),
  })),
];

export const PARAMETERS: readonly Refusal[] = [
  {
    claim: "an unknown parameter",
    ask: (harness) => harness.get("/v1/kv?prefix=a&limt=5"),
    expected: refused(400, "invalid_selector", "unknown_parameter"),
    detail: /"limt".*limit/,
  },
  {
    claim: "a parameter given twice",
    ask: (harness) => harness.get("/v1/kv?key=a&key=b"),
    expected: refused(400, "invalid_kv", "repeated_parameter"),
  },
  {
    claim: "a key beside a prefix",
    ask: (harness) => harness.get("/v1/kv?key=a&prefix=b"),
    expected: refused(400, "invalid_selector", "ambiguous_selector"),
  },
  {
    claim: "a put of a prefix",
    ask: (harness) => harness.put("/v1/kv?prefix=a", 1),
    expected: refused(400, "invalid_kv", "unknown_parameter"),
  },
  {
    claim: "a put without a key",
    ask: (harness) => harness.put("/v1/kv", 1),
    expected: refused(400, "invalid_kv", "missing_key"),
  },
  {
    claim: "a history without a key",
    ask: (harness) => harness.get("/v1/history"),
    expected: refused(400, "invalid_selector", "missing_key"),
  },
  {
    claim: "a limit that is a word",
    ask: (harness) => harness.get("/v1/kv?prefix=a&limit=ten"),
    expected: refused(400, "invalid_selector", "invalid_limit"),
  },
  {
    claim: "a limit with a leading zero",
    ask: (harness) => harness.get("/v1/kv?prefix=a&limit=010"),
    expected: refused(400, "invalid_selector", "invalid_limit"),
  },
  {
    claim: "a revision of minus zero",
    ask: (harness) => harness.get("/v1/kv?key=a&revision=-0"),
    expected: refused(400, "invalid_kv", "invalid_revision"),
  },
  {
    claim: "an entity tag with a leading zero",
    ask: (harness) => harness.put("/v1/kv?key=a", 1, { "if-match": '"00"' }),
    expected: refused(400, "invalid_kv", "if_match"),
  },
  {
    claim: "a flag that is neither true nor false",
    ask: (harness) => harness.get("/v1/kv?key=a&raw=yes"),
    expected: refused(400, "invalid_kv", "invalid_raw"),
  },
  {
    claim: "an unknown order",
    ask: (harness) => harness.get("/v1/kv?prefix=a&order=up"),
    expected: refused(400, "invalid_selector", "invalid_order"),
  },
  {
    claim: "an unknown consistency",
    ask: (harness) => harness.get("/v1/kv?key=a&consistency=eventual"),
    expected: refused(400, "invalid_kv", "invalid_consistency"),
  },
  {
    claim: "a negative min_revision",
    ask: (harness) => harness.get("/v1/kv?key=a&min_revision=-1"),
    expected: refused(400, "invalid_kv", "invalid_min_revision"),
  },
  {
    claim: "a negative revision",
    ask: (harness) => harness.get("/v1/kv?key=a&revision=-1"),
    expected: refused(400, "invalid_kv", "invalid_revision"),
  },
  {
    claim: "a revision of the future",
    ask: (harness) => harness.get("/v1/kv?key=a&revision=1"),
    expected: refused(400, "revision_in_future"),
  },
  {
    claim: "a history whose end lies before its start",
    ask: (harness) => harness.get("/v1/history?key=a&from=2&to=1"),
    expected: refused(400, "invalid_selector", "range_reversed"),
  },
  {
    claim: "a timeout over a minute",
    ask: (harness) => harness.get("/v1/revision?timeout_ms=60001"),
    expected: refused(400, "invalid_request", "invalid_timeout_ms"),
  },
  {
    claim: "consistency of a txn that writes",
    ask: (harness) => harness.post("/v1/txn?consistency=serializable", { success: [PUT] }),
    expected: refused(400, "invalid_txn", "consistency"),
  },
  {
    claim: "consistency of a put",
    ask: (harness) => harness.put("/v1/kv?key=a&consistency=serializable", 1),
    expected: refused(400, "invalid_kv", "unknown_parameter"),
  },
  ...["", "k".repeat(257), "k".repeat(10_240)].map((key) => ({
    claim: `an idempotency key of ${key.length} bytes (S26)`,
    ask: (harness: Harness) => harness.put("/v1/kv?key=a", 1, { "idempotency-key": key }),
    expected: refused(400, "invalid_request", "idempotency_key_size"),
  })),
  {
    claim: "an idempotency key that is not ASCII",
    ask: (harness) => harness.put("/v1/kv?key=a", 1, { "idempotency-key": "é" }),
    expected: refused(400, "invalid_request", "idempotency_key"),
  },
  ...["-1", "01", "x", ""].map((since) => ({
    claim: `an idempotency-since of ${JSON.stringify(since)}, which is no revision`,
    ask: (harness: Harness) => harness.put("/v1/kv?key=a", 1, { "idempotency-key": "k", "idempotency-since": since }),
    expected: refused(400, "invalid_request", "idempotency_since"),
  })),
  ...["-1", "0"].map((since) => ({
    claim: `an idempotency-since of ${since} without a key`,
    ask: (harness: Harness) => harness.put("/v1/kv?key=a", 1, { "idempotency-since": since }),
    expected: refused(400, "invalid_request", "idempotency_since"),
  })),
];

export const SYSTEM: readonly Refusal[] = [
  ...["GET", "PUT", "DELETE"].flatMap((method) =>
    ["/v1/kv?key=%00a", "/v1/kv/%00a"].map((target) => ({
      claim: `${method} ${target}`,
      ask: (harness: Harness) => harness.send(method, target, method === "PUT" ? { body: "1" } : {}),
      expected: refused(403, "forbidden", "system_prefix"),
    })),
  ),
  ...["/v1/kv?prefix=%00", "/v1/kv?start=%00", "/v1/kv?start=&end=%00z", "/v1/history?key=%00a"].map((target) => ({
    claim: `GET ${target}`,
    ask: (harness: Harness) => harness.get(target),
    expected: refused(403, "forbidden", "system_prefix"),
  })),
  ...[
    { compare: [{ ...COMPARE, key: "\0a" }] },
    { success: [{ ...PUT, key: "\0a" }] },
    { failure: [{ type: "get", key: "\0" }] },
    { failure: [{ type: "delete", prefix: "\0" }] },
    { success: [{ type: "get", range: { start: "\0clusters", end: "z" }, limit: 1 }] },
    { success: [{ type: "touch", key: "\0a", ttl: 5 }] },
    { success: [{ ...PUT, key: { encoding: "base64", data: "AGE=" } }] },
  ].map((body) => ({
    claim: `the txn ${JSON.stringify(body)}`,
    ask: (harness: Harness) => harness.post("/v1/txn", body),
    expected: refused(403, "forbidden", "system_prefix"),
  })),
  {
    claim: "a batch",
    ask: (harness) => harness.post("/v1/kv/batch", { op: "delete_many", keys: ["a", "\0a"] }),
    expected: refused(403, "forbidden", "system_prefix"),
  },
];
