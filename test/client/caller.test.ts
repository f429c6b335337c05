/** When the client repeats a request, what travels with it, and what the caller is told (design 01 §2, §6). */
import { describe, expect, test } from "vitest";
import { Concord, ConcordError } from "../../src/client/index.ts";
import { connect, problem, type Step } from "./scripted-server.ts";

const REVISION: Step = { status: 200, body: { revision: 5 }, revision: 5 };
const PUT_DONE: Step = {
  status: 200,
  body: { succeeded: true, revision: 6, responses: [{ type: "put", key: "a" }] },
  revision: 6,
};
const READ_DONE: Step = { status: 200, body: { revision: 7 }, revision: 7 };

async function errorOf(promise: Promise<unknown>): Promise<ConcordError> {
  const error = await promise.then(
    (value) => new Error(`answered ${JSON.stringify(value)}`),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ConcordError);
  return error as ConcordError;
}

describe("writes", () => {
  test("carry a key of their own and the revision known before, which is learned first", async () => {
    const { server, concord } = connect([REVISION, PUT_DONE, PUT_DONE]);
    await concord.kv.put("a", 1);
    await concord.kv.put("a", 1);
    const [lookup, first, second] = server.received;
    expect([lookup?.path, lookup?.parameters.get("consistency")]).toEqual(["/v1/revision", "serializable"]);
    expect(first?.headers.get("idempotency-key")).toMatch(/^[0-9a-f]{32}$/);
    expect(first?.headers.get("idempotency-since")).toBe("5");
    expect(second?.headers.get("idempotency-key")).not.toBe(first?.headers.get("idempotency-key"));
    expect(second?.headers.get("idempotency-since")).toBe("6");
  });

  test("that start together learn the revision once", async () => {
    const { server, concord } = connect([REVISION, PUT_DONE, PUT_DONE, PUT_DONE]);
    await Promise.all([concord.kv.put("a", 1), concord.kv.put("b", 1), concord.kv.put("c", 1)]);
    expect(server.received.filter(({ path }) => path === "/v1/revision").length).toBe(1);
  });

  test.each<[string, Step]>([
    ["the connection breaks", "break"],
    ["no answer comes in time", "silence"],
    ["the node answers timeout", problem(504, "timeout", "same-request")],
    ["the node fails", problem(500, "internal", "same-request")],
    ["a gateway answers 502", { status: 502 }],
    ["the cluster has no leader", problem(503, "no_leader", "yes")],
    ["the node is overloaded", problem(503, "overloaded", "yes")],
    ["a limiter answers 429", { status: 429 }],
    ["a later version says same-request", problem(503, "a_new_code", "same-request")],
  ])("under a key are repeated, the same request with the same key, when %s", async (_when, step) => {
    const { server, concord } = connect([REVISION, step, PUT_DONE]);
    expect((await concord.kv.put("a", 1)).revision).toBe(6);
    const [, first, second] = server.received;
    expect(second?.headers.get("idempotency-key")).toBe(first?.headers.get("idempotency-key"));
    expect(second?.headers.get("idempotency-since")).toBe("5");
    expect(second?.body).toEqual(first?.body);
    expect(server.isDone).toBe(true);
  });

  test.each<[string, Step]>([
    ["the connection breaks", "break"],
    ["no answer comes in time", "silence"],
    ["the node answers timeout", problem(504, "timeout", "same-request")],
    ["a gateway answers 504", { status: 504 }],
  ])("without a key are not repeated when %s: the outcome is unknown (S24)", async (_when, step) => {
    const { server, concord } = connect([step]);
    const error = await errorOf(concord.kv.put("a", 1, { idempotencyKey: null }));
    expect([error.code, error.retry]).toEqual(["timeout", "same-request"]);
    expect(server.received.length).toBe(1);
    expect(server.received[0]?.headers.has("idempotency-key")).toBe(false);
  });

  test("without a key are repeated when nothing was proposed", async () => {
    const { server, concord } = connect([problem(503, "no_leader", "yes"), PUT_DONE], { idempotency: false });
    expect((await concord.kv.put("a", 1)).revision).toBe(6);
    expect(server.received.every(({ headers }) => !headers.has("idempotency-key"))).toBe(true);
  });

  test("carry the caller's key, which also works where keys are off", async () => {
    const { server, concord } = connect([REVISION, "break", PUT_DONE], { idempotency: false });
    await concord.kv.put("a", 1, { idempotencyKey: "mine" });
    expect(server.received.slice(1).map(({ headers }) => headers.get("idempotency-key"))).toEqual(["mine", "mine"]);
  });

  test("a compare-and-set whose reply was lost gets its own result back, not a failed compare (S24)", async () => {
    const { concord } = connect([REVISION, "break", PUT_DONE]);
    expect(await concord.kv.updateIf("a", 1, 4)).toEqual({ succeeded: true, revision: 6 });
  });

  test.each([
    [400, "invalid_kv"],
    [404, "unknown_lease"],
    [409, "idempotency_conflict"],
    [409, "idempotency_expired"],
    [507, "no_space"],
  ])("are not repeated on %i %s", async (status, code) => {
    const { server, concord } = connect([REVISION, problem(status, code, "no", { reason: "r", revision: 3 })]);
    const error = await errorOf(concord.kv.put("a", 1));
    expect([error.code, error.body.reason, error.body.revision, error.retry]).toEqual([code, "r", 3, "no"]);
    expect(server.slept).toEqual([]);
  });

  test("never end in 'nothing was done' once something may have been done", async () => {
    const steps: Step[] = [REVISION, "break", ...Array.from({ length: 50 }, () => problem(503, "no_leader", "yes"))];
    const { concord } = connect(steps, { timeoutMs: 3_000 });
    const error = await errorOf(concord.kv.put("a", 1));
    expect([error.code, error.retry]).toEqual(["timeout", "same-request"]);
  });

  test("that lose their permission between attempts stay unknown", async () => {
    const { concord } = connect([REVISION, "break", problem(401, "unauthenticated", "no")], { timeoutMs: 30 });
    expect((await errorOf(concord.kv.put("a", 1))).code).toBe("timeout");
    const refused = connect([REVISION, problem(401, "unauthenticated", "no")]);
    expect((await errorOf(refused.concord.kv.put("a", 1))).code).toBe("unauthenticated");
  });
});

describe("reads", () => {
  test.each<[string, Step]>([
    ["the connection breaks", "break"],
    ["no answer comes in time", "silence"],
    ["the cluster has no leader", problem(503, "no_leader", "yes")],
    ["the node is behind", problem(503, "behind", "yes")],
    ["the node fails", problem(500, "internal", "same-request")],
  ])("are repeated when %s", async (_when, step) => {
    const { server, concord } = connect([step, READ_DONE]);
    expect(await concord.currentRevision()).toBe(7);
    expect(server.received.every(({ headers }) => !headers.has("idempotency-key"))).toBe(true);
  });

  test("that are serializable carry the highest revision seen and its cluster (S86)", async () => {
    const { server, concord } = connect([PUT_DONE, READ_DONE, READ_DONE, READ_DONE]);
    await concord.kv.put("a", 1, { idempotencyKey: null });
    await concord.currentRevision({ consistency: "serializable" });
    await concord.currentRevision({ consistency: "serializable", minRevision: 90 }).catch(() => {});
    await concord.currentRevision().catch(() => {});
    const [, second, third] = server.received;
    expect(second?.parameters.get("min_revision")).toBe("6");
    expect(second?.headers.get("concord-cluster")).toBe("c-1");
    expect(third?.parameters.get("min_revision")).toBe("90");
    expect(server.received.at(-1)?.parameters.has("min_revision")).toBe(false);
  });

  test("never expose an older revision than one seen, even if a server answers with it (S86)", async () => {
    const old: Step = { status: 200, body: { revision: 3 }, revision: 3 };
    const { concord } = connect([READ_DONE, old, old, READ_DONE]);
    await concord.currentRevision();
    expect(await concord.currentRevision({ consistency: "serializable" })).toBe(7);
    expect(concord.revision).toBe(7);
  });

  test("a txn that only reads carries no key and is repeated", async () => {
    const { server, concord } = connect(["break", PUT_DONE]);
    await concord.txn({ success: [{ type: "get", key: "a" }] }, { consistency: "serializable" });
    expect(server.received[1]?.headers.has("idempotency-key")).toBe(false);
    expect(server.received[1]?.parameters.get("consistency")).toBe("serializable");
  });
});

describe("another cluster", () => {
  const elsewhere: Step = { status: 200, body: { revision: 1_000_001 }, revision: 2, cluster: "c-2" };

  test("is told once, to a read by an error, and revisions start anew", async () => {
    const { server, concord } = connect([READ_DONE, elsewhere, elsewhere]);
    await concord.currentRevision();
    expect((await errorOf(concord.currentRevision())).code).toBe("cluster_changed");
    expect([concord.clusterId, concord.revision]).toEqual(["c-2", 2]);
    expect(server.clusterChanges).toEqual([{ from: "c-1", to: "c-2" }]);
    expect(await concord.currentRevision()).toBe(1_000_001);
  });

  test("does not turn a write that was done into an error", async () => {
    const done: Step = { ...(PUT_DONE as object), cluster: "c-2", revision: 6 } as Step;
    const { server, concord } = connect([REVISION, done]);
    expect((await concord.kv.put("a", 1)).revision).toBe(6);
    expect(server.clusterChanges.length).toBe(1);
  });

  test("that the server finds ends the read by its code", async () => {
    const { concord } = connect([READ_DONE, problem(410, "cluster_changed", "no")]);
    await concord.currentRevision();
    expect((await errorOf(concord.currentRevision({ consistency: "serializable" }))).code).toBe("cluster_changed");
  });
});

describe("time", () => {
  test("pauses grow, with jitter, up to two seconds", async () => {
    const steps = Array.from({ length: 12 }, () => problem(503, "no_leader", "yes"));
    const { server, concord } = connect([...steps, READ_DONE], { timeoutMs: 60_000 });
    await concord.currentRevision();
    expect(server.slept).toEqual([20, 40, 80, 160, 320, 640, 1000, 1000, 1000, 1000, 1000, 1000]);
  });

  test("the whole call ends within its timeout, by the last error", async () => {
    const steps = Array.from({ length: 50 }, () => problem(503, "no_leader", "yes"));
    const { server, concord } = connect(steps, { timeoutMs: 1_000 });
    expect((await errorOf(concord.currentRevision())).code).toBe("no_leader");
    expect(server.nowMs).toBeLessThanOrEqual(2_000);
    const short = connect(steps);
    await errorOf(short.concord.currentRevision({ timeoutMs: 50 }));
    expect(short.server.nowMs).toBeLessThanOrEqual(1_050);
  });

  test("an attempt gets no more than what is left of the call, and the server is told", async () => {
    const { server, concord } = connect(["silence", "silence"], { timeoutMs: 10_000, attemptTimeoutMs: 6_000 });
    expect((await errorOf(concord.currentRevision())).body.reason).toBe("late");
    expect(server.received.map(({ parameters }) => parameters.get("timeout_ms"))).toEqual(["6000", "3980"]);
  });

  test("a caller that gives up is told at once that the outcome is unknown", async () => {
    const controller = new AbortController();
    const { concord } = connect([], {
      fetch: () => {
        controller.abort();
        return new Promise(() => {});
      },
    });
    const error = await errorOf(concord.kv.put("a", 1, { idempotencyKey: null, signal: controller.signal }));
    expect([error.code, error.body.reason]).toEqual(["timeout", "aborted"]);
  });

  test("a call that is aborted before it begins sends nothing", async () => {
    const { server, concord } = connect([]);
    await errorOf(concord.kv.get("a", { signal: AbortSignal.abort() }));
    expect(server.received).toEqual([]);
  });
});

describe("the request", () => {
  test("goes to the cluster's base with the token", async () => {
    const { server, concord } = connect([READ_DONE], { url: "https://x.example/base/", token: "t", cluster: "team-a" });
    await concord.currentRevision();
    expect(server.received[0]?.path).toBe("/base/c/team-a/v1/revision");
    expect(server.received[0]?.headers.get("authorization")).toBe("Bearer t");
  });

  test("the default cluster needs no path", async () => {
    const { server, concord } = connect([READ_DONE], { cluster: "default" });
    await concord.currentRevision();
    expect(server.received[0]?.path).toBe("/v1/revision");
  });

  test("options that cannot work are refused when connecting", () => {
    expect(() => Concord.connect({})).toThrow(ConcordError);
    expect(() => Concord.connect({ url: "ws://x.example" })).toThrow(ConcordError);
    expect(() => Concord.connect({ url: "nonsense" })).toThrow(ConcordError);
  });

  test("a 404 that no node wrote is not taken for an absent record", async () => {
    const { concord } = connect([{ status: 404 }]);
    expect((await errorOf(concord.kv.get("a"))).body.reason).toBe("no_problem_document");
    const route = connect([problem(404, "not_found", "no", { reason: "route" })]);
    expect((await errorOf(route.concord.kv.get("a"))).code).toBe("not_found");
  });

  test("a reply that is not what it claims to be is an unknown outcome", async () => {
    const fetch = () => new Response("{", { headers: { "content-type": "application/json" } });
    const { concord } = connect([], { fetch, timeoutMs: 1 });
    expect((await errorOf(concord.kv.put("a", 1, { idempotencyKey: null }))).code).toBe("timeout");
  });
});
