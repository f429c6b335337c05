/**
 * The shape of request bodies (design 01 §2, §7). Strict: an unknown field is an error.
 * Must not: check limits (that is `kv/validate.ts`, which sees the decoded command) nor copy stored values: they pass
 * by reference, so that a property such as `__proto__` stays what it is.
 */
import * as z from "zod";
import type { JsonObject, JsonValue } from "../base/json.ts";
import type { WireBatch, WireKey, WireLeaseGrant, WireLeaseKeepAlive, WireTxn } from "./wire.ts";

// Workers refuse code made from strings, which zod would otherwise try.
z.config({ jitless: true });

/** Members of bodies, which the params of a session share. */
export const key = z.custom<WireKey>(isWireKey, 'a string, or {"encoding":"base64","data":…}');
export const json = z.custom<JsonValue>((value) => value !== undefined, "a JSON value");
export const metadata = z.custom<JsonObject>(isPlainObject, "a JSON object");
export const range = z.strictObject({ start: key, end: key.optional() });
export const pathStep = z.custom<string | number>(isPathStep, "a property name or an array index");
const equality = z.enum(["==", "!="]);
const order = z.enum(["==", "!=", ">", ">=", "<", "<="]);

export const compare = z.discriminatedUnion("target", [
  z.strictObject({ target: z.literal("exists"), key, op: equality, value: z.boolean() }),
  z.strictObject({ target: z.literal("value"), key, op: equality, value: json }),
  z.strictObject({
    target: z.literal("field"),
    key,
    path: z.array(pathStep),
    op: order,
    value: json,
  }),
  z.strictObject({ target: z.enum(["version", "create_revision", "mod_revision"]), key, op: order, value: z.number() }),
  z.strictObject({ target: z.literal("lease"), key, op: equality, value: z.number().nullable() }),
  z.strictObject({ target: z.literal("ttl"), key, op: order, value: z.number().nullable() }),
]);

export const putFields = {
  key,
  value: json.optional(),
  prev_kv: z.boolean().optional(),
  content_type: z.string().optional(),
  metadata: metadata.optional(),
  ttl: z.number().optional(),
  lease: z.number().optional(),
  ignore_value: z.boolean().optional(),
  ignore_lease: z.boolean().optional(),
  revision_suffix: z.boolean().optional(),
  due_at_ms: z.number().optional(),
};
export const selectorFields = { key: key.optional(), prefix: key.optional(), range: range.optional() };

export const operation = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("get"),
    ...selectorFields,
    limit: z.number().optional(),
    revision: z.number().optional(),
    keys_only: z.boolean().optional(),
    count_only: z.boolean().optional(),
    order: z.enum(["asc", "desc"]).optional(),
  }),
  z.strictObject({ type: z.literal("put"), ...putFields }),
  z.strictObject({ type: z.literal("delete"), ...selectorFields, prev_kv: z.boolean().optional() }),
  z.strictObject({ type: z.literal("touch"), key, ttl: z.number() }),
]);

export const txnFields = {
  compare: z.array(compare).optional(),
  success: z.array(operation).optional(),
  failure: z.array(operation).optional(),
};
export const txnSchema = z.strictObject(txnFields);

export const batchFields = {
  put_many: { op: z.literal("put_many"), items: z.array(z.strictObject(putFields)) },
  get_many: { op: z.literal("get_many"), keys: z.array(key), revision: z.number().optional() },
  delete_many: { op: z.literal("delete_many"), keys: z.array(key), prev_kv: z.boolean().optional() },
};
export const batchSchema = z.discriminatedUnion("op", [
  z.strictObject(batchFields.put_many),
  z.strictObject(batchFields.get_many),
  z.strictObject(batchFields.delete_many),
]);

export const leaseGrantFields = { ttl_s: z.number(), metadata: metadata.optional(), id: z.number().optional() };
export const leaseGrantSchema = z.strictObject(leaseGrantFields);

export const keepAliveSchema = z.strictObject({ ttl_s: z.number().optional() });
export const compactSchema = z.strictObject({ revision: z.number() });

export const clusterSchema = z.strictObject({
  name: z.string(),
  jurisdiction: z.enum(["eu", "fedramp", "us"]).nullable().optional(),
  placement: z
    .array(z.enum(["wnam", "enam", "sam", "weur", "eeur", "apac", "apac-ne", "apac-se", "oc", "afr", "me"]))
    .optional(),
});

export const memberChangeSchema = z.strictObject({
  add: z.number().optional(),
  remove: z.number().optional(),
  promote: z.number().optional(),
});
export const transferSchema = z.strictObject({ to: z.number().optional() });
export const restartSchema = z.strictObject({});
export const repairSchema = z.strictObject({ force: z.boolean().optional() });
export const initSchema = z.strictObject({ members: z.array(z.number()) });

export type ParsedTxn = z.output<typeof txnSchema>;
export type ParsedCompare = z.output<typeof compare>;
export type ParsedOperation = z.output<typeof operation>;
export type ParsedPut = Omit<Extract<ParsedOperation, { type: "put" }>, "type">;
export type ParsedBatch = z.output<typeof batchSchema>;
export type ParsedLeaseGrant = z.output<typeof leaseGrantSchema>;
export type ParsedCluster = z.output<typeof clusterSchema>;

function isWireKey(value: unknown): boolean {
  if (typeof value === "string") return true;
  return (
    isPlainObject(value) &&
    Object.keys(value).length === 2 &&
    Object.hasOwn(value, "encoding") &&
    Object.hasOwn(value, "data") &&
    Reflect.get(value, "encoding") === "base64" &&
    typeof Reflect.get(value, "data") === "string"
  );
}

function isPathStep(value: unknown): boolean {
  return typeof value === "string" || (typeof value === "number" && Number.isSafeInteger(value) && value >= 0);
}

function isPlainObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// The published types and the schemas say the same: what the client may send is what the schemas take.
type Accepts<Wire, Schema extends z.ZodType> = Wire extends z.input<Schema> ? true : Wire;
type Lists<T> = {
  -readonly [Name in keyof T]: T[Name] extends readonly (infer Item)[] | undefined ? List<Item>[] : T[Name];
};
type List<T> = T extends { readonly path: readonly (infer Step)[] } ? Omit<T, "path"> & { path: Step[] } : T;
const agreement: readonly [
  Accepts<Lists<WireTxn>, typeof txnSchema>,
  Accepts<Lists<Extract<WireBatch, { op: "put_many" }>>, typeof batchSchema>,
  Accepts<Lists<Extract<WireBatch, { op: "get_many" }>>, typeof batchSchema>,
  Accepts<Lists<Extract<WireBatch, { op: "delete_many" }>>, typeof batchSchema>,
  Accepts<WireLeaseGrant, typeof leaseGrantSchema>,
  Accepts<WireLeaseKeepAlive, typeof keepAliveSchema>,
] = [true, true, true, true, true, true];
void agreement;
