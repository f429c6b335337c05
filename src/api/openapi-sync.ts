/** What the OpenAPI document says of the past: changes, history, the revision, compaction. */
import { KEY_IN_QUERY, query, RANGE, READING, REVISION, SHARED, WRITING } from "./openapi-parameters.ts";
import * as replies from "./openapi-replies.ts";
import { READ_ERRORS, type RouteRow, WRITE_ERRORS } from "./openapi-route.ts";
import * as requests from "./schema.ts";

const CREATED = {
  revision: 1,
  op_index: 0,
  type: "put",
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
export const CLAIMED = {
  ...CREATED,
  revision: 2,
  key: "/work/items/42/holder",
  value: "agent_7",
  create_revision: 2,
  mod_revision: 2,
  lease_id: 1,
};

export const SYNC_ROUTES: readonly RouteRow[] = [
  {
    method: "GET",
    path: "/v1/changes",
    id: "changes",
    tag: "sync",
    by: "node",
    summary: "A page of changes behind a position",
    description:
      "Exactly one of `key`, `prefix`, and `start` with `end`. Repeat with `after` = `next` while `has_more`. Without `after` the first page begins at the oldest event that is kept; `after=0` asks for everything, and is 410 `compacted` if something is gone.",
    parameters: [
      KEY_IN_QUERY,
      ...RANGE,
      query("after", { type: "string" }, "A position: `next` of the page before, or the `position` of a watch."),
      SHARED.limit,
      ...READING,
    ],
    replies: [{ status: 200, description: "A page.", content: { "application/json": replies.changes } }],
    errors: ["invalid_selector", "invalid_kv", "compacted", ...READ_ERRORS],
    examples: [
      {
        name: "page",
        summary: "What came behind revision 1",
        parameters: { prefix: "/work/", after: "1" },
        status: 200,
        reply: { events: [CLAIMED], next: "2", whole: true, has_more: false, revision: 2 },
      },
    ],
  },
  {
    method: "GET",
    path: "/v1/history",
    id: "history",
    tag: "sync",
    by: "node",
    summary: "The changes of one key, oldest first",
    parameters: [
      { ...KEY_IN_QUERY, required: true },
      query("from", REVISION, "First revision, inclusive."),
      query("to", REVISION, "Last revision, inclusive."),
      SHARED.limit,
      SHARED.cursor,
      ...READING,
    ],
    replies: [{ status: 200, description: "A page.", content: { "application/json": replies.history } }],
    errors: ["invalid_selector", "invalid_kv", "compacted", ...READ_ERRORS],
    examples: [
      {
        name: "history",
        summary: "Every version of a key",
        parameters: { key: "/work/items/42/state" },
        status: 200,
        reply: { events: [CREATED], cursor: null, revision: 2 },
      },
    ],
  },
  {
    method: "GET",
    path: "/v1/revision",
    id: "revision",
    tag: "sync",
    by: "node",
    summary: "The newest revision",
    parameters: READING,
    replies: [{ status: 200, description: "The revision.", content: { "application/json": replies.revisionReply } }],
    errors: READ_ERRORS,
    examples: [{ name: "revision", summary: "The newest revision", status: 200, reply: { revision: 2 } }],
  },
  {
    method: "POST",
    path: "/v1/compact",
    id: "compact",
    tag: "sync",
    by: "node",
    summary: "Forgets history",
    description:
      "The state at `revision` and every event behind it stay; what needs less is 410 `compacted` from now on. The rows go little by little. The revision of the cluster never falls.",
    parameters: WRITING,
    body: { required: true, content: { "application/json": requests.compactSchema } },
    replies: [{ status: 200, description: "Compacted.", content: { "application/json": replies.compacted } }],
    errors: ["invalid_kv", "revision_in_future", ...WRITE_ERRORS],
    examples: [
      {
        name: "compact",
        summary: "Forgets what lies before revision 2",
        body: { revision: 2 },
        status: 200,
        reply: { compact_revision: 2, revision: 2 },
      },
    ],
  },
];
