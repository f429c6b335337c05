/** Wrong requests for changes, compaction, keep-alives and the list of leases. */
import type { Harness } from "./harness.ts";
import { type Refusal, refused } from "./refusal.ts";

const get = (target: string) => (harness: Harness) => harness.get(target);
const post = (target: string, body: object) => (harness: Harness) => harness.post(target, body);

export const CHANGES: readonly Refusal[] = [
  {
    claim: "changes of nothing",
    ask: get("/v1/changes"),
    expected: refused(400, "invalid_selector", "empty_selector"),
  },
  ...["key=a&prefix=b", "key=a&start=b", "prefix=a&end=b"].map((query) => ({
    claim: `changes of two kinds, ${query}`,
    ask: get(`/v1/changes?${query}`),
    expected: refused(400, "invalid_selector", "ambiguous_selector"),
  })),
  {
    claim: "changes of an empty key",
    ask: get("/v1/changes?key="),
    expected: refused(400, "invalid_kv", "key_empty"),
  },
  {
    claim: "changes of a key of 4097 bytes",
    ask: get(`/v1/changes?key=${"k".repeat(4097)}`),
    expected: refused(400, "invalid_kv", "key_too_large"),
  },
  {
    claim: "changes of a range that runs backwards",
    ask: get("/v1/changes?start=b&end=a"),
    expected: refused(400, "invalid_selector"),
  },
  ...["", "x", "-1", "01", "0.0", "0.1", "1.", "1.00", "1.99999", "1.2.3", " 1", "1e3", "9007199254740993"].map(
    (after) => ({
      claim: `changes behind ${JSON.stringify(after)}, which is no position`,
      ask: get(`/v1/changes?prefix=&after=${after.replaceAll(" ", "%20")}`),
      expected: refused(400, "invalid_request", "invalid_position"),
      detail: /^after must be a position/,
    }),
  ),
  {
    claim: "changes behind a revision of the future",
    ask: get("/v1/changes?prefix=&after=1"),
    expected: refused(400, "revision_in_future"),
  },
  {
    claim: "a page of no changes",
    ask: get("/v1/changes?prefix=&limit=0"),
    expected: refused(400, "invalid_selector", "invalid_limit"),
  },
  {
    claim: "a page of 1001 changes",
    ask: get("/v1/changes?prefix=&limit=1001"),
    expected: refused(400, "invalid_selector", "range_limit_too_large"),
  },
  {
    claim: "changes with a parameter of watches",
    ask: get("/v1/changes?prefix=&from_revision=1"),
    expected: refused(400, "invalid_selector", "unknown_parameter"),
  },
  {
    claim: "changes of another cluster",
    ask: (harness) => harness.get("/v1/changes?prefix=", { "concord-cluster": "c-2" }),
    expected: refused(410, "cluster_changed"),
  },
  ...["key=%00a", "prefix=%00", "start=%00", "start=&end=%00z"].map((query) => ({
    claim: `changes of system keys, ${query}`,
    ask: get(`/v1/changes?${query}`),
    expected: refused(403, "forbidden", "system_prefix"),
  })),
];

const OTHER_CLUSTER = { "concord-cluster": "c-2" };

/** One of each kind of route, and each kind of write. */
export const OTHER_CLUSTERS: readonly Refusal[] = [
  ...[
    "/v1/kv?key=a",
    "/v1/kv?prefix=a",
    "/v1/history?key=a&from=1",
    "/v1/revision",
    "/v1/txn/results?key=k",
    "/v1/watch?prefix=a&from_revision=1",
    "/v1/watch?prefix=a",
    "/v1/leases",
    "/v1/leases/1",
    "/v1/cluster",
    "/v1/topics/t",
  ].map((target) => ({ method: "GET", target, body: undefined })),
  { method: "PUT", target: "/v1/kv?key=a", body: "1" },
  { method: "DELETE", target: "/v1/kv/a", body: undefined },
  { method: "POST", target: "/v1/txn", body: "{}" },
  { method: "POST", target: "/v1/kv/batch", body: '{"op":"delete_many","keys":["a"]}' },
  { method: "POST", target: "/v1/leases", body: '{"ttl_s":5}' },
  { method: "POST", target: "/v1/leases/1/keepalive", body: undefined },
  { method: "DELETE", target: "/v1/leases/1", body: undefined },
  { method: "POST", target: "/v1/topics/t", body: "1" },
].map(({ method, target, body }) => ({
  claim: `${method} ${target} for another cluster`,
  ask: (harness: Harness) =>
    harness.send(method, target, {
      headers: { ...OTHER_CLUSTER, "content-type": "application/json" },
      ...(body === undefined ? {} : { body }),
    }),
  expected: refused(410, "cluster_changed"),
}));

export const COMPACTION: readonly Refusal[] = [
  ...[-1, 1.5, 2 ** 53].map((revision) => ({
    claim: `a compaction to the revision ${revision}`,
    ask: post("/v1/compact", { revision }),
    expected: refused(400, "invalid_kv", "invalid_revision"),
  })),
  {
    claim: "a compaction of another cluster",
    ask: (harness) => harness.post("/v1/compact", { revision: 0 }, { "concord-cluster": "c-2" }),
    expected: refused(410, "cluster_changed"),
  },
  {
    claim: "a compaction that is a read",
    ask: post("/v1/compact?consistency=serializable", { revision: 0 }),
    expected: refused(400, "invalid_request", "unknown_parameter"),
  },
];

export const LEASES: readonly Refusal[] = [
  ...[0, 0.5, -1, 315_360_001].map((ttl_s) => ({
    claim: `a keep-alive for ${ttl_s} seconds`,
    ask: post("/v1/leases/1/keepalive", { ttl_s }),
    expected: refused(400, "invalid_lease"),
    detail: /^ttl_s: /,
  })),
  ...["0", "x", "-1", "1.5", "%20"].map((id) => ({
    claim: `a keep-alive of the lease ${id}`,
    ask: post(`/v1/leases/${id}/keepalive`, {}),
    expected: refused(400, "invalid_lease", "invalid_lease_id"),
  })),
  {
    claim: "a keep-alive with a parameter of reads",
    ask: post("/v1/leases/1/keepalive?min_revision=1", {}),
    expected: refused(400, "invalid_lease", "unknown_parameter"),
  },
  {
    claim: "a page of no leases",
    ask: get("/v1/leases?limit=0"),
    expected: refused(400, "invalid_selector", "invalid_limit"),
  },
  {
    claim: "a page of 1001 leases",
    ask: get("/v1/leases?limit=1001"),
    expected: refused(400, "invalid_selector", "range_limit_too_large"),
  },
  {
    claim: "leases behind a word",
    ask: get("/v1/leases?after=x"),
    expected: refused(400, "invalid_lease", "invalid_after"),
  },
  {
    claim: "leases behind no id",
    ask: get("/v1/leases?after=0"),
    expected: refused(400, "invalid_lease", "invalid_lease_id"),
  },
  {
    claim: "leases that are anonymous perhaps",
    ask: get("/v1/leases?anonymous=maybe"),
    expected: refused(400, "invalid_lease", "invalid_anonymous"),
  },
  {
    claim: "leases with a prefix",
    ask: get("/v1/leases?prefix=a"),
    expected: refused(400, "invalid_lease", "unknown_parameter"),
  },
];
