/**
 * Both ends of the route by which nodes pass on what administrators ask (`POST /peer/admin`; errands.ts). Reading trusts
 * nothing: a peer may run another version of this code.
 */
import { PEER_HEADER } from "../api/separate-node.ts";
import { normalMembership } from "../raft/membership.ts";
import type { NodeId } from "../raft/types.ts";
import { ADMIN_REFUSALS } from "./admin-refusals.ts";
import type { AskNode } from "./administration.ts";
import { membershipFrom } from "./cluster-status.ts";
import type { Admission, Errand, ErrandRefusal, ErrandReply } from "./errands.ts";
import { isCounter, isNode, isObject, parseJson } from "./json-guards.ts";
import type { PeerPlatform } from "./peer-transport.ts";

/** How much longer than the node itself its answer is waited for. */
const GRACE_MS = 500;
const TIMEOUT_MS_MAX = 60_000;

/** How this node does it itself. */
export type OwnErrands = (errand: Errand, timeoutMs: number) => Promise<ErrandReply>;

export function askByFetch(self: NodeId, own: OwnErrands, stub: PeerPlatform["stub"]): AskNode {
  return async (id, errand, timeoutMs) => {
    if (id === self) return await own(errand, timeoutMs);
    try {
      const response = await stub(id).fetch("http://node/peer/admin", {
        method: "POST",
        headers: { [PEER_HEADER]: String(self) },
        body: JSON.stringify({ errand, timeout_ms: Math.ceil(timeoutMs) }),
        signal: AbortSignal.timeout(timeoutMs + GRACE_MS),
      });
      const text = await response.text();
      return response.ok ? errandReplyFrom(parseJson(text)) : null;
    } catch {
      // Timed out, reset or overloaded: whether the node has done it is not known.
      return null;
    }
  };
}

export async function answerErrand(request: Request, own: OwnErrands): Promise<Response> {
  const body = parseJson(await request.text());
  const errand = isObject(body) ? errandFrom(body.errand) : null;
  if (errand === null || !isObject(body) || !isCounter(body.timeout_ms)) return new Response(null, { status: 400 });
  return Response.json(await own(errand, Math.min(body.timeout_ms, TIMEOUT_MS_MAX)));
}

/** Null: none that this version knows. */
export function errandFrom(value: unknown): Errand | null {
  if (!isObject(value)) return null;
  const { kind, id, to, members, clusterId, incarnation, replaces } = value;
  switch (kind) {
    case "add":
    case "remove":
    case "promote":
    case "renew":
      return isNode(id) ? { kind, id } : null;
    case "transfer":
      return to === null || isNode(to) ? { kind, to } : null;
    case "restart":
      return { kind };
    case "give_up":
      if (typeof clusterId !== "string" || !isCounter(incarnation) || !isCounter(replaces)) return null;
      return { kind, clusterId, incarnation, replaces };
    case "init": {
      if (!Array.isArray(members) || !members.every(isNode)) return null;
      const voters = normalMembership({ voters: members, learners: [] })?.voters;
      return voters === undefined ? null : { kind, members: voters };
    }
    default:
      return null;
  }
}

export function errandReplyFrom(value: unknown): ErrandReply | null {
  if (!isObject(value)) return null;
  const { kind, refusal, admission } = value;
  const leader = isNode(value.leader) ? value.leader : null;
  switch (kind) {
    case "done":
    case "unchanged":
    case "under_way":
      return { kind, leader, membership: membershipFrom(value.membership), admission: admissionFrom(admission) };
    case "refused":
      return isRefusal(refusal) ? { kind, refusal } : null;
    case "elsewhere":
      return { kind, leader };
    default:
      return null;
  }
}

function admissionFrom(value: unknown): Admission | null {
  if (!isObject(value) || typeof value.clusterId !== "string" || !isCounter(value.incarnation)) return null;
  return { clusterId: value.clusterId, incarnation: value.incarnation };
}

function isRefusal(value: unknown): value is ErrandRefusal {
  return typeof value === "string" && Object.hasOwn(ADMIN_REFUSALS, value);
}
