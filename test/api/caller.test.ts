/** Goal: operations stand on a caller alone, whatever carries it. Method: call them without HTTP. */
import { describe, expect, test } from "vitest";
import { type ApiContext, type CallerWishes, checkClusterId, createCaller } from "../../src/api/caller.ts";
import { deleteRecord, getRecord, putRecord } from "../../src/api/kv-operations.ts";
import { resolveTransaction, runTransaction } from "../../src/api/txn-operations.ts";
import { ConcordError } from "../../src/base/errors.ts";
import { MachineBackend } from "./machine-backend.ts";

function createSetting() {
  const backend = new MachineBackend();
  const context: ApiContext = { backend, log: () => {} };
  const noted: number[] = [];
  const caller = (wishes: Partial<CallerWishes> = {}) =>
    createCaller({ principal: "p", noteRevision: (revision) => noted.push(revision), ...wishes }, "invalid_kv");
  return { backend, context, caller, noted };
}

describe("a caller", () => {
  test("has the defaults of the API", () => {
    expect(createSetting().caller()).toMatchObject({
      principal: "p",
      timeoutMs: 5000,
      consistency: "linearizable",
      minRevision: null,
      idempotency: null,
    });
  });

  test.each([1, 60_000])("may wait %d ms", (timeoutMs) => {
    expect(createSetting().caller({ timeoutMs }).timeoutMs).toBe(timeoutMs);
  });

  test.each<[Partial<CallerWishes>, string, string]>([
    [{ timeoutMs: 0 }, "invalid_kv", "invalid_timeout_ms"],
    [{ timeoutMs: 60_001 }, "invalid_kv", "invalid_timeout_ms"],
    [{ timeoutMs: 1.5 }, "invalid_kv", "invalid_timeout_ms"],
    [{ timeoutMs: Number.NaN }, "invalid_kv", "invalid_timeout_ms"],
    [{ minRevision: -1 }, "invalid_kv", "invalid_min_revision"],
    [{ minRevision: 0.5 }, "invalid_kv", "invalid_min_revision"],
    [{ minRevision: 2 ** 53 }, "invalid_kv", "invalid_min_revision"],
    [{ idempotencyKey: "" }, "invalid_request", "idempotency_key_size"],
    [{ idempotencyKey: "k".repeat(257) }, "invalid_request", "idempotency_key_size"],
    [{ idempotencyKey: "é" }, "invalid_request", "idempotency_key"],
    [{ idempotencyKey: "k", idempotencySince: -1 }, "invalid_request", "idempotency_since"],
    [{ idempotencyKey: "k", idempotencySince: 1.5 }, "invalid_request", "idempotency_since"],
  ])("%j is refused", (wishes, code, reason) => {
    const { caller } = createSetting();
    expect(() => caller(wishes)).toThrow(expect.objectContaining({ body: expect.objectContaining({ code, reason }) }));
  });

  test("an idempotency key of 256 characters reaches the log with its principal", async () => {
    const { context, caller, backend } = createSetting();
    const key = "k".repeat(256);
    const keyed = caller({ idempotencyKey: key, idempotencySince: 0 });
    await putRecord(context, keyed, { key: "a", value: 1 });
    expect(JSON.parse(backend.logged[0] ?? "").idempotency).toMatchObject({ scope: "p", key, since: 0 });
    expect(await resolveTransaction(context, caller(), { key })).toMatchObject({ status: "known", revision: 1 });
  });

  test("hears the revision of every answer, of errors of the state as well", async () => {
    const { context, caller, noted } = createSetting();
    await putRecord(context, caller(), { key: "a", value: 1 });
    await putRecord(context, caller(), { key: "a", value: 2, lease: 9 }).catch(() => {});
    await getRecord(context, caller(), { key: "a", revision: 9 }).catch(() => {});
    expect(noted).toEqual([1, 1, 1]);
  });

  test("that names another cluster is refused", () => {
    const { context } = createSetting();
    const changed = expect.objectContaining({ body: expect.objectContaining({ code: "cluster_changed" }) });
    expect(() => checkClusterId(context, "c-2")).toThrow(changed);
    for (const named of ["c-1", undefined]) expect(() => checkClusterId(context, named)).not.toThrow();
  });

  test("that names a revision before its first try, and no key, has misunderstood", () => {
    const { caller } = createSetting();
    const refused = expect.objectContaining({ body: expect.objectContaining({ reason: "idempotency_since" }) });
    for (const idempotencySince of [-1, 0.5, 0, 7]) expect(() => caller({ idempotencySince })).toThrow(refused);
    for (const idempotencySince of [-1, Number.NaN, 2 ** 53]) {
      expect(() => caller({ idempotencyKey: "k", idempotencySince })).toThrow(refused);
    }
  });
});

describe("operations", () => {
  test("an absent record is an answer", async () => {
    const { context, caller } = createSetting();
    expect(await getRecord(context, caller(), { key: "a" })).toEqual({ record: null, revision: 0 });
    expect(await deleteRecord(context, caller(), { key: "a", prev_kv: true })).toEqual({
      revision: 0,
      deleted: 0,
      prev_kv: null,
    });
  });

  test("a put with a revision suffix answers the full key, any other none", async () => {
    const { context, caller } = createSetting();
    const put = { key: "a/", value: 1, metadata: { m: 1 }, content_type: "a/b" };
    expect(await putRecord(context, caller(), put)).toEqual({ revision: 1 });
    expect(await putRecord(context, caller(), { ...put, revision_suffix: true, prev_kv: true })).toEqual({
      revision: 2,
      prev_kv: null,
      key: "a/0000000000000002",
    });
    const { record } = await getRecord(context, caller(), { key: "a/0000000000000002" });
    expect(record).toMatchObject({ value: 1, metadata: { m: 1 }, content_type: "a/b", mod_revision: 2 });
  });

  test("keys are bytes as well, and the system's are refused", async () => {
    const { context, caller, backend } = createSetting();
    const key = { encoding: "base64", data: "/w==" } as const;
    await putRecord(context, caller(), { key, value: 1 });
    expect((await getRecord(context, caller(), { key })).record?.key).toEqual(key);
    const system = { encoding: "base64", data: "AGE=" } as const;
    await expect(putRecord(context, caller(), { key: system, value: 1 })).rejects.toBeInstanceOf(ConcordError);
    await expect(deleteRecord(context, caller(), { key: "\0a" })).rejects.toBeInstanceOf(ConcordError);
    expect(backend.logged.length).toBe(1);
  });

  test("a txn that writes is not read at a chosen consistency", async () => {
    const { context, caller } = createSetting();
    const txn = { success: [{ type: "put" as const, key: "a", value: 1 }] };
    for (const wishes of [{ consistency: "serializable" as const }, { minRevision: 0 }]) {
      await expect(runTransaction(context, caller(wishes), txn)).rejects.toThrow(/consistency and min_revision/);
    }
    expect((await runTransaction(context, caller({ consistency: "linearizable" }), txn)).revision).toBe(1);
  });
});
