/**
 * Administration of a cluster over HTTP (design 02 §6): membership, leadership, restart and repair of nodes, forming with
 * fewer nodes. Any node takes these, also one that has halted; all is checked before any node is asked for anything.
 */
import type { Hono } from "hono";
import { ConcordError } from "../base/errors.ts";
import { VOTERS_MAX } from "../base/limits.ts";
import { ROOT_PRINCIPAL } from "./access.ts";
import type { AdminAction } from "./backend.ts";
import { readJson, readOptionalJson } from "./body.ts";
import { type ApiCall, type ApiEnvironment, parametersOf, principalOf, WRITE_PARAMETERS, writerOf } from "./call.ts";
import type { ApiContext } from "./caller.ts";
import { integerIn } from "./parameters.ts";
import { refusal } from "./problem.ts";
import { initSchema, memberChangeSchema, repairSchema, restartSchema, transferSchema } from "./schema.ts";
import { shaped } from "./shape.ts";

const CLUSTER_PATH = "/v1/cluster";
const CODE = "invalid_request";
const CHANGES = ["add", "remove", "promote"] as const;

export function mountAdmin(app: Hono<ApiEnvironment>, context: ApiContext): void {
  const mount = (path: string, actionOf: (call: ApiCall) => Promise<AdminAction>) =>
    app.post(`${CLUSTER_PATH}${path}`, (call) => administer(context, call, actionOf));
  mount("/members", memberChange);
  mount("/leader/transfer", transfer);
  mount("/nodes/:id/restart", restart);
  mount("/nodes/:id/repair", repair);
  mount("/init", init);
}

async function administer(
  context: ApiContext,
  call: ApiCall,
  actionOf: (call: ApiCall) => Promise<AdminAction>,
): Promise<Response> {
  if (principalOf(context, call) !== ROOT_PRINCIPAL) {
    throw new ConcordError({ code: "not_admin", detail: "Only the root token administers a cluster." });
  }
  const action = await actionOf(call);
  const { timeoutMs } = writerOf(context, call, parametersOf(call, CODE, WRITE_PARAMETERS));
  return call.json(await context.backend.administer(action, { timeoutMs }));
}

async function memberChange(call: ApiCall): Promise<AdminAction> {
  const body = shaped(memberChangeSchema, await readJson(call.req.raw, CODE), CODE);
  const named = CHANGES.filter((kind) => body[kind] !== undefined);
  const [kind] = named;
  if (kind === undefined || named.length > 1) {
    throw refusal(CODE, "member_change", "Name exactly one of add, remove and promote, with the id of a node.");
  }
  return { kind, node: checkedNode(body[kind]) };
}

async function transfer(call: ApiCall): Promise<AdminAction> {
  const { to } = shaped(transferSchema, await readOptionalJson(call.req.raw, CODE), CODE);
  return { kind: "transfer", to: to === undefined ? null : checkedNode(to) };
}

async function restart(call: ApiCall): Promise<AdminAction> {
  shaped(restartSchema, await readOptionalJson(call.req.raw, CODE), CODE);
  return { kind: "restart", node: nodeOf(call) };
}

async function repair(call: ApiCall): Promise<AdminAction> {
  const { force = false } = shaped(repairSchema, await readOptionalJson(call.req.raw, CODE), CODE);
  return { kind: "repair", node: nodeOf(call), force };
}

async function init(call: ApiCall): Promise<AdminAction> {
  const { members } = shaped(initSchema, await readJson(call.req.raw, CODE), CODE);
  const ids = members.map(checkedNode).sort((left, right) => left - right);
  if (ids.length === 0 || ids.length > VOTERS_MAX || new Set(ids).size < ids.length) {
    throw refusal(CODE, "members", `members names 1 to ${VOTERS_MAX} nodes, each once.`);
  }
  return { kind: "init", members: ids };
}

function nodeOf(call: ApiCall): number {
  return checkedNode(integerIn(call.req.param("id") ?? "") ?? 0);
}

/** Whether there is such a node is known behind this. */
function checkedNode(id: number | undefined): number {
  if (id !== undefined && Number.isSafeInteger(id) && id > 0) return id;
  throw refusal(CODE, "node", "A node is named by its id, a whole number from 1.");
}
