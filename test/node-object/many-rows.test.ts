/** Operations that touch more rows than one statement binds values, through five real nodes (S15). */
import { reset } from "cloudflare:test";
import { afterEach, expect, test } from "vitest";
import { METADATA_BYTES_MAX, OPERATIONS_PER_BRANCH_MAX, VALUE_BYTES_MAX } from "../../src/base/limits.ts";
import { TestCluster } from "./cluster-harness.ts";
import { quietConsole } from "./quiet-console.ts";

quietConsole();
afterEach(async () => await reset());

test("more than 100 rows in one operation go through, at one revision, equal on every node (S15)", async () => {
  const cluster = new TestCluster();
  const leader = await cluster.leader();
  const follower = 1 + (leader % 5);
  const keys = Array.from({ length: 150 }, (_, n) => `/many/${String(n).padStart(3, "0")}`);

  // 128 operations in one txn, the most that a branch may hold; all at one revision.
  const puts = keys.slice(0, OPERATIONS_PER_BRANCH_MAX).map((key, n) => ({ type: "put", key, value: n }));
  const written = await cluster.txn(follower, { success: puts });
  expect(written).toMatchObject({ status: 200, body: { succeeded: true, revision: 1 } });
  const items = keys.slice(OPERATIONS_PER_BRANCH_MAX).map((key, n) => ({ key, value: n }));
  expect((await cluster.call(leader, "/v1/kv/batch", { body: { op: "put_many", items } })).status).toBe(200);

  const read = await cluster.call(follower, "/v1/kv/batch", { body: { op: "get_many", keys: keys.slice(0, 101) } });
  expect(read.status).toBe(200);
  expect((read.body.records as unknown[]).filter((record) => record !== null)).toHaveLength(101);
  const list = await cluster.call(follower, "/v1/kv?prefix=/many/&limit=1000");
  expect(list.body).toMatchObject({ count: 150 });
  await cluster.equalRows();

  const removed = await cluster.txn(leader, { success: [{ type: "delete", prefix: "/many/" }] });
  expect(removed.body).toMatchObject({ revision: 3, responses: [{ type: "delete", deleted: 150 }] });
  const { rows } = await cluster.rows(leader);
  expect(rows.length).toBeGreaterThan(0);
  await cluster.equalRows();

  // A lease with 101 keys is revoked as one change.
  const lease = await cluster.call(follower, "/v1/leases", { body: { ttl_s: 600 } });
  const attached = keys.slice(0, 101).map((key) => ({ type: "put", key, value: null, lease: lease.body.id }));
  expect((await cluster.txn(follower, { success: attached })).body).toMatchObject({ succeeded: true });
  const revoked = await cluster.call(follower, `/v1/leases/${String(lease.body.id)}`, { method: "DELETE" });
  expect(revoked).toMatchObject({ status: 200, body: { deleted: 101 } });
  expect((await cluster.call(leader, "/v1/kv?prefix=/many/&limit=1000")).body).toMatchObject({ count: 0 });
  await cluster.equalRows();
}, 60_000);

test("a value of the largest size with the largest metadata is stored on every node; one byte more is refused (S15)", async () => {
  const cluster = new TestCluster();
  const leader = await cluster.leader();
  const value = "v".repeat(VALUE_BYTES_MAX - 2);
  const metadata = { m: "m".repeat(METADATA_BYTES_MAX - 8) };
  const put = { type: "put", key: "/large", value, metadata };
  const written = await cluster.txn(leader, { success: [put] });
  expect(written).toMatchObject({ status: 200, body: { succeeded: true, revision: 1 } });
  const read = await cluster.get(1 + (leader % 5), "/large");
  expect(read.status).toBe(200);
  expect((read.body.value as string).length).toBe(value.length);
  const refused = await cluster.txn(leader, { success: [{ ...put, value: `${value}v` }] });
  expect(refused).toMatchObject({ status: 400, body: { reason: expect.any(String) as string } });
  await cluster.equalRows();
  for (const id of [1, 2, 3, 4, 5]) await cluster.abort(id);
  await cluster.leader();
  expect(((await cluster.get(leader, "/large")).body.value as string).length).toBe(value.length);
}, 60_000);
