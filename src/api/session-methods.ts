/**
 * The methods of a session: every operation of the HTTP API under the same names and values, and what only an open
 * connection can hold (watches, topics). Strict: an unknown member of params is an error.
 *
 * X1. What a method of the connection does, it does within the call, so that its answer stands in front of the frames
 *     that it brings about (session.ts).
 */
import * as z from "zod";
import { ConcordError, type ErrorCode } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import type { Connection } from "./backend.ts";
import { type ApiContext, type Caller, checkClusterId, createCaller } from "./caller.ts";
import { deleteRecord, getRecord, listRecords, putRecord, runBatch } from "./kv-operations.ts";
import { describeLease, grantLease, keepLeaseAlive, listLeases, revokeLease } from "./lease-operations.ts";
import { decodePosition, positionText } from "./position-text.ts";
import {
  batchSchema,
  compactSchema,
  json,
  keepAliveSchema,
  key,
  leaseGrantFields,
  putFields,
  selectorFields,
  txnFields,
} from "./schema.ts";
import { shaped } from "./shape.ts";
import { compactHistory, readChanges, readHistory, readRevision } from "./sync-operations.ts";
import { checkedTopic, publishTopic } from "./topic-operations.ts";
import type { TopicWindow } from "./topic-window.ts";
import { resolveTransaction, runTransaction } from "./txn-operations.ts";
import { decodeWatch, type WatchFields, watchFields } from "./watch-parameters.ts";
import type { WireRevision, WireWatchCreated } from "./wire.ts";

/** What a method may use of its session. */
export interface MethodScope {
  readonly context: ApiContext;
  readonly principal: string;
  readonly connection: Connection;
  readonly window: TopicWindow;
}

export interface Method {
  /** Without an id it is carried out and not answered. */
  readonly isNotification: boolean;
  /** Done when the call returns: it takes no place among the requests in flight. */
  readonly isImmediate: boolean;
  /** Params are the members of both. */
  readonly params: { readonly how: z.ZodType; readonly what: z.ZodType };
  /** @throws ConcordError, at once or later. */
  run(scope: MethodScope, params: JsonObject): object | Promise<object>;
}

/** What a request says beside what it wants, by the kind of method. */
const bounded = { timeout_ms: z.number().optional(), cluster_id: z.string().optional() };
const reading = {
  ...bounded,
  consistency: z.enum(["linearizable", "serializable"]).optional(),
  min_revision: z.number().optional(),
};
const writing = {
  ...bounded,
  idempotency_key: z.string().optional(),
  idempotency_since: z.number().optional(),
};

type Operation<Request> = (context: ApiContext, caller: Caller, request: Request) => Promise<object>;

interface Control {
  readonly timeout_ms?: number | undefined;
  readonly consistency?: "linearizable" | "serializable" | undefined;
  readonly min_revision?: number | undefined;
  readonly cluster_id?: string | undefined;
  readonly idempotency_key?: string | undefined;
  readonly idempotency_since?: number | undefined;
}

/** @param control the members that say how, not what. */
function operation<Schema extends z.ZodType>(
  code: ErrorCode,
  control: z.ZodRawShape,
  schema: Schema,
  run: Operation<z.output<Schema>>,
): Method {
  const controlSchema = z.strictObject(control);
  return {
    isNotification: false,
    isImmediate: false,
    params: { how: controlSchema, what: schema },
    run: async ({ context, principal }, params) => {
      const parts = split(params, control);
      const how: Control = shaped(controlSchema, parts.control, code);
      checkClusterId(context, how.cluster_id);
      const request = shaped(schema, parts.rest, code);
      const caller = createCaller(
        {
          principal,
          timeoutMs: how.timeout_ms,
          consistency: how.consistency,
          minRevision: how.min_revision,
          idempotencyKey: how.idempotency_key,
          idempotencySince: how.idempotency_since,
          noteRevision: () => {},
        },
        code,
      );
      return await run(context, caller, request);
    },
  };
}

function split(params: JsonObject, control: object): { readonly control: object; readonly rest: object } {
  const entries = Object.entries(params);
  return {
    control: Object.fromEntries(entries.filter(([name]) => Object.hasOwn(control, name))),
    rest: Object.fromEntries(entries.filter(([name]) => !Object.hasOwn(control, name))),
  };
}

/** A method of the connection: carried out within the call (X1). `run` returns what it adds to the revision. */
function connected<Fields extends z.ZodRawShape>(
  fields: Fields,
  run: (scope: MethodScope, request: z.output<z.ZodObject<Fields, z.core.$strict>>) => object | undefined,
  isNotification = false,
): Method {
  const schema = z.strictObject(fields);
  return {
    isNotification,
    isImmediate: true,
    params: { how: boundedSchema, what: schema },
    run: (scope, params) => {
      const parts = split(params, bounded);
      const { cluster_id } = shaped(boundedSchema, parts.control, "invalid_request");
      checkClusterId(scope.context, cluster_id);
      const added = run(scope, shaped(schema, parts.rest, "invalid_request"));
      const reply: WireRevision = { revision: scope.context.backend.position().revision };
      return { ...added, ...reply };
    },
  };
}

const boundedSchema = z.strictObject(bounded);

const id = z.number();
/** Chosen by the client, unique within its session. */
export const watch_id = z.custom<number>(
  (value) => typeof value === "number" && Number.isSafeInteger(value) && value >= 0,
  "a whole number from 0",
);
const integer = z.number().optional();

function createWatch(
  { context, connection }: MethodScope,
  { watch_id, ...fields }: WatchFields & { readonly watch_id: number },
): Omit<WireWatchCreated, "revision"> {
  const subscribed = connection.subscribe(decodeWatch(context, watch_id, fields));
  if (!subscribed.ok) throw new ConcordError(subscribed.error);
  const cluster_id = context.backend.position().clusterId ?? "";
  return { watch_id, position: positionText(subscribed.position), cluster_id };
}

function unknownWatch(watchId: number): ConcordError {
  const detail = `This session has no watch ${watchId}.`;
  return new ConcordError({ code: "not_found", reason: "watch", detail });
}

export const METHODS: ReadonlyMap<string, Method> = new Map<string, Method>([
  ["kv.get", operation("invalid_kv", reading, z.strictObject({ key, revision: integer }), getRecord)],
  [
    "kv.list",
    operation(
      "invalid_selector",
      reading,
      z.strictObject({
        prefix: key.optional(),
        start: key.optional(),
        end: key.optional(),
        limit: integer,
        order: z.enum(["asc", "desc"]).optional(),
        keys_only: z.boolean().optional(),
        count_only: z.boolean().optional(),
        revision: integer,
        cursor: z.string().optional(),
      }),
      listRecords,
    ),
  ],
  ["kv.put", operation("invalid_kv", writing, z.strictObject(putFields), putRecord)],
  [
    "kv.delete",
    operation("invalid_kv", writing, z.strictObject({ key, prev_kv: z.boolean().optional() }), deleteRecord),
  ],
  ["kv.batch", operation("invalid_kv", { ...reading, ...writing }, batchSchema, runBatch)],
  [
    "kv.history",
    operation(
      "invalid_selector",
      reading,
      z.strictObject({ key, from: integer, to: integer, limit: integer, cursor: z.string().optional() }),
      readHistory,
    ),
  ],
  ["txn", operation("invalid_txn", { ...reading, ...writing }, z.strictObject(txnFields), runTransaction)],
  ["txn.result", operation("invalid_request", reading, z.strictObject({ key: z.string() }), resolveTransaction)],
  [
    "changes",
    operation(
      "invalid_selector",
      reading,
      z.strictObject({ ...selectorFields, after: z.string().optional(), limit: integer }),
      readChanges,
    ),
  ],
  ["revision", operation("invalid_request", reading, z.strictObject({}), readRevision)],
  ["compact", operation("invalid_request", writing, compactSchema, compactHistory)],
  ["cluster", operation("invalid_request", reading, z.strictObject({}), (context) => context.backend.cluster())],
  ["lease.grant", operation("invalid_lease", writing, z.strictObject(leaseGrantFields), grantLease)],
  [
    "lease.keepalive",
    operation("invalid_lease", writing, z.strictObject({ id, ...keepAliveSchema.shape }), keepLeaseAlive),
  ],
  ["lease.revoke", operation("invalid_lease", writing, z.strictObject({ id }), revokeLease)],
  ["lease.info", operation("invalid_lease", reading, z.strictObject({ id }), describeLease)],
  [
    "lease.list",
    operation(
      "invalid_lease",
      reading,
      z.strictObject({ limit: integer, after: integer, anonymous: z.boolean().optional() }),
      listLeases,
    ),
  ],
  ["watch.create", connected({ watch_id, ...watchFields }, createWatch)],
  [
    "watch.ack",
    connected(
      { watch_id, position: z.string() },
      ({ connection }, { watch_id: watchId, position }) => {
        connection.acknowledge(watchId, decodePosition(position, "position"));
        return undefined;
      },
      true,
    ),
  ],
  [
    "watch.cancel",
    connected({ watch_id }, ({ connection }, request) => ({ cancelled: connection.cancel(request.watch_id) })),
  ],
  [
    "watch.progress",
    connected({ watch_id }, ({ connection }, request) => {
      // Nothing would follow, and the caller would wait for it.
      if (!connection.requestProgress(request.watch_id)) throw unknownWatch(request.watch_id);
      return undefined;
    }),
  ],
  [
    "topic.publish",
    connected({ topic: z.string(), payload: json }, ({ context }, request) => {
      publishTopic(context, request);
      return undefined;
    }),
  ],
  [
    "topic.subscribe",
    connected({ topic: z.string() }, ({ connection }, { topic }) => {
      connection.subscribeTopic(checkedTopic(topic));
      return undefined;
    }),
  ],
  [
    "topic.unsubscribe",
    connected({ topic: z.string() }, ({ connection }, { topic }) => {
      connection.unsubscribeTopic(checkedTopic(topic));
      return undefined;
    }),
  ],
  [
    "topic.ack",
    connected(
      { seq: z.number() },
      ({ window }, { seq }) => {
        window.acknowledge(seq);
        return undefined;
      },
      true,
    ),
  ],
]);
