/**
 * Goal: what is called wrongly (which types forbid, but not everybody has them) is a ConcordError that says so, before
 * anything is sent, and the same over both transports.
 * Method: the API's own code in one process; every request and socket is counted.
 */
import { afterEach, describe, expect, test } from "vitest";
import { createApi } from "../../src/api/app.ts";
import { Concord, ConcordError, type ConnectOptions } from "../../src/client/index.ts";
import { MachineBackend } from "../api/machine-backend.ts";
import { SessionHost } from "./session-host.ts";
import { errorOf, TRANSPORTS, type TransportName } from "./streaming.ts";

const open: Concord[] = [];

afterEach(() => {
  for (const concord of open.splice(0)) concord.close();
});

function createSetting(transport: TransportName) {
  const backend = new MachineBackend();
  const api = createApi(backend, { principal: "root", log: () => {} });
  const host = new SessionHost(backend);
  let sent = 0;
  const concord = Concord.connect({
    fetch: (request) => {
      sent += 1;
      return api.fetch(request);
    },
    ...(transport === "session" ? { webSocket: host.openSocket } : {}),
    random: () => 0,
  });
  open.push(concord);
  return { backend, concord, sent: () => sent + host.openedCount };
}

// biome-ignore lint/suspicious/noExplicitAny: whoever has no types calls with anything
type Untyped = any;
type Wrong = readonly [claim: string, call: (concord: Untyped) => unknown, reason: string, detail: RegExp];

const OPTIONS: readonly Wrong[] = [
  ["get", (c) => c.kv.get("a", { consistancy: 1 }), "unknown_field", /"consistancy".*consistency/],
  ["getMany", (c) => c.kv.getMany(["a"], { limit: 1 }), "unknown_field", /"limit".*revision/],
  ["put", (c) => c.kv.put("a", 1, { prevKv: true }), "unknown_field", /"prevKv".*prev_kv/],
  ["create", (c) => c.kv.create("a", 1, { ttl_s: 5 }), "unknown_field", /"ttl_s".*ttl/],
  ["updateIf", (c) => c.kv.updateIf("a", 1, 1, { minRevision: 5 }), "unknown_field", /"minRevision"/],
  ["delete", (c) => c.kv.delete("a", { ttl: 1 }), "unknown_field", /"ttl".*prev_kv/],
  ["deleteIf", (c) => c.kv.deleteIf("a", 1, { prev_kv: true }), "unknown_field", /"prev_kv"/],
  ["putMany", (c) => c.kv.putMany([], { ttl: 1 }), "unknown_field", /"ttl"/],
  ["deleteMany", (c) => c.kv.deleteMany([], { limit: 1 }), "unknown_field", /"limit"/],
  ["list", (c) => c.kv.list({ prefix: "" }, { keysOnly: true }).next(), "unknown_field", /"keysOnly".*keys_only/],
  ["history", (c) => c.kv.history("a", { after: 1 }).next(), "unknown_field", /"after".*from/],
  ["txn", (c) => c.txn({}, { prev_kv: true }), "unknown_field", /"prev_kv"/],
  ["txnResult", (c) => c.txnResult("k", { consistency: "serializable" }), "unknown_field", /"consistency"/],
  ["currentRevision", (c) => c.currentRevision({ revision: 1 }), "unknown_field", /"revision"/],
  ["compact", (c) => c.compact(1, { physical: true }), "unknown_field", /"physical"/],
  ["cluster", (c) => c.cluster({ node: 1 }), "unknown_field", /"node"/],
  ["grant", (c) => c.lease.grant({ ttl_s: 5 }, { ttl_s: 5 }), "unknown_field", /"ttl_s"/],
  ["keep", (c) => c.lease.keep({ ttl: 5 }), "unknown_field", /"ttl".*ttl_s/],
  ["keepAliveOnce", (c) => c.lease.keepAliveOnce(1, { ttl: 5 }), "unknown_field", /"ttl".*ttl_s/],
  ["revoke", (c) => c.lease.revoke(1, { force: true }), "unknown_field", /"force"/],
  ["info", (c) => c.lease.info(1, { keys: true }), "unknown_field", /"keys"/],
  ["leases", (c) => c.lease.list({ anonymus: true }).next(), "unknown_field", /"anonymus".*anonymous/],
  ["changes", (c) => c.sync.changes({ key: "a" }, { from_revision: 1 }), "unknown_field", /"from_revision".*after/],
  ["watch", (c) => c.sync.watch({ key: "a" }, { fromRevision: 1 }), "unknown_field", /"fromRevision".*from_revision/],
  [
    "watchGrouped",
    (c) => c.sync.watchGrouped({ key: "a" }, { prev_kv: true }),
    "unknown_field",
    /"prev_kv".*prev_values/,
  ],
  ["follow", (c) => c.sync.follow({ key: "a" }, { filter: "puts" }), "unknown_field", /"filter"/],
  ["publish", (c) => c.topics.publish("t", 1, { idempotencyKey: "k" }), "unknown_field", /"idempotencyKey"/],
  ["subscribe", (c) => c.topics.subscribe("t", { onStatus: () => {} }), "unknown_field", /"onStatus".*onInterrupted/],
  ["lock", (c) => c.lock("/l", { ttl: 5 }), "unknown_field", /"ttl".*ttl_s/],
  ["campaign", (c) => c.election("/e").campaign(1, { value: 5 }), "unknown_field", /"value"/],
  ["leader", (c) => c.election("/e").leader({ ttl_s: 5 }), "unknown_field", /"ttl_s"/],
  ["observe", (c) => c.election("/e").observe({ timeoutMs: 5 }).next(), "unknown_field", /"timeoutMs".*signal/],
];

const KINDS: readonly Wrong[] = [
  ["a controller as signal of a call", (c) => c.kv.get("a", { signal: new AbortController() }), "wrong_type", /signal/],
  [
    "a controller of a watch",
    (c) => c.sync.watch({ key: "a" }, { signal: new AbortController() }),
    "wrong_type",
    /signal/,
  ],
  ["a consistency that there is not", (c) => c.kv.get("a", { consistency: "eventual" }), "wrong_type", /serializable/],
  ["minRevision as text", (c) => c.kv.get("a", { minRevision: "5" }), "wrong_type", /minRevision is "5", not number/],
  ["a revision as text", (c) => c.kv.get("a", { revision: "5" }), "wrong_type", /revision/],
  ["a limit as text", (c) => c.kv.page({ prefix: "" }, { limit: "5" }), "wrong_type", /limit/],
  ["a limit that is none", (c) => c.kv.page({ prefix: "" }, { limit: Number.NaN }), "wrong_type", /limit is NaN/],
  ["an order that there is not", (c) => c.kv.page({ prefix: "" }, { order: "up" }), "wrong_type", /asc or desc/],
  ["a flag as text", (c) => c.kv.page({ prefix: "" }, { keys_only: "true" }), "wrong_type", /keys_only/],
  ["a flag that is null", (c) => c.kv.page({ prefix: "" }, { keys_only: null }), "wrong_type", /keys_only is null/],
  ["a cursor as number", (c) => c.kv.page({ prefix: "" }, { cursor: 5 }), "wrong_type", /cursor/],
  ["a key of history as number", (c) => c.kv.historyPage(5), "wrong_type", /key is 5/],
  ["a position as number", (c) => c.sync.changes({ key: "a" }, { after: 5 }), "wrong_type", /after is 5, not string/],
  ["a position of a watch", (c) => c.sync.watch({ key: "a" }, { after: 5 }), "wrong_type", /after is 5/],
  ["a revision of a watch", (c) => c.sync.watch({ key: "a" }, { from_revision: "5" }), "wrong_type", /from_revision/],
  ["a filter", (c) => c.sync.watch({ key: "a" }, { filter: "both" }), "wrong_type", /puts or deletes/],
  ["what is called of a watch", (c) => c.sync.watch({ key: "a" }, { onStatus: true }), "wrong_type", /onStatus/],
  ["a lease id as text", (c) => c.lease.revoke("1"), "wrong_type", /id is "1"/],
  ["a lease id as path", (c) => c.lease.info("1/keepalive"), "wrong_type", /id/],
  ["a lease that is renewed", (c) => c.lease.keepAliveOnce(undefined), "wrong_type", /id is undefined/],
  ["where leases go on", (c) => c.lease.page({ after: "5" }), "wrong_type", /after/],
  ["a lease of a number", (c) => c.lease.keep(5), "wrong_type", /ttl_s/],
  ["a topic", (c) => c.topics.publish(5, 1), "wrong_type", /topic/],
  ["a topic that is listened to", (c) => c.topics.subscribe(), "wrong_type", /topic/],
  ["an idempotency key", (c) => c.kv.put("a", 1, { idempotencyKey: 5 }), "wrong_type", /idempotency key/],
  ["an idempotency key to resolve", (c) => c.txnResult(), "wrong_type", /idempotency key/],
  ["options that are null", (c) => c.kv.get("a", null), "wrong_type", /null.*timeoutMs/],
  ["options that are a function", (c) => c.kv.put("a", 1, () => {}), "wrong_type", /stands where an object/],
  ["options that are text", (c) => c.kv.put("a", 1, "5s"), "wrong_type", /"5s"/],
  ["no options of a lease", (c) => c.lease.grant(), "wrong_type", /undefined/],
  ["no name of a lock", (c) => c.lock(), "wrong_type", /name/],
  ["no body of a lock", (c) => c.lock.with("/l", { ttl_s: 5 }), "wrong_type", /third argument/],
  ["the body of a lock in place of its options", (c) => c.lock.with("/l", () => {}), "wrong_type", /third argument/],
  ["no time of a lock", (c) => c.lock("/l", { timeoutMs: Number.NaN }), "timeout_ms", /NaN/],
  ["no name of an election", (c) => c.election(), "wrong_type", /name/],
  ["a time of a campaign", (c) => c.election("/e").campaign(1, { timeoutMs: "5s" }), "timeout_ms", /5s/],
];

const SELECTORS: readonly Wrong[] = [
  ["a list of a text", (c) => c.kv.list("/a").next(), "wrong_type", /"\/a".*prefix/],
  ["a list of nothing", (c) => c.kv.list().next(), "wrong_type", /undefined/],
  ["a list with a typo", (c) => c.kv.page({ prefx: "/a" }), "unknown_field", /"prefx".*prefix/],
  ["a list of a long typo", (c) => c.kv.page({ ["x".repeat(9999)]: 1 }), "unknown_field", /^.{1,300}$/],
  ["a list of a number", (c) => c.kv.page({ prefix: 5 }), "wrong_type", /prefix is 5/],
  ["a watch of nothing", (c) => c.sync.watch(), "wrong_type", /undefined/],
  ["a watch of no kind", (c) => c.sync.watch({}), "empty_selector", /key, prefix and range/],
  ["a watch of two kinds", (c) => c.sync.watch({ key: "a", prefix: "b" }), "ambiguous_selector", /key, prefix/],
  ["a watch as a list names it", (c) => c.sync.watch({ start: "a", end: "b" }), "unknown_field", /"start".*range/],
  ["a watch of a range without its start", (c) => c.sync.watch({ range: { end: "b" } }), "wrong_type", /range\.start/],
  ["a watch of a range that is text", (c) => c.sync.watch({ range: "a" }), "wrong_type", /start end/],
  ["a watch of a surrogate", (c) => c.sync.watch({ key: "a\ud800" }), "lone_surrogate", /surrogate/],
  ["changes as a list names them", (c) => c.sync.changes({ start: "a" }), "unknown_field", /"start".*range/],
  ["all changes of nothing", (c) => c.sync.allChanges().next(), "wrong_type", /undefined/],
  ["a copy of a number", (c) => c.sync.follow({ prefix: 5 }), "wrong_type", /prefix/],
];

const TXNS: readonly Wrong[] = [
  ["no txn", (c) => c.txn(), "wrong_type", /compare success failure/],
  ["a txn with a typo", (c) => c.txn({ sucess: [] }), "unknown_field", /"sucess".*success/],
  ["a branch that is no list", (c) => c.txn({ success: { type: "get", key: "a" } }), "wrong_type", /success.*array/],
];

describe.each(TRANSPORTS)("over %s", (transport) => {
  test.each([
    ...OPTIONS.map((wrong) => ["invalid_request", ...wrong] as const),
    ...KINDS.map((wrong) => ["invalid_request", ...wrong] as const),
    ...SELECTORS.map((wrong) => ["invalid_selector", ...wrong] as const),
    ...TXNS.map((wrong) => ["invalid_txn", ...wrong] as const),
  ])("%s: %s", async (code, _claim, call, reason, detail) => {
    const { concord, sent } = createSetting(transport);
    const error = await errorOf((async () => await call(concord))());
    expect(error.body).toMatchObject({ code: reason === "lone_surrogate" ? "invalid_kv" : code, reason });
    expect(error.body.detail).toMatch(detail);
    expect(sent()).toBe(0);
    expect(error.retry).toBe("no");
  });

  test("a held lock is asked as strictly, and stays held", async () => {
    const { concord } = createSetting(transport);
    const held: Untyped = await concord.lock("/l");
    const asked = (call: () => unknown) => errorOf((async () => await call())());
    expect((await asked(() => held.txn())).body).toMatchObject({ code: "invalid_txn", reason: "wrong_type" });
    expect((await asked(() => held.txn({ failure: {} }))).body).toMatchObject({ code: "invalid_txn" });
    expect((await asked(() => held.txn({ failure: [null] }))).body).toMatchObject({ reason: "unguarded_failure" });
    expect((await asked(() => held.put("a", 1, { prevKv: true }))).body).toMatchObject({ reason: "unknown_field" });
    expect((await asked(() => held.delete("a", { prev_kv: true }))).body).toMatchObject({ reason: "unknown_field" });
    await held.put("a", 1);
    await held.release();
  });

  test("what reaches the server is refused alike", async () => {
    const { concord, backend } = createSetting(transport);
    const c: Untyped = concord;
    const calls: Record<string, () => Promise<unknown>> = {
      "invalid_kv wrong_type": () => c.kv.get(5),
      "invalid_kv key_empty": () => c.kv.get(""),
      "invalid_selector invalid_limit": () => c.kv.page({ prefix: "" }, { limit: 1.5 }),
      "invalid_selector ambiguous_selector": () => c.kv.page({ prefix: "a", end: "b" }),
      "invalid_selector range_limit_too_large": () => c.sync.changes({ key: "a" }, { limit: 1001 }),
      "invalid_kv invalid_revision": () => c.kv.get("a", { revision: -1 }),
      "invalid_request invalid_position": () => c.sync.changes({ key: "a" }, { after: "x" }),
      "invalid_lease invalid_lease_id": () => c.lease.revoke(0),
      "invalid_txn unknown_field": () => c.txn({ success: [{ type: "put", key: "a", value: 1, ttl_s: 5 }] }),
      "invalid_txn wrong_type": () => c.txn({ success: [null] }),
      "invalid_request invalid_from_revision": () => c.sync.watch({ key: "a" }, { from_revision: 0 }).next(),
      "invalid_selector range_reversed": () => c.sync.watch({ range: { start: "b", end: "a" } }).next(),
      "invalid_request topic_size": () => c.topics.publish("", 1),
    };
    for (const [expected, call] of Object.entries(calls)) {
      const { body } = await errorOf(call());
      expect(`${body.code} ${body.reason}`).toBe(expected);
    }
    expect(backend.logged).toEqual([]);
  });
});

test.each<[claim: string, options: unknown, detail: RegExp]>([
  ["nothing", undefined, /undefined.*url/],
  ["a text", "http://127.0.0.1", /"http:/],
  ["no address", {}, /url/],
  ["an address that is none", { url: "nonsense" }, /"nonsense"/],
  ["an address of another scheme", { url: "ws://x.example" }, /"ws:/],
  ["a typo", { url: "http://127.0.0.1", tokn: "x" }, /"tokn".*token/],
  ["a fetch that is none", { fetch: {} }, /fetch/],
  ["a transport that there is not", { url: "http://127.0.0.1", transport: "ws" }, /http or session/],
  ["a time that is none", { url: "http://127.0.0.1", attemptTimeoutMs: 0 }, /attemptTimeoutMs is 0/],
])("connect with %s", (_claim, options, detail) => {
  const connect = () => Concord.connect(options as ConnectOptions);
  expect(connect).toThrow(ConcordError);
  expect(connect).toThrow(detail);
});
