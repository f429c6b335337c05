/**
 * Goal: what types let in and out: interfaces and optional members are JSON data, functions and the like are not.
 * Method: the compiler is the judge of this file; what it does not see is refused at run time.
 */
import { describe, expect, expectTypeOf, test } from "vitest";
import type { Held, JsonObject, JsonValue } from "../../src/client/index.ts";
import { Concord } from "../../src/client/index.ts";
import { errorOf } from "./streaming.ts";

interface Part {
  readonly sizes: readonly number[];
  note?: string;
}
interface Plain {
  state: string;
  note?: string;
  part?: Part | undefined;
  parts: Part[];
}
interface WithMethod {
  state: string;
  run(): void;
}
const plain: Plain = { state: "on", parts: [{ sizes: [1] }] };
const json: JsonValue = { a: [1, null] };

/** Only compiled. */
async function accepted(concord: Concord, held: Held): Promise<void> {
  const { kv } = concord;
  for (const value of [1, "a", null, true, [1, "a"], { a: { b: null } }]) await kv.put("/a", value);
  await kv.put("/a", json);
  await kv.put("/a", plain);
  await kv.put("/a", [plain, plain]);
  await kv.put("/a", { plain, list: [plain] });
  await kv.put<Plain>("/a", { state: "off", parts: [] });
  await kv.create("/a", plain);
  await kv.replace("/a", plain, { ttl: 9 });
  await kv.putMany([
    { key: "/a", value: plain },
    { key: "/b", value: 1 },
    { key: "/c", ignore_value: true },
  ]);
  await concord.txn({
    success: [
      { type: "put", key: "/a", value: plain },
      { type: "get", key: "/a" },
    ],
  });
  await held.put("/a", plain);
  await held.txn({ success: [{ type: "put", key: "/a", value: plain }] });
  await concord.lock("/l", { value: plain });
  await concord.topics.publish("t", plain);
  await (await concord.election<Plain>("/e").campaign(plain)).proclaim(plain);
  await concord.election("/e").campaign({ host: "a" });
}

/** What is written in terms of JSON data goes on working. */
async function generic<T extends JsonValue>(concord: Concord, value: T, object: JsonObject): Promise<void> {
  await concord.kv.put("/a", value);
  await concord.kv.put("/a", object);
  await concord.topics.publish("t", value);
}

/** Only compiled. */
async function refused(concord: Concord, withMethod: WithMethod, unknown: unknown): Promise<void> {
  const { kv } = concord;
  // @ts-expect-error: undefined
  await kv.put("/a", undefined);
  // @ts-expect-error: a function
  await kv.put("/a", () => 1);
  // @ts-expect-error: a symbol
  await kv.put("/a", Symbol("a"));
  // @ts-expect-error: a bigint
  await kv.put("/a", 1n);
  // @ts-expect-error: an object of a class
  await kv.put("/a", new Date());
  // @ts-expect-error: bytes need bytes()
  await kv.put("/a", new Uint8Array(1));
  // @ts-expect-error: a bigint inside
  await kv.put("/a", { a: [{ b: 1n }] });
  // @ts-expect-error: undefined in a list
  await kv.put("/a", [1, undefined]);
  // @ts-expect-error: a method
  await kv.put("/a", withMethod);
  // @ts-expect-error: who knows
  await kv.put("/a", unknown);
  // @ts-expect-error: another type than was named
  await kv.create<Plain>("/a", withMethod);
  // @ts-expect-error: a function
  await concord.topics.publish("t", () => 1);
  // @ts-expect-error: a function
  await concord.txn({ success: [{ type: "put", key: "/a", value: () => 1 }] });
  // @ts-expect-error: an object of a class
  await kv.putMany([{ key: "/a", value: new Map() }]);
  // @ts-expect-error: a function
  concord.election<() => void>("/e");
  // @ts-expect-error: a member is missing
  await concord.election<Plain>("/e").campaign({ state: "on" });
}

/** Only compiled. */
async function named({ kv, sync }: Concord): Promise<void> {
  for await (const event of kv.history<Plain>("/a")) expectTypeOf(event.value).toEqualTypeOf<Plain | null>();
  for await (const event of kv.history("/a")) expectTypeOf(event.value).toEqualTypeOf<JsonValue>();
  const page = await sync.changes<Plain>({ key: "/a" });
  expectTypeOf(page.events[0]?.value).toEqualTypeOf<Plain | null | undefined>();
  for await (const event of sync.allChanges<Plain>({ key: "/a" })) {
    expectTypeOf(event.value).toEqualTypeOf<Plain | null>();
  }
  for await (const event of sync.watch<Plain>({ key: "/a" }, { prev_values: true })) {
    expectTypeOf(event.value?.parts).toEqualTypeOf<Part[] | undefined>();
    expectTypeOf(event.prev_value?.parts).toEqualTypeOf<Part[] | undefined>();
  }
  for await (const { events } of sync.watchGrouped<Plain>({ key: "/a" })) {
    expectTypeOf(events[0]?.value?.state).toEqualTypeOf<string | undefined>();
  }
}

describe("values", () => {
  test("are seen by the compiler as described", () => {
    for (const compiled of [accepted, generic, refused, named]) expect(compiled).toBeTypeOf("function");
  });

  test("that are let in by a type and are no JSON data are refused before anything is sent", async () => {
    const fetch = () => Promise.reject(new Error("nothing may be sent"));
    const concord = Concord.connect({ fetch });
    const value = { nested: new Date(0) };
    const put = errorOf(concord.txn({ success: [{ type: "put", key: "/a", value }] }, { idempotencyKey: null }));
    expect(await put).toMatchObject({ code: "invalid_kv", reason: "not_json" });
    expect((await put).message).toContain("success[0].value.nested");
  });
});
