/** What the OpenAPI document says of the administration of a cluster. */
import { inPath, SHARED } from "./openapi-parameters.ts";
import * as replies from "./openapi-replies.ts";
import type { Example, RouteRow } from "./openapi-route.ts";
import * as requests from "./schema.ts";

const DONE = { outcome: "done", detail: "It is done.", leader: 2, membership: null };
const NODE = inPath("id", { type: "integer", minimum: 1, maximum: 7 }, "The node.");

type Particular = Pick<RouteRow, "path" | "id" | "summary" | "description" | "body"> & {
  readonly ofNode?: true;
  readonly examples: readonly Pick<Example, "name" | "summary" | "parameters" | "body">[];
};

function row({ ofNode, examples, ...particular }: Particular): RouteRow {
  return {
    ...particular,
    method: "POST",
    tag: "administration",
    by: "node",
    parameters: ofNode === true ? [NODE, SHARED.timeout_ms] : [SHARED.timeout_ms],
    replies: [{ status: 200, description: "What happened.", content: { "application/json": replies.adminOutcome } }],
    errors: ["admin_refused", "node_halted"],
    examples: examples.map((example) => ({ ...example, status: 200, reply: DONE })),
  };
}

export const ADMIN_ROUTES: readonly RouteRow[] = [
  row({
    path: "/v1/cluster/members",
    id: "changeMember",
    summary: "Takes a node in, lets one go, or makes one a voter",
    description:
      "Exactly one of the three, one change at a time. `add`: the node is a learner, and votes by itself as soon as it has caught up; `promote` waits for that, within `timeout_ms`. A change that could not be committed is refused before it begins.",
    body: { required: true, content: { "application/json": requests.memberChangeSchema } },
    examples: [
      { name: "remove", summary: "Node 5 goes", body: { remove: 5 } },
      { name: "add", summary: "Node 5 comes back", body: { add: 5 } },
    ],
  }),
  row({
    path: "/v1/cluster/leader/transfer",
    id: "transferLeader",
    summary: "Hands leadership over",
    description: "To the voter `to`, or to the one that has most. The leader goes on if that one does not take over.",
    body: { required: false, content: { "application/json": requests.transferSchema } },
    examples: [{ name: "transfer", summary: "To node 3", body: { to: 3 } }],
  }),
  row({
    path: "/v1/cluster/nodes/{id}/restart",
    id: "restartNode",
    summary: "Ends the instance of a node; another one starts",
    description: "Memory and connections are lost, storage stays. A node that has halted halts again.",
    ofNode: true,
    body: { required: false, content: { "application/json": requests.restartSchema } },
    examples: [{ name: "restart", summary: "Node 4", parameters: { id: "4" } }],
  }),
  row({
    path: "/v1/cluster/nodes/{id}/repair",
    id: "repairNode",
    summary: "Lets a halted node give up its state and come back by that of the others",
    description:
      "First the leader makes it a learner under a new incarnation; then it gives up state, log and incarnation in one step, takes in a snapshot and votes again by itself. Refused (`would_cost_majority`) unless a majority of the voters without it is heard.",
    ofNode: true,
    body: { required: false, content: { "application/json": requests.repairSchema } },
    examples: [
      { name: "repair", summary: "Node 4, which has halted", parameters: { id: "4" } },
      { name: "force", summary: "Node 4, whatever it says", parameters: { id: "4" }, body: { force: true } },
    ],
  }),
  row({
    path: "/v1/cluster/init",
    id: "initCluster",
    summary: "Forms a new cluster of fewer nodes than are configured",
    description:
      "While none is formed. All of `members` must answer that they are empty; whoever else can be reached must be empty too. Never name disjoint sets: that makes two clusters. Other nodes are taken in by `add`.",
    body: { required: true, content: { "application/json": requests.initSchema } },
    examples: [{ name: "init", summary: "Three of five", body: { members: [1, 2, 3] } }],
  }),
];
