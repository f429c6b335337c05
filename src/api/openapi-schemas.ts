/**
 * Schemas of zod as schemas of the OpenAPI document. Those with a name become components of it.
 *
 * Bodies are checked by functions where zod has no type for a thing (keys, stored values); here it is said what these
 * functions accept.
 */
import * as z from "zod";
import type { JsonObject } from "../base/json.ts";
import * as requests from "./schema.ts";
import { watch_id } from "./session-methods.ts";

const BYTES: JsonObject = {
  type: "object",
  properties: { encoding: { const: "base64" }, data: { type: "string", contentEncoding: "base64" } },
  required: ["encoding", "data"],
  additionalProperties: false,
};

const names = z.globalRegistry;
names.add(requests.key, {
  id: "Key",
  description: "1 to 4096 bytes, ordered by byte: text, or base64 for bytes that are no UTF-8.",
  anyOf: [{ type: "string" }, BYTES],
});
names.add(requests.json, {
  id: "Value",
  description:
    'Any JSON value. An object with exactly the members `encoding: "base64"` and `data` means bytes wherever a stored value stands.',
});
names.add(requests.metadata, { id: "Metadata", type: "object", description: "Up to 4 KiB of JSON." });
names.add(watch_id, { type: "integer", minimum: 0, description: "Chosen by the client, unique within its session." });
names.add(requests.pathStep, { anyOf: [{ type: "string" }, { type: "integer", minimum: 0 }] });
names.add(requests.range, { id: "Range", description: "`end` is exclusive; without it: to the last key." });
names.add(requests.compare, {
  id: "Compare",
  description:
    "Of an absent key: exists is false; value, field, lease and ttl are null; numbers are 0. Types are ordered null < boolean < number < string < array < object.",
});
names.add(requests.operation, {
  id: "Operation",
  description:
    "`get` and `delete` take exactly one of key, prefix and range; `limit` is mandatory for a get of the last two.",
});
names.add(requests.txnSchema, { id: "Txn" });
names.add(requests.batchSchema, { id: "Batch" });
names.add(requests.leaseGrantSchema, { id: "LeaseGrant" });
names.add(requests.keepAliveSchema, { id: "LeaseKeepAlive" });
names.add(requests.compactSchema, { id: "Compact" });
names.add(requests.clusterSchema, { id: "NewCluster" });

export interface Converted {
  readonly schema: JsonObject;
  /** Every named schema that it needs. */
  readonly components: Readonly<Record<string, JsonObject>>;
}

/** @param form `inline`: the schema itself, even if it has a name. */
export function convertSchema(schema: z.ZodType, form?: "inline"): Converted {
  const text = JSON.stringify(z.toJSONSchema(schema, { unrepresentable: "any", io: "input" }));
  const {
    $schema: _dialect,
    $defs: components = {},
    ...root
  } = JSON.parse(text.replaceAll('"#/$defs/', '"#/components/schemas/'));
  const id = names.get(schema)?.id;
  if (id === undefined) return { schema: root, components };
  // A named root stands in its own definitions, or does not, as the library likes.
  const own = components[id] ?? root;
  if (form === "inline") return { schema: own, components };
  return { schema: { $ref: `#/components/schemas/${id}` }, components: { ...components, [id]: own } };
}
