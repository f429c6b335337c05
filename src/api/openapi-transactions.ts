/** What the OpenAPI document says of transactions and of their results. */
import type { ErrorCode } from "../base/errors.ts";
import { query, READING, SHARED } from "./openapi-parameters.ts";
import * as replies from "./openapi-replies.ts";
import { type Parameter, READ_ERRORS, type RouteRow, WRITE_ERRORS } from "./openapi-route.ts";
import * as requests from "./schema.ts";

const RESULT_KEY: Parameter["schema"] = SHARED.idempotency_key.schema;
const RESULT_DESCRIPTION =
  "`unknown` is said only behind an entry of its own in the log, so that nothing that was in the leader's log before can still run. A request that is still on its way can arrive later.";
const RESULT_REPLIES = [
  { status: 200, description: "What became of it.", content: { "application/json": replies.txnResolution } },
];
const KNOWN = {
  status: "known",
  idem_floor: 0,
  revision: 2,
  outcome: {
    ok: true,
    revision: 2,
    result: {
      kind: "txn",
      succeeded: true,
      revision: 2,
      responses: [{ type: "put", key: "/work/items/42/holder" }],
    },
  },
};
const CLAIM = { key: "claim-agent_7" };

export const TRANSACTION_ROUTES: readonly RouteRow[] = [
  {
    method: "POST",
    path: "/v1/txn",
    id: "txn",
    tag: "transactions",
    by: "node",
    summary: "Compares, then runs one branch, whole or not at all",
    description:
      "If all compares hold (none hold trivially), `success` runs, else `failure`. A failed compare is a result, not an error. A txn with nothing but `get` takes the parameters of consistency; one that may write does not.",
    parameters: [...READING, SHARED.idempotency_key, SHARED.idempotency_since],
    body: { required: true, content: { "application/json": requests.txnSchema } },
    replies: [{ status: 200, description: "The branch that ran.", content: { "application/json": replies.txnResult } }],
    errors: [
      ...["invalid_txn", "invalid_kv", "invalid_selector", "forbidden", "not_found", "unknown_lease"],
      ...["lease_limit_exceeded", "too_many_keys", "result_too_large", "compacted", "no_space"],
      ...READ_ERRORS,
      ...WRITE_ERRORS,
    ] as ErrorCode[],
    examples: [
      {
        name: "claim",
        summary: "Claims an item if it is pending and unchanged",
        parameters: { "Idempotency-Key": "claim-agent_8" },
        body: {
          compare: [
            { target: "field", key: "/work/items/42/state", path: ["status"], op: "==", value: "pending" },
            { target: "mod_revision", key: "/work/items/42/state", op: "==", value: 1 },
          ],
          success: [
            { type: "put", key: "/work/items/42/state", value: { status: "claimed" } },
            { type: "put", key: "/work/items/42/holder", value: "agent_8", lease: 1 },
            { type: "put", key: "/work/items/42/attempts/", revision_suffix: true, value: { kind: "claim" } },
          ],
          failure: [{ type: "get", key: "/work/items/42/holder" }],
        },
        status: 200,
        reply: {
          succeeded: true,
          revision: 3,
          responses: [
            { type: "put", key: "/work/items/42/state" },
            { type: "put", key: "/work/items/42/holder" },
            { type: "put", key: "/work/items/42/attempts/0000000000000003" },
          ],
        },
      },
      {
        name: "lost",
        summary: "A compare that fails",
        body: {
          compare: [{ target: "exists", key: "/work/items/42/holder", op: "==", value: false }],
          success: [{ type: "put", key: "/work/items/42/holder", value: "agent_8", lease: 1 }],
          failure: [{ type: "get", key: "/work/items/42/holder" }],
        },
        status: 200,
        reply: {
          succeeded: false,
          revision: 2,
          responses: [
            {
              type: "get",
              kvs: [
                {
                  key: "/work/items/42/holder",
                  value: "agent_7",
                  create_revision: 2,
                  mod_revision: 2,
                  version: 1,
                  lease_id: 1,
                  expires_at_ms: null,
                  content_type: null,
                  metadata: {},
                },
              ],
              count: 1,
              more: false,
            },
          ],
        },
      },
    ],
  },
  {
    method: "GET",
    path: "/v1/txn/results",
    id: "getTxnResult",
    tag: "transactions",
    by: "node",
    summary: "What became of the caller's write under an idempotency key",
    description: RESULT_DESCRIPTION,
    parameters: [{ ...query("key", RESULT_KEY, "The idempotency key."), required: true }, SHARED.timeout_ms],
    replies: RESULT_REPLIES,
    errors: ["node_halted"],
    examples: [
      { name: "known", summary: "It ran", parameters: CLAIM, status: 200, reply: KNOWN },
      {
        name: "unknown",
        summary: "It did not run, or is no longer known",
        parameters: { key: "never-sent" },
        status: 200,
        reply: { status: "unknown", idem_floor: 0, revision: 2 },
      },
    ],
  },
  {
    method: "GET",
    path: "/v1/txn/results/{key}",
    wide: true,
    id: "getTxnResultByPath",
    tag: "transactions",
    by: "node",
    summary: "The same, by path",
    description: RESULT_DESCRIPTION,
    parameters: [
      { name: "key", in: "path", required: true, schema: RESULT_KEY, description: "The idempotency key." },
      SHARED.timeout_ms,
    ],
    replies: RESULT_REPLIES,
    errors: ["node_halted"],
    examples: [{ name: "known", summary: "It ran", parameters: CLAIM, status: 200, reply: KNOWN }],
  },
];
