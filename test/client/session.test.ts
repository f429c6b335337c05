/**
 * Goal: calls over a session end as calls over HTTP do, whatever becomes of the socket.
 * Method: the model's sockets, with answers by hand, and a clock that moves by hand.
 */
import { describe, expect, test } from "vitest";
import { ConcordError } from "../../src/client/index.ts";
import type { Answer } from "./model-cluster.ts";
import { collect, createSetting, errorOf, fetchNothing, script, sentOf, settle, within } from "./streaming.ts";

const ALL = { prefix: "" };
const REVISION = { result: { revision: 7 } };

describe("calls", () => {
  test("travel with what they need: key, revision known before, time left", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.kv.put("a", 1);
    await concord.kv.put("a", 2);
    await concord.currentRevision({ consistency: "serializable" });
    const [lookup, first, second, read] = sentOf(cluster.socketsOpened[0]);
    expect(lookup).toMatchObject({ method: "revision", params: { consistency: "serializable" } });
    expect(first?.params).toMatchObject({
      idempotency_since: 0,
      timeout_ms: 5_000,
      success: [{ type: "put", key: "a" }],
    });
    expect(first?.params.idempotency_key).toMatch(/^[0-9a-f]{32}$/);
    expect(second?.params.idempotency_since).toBe(1);
    expect(second?.params.idempotency_key).not.toBe(first?.params.idempotency_key);
    expect(read?.params).toMatchObject({ consistency: "serializable", min_revision: 2, cluster_id: "c-1" });
    expect(concord.revision).toBe(2);
  });

  test("run side by side, and end in whatever order", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.currentRevision();
    const answers: ((answer: Answer) => void)[] = [];
    cluster.answer = () => new Promise((resolve) => answers.push(resolve));
    const calls = [concord.currentRevision(), concord.currentRevision(), concord.currentRevision()];
    await settle();
    expect(answers.length).toBe(3);
    for (const [index, answer] of [...answers.entries()].reverse()) answer({ result: { revision: index } });
    expect(await Promise.all(calls)).toEqual([0, 1, 2]);
  });

  test("are at most 256 at a time; the others wait for their turn and all are answered", async () => {
    const { cluster, concord } = createSetting("session");
    const warnings: Error[] = [];
    const onWarning = (warning: Error) => void warnings.push(warning);
    process.on("warning", onWarning);
    const calls = Array.from({ length: 1_000 }, () => concord.currentRevision());
    expect((await Promise.all(calls)).length).toBe(1_000);
    expect(cluster.socketsOpened[0]?.unansweredMax).toBe(256);
    expect(cluster.requests).toEqual([]);
    await settle();
    process.off("warning", onWarning);
    expect(warnings).toEqual([]);
  });

  test("beyond what may wait are refused and tried again later", async () => {
    const { cluster, clock, concord } = createSetting("session");
    await concord.currentRevision();
    const answers: ((answer: Answer) => void)[] = [];
    cluster.answer = () => new Promise((resolve) => answers.push(resolve));
    const calls = Array.from({ length: 256 + 4_096 + 10 }, () => concord.currentRevision());
    await settle();
    cluster.answer = () => undefined;
    for (const answer of answers) answer(REVISION);
    const answered = await within(clock, 1_000, Promise.all(calls));
    expect(answered.length).toBe(256 + 4_096 + 10);
  });

  test("under a key whose socket broke are the same request again; without one the outcome is unknown (S24)", async () => {
    const { cluster, clock, concord } = createSetting("session");
    await concord.kv.put("a", 0);
    cluster.answer = script("break");
    expect((await within(clock, 1_000, concord.kv.put("a", 1))).revision).toBe(2);
    const [first] = sentOf(cluster.socketsOpened[0]).slice(-1);
    const [again] = cluster.requests;
    expect(again?.headers.get("idempotency-key")).toBe(first?.params.idempotency_key);
    expect(again?.headers.get("idempotency-since")).toBe(String(first?.params.idempotency_since));
    expect(cluster.asked.at(-1)?.params).toEqual({ success: first?.params.success });
    cluster.answer = script("break");
    const error = await within(clock, 1_000, errorOf(concord.kv.put("a", 2, { idempotencyKey: null })));
    expect([error.code, error.body.reason, error.retry]).toEqual(["timeout", "connection", "same-request"]);
    expect(cluster.records.get("a")?.value).toBe(1);
  });

  test("that were never written are repeated freely, also without a key", async () => {
    const { cluster, clock, concord } = createSetting("session", { idempotency: false });
    await concord.currentRevision();
    cluster.answer = ({ method }) => (method === "revision" ? "silence" : undefined);
    const stuck = Array.from({ length: 256 }, () => concord.currentRevision({ timeoutMs: 4_000 }));
    const put = concord.kv.put("a", 1);
    await settle();
    cluster.answer = () => undefined;
    cluster.breakAll();
    expect((await within(clock, 1_000, put)).revision).toBe(1);
    expect(cluster.asked.filter(({ method }) => method === "txn").length).toBe(1);
    await within(clock, 10_000, Promise.allSettled(stuck));
  });

  test("whose caller has gone end at once, and their late answer is nobody's", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.currentRevision();
    let answer: (answer: Answer) => void = () => {};
    cluster.answer = () => new Promise((resolve) => (answer = resolve));
    const controller = new AbortController();
    const call = errorOf(concord.currentRevision({ signal: controller.signal }));
    await settle();
    controller.abort();
    expect((await call).body.reason).toBe("aborted");
    answer(REVISION);
    cluster.answer = () => undefined;
    expect(await concord.currentRevision()).toBe(0);
  });

  test("fail with the node's own error, with its retry rule", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.currentRevision();
    cluster.answer = script({ problem: { code: "compacted", retry: "no", reason: "r", compact_revision: 3 } });
    const error = await errorOf(concord.kv.page(ALL));
    expect([error.code, error.body.reason, error.body.compact_revision]).toEqual(["compacted", "r", 3]);
    cluster.answer = script({ problem: { code: "a_new_code", retry: "no" } });
    expect((await errorOf(concord.currentRevision())).body.reason).toBe("a_new_code");
  });

  test("over 2 MiB go over HTTP, and do not close the socket of the others (S43)", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.kv.put("small", 1);
    await concord.kv.put("large", "é".repeat(1_100_000));
    expect(cluster.requests.map(({ url }) => new URL(url).pathname)).toEqual(["/v1/txn"]);
    expect(cluster.socketsOpened.length).toBe(1);
  });

  test("are answered by messages in parts (S43)", async () => {
    const { cluster, concord } = createSetting("session");
    cluster.messageCharsMax = 1_000;
    cluster.commit(["a", "\u{1F600}".repeat(10_000)], ["b", "x".repeat(2_999)]);
    const taken = collect(concord.sync.watch(ALL, { from_revision: 1 }));
    const page = await concord.kv.page(ALL);
    await settle();
    expect(page.records.map(({ value }) => value)).toEqual(taken.items.map(({ value }) => value));
    expect(cluster.socketsOpened[0]?.url).toContain("max_message_bytes=1048576");
  });

  test("outlive a node that sends what is no message", async () => {
    const { cluster, clock, concord } = createSetting("session");
    await concord.currentRevision();
    for (const bad of [
      { kind: "chunk", index: 5, last: true, data: "" },
      { kind: "chunk", index: 0, last: true, data: "{" },
    ]) {
      cluster.socketsOpened.at(-1)?.deliver(bad);
      await clock.advance(1_000);
      expect(cluster.socketsOpened.at(-1)?.isClosed).toBe(true);
      await concord.currentRevision();
    }
    expect(cluster.socketsOpened.length).toBe(3);
    cluster.socketsOpened.at(-1)?.deliver({ jsonrpc: "2.0", method: "of_a_later_version", params: {} });
    cluster.socketsOpened.at(-1)?.deliver({ jsonrpc: "2.0", id: 999, result: {} });
    await concord.currentRevision();
    expect(cluster.socketsOpened.length).toBe(3);
  });

  test("refuse an older revision than one seen, and take what is said of the past as it is (S86)", async () => {
    const { cluster, clock, concord } = createSetting("session");
    cluster.answer = script(REVISION, { result: { revision: 3 } });
    await concord.currentRevision();
    for (let count = 0; count < 9; count += 1) cluster.commit(["k", count]);
    expect(await within(clock, 1_000, concord.currentRevision({ consistency: "serializable" }))).toBe(9);
    cluster.answer = script({ result: { records: [], count: 0, cursor: null, revision: 3 } });
    const page = await concord.kv.page(ALL, { consistency: "serializable", revision: 3 });
    expect(page.revision).toBe(3);
  });

  test("tell of another cluster once, as over HTTP", async () => {
    const changes: unknown[] = [];
    const { cluster, clock, concord } = createSetting("session", {
      onClusterChanged: (change) => changes.push(change),
    });
    cluster.commit(["k", 1]);
    await concord.currentRevision();
    cluster.restore("c-2", 50);
    await clock.advance(1_000);
    expect((await errorOf(concord.currentRevision())).code).toBe("cluster_changed");
    expect(await concord.currentRevision()).toBe(50);
    expect(changes).toEqual([{ from: "c-1", to: "c-2" }]);
  });
});

describe("the end of the client", () => {
  test("ends calls under way and sockets, and refuses what comes later", async () => {
    const { cluster, concord } = createSetting("session");
    await concord.currentRevision();
    cluster.answer = () => "silence";
    const call = errorOf(concord.kv.put("a", 1));
    await settle();
    concord.close();
    expect(await call).toMatchObject({ code: "timeout", body: { reason: "aborted" } });
    for (const later of [concord.currentRevision(), concord.kv.put("a", 1), concord.topics.publish("t", 1)]) {
      expect(await errorOf(later)).toMatchObject({ code: "invalid_request", body: { reason: "closed" } });
    }
    expect(() => concord.topics.subscribe("t")).toThrow(ConcordError);
    expect(() => concord.sync.follow(ALL)).toThrow(ConcordError);
    expect(cluster.sockets.size).toBe(0);
    concord.close();
  });

  test("ends requests of HTTP, also one that looks up the revision for a write", async () => {
    const { concord } = createSetting("events", { fetch: fetchNothing });
    const calls = [errorOf(concord.currentRevision()), errorOf(concord.kv.put("a", 1))];
    await settle();
    concord.close();
    expect((await Promise.all(calls)).map(({ code }) => code)).toEqual(["timeout", "timeout"]);
  });
});

describe("a write that waits for the revision", () => {
  test("gives up by its own signal and its own time, and says that nothing was sent", async () => {
    const { cluster, clock, concord } = createSetting("events", { fetch: fetchNothing });
    const controller = new AbortController();
    const aborted = errorOf(concord.kv.put("a", 1, { signal: controller.signal }));
    const short = errorOf(concord.kv.put("a", 1, { timeoutMs: 100 }));
    await settle();
    controller.abort();
    expect((await aborted).body.reason).toBe("aborted");
    expect(await within(clock, 200, short)).toMatchObject({ code: "overloaded", retry: "yes" });
    concord.close();
    await settle();
    expect(cluster.revision).toBe(0);
  });
});
