/** Goal: keep-alives and lists of leases over HTTP; what is a record's TTL stays the record's. */
import { describe, expect, test } from "vitest";
import { createHarness, expectProblem, type Harness } from "./harness.ts";

const JSON_TYPE = { "content-type": "application/json" };
const UNKNOWN = { status: 404, code: "unknown_lease" };

async function grant({ post }: Harness, ttl_s = 10, metadata?: object): Promise<number> {
  const answer = await post("/v1/leases", { ttl_s, ...(metadata === undefined ? {} : { metadata }) });
  expect(answer.status).toBe(201);
  return answer.body.id;
}

describe("keep-alive", () => {
  test("renews a lease for its TTL from now", async () => {
    const harness = createHarness();
    const { backend, get, post } = harness;
    const id = await grant(harness);
    backend.nowMs += 4000;
    const kept = await post(`/v1/leases/${id}/keepalive`, {});
    expect(kept.body).toEqual({ id, ttl_s: 10, expires_at_ms: backend.nowMs + 10_000, revision: 0 });
    expect((await get(`/v1/leases/${id}`)).body.remaining_ms).toBe(10_000);
    expect(backend.revision).toBe(0);
  });

  test("may give it another TTL, which stays", async () => {
    const harness = createHarness();
    const { backend, post } = harness;
    const id = await grant(harness);
    expect((await post(`/v1/leases/${id}/keepalive`, { ttl_s: 60 })).body.ttl_s).toBe(60);
    backend.nowMs += 1000;
    const kept = (await post(`/v1/leases/${id}/keepalive`, {})).body;
    expect(kept).toMatchObject({ ttl_s: 60, expires_at_ms: backend.nowMs + 60_000 });
  });

  test.each([1, 315_360_000])("a TTL of %d seconds is within the limits", async (ttl_s) => {
    const harness = createHarness();
    const id = await grant(harness);
    expect((await harness.post(`/v1/leases/${id}/keepalive`, { ttl_s })).body.ttl_s).toBe(ttl_s);
  });

  test.each<[string, Parameters<Harness["send"]>[2]]>([
    ["no body", {}],
    ["an empty body", { body: "" }],
    [
      "an empty form, as some clients send it",
      { body: "", headers: { "content-type": "application/x-www-form-urlencoded" } },
    ],
    ["an empty object", { body: "{}", headers: JSON_TYPE }],
    ["an object without a type", { body: "{}", headers: { "content-type": "" } }],
  ])("takes %s", async (_name, options) => {
    const harness = createHarness();
    const id = await grant(harness);
    expect((await harness.send("POST", `/v1/leases/${id}/keepalive`, options)).status).toBe(200);
  });

  test("of a lease that is not there, or no more, is 404", async () => {
    const harness = createHarness();
    const id = await grant(harness);
    expectProblem(await harness.post(`/v1/leases/${id + 1}/keepalive`, {}), UNKNOWN);
    await harness.delete(`/v1/leases/${id}`);
    const answer = await harness.post(`/v1/leases/${id}/keepalive`, {});
    expectProblem(answer, UNKNOWN);
    expect(answer.body.revision).toBe(0);
  });

  test("an id that is percent-encoded is the same id", async () => {
    const harness = createHarness();
    await grant(harness);
    expect((await harness.post("/v1/leases/%31/keepalive", {})).body.id).toBe(1);
  });
});

describe("a lease behind a record's TTL", () => {
  test("can be looked at, not renewed or ended", async () => {
    const harness = createHarness();
    const { get, put, post, delete: remove, backend } = harness;
    await put("/v1/kv?key=a&ttl=10", 1);
    const id = (await get("/v1/kv?key=a")).body.lease_id;
    backend.nowMs += 1000;
    expectProblem(await post(`/v1/leases/${id}/keepalive`, {}), UNKNOWN);
    expectProblem(await remove(`/v1/leases/${id}`), UNKNOWN);
    expectProblem(await put(`/v1/kv?key=b&lease=${id}`, 1), UNKNOWN);
    expect((await get(`/v1/leases/${id}`)).body).toEqual({
      id,
      ttl_s: 10,
      expires_at_ms: backend.nowMs + 9000,
      remaining_ms: 9000,
      metadata: {},
      keys_count: 1,
      anonymous: true,
      keys: ["a"],
      revision: 1,
    });
  });

  test("is in the list only for who asks", async () => {
    const harness = createHarness();
    const { get, put, backend } = harness;
    await put("/v1/kv?key=a&ttl=10", 1);
    const id = await grant(harness);
    expect((await get("/v1/leases")).body.leases).toMatchObject([{ id }]);
    expect((await get("/v1/leases?anonymous=false")).body.leases.length).toBe(1);
    expect((await get("/v1/leases?anonymous=true")).body.leases).toEqual([
      {
        id: 1,
        ttl_s: 10,
        expires_at_ms: backend.nowMs + 10_000,
        remaining_ms: 10_000,
        metadata: {},
        keys_count: 1,
        anonymous: true,
      },
      { id, ttl_s: 10, expires_at_ms: backend.nowMs + 10_000, remaining_ms: 10_000, metadata: {}, keys_count: 0 },
    ]);
  });
});

describe("the list", () => {
  test("tells each lease with what remains, by id", async () => {
    const harness = createHarness();
    const { get, put, backend } = harness;
    expect((await get("/v1/leases")).body).toEqual({ leases: [], next: null, revision: 0 });
    const first = await grant(harness, 10, { owner: "x" });
    backend.nowMs += 4000;
    const second = await grant(harness, 5);
    await put(`/v1/kv?key=a&lease=${second}`, 1);
    backend.nowMs += 5000;
    const common = { expires_at_ms: backend.nowMs + 1000, remaining_ms: 1000 };
    expect((await get("/v1/leases")).body).toEqual({
      leases: [
        { id: first, ttl_s: 10, ...common, metadata: { owner: "x" }, keys_count: 0 },
        { id: second, ttl_s: 5, expires_at_ms: backend.nowMs, remaining_ms: 0, metadata: {}, keys_count: 1 },
      ],
      next: null,
      revision: 1,
    });
  });

  test("comes in pages that join", async () => {
    const harness = createHarness();
    const ids: number[] = [];
    for (let count = 0; count < 5; count += 1) ids.push(await grant(harness));
    const seen: number[] = [];
    let pages = 0;
    for (let after = ""; ; pages += 1) {
      const { leases, next } = (await harness.get(`/v1/leases?limit=2${after}`)).body;
      seen.push(...leases.map(({ id }: { id: number }) => id));
      if (next === null) break;
      after = `&after=${next}`;
    }
    expect([seen, pages]).toEqual([ids, 2]);
  });

  test("a page holds up to 1000 leases, 100 unless asked", async () => {
    const harness = createHarness();
    for (let count = 0; count < 1001; count += 1) {
      await harness.backend.execute({ kind: "lease_grant", ttl_s: 60 }, null, { timeoutMs: 1 });
    }
    const full = (await harness.get("/v1/leases?limit=1000")).body;
    expect([full.leases.length, full.next]).toEqual([1000, 1000]);
    expect((await harness.get("/v1/leases")).body.leases.length).toBe(100);
  });

  test("takes the parameters of consistency", async () => {
    const { get, backend } = createHarness();
    await get("/v1/leases?consistency=serializable&min_revision=0&timeout_ms=70");
    expect(backend.queries.at(-1)?.options).toEqual({ consistency: "serializable", minRevision: 0, timeoutMs: 70 });
  });
});
