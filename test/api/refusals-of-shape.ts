/** Requests of the wrong shape: bodies that are no JSON or no such object. */
import { nested } from "./harness.ts";
import { COMPARE, compare, JSON_TYPE, PUT, type Refusal, refused, repeat, text, txn } from "./refusal.ts";

export const BODIES: readonly Refusal[] = [
  {
    claim: "malformed JSON",
    ask: text("/v1/txn", '{"success":['),
    expected: refused(400, "invalid_txn", "malformed_json"),
  },
  { claim: "an empty body", ask: text("/v1/txn", ""), expected: refused(400, "invalid_txn", "malformed_json") },
  {
    claim: "malformed JSON in a put",
    ask: (harness) => harness.send("PUT", "/v1/kv?key=a", { headers: JSON_TYPE, body: "{a:1}" }),
    expected: refused(400, "invalid_kv", "malformed_json"),
  },
  {
    claim: "malformed JSON in a batch",
    ask: text("/v1/kv/batch", "]"),
    expected: refused(400, "invalid_kv", "malformed_json"),
  },
  {
    claim: "malformed JSON in a lease",
    ask: text("/v1/leases", "nope"),
    expected: refused(400, "invalid_lease", "malformed_json"),
  },
  {
    claim: "a JSON body that is no UTF-8",
    ask: (harness) => harness.send("POST", "/v1/txn", { headers: JSON_TYPE, body: new Uint8Array([0x22, 0xff, 0x22]) }),
    expected: refused(400, "invalid_txn", "malformed_json"),
    detail: /UTF-8/,
  },
  {
    claim: "a number that overflows",
    ask: (harness) => harness.send("PUT", "/v1/kv?key=a", { headers: JSON_TYPE, body: '{"x":[1,1e999]}' }),
    expected: refused(400, "invalid_kv", "number_out_of_range"),
  },
  {
    claim: "a body of another media type",
    ask: text("/v1/txn", "{}", { "content-type": "text/plain" }),
    expected: refused(415, "unsupported_media_type", "content_type"),
    detail: /text\/plain/,
  },
  {
    claim: "a body of 3 MiB that declares its length",
    ask: (harness) =>
      harness.send("PUT", "/v1/kv?key=a", {
        headers: { "content-length": String(3 << 20) },
        body: new Uint8Array(3 << 20),
      }),
    expected: refused(413, "body_too_large"),
    detail: /2097152/,
  },
  {
    claim: "a body of 3 MiB that declares none",
    ask: (harness) => harness.send("PUT", "/v1/kv?key=a", { body: new Uint8Array(3 << 20) }),
    expected: refused(413, "body_too_large"),
  },
  {
    claim: "a value nested 101 deep in a put",
    ask: (harness) => harness.send("PUT", "/v1/kv?key=a", { headers: JSON_TYPE, body: nested(101) }),
    expected: refused(400, "invalid_kv", "depth_exceeded"),
  },
  {
    claim: "a value nested 101 deep in a txn",
    ask: text("/v1/txn", `{"success":[{"type":"put","key":"a","value":${nested(101)}}]}`),
    expected: refused(400, "invalid_kv", "depth_exceeded"),
  },
  {
    claim: "a body nested a million deep",
    ask: text("/v1/txn", nested(1_000_000)),
    expected: refused(400, "invalid_txn", "depth_exceeded"),
  },
  {
    claim: "a body that is no object",
    ask: text("/v1/txn", "[]"),
    expected: refused(400, "invalid_txn", "wrong_type"),
  },
];

export const FIELDS: readonly Refusal[] = [
  {
    claim: "an unknown field of a txn",
    ask: (harness) => harness.post("/v1/txn", { sucess: [] }),
    expected: refused(400, "invalid_txn", "unknown_field"),
    detail: /^The body does not have the field "sucess"\.$/,
  },
  {
    claim: "a hundred thousand unknown fields of a txn",
    ask: (harness) =>
      harness.post("/v1/txn", Object.fromEntries(Array.from({ length: 100_000 }, (_, at) => [`x${at}`, 0]))),
    expected: refused(400, "invalid_txn", "unknown_field"),
    detail: /^The body does not have the field "x0", "x1", "x2" and 99997 more\.$/,
  },
  {
    claim: "an unknown field of an operation",
    ask: txn([{ ...PUT, expires: 5 }]),
    expected: refused(400, "invalid_txn", "unknown_field"),
    detail: /^success\[0\] does not have the field "expires"\.$/,
  },
  {
    claim: "a get that is told to return prev_kv",
    ask: txn([{ type: "get", key: "a", prev_kv: true }]),
    expected: refused(400, "invalid_txn", "unknown_field"),
  },
  {
    claim: "an unknown operation",
    ask: txn([PUT, { type: "append", key: "a" }]),
    expected: refused(400, "invalid_txn", "unsupported_op"),
    detail: /^success\[1\]\.type must be one of "get", "put", "delete", "touch", is "append"\.$/,
  },
  {
    claim: "an operation without a type",
    ask: txn([{ key: "a" }]),
    expected: refused(400, "invalid_txn", "missing_field"),
    detail: /^success\[0\]\.type is missing; it must be one of /,
  },
  {
    claim: "an operator that does not exist",
    ask: compare({ ...COMPARE, op: "=" }),
    expected: refused(400, "invalid_txn", "unsupported_op"),
    detail: /^compare\[0\]\.op must be one of "==", "!=", is "="\.$/,
  },
  {
    claim: "an order operator on a value",
    ask: compare({ target: "value", key: "a", op: "<", value: 1 }),
    expected: refused(400, "invalid_txn", "unsupported_op"),
  },
  {
    claim: "an unknown compare target",
    ask: compare({ ...COMPARE, target: "size" }),
    expected: refused(400, "invalid_txn", "unsupported_target"),
  },
  {
    claim: "a compare value of another type",
    ask: compare({ target: "version", key: "a", op: "==", value: "1" }),
    expected: refused(400, "invalid_txn", "wrong_type"),
    detail: /^compare\[0\]\.value must be of type number, is "1"\.$/,
  },
  {
    claim: "a compare with a negative revision",
    ask: compare({ target: "mod_revision", key: "a", op: "==", value: -1 }),
    expected: refused(400, "invalid_txn", "invalid_compare_value"),
  },
  {
    claim: "a path with a negative index",
    ask: compare({ target: "field", key: "a", path: ["x", -1], op: "==", value: 1 }),
    expected: refused(400, "invalid_txn", "wrong_type"),
    detail: /^compare\[0\]\.path\[1\] must be /,
  },
  {
    claim: "a path of 101 steps",
    ask: compare({ target: "field", key: "a", path: repeat(101, "x"), op: "==", value: 1 }),
    expected: refused(400, "invalid_txn", "invalid_path"),
  },
  {
    claim: "a put without a value",
    ask: txn([{ type: "put", key: "a" }]),
    expected: refused(400, "invalid_kv", "missing_value"),
  },
  {
    claim: "a put without a key",
    ask: txn([{ type: "put", value: 1 }]),
    expected: refused(400, "invalid_txn", "missing_field"),
  },
  {
    claim: "a key that is a number",
    ask: txn([{ ...PUT, key: 7 }]),
    expected: refused(400, "invalid_txn", "wrong_type"),
    detail: /^success\[0\]\.key must be a string/,
  },
  {
    claim: "a selector of two kinds",
    ask: txn([{ type: "get", key: "a", prefix: "b", limit: 1 }]),
    expected: refused(400, "invalid_selector", "ambiguous_selector"),
  },
  {
    claim: "a get that selects nothing",
    ask: txn([{ type: "get", limit: 1 }]),
    expected: refused(400, "invalid_selector", "empty_selector"),
  },
  {
    claim: "metadata that is a list",
    ask: txn([{ ...PUT, metadata: [] }]),
    expected: refused(400, "invalid_txn", "wrong_type"),
  },
  {
    claim: "bytes that are no base64",
    ask: txn([{ ...PUT, value: { encoding: "base64", data: "a" } }]),
    expected: refused(400, "invalid_txn", "invalid_base64"),
  },
  {
    claim: "a content type that is no header",
    ask: txn([{ ...PUT, content_type: "text/plain\r\nset-cookie: a=b" }]),
    expected: refused(400, "invalid_txn", "content_type"),
  },
  {
    claim: "an unknown batch",
    ask: (harness) => harness.post("/v1/kv/batch", { op: "put_all", items: [] }),
    expected: refused(400, "invalid_kv", "unsupported_op"),
  },
  {
    claim: "an unknown field of a keep-alive",
    ask: (harness) => harness.post("/v1/leases/1/keepalive", { ttl: 5 }),
    expected: refused(400, "invalid_lease", "unknown_field"),
  },
  {
    claim: "a keep-alive for a time that is no number",
    ask: (harness) => harness.post("/v1/leases/1/keepalive", { ttl_s: "5" }),
    expected: refused(400, "invalid_lease", "wrong_type"),
    detail: /^ttl_s must be of type number/,
  },
  {
    claim: "a keep-alive that is no object",
    ask: text("/v1/leases/1/keepalive", "5"),
    expected: refused(400, "invalid_lease", "wrong_type"),
  },
  {
    claim: "a keep-alive that is a form",
    ask: text("/v1/leases/1/keepalive", "ttl_s=5", { "content-type": "application/x-www-form-urlencoded" }),
    expected: refused(415, "unsupported_media_type", "content_type"),
  },
  {
    claim: "an unknown field of a compaction",
    ask: (harness) => harness.post("/v1/compact", { revision: 0, physical: true }),
    expected: refused(400, "invalid_request", "unknown_field"),
  },
  {
    claim: "a compaction to no revision",
    ask: (harness) => harness.post("/v1/compact", {}),
    expected: refused(400, "invalid_request", "missing_field"),
  },
  {
    claim: "a compaction without a body",
    ask: text("/v1/compact", ""),
    expected: refused(400, "invalid_request", "malformed_json"),
  },
  ...["lease_expire", "lease_floor", "compact_remove"].map(
    (kind): Refusal => ({
      claim: `the command ${kind}, which is a leader's, as a txn`,
      ask: (harness) =>
        harness.post("/v1/txn", { kind, leases: [{ id: 1, expires_at_ms: 1 }], floor_ms: 1, rows_max: 1 }),
      expected: refused(400, "invalid_txn", "unknown_field"),
    }),
  ),
  {
    claim: "an unknown field of a lease",
    ask: (harness) => harness.post("/v1/leases", { ttl_s: 5, ttl: 5 }),
    expected: refused(400, "invalid_lease", "unknown_field"),
  },
];
