/**
 * Goal: a full cluster refuses what grows and nothing else, and history does not grow for ever (design 01 §1, §5).
 * Method: one plain `workerd` process with a small quota and a short history.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startWorkerdCluster, type WorkerdCluster } from "./workerd-cluster.ts";

const folder = mkdtempSync(join(tmpdir(), "concord-bounds-"));
let cluster: WorkerdCluster;

beforeAll(async () => {
  cluster = await startWorkerdCluster(folder, {
    QUOTA_BYTES: String(2 << 20),
    COMPACTION_KEEP_REVISIONS: "1000",
    COMPACTION_KEEP_MS: "0",
  });
});

afterAll(async () => {
  await cluster.stop();
  rmSync(folder, { recursive: true, force: true });
});

interface Reply {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

async function call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
  const init = body === undefined ? {} : { body: JSON.stringify(body) };
  const response = await fetch(cluster.url + path, {
    method,
    headers: { "content-type": "application/json", ...headers },
    ...init,
  });
  return { status: response.status, body: await response.json() } as Reply;
}

test("over the quota what grows is refused with no_space; deletes, keep-alives, compaction and kept results go on", async () => {
  const large = "v".repeat(1_000_000);
  const { body: lease } = await call("POST", "/v1/leases", { ttl_s: 600 });
  const key = { "idempotency-key": "large-1" };
  expect(await call("PUT", "/v1/kv?key=/large/1", large, key)).toMatchObject({ status: 200, body: { revision: 1 } });
  for (const n of [2, 3]) expect((await call("PUT", `/v1/kv?key=/large/${n}`, large)).status).toBe(200);
  expect(await call("PUT", "/v1/kv?key=/small", 1)).toMatchObject({
    status: 507,
    body: { code: "no_space", retry: "no" },
  });
  for (const node of [1, 2, 3, 4, 5]) {
    expect((await call("POST", `/v1/leases?node=${node}`, { ttl_s: 60 })).body.code).toBe("no_space");
  }
  // The first answer again: it was carried out, and a refusal would say that it was not.
  expect(await call("PUT", "/v1/kv?key=/large/1", large, key)).toMatchObject({ status: 200, body: { revision: 1 } });
  expect((await call("POST", `/v1/leases/${lease.id}/keepalive`)).status).toBe(200);
  expect((await call("GET", "/v1/kv?key=/large/1")).status).toBe(200);
  for (const n of [1, 2, 3]) expect((await call("DELETE", `/v1/kv?key=/large/${n}`)).status).toBe(200);
  // History holds the values until it is compacted.
  expect((await call("PUT", "/v1/kv?key=/small", 1)).status).toBe(507);
  expect(await call("POST", "/v1/compact", { revision: 6 })).toMatchObject({ body: { compact_revision: 6 } });
  await expect.poll(async () => (await call("PUT", "/v1/kv?key=/small", 1)).status, { timeout: 10_000 }).toBe(200);
});

test("the leader compacts by itself, and what is gone says so with the revision up to which it is", async () => {
  // Compaction aims at marks, which lie a thousand revisions apart.
  const revisions: number[] = [];
  for (let wave = 0; wave < 26; wave += 1) {
    const writes = Array.from({ length: 100 }, (_, n) => call("PUT", `/v1/kv?key=/many/${n}`, wave));
    for (const { body } of await Promise.all(writes)) revisions.push(Number(body.revision));
  }
  revisions.sort((left, right) => left - right);
  const first = revisions[0] ?? 0;
  const old = () => call("GET", `/v1/kv?key=/many/0&revision=${first}`);
  await expect.poll(async () => (await old()).status, { timeout: 10_000 }).toBe(410);
  const { body } = await old();
  expect(body.code).toBe("compacted");
  expect(Number(body.compact_revision)).toBeGreaterThanOrEqual(first);
  // A thousand revisions stay.
  const last = revisions.at(-1) ?? 0;
  expect(Number(body.compact_revision)).toBeLessThanOrEqual(last - 1000);
  expect((await call("GET", `/v1/kv?key=/many/99&revision=${last - 900}`)).status).toBe(200);
  const changes = await call("GET", "/v1/changes?prefix=/many/&after=1");
  expect(changes).toMatchObject({ status: 410, body: { code: "compacted", compact_revision: body.compact_revision } });
});
