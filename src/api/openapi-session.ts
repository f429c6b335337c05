/** What the OpenAPI document says of a session: its methods with params and result, and what the server says itself. */
import * as z from "zod";
import type { JsonObject, JsonValue } from "../base/json.ts";
import * as replies from "./openapi-replies.ts";
import type { SchemaOf } from "./openapi-route.ts";
import { METHODS } from "./session-methods.ts";

const revision = replies.revisionReply;
const RESULTS: Readonly<Record<string, z.ZodType>> = {
  "kv.get": replies.getReply,
  "kv.list": replies.list,
  "kv.put": replies.putReply,
  "kv.delete": replies.deleteReply,
  "kv.batch": z.union([replies.getManyReply, replies.putManyReply, replies.deleteManyReply]),
  "kv.history": replies.history,
  txn: replies.txnResult,
  "txn.result": replies.txnResolution,
  changes: replies.changes,
  revision,
  compact: replies.compacted,
  cluster: replies.clusterStatus,
  "lease.grant": replies.leaseGranted,
  "lease.keepalive": replies.leaseKeptAlive,
  "lease.revoke": replies.leaseRevoked,
  "lease.info": replies.lease,
  "lease.list": replies.leaseList,
  "watch.create": replies.watchCreated,
  "watch.ack": revision,
  "watch.cancel": z.object({ cancelled: z.boolean(), revision: z.int().nonnegative() }).meta({ id: "WatchCancelled" }),
  "watch.progress": revision,
  "topic.publish": revision,
  "topic.subscribe": revision,
  "topic.unsubscribe": revision,
  "topic.ack": revision,
};

/** The members of the operation that tell of the session; every method that the session has, and no other. */
export function sessionExtensions(schemaOf: SchemaOf): JsonObject {
  const methods = Object.fromEntries(
    [...METHODS].map(([name, { params, isNotification }]) => {
      const result = RESULTS[name];
      return [
        name,
        {
          params: merged(schemaOf(params.what, "inline"), schemaOf(params.how, "inline")),
          ...(result === undefined ? {} : { result: schemaOf(result) }),
          // Without an id it is carried out and not answered.
          ...(isNotification ? { notification: true } : {}),
        },
      ];
    }),
  );
  return {
    "x-methods": methods,
    "x-notifications": {
      session: schemaOf(sessionNotification),
      watch: {
        description: "The members of a frame, and `watch_id`.",
        allOf: [schemaOf(replies.watchFrame), WATCH_ID],
      },
      leader_changed: schemaOf(z.object({ leader: z.int().nullable() })),
      topic: schemaOf(replies.topicMessage),
    },
  };
}

const sessionNotification = z.object({
  cluster_id: z.string().nullable(),
  node: z.int(),
  leader: z.int().nullable(),
  revision: z.int().nonnegative(),
});
const WATCH_ID = { type: "object", properties: { watch_id: { type: "integer", minimum: 0 } }, required: ["watch_id"] };

/** One schema for an object that has the members of both; `what` may be a choice of objects. */
function merged(what: JsonObject, how: JsonObject): JsonObject {
  for (const choice of ["oneOf", "anyOf"]) {
    const options = what[choice];
    if (Array.isArray(options))
      return { ...what, [choice]: options.map((option) => merged(option as JsonObject, how)) };
  }
  const properties = { ...membersOf(what.properties), ...membersOf(how.properties) };
  return { ...what, properties };
}

function membersOf(value: JsonValue | undefined): JsonObject {
  return (value ?? {}) as JsonObject;
}
