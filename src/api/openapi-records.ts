/** What the OpenAPI document says of records: one by one, lists, batches. */
import type { ErrorCode } from "../base/errors.ts";
import { LEASE_TTL_S_MAX, LEASE_TTL_S_MIN } from "../base/limits.ts";
import {
  FLAG,
  KEY_IN_PATH,
  KEY_IN_QUERY,
  query,
  RANGE,
  READING,
  REVISION,
  SHARED,
  WRITING,
} from "./openapi-parameters.ts";
import * as replies from "./openapi-replies.ts";
import { type Example, type Parameter, READ_ERRORS, type Reply, type RouteRow, WRITE_ERRORS } from "./openapi-route.ts";
import * as requests from "./schema.ts";

const STATE = {
  key: "/work/items/42/state",
  value: { status: "pending" },
  create_revision: 1,
  mod_revision: 1,
  version: 1,
  lease_id: null,
  expires_at_ms: null,
  content_type: null,
  metadata: {},
};
const HOLDER = {
  ...STATE,
  key: "/work/items/42/holder",
  value: "agent_7",
  create_revision: 2,
  mod_revision: 2,
  lease_id: 1,
};

const GET_ONE: readonly Parameter[] = [
  query("revision", REVISION, "The record as it was at this revision."),
  query("raw", FLAG, "Answer the bare value with its content type."),
  SHARED.if_match,
  SHARED.if_none_match,
];
const LISTED: readonly Parameter[] = [
  ...RANGE,
  SHARED.limit,
  query("order", { type: "string", enum: ["asc", "desc"], default: "asc" }, "By key, byte by byte."),
  query("keys_only", FLAG, "Leave the values out."),
  query("count_only", FLAG, "Count all matches and answer no records."),
  SHARED.cursor,
];
const PUT: readonly Parameter[] = [
  query(
    "ttl",
    { type: "integer", minimum: LEASE_TTL_S_MIN, maximum: LEASE_TTL_S_MAX },
    "Seconds to live. Excludes `lease`.",
  ),
  query("lease", { type: "integer", minimum: 1 }, "The lease that the record ends with."),
  SHARED.prev_kv,
  ...WRITING,
  SHARED.if_match,
  SHARED.if_none_match,
];
const DELETE: readonly Parameter[] = [SHARED.prev_kv, ...WRITING, SHARED.if_match, SHARED.if_none_match];

const RECORD_ERRORS = ["invalid_kv", "forbidden", "precondition_failed"] as const;
const GET_ERRORS: readonly ErrorCode[] = [...RECORD_ERRORS, "not_found", "compacted", ...READ_ERRORS];
const PUT_ERRORS: readonly ErrorCode[] = [
  ...RECORD_ERRORS,
  ...["unknown_lease", "lease_limit_exceeded", "no_space"],
  ...WRITE_ERRORS,
] as ErrorCode[];
const DELETE_ERRORS: readonly ErrorCode[] = [...RECORD_ERRORS, ...WRITE_ERRORS];

const RAW = { "*/*": null };
const NOT_MODIFIED: Reply = {
  status: 304,
  description: "The record is still at the tag of If-None-Match.",
  headers: ["etag"],
};
const VALUE_BODY = {
  description:
    "`application/json`: a JSON value. A `+json` type: a JSON value stored with that content type. **Any other type, or none: the bytes of the body**, stored with that type.",
  required: true,
  content: { "application/json": requests.json, ...RAW },
} as const;

const ONE = { key: STATE.key };
const IN_PATH = { key: "work" };

const PUT_REPLY: Reply = {
  status: 200,
  description: "Written.",
  content: { "application/json": replies.putReply },
  headers: ["etag"],
};
const DELETE_REPLY: Reply = {
  status: 200,
  description: "Deleted; `deleted` is 0 when the key was absent.",
  content: { "application/json": replies.deleteReply },
};
const IS_REPLACED =
  "A put replaces the whole record: without `ttl` or `lease` it has neither afterwards. Metadata can be given in a txn or a batch.";

export const RECORD_ROUTES: readonly RouteRow[] = [
  {
    method: "GET",
    path: "/v1/kv",
    id: "getRecords",
    tag: "records",
    by: "node",
    summary: "One record, or a list",
    description:
      "With `key` one record, with `prefix` or `start` and `end` a list; the three exclude each other. `raw`, If-Match and If-None-Match belong to one record; `limit`, `order`, `keys_only`, `count_only` and `cursor` to a list. All pages of a list show the state of the first one's revision.",
    parameters: [KEY_IN_QUERY, ...GET_ONE, ...LISTED, ...READING],
    replies: [
      {
        status: 200,
        description: "The record, the bare value (`raw`), or a page.",
        content: { "application/json": replies.record.or(replies.list), ...RAW },
        headers: ["etag"],
      },
      NOT_MODIFIED,
    ],
    errors: [...GET_ERRORS, "invalid_selector"],
    examples: [
      { name: "one", summary: "One record", parameters: ONE, status: 200, reply: STATE },
      {
        name: "list",
        summary: "All below a prefix",
        parameters: { prefix: "/work/", limit: "10" },
        status: 200,
        reply: { records: [HOLDER, STATE], count: 2, cursor: null, revision: 2 },
      },
      {
        name: "raw",
        summary: "The bare value",
        parameters: { ...ONE, raw: "true" },
        status: 200,
        reply: { status: "pending" },
      },
      {
        name: "unchanged",
        summary: "Only if it has changed",
        parameters: { ...ONE, "If-None-Match": '"1"' },
        status: 304,
      },
    ],
  },
  {
    method: "PUT",
    path: "/v1/kv",
    id: "putRecord",
    tag: "records",
    by: "node",
    summary: "Sets the value of a key",
    description: IS_REPLACED,
    parameters: [{ ...KEY_IN_QUERY, required: true }, ...PUT],
    body: VALUE_BODY,
    replies: [PUT_REPLY],
    errors: PUT_ERRORS,
    examples: [
      {
        name: "claim",
        summary: "Only if the record is still at revision 1",
        parameters: { ...ONE, "If-Match": '"1"', prev_kv: "true" },
        body: { status: "claimed" },
        status: 200,
        reply: { revision: 3, prev_kv: STATE },
      },
      {
        name: "create",
        summary: "Only if there is none, for 60 seconds",
        parameters: { key: "/work/items/43/state", "If-None-Match": "*", ttl: "60" },
        body: { status: "pending" },
        status: 200,
        reply: { revision: 3 },
      },
      {
        name: "bytes",
        summary: "Bytes with their content type",
        parameters: { key: "/notes/1" },
        body: "written down",
        mediaType: "text/plain",
        status: 200,
        reply: { revision: 3 },
      },
    ],
  },
  {
    method: "DELETE",
    path: "/v1/kv",
    id: "deleteRecord",
    tag: "records",
    by: "node",
    summary: "Deletes a record",
    parameters: [{ ...KEY_IN_QUERY, required: true }, ...DELETE],
    replies: [DELETE_REPLY],
    errors: DELETE_ERRORS,
    examples: [
      {
        name: "release",
        summary: "Deletes and answers what was there",
        parameters: { key: HOLDER.key, prev_kv: "true" },
        status: 200,
        reply: { revision: 3, deleted: 1, prev_kv: HOLDER },
      },
      {
        name: "absent",
        summary: "A key that is not there",
        parameters: { key: "/nothing" },
        status: 200,
        reply: { revision: 2, deleted: 0 },
      },
    ],
  },
  ...byPath(),
  {
    method: "POST",
    path: "/v1/kv/batch",
    id: "batch",
    tag: "records",
    by: "node",
    summary: "Many keys at one revision",
    description:
      "1 to 500 keys. `get_many` takes the parameters of consistency, the writes take `timeout_ms` and an idempotency key.",
    parameters: [...READING, SHARED.idempotency_key, SHARED.idempotency_since],
    body: { required: true, content: { "application/json": requests.batchSchema } },
    replies: [
      {
        status: 200,
        description: "By the `op` of the request.",
        content: {
          "application/json": replies.getManyReply.or(replies.putManyReply).or(replies.deleteManyReply),
        },
      },
    ],
    errors: [
      ...["invalid_kv", "invalid_txn", "forbidden", "not_found", "unknown_lease", "lease_limit_exceeded"],
      ...["compacted", "result_too_large", "no_space"],
      ...READ_ERRORS,
      ...WRITE_ERRORS,
    ] as ErrorCode[],
    examples: [
      {
        name: "get_many",
        summary: "Two keys at one revision",
        body: { op: "get_many", keys: [HOLDER.key, "/nothing"] },
        status: 200,
        reply: { revision: 2, records: [HOLDER, null] },
      },
      {
        name: "put_many",
        summary: "Two records at one revision",
        body: {
          op: "put_many",
          items: [
            { key: "/a", value: 1 },
            { key: "/b", value: 2, metadata: { by: "agent_7" } },
          ],
        },
        status: 200,
        reply: { revision: 3, responses: [{ key: "/a" }, { key: "/b" }] },
      },
      {
        name: "delete_many",
        summary: "Deletes at one revision",
        body: { op: "delete_many", keys: [STATE.key, "/nothing"] },
        status: 200,
        reply: { revision: 3, deleted: 1, responses: [{ deleted: 1 }, { deleted: 0 }] },
      },
    ],
  },
];

/** The same three by path. */
function byPath(): RouteRow[] {
  const path = "/v1/kv/{key}";
  const shared = { path, wide: true, tag: "records", by: "node" } as const;
  const example = (name: string, status: number, rest: Partial<Example>): Example[] => [
    { name, summary: "By path", parameters: IN_PATH, status, ...rest },
  ];
  return [
    {
      ...shared,
      method: "GET",
      id: "getRecordByPath",
      summary: "One record, by path",
      parameters: [KEY_IN_PATH, ...GET_ONE, ...READING],
      replies: [
        {
          status: 200,
          description: "The record, or the bare value (`raw`).",
          content: { "application/json": replies.record, ...RAW },
          headers: ["etag"],
        },
        NOT_MODIFIED,
      ],
      errors: [...GET_ERRORS, "invalid_selector"],
      examples: [{ name: "path", summary: "By path", parameters: ONE, status: 200, reply: STATE }],
    },
    {
      ...shared,
      method: "PUT",
      id: "putRecordByPath",
      summary: "Sets the value of a key, by path",
      description: IS_REPLACED,
      parameters: [KEY_IN_PATH, ...PUT],
      body: VALUE_BODY,
      replies: [PUT_REPLY],
      errors: PUT_ERRORS,
      examples: example("path", 200, { body: { a: 1 }, reply: { revision: 3 } }),
    },
    {
      ...shared,
      method: "DELETE",
      id: "deleteRecordByPath",
      summary: "Deletes a record, by path",
      parameters: [KEY_IN_PATH, ...DELETE],
      replies: [DELETE_REPLY],
      errors: DELETE_ERRORS,
      examples: example("path", 200, { reply: { revision: 2, deleted: 0 } }),
    },
  ];
}
