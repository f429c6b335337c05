/** Goal: what cannot be sent as it is meant is a ConcordError before anything is sent. Method: a fetch that counts. */
import { expect, test } from "vitest";
import { Concord, ConcordError, type JsonValue } from "../../src/client/index.ts";

function createSetting() {
  let sent = 0;
  const concord = Concord.connect({
    fetch: () => {
      sent += 1;
      return Response.json({ revision: 0 }, { headers: { "concord-revision": "0" } });
    },
  });
  return { concord, sent: () => sent };
}

async function refusalOf(call: (concord: Concord) => Promise<unknown>): Promise<string> {
  const { concord, sent } = createSetting();
  const error = await call(concord).then(
    () => null,
    (reason: unknown) => reason as ConcordError,
  );
  expect(error?.name).toBe("ConcordError");
  expect(error?.retry).toBe("no");
  expect(sent()).toBe(0);
  return `${error?.code} ${error?.body.reason}`;
}

class Point {
  readonly x = 1;
}

const cycle: { self?: unknown } = {};
cycle.self = cycle;

test.each([
  ["a BigInt", 1n],
  ["a BigInt inside", { a: [{ b: 1n }] }],
  ["NaN", Number.NaN],
  ["Infinity inside", [Number.POSITIVE_INFINITY]],
  ["undefined in an array", [undefined]],
  ["a hole in an array", new Array(1)],
  ["a function", { f: () => 1 }],
  ["a symbol", Symbol("s")],
  ["a Map", new Map([["a", 1]])],
  ["raw bytes", new Uint8Array(2)],
  ["a date", new Date(0)],
  ["an instance of a class", new Point()],
])("%s is no value", async (_name, value) => {
  const json = value as JsonValue;
  expect(await refusalOf((concord) => concord.kv.put("a", json))).toBe("invalid_kv not_json");
  expect(await refusalOf((concord) => concord.kv.putMany([{ key: "a", value: json }]))).toBe("invalid_kv not_json");
  const metadata = { m: json };
  expect(await refusalOf((concord) => concord.lease.grant({ ttl_s: 1, metadata }))).toBe("invalid_kv not_json");
});

test("a value that holds itself is too deep", async () => {
  expect(await refusalOf((concord) => concord.kv.put("a", cycle as JsonValue))).toBe("invalid_kv depth_exceeded");
});

const LONE = "a\ud800";

test.each<[string, (concord: Concord) => Promise<unknown>]>([
  ["get", (concord) => concord.kv.get(LONE)],
  ["getMany", (concord) => concord.kv.getMany(["b", LONE])],
  ["put", (concord) => concord.kv.put(LONE, 1)],
  ["putMany", (concord) => concord.kv.putMany([{ key: LONE, value: 1 }])],
  ["delete", (concord) => concord.kv.delete(LONE)],
  ["deleteMany", (concord) => concord.kv.deleteMany([LONE])],
  ["create", (concord) => concord.kv.create(LONE, 1)],
  ["page", (concord) => concord.kv.page({ prefix: LONE })],
  ["list", (concord) => concord.kv.list({ end: LONE }).next()],
  ["history", (concord) => concord.kv.history(LONE).next()],
  ["a compare", (concord) => concord.txn({ compare: [{ target: "exists", key: LONE, op: "==", value: true }] })],
  ["a prefix", (concord) => concord.txn({ failure: [{ type: "delete", prefix: LONE }] })],
  ["a range", (concord) => concord.txn({ success: [{ type: "get", range: { start: "a", end: LONE }, limit: 1 }] })],
])("a lone surrogate in a key of %s is refused", async (_name, call) => {
  expect(await refusalOf(call)).toBe("invalid_kv lone_surrogate");
});

test("an idempotency key that a header would change is refused", async () => {
  for (const key of ["é", " a", "a ", "a\nb"]) {
    expect(await refusalOf((concord) => concord.kv.put("a", 1, { idempotencyKey: key }))).toBe(
      "invalid_request idempotency_key",
    );
    expect(await refusalOf((concord) => concord.txnResult(key))).toBe("invalid_request idempotency_key");
  }
  for (const key of ["", "x".repeat(257)]) {
    expect(await refusalOf((concord) => concord.kv.put("a", 1, { idempotencyKey: key }))).toBe(
      "invalid_request idempotency_key_size",
    );
  }
});

test("everything that JSON carries is sent, surrogates inside of values and members that are undefined included", async () => {
  const { concord, sent } = createSetting();
  const value = {
    key: LONE,
    none: undefined,
    list: [null, -0, 1e308, "", {}],
    bare: Object.create(null),
  } as unknown as JsonValue;
  await concord.kv.put("a", value).catch(() => null);
  expect(sent()).toBe(2);
});

test("what is no object with names, and a field that a list does not have, is refused before anything is sent", async () => {
  const wrong = (value: unknown) => value as never;
  expect(await refusalOf((concord) => concord.lease.grant(wrong(30)))).toBe("invalid_request wrong_type");
  expect(await refusalOf((concord) => concord.kv.page(wrong({ prefx: "/x" })))).toBe("invalid_selector unknown_field");
  expect(await refusalOf((concord) => concord.kv.page(wrong({ key: "/x" })))).toBe("invalid_selector unknown_field");
});

test("a time that is no number of milliseconds is refused: a call that waits for it would never end", async () => {
  for (const timeoutMs of [Number.NaN, -1, Number.POSITIVE_INFINITY, "5s" as unknown as number]) {
    expect(await refusalOf((concord) => concord.kv.get("a", { timeoutMs }))).toBe("invalid_request timeout_ms");
    expect(() => Concord.connect({ url: "http://127.0.0.1", timeoutMs })).toThrow(ConcordError);
  }
  const transport = "websocket" as unknown as "session";
  expect(() => Concord.connect({ url: "http://127.0.0.1", transport })).toThrow(/http or session/);
});
