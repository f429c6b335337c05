/**
 * Requests of administrators, at whichever node they arrive (design 02 §6): finds out who can do it, asks that node, and says
 * what became of it in words that a person can act on.
 *
 * A1. One hop: the node that is asked does it or says who could (errands.ts R3). All of it ends with the caller's time.
 * A2. Every errand may be asked for again: what is in force already is `unchanged`.
 * A3. A halted node can do this as well. It knows no leader, so it asks the others for theirs.
 */
import type { AdminAction, AdminOutcome, NodePosition } from "../api/backend.ts";
import { ConcordError, type ErrorBody } from "../base/errors.ts";
import type { NodeId } from "../raft/types.ts";
import { ADMIN_REFUSALS } from "./admin-refusals.ts";
import { leaderOf, type StatusSource } from "./cluster-status.ts";
import type { Admission, Errand, ErrandRefusal, ErrandReply } from "./errands.ts";

/** By which way a node is asked; null: no answer, and whether it was done is unknown. */
export type AskNode = (id: NodeId, errand: Errand, timeoutMs: number) => Promise<ErrandReply | null>;

export interface AdministrationParts {
  readonly members: readonly NodeId[];
  readonly source: StatusSource;
  readonly ask: AskNode;
  readonly position: () => NodePosition;
  /** Monotonic. */
  readonly nowMs: () => number;
  readonly wait: (ms: number) => Promise<void>;
}

type Answered = Exclude<ErrandReply, { readonly kind: "elsewhere" | "refused" }>;

/** Kept of the caller's time for the way back. */
const RETURN_MS_MAX = 300;
/** Between two questions where nobody knows of a leader: an election takes longer. */
const PAUSE_MS = 100;
/** Redirections in a row that are followed at once. */
const HOPS_AT_ONCE_MAX = 2;

/** @throws ConcordError */
export async function administer(
  parts: AdministrationParts,
  action: AdminAction,
  timeoutMs: number,
): Promise<AdminOutcome> {
  // What comes of it is to be back with the caller in time.
  const deadlineMs = parts.nowMs() + timeoutMs - Math.min(RETURN_MS_MAX, timeoutMs / 10);
  switch (action.kind) {
    case "add":
    case "remove":
    case "promote": {
      checkNode(parts, action.node);
      const { kind, node } = action;
      const reply = answered(await askLeader(parts, { kind, id: node }, deadlineMs));
      return outcome(reply, memberDetail(kind, node, reply));
    }
    case "transfer": {
      if (action.to !== null) checkNode(parts, action.to);
      const reply = answered(await askLeader(parts, { kind: "transfer", to: action.to }, deadlineMs));
      return outcome(reply, transferDetail(reply));
    }
    case "restart": {
      checkNode(parts, action.node);
      const reply = answered(await askNode(parts, action.node, { kind: "restart" }, deadlineMs));
      return outcome({ ...reply, kind: "under_way" }, `Node ${action.node} ends its instance and starts again.`);
    }
    case "repair":
      return await repair(parts, action, deadlineMs);
    case "init": {
      for (const id of action.members) checkNode(parts, id);
      const first = Math.min(...action.members);
      const reply = answered(await askNode(parts, first, { kind: "init", members: action.members }, deadlineMs));
      return outcome(reply, initDetail(action.members, reply));
    }
  }
}

/** First the leader makes the node a learner under a new incarnation; when that is committed it may give up the old one. */
async function repair(
  parts: AdministrationParts,
  { node, force }: Extract<AdminAction, { readonly kind: "repair" }>,
  deadlineMs: number,
): Promise<AdminOutcome> {
  checkNode(parts, node);
  const report = await parts.source.report(node);
  if (report === null) throw refusal("node_unreachable");
  if (report.status.halted === null && !force) throw refusal("not_halted");
  const { reply, admission } = await renew(parts, node, deadlineMs);
  const done = answered(
    await askNode(parts, node, { kind: "give_up", ...admission, replaces: report.status.incarnation }, deadlineMs),
  );
  const isMember = reply.kind === "done";
  const later = isMember
    ? "It is a learner now, takes in the state of the others and then votes again by itself."
    : "It is no member; add it when it shall be one.";
  const { leader, membership } = reply;
  return {
    outcome: "under_way",
    detail: `Node ${node} has given up its state. ${later}`,
    leader: leader ?? done.leader,
    membership,
  };
}

async function renew(
  parts: AdministrationParts,
  node: NodeId,
  deadlineMs: number,
): Promise<{ readonly reply: Answered; readonly admission: Admission }> {
  const ask = () => askLeader(parts, { kind: "renew", id: node }, deadlineMs);
  let reply = await leaderOrNothing(ask);
  if (reply.kind === "refused" && reply.refusal === "leads") {
    answered(await askLeader(parts, { kind: "transfer", to: null }, deadlineMs));
    reply = await leaderOrNothing(ask);
  }
  if (reply.kind === "refused" && COSTS_MAJORITY.has(reply.refusal)) throw refusal("would_cost_majority");
  const done = answered(reply);
  // Not committed within the time: the state stays until somebody asks again.
  if (done.kind === "under_way" || done.admission === null) throw refusal("not_committed");
  return { reply: done, admission: done.admission };
}

const COSTS_MAJORITY: ReadonlySet<ErrandRefusal> = new Set(["quorum_unreachable", "invalid_membership"]);

/** Without a leader nobody can say that a majority has kept what this node has. */
async function leaderOrNothing<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof ConcordError && error.code === "no_leader") throw refusal("would_cost_majority", error);
    throw error;
  }
}

// --- asking ----------------------------------------------------------------------------------------------------------

/** Until somebody who leads has answered, or the time is over. @throws ConcordError `no_leader`, `cluster_not_ready` */
async function askLeader(
  parts: AdministrationParts,
  errand: Errand,
  deadlineMs: number,
): Promise<Exclude<ErrandReply, { readonly kind: "elsewhere" }>> {
  let next = parts.position().leader ?? (await someLeader(parts));
  for (let hops = 0; parts.nowMs() < deadlineMs; hops += 1) {
    const reply = await parts.ask(next, errand, Math.max(1, deadlineMs - parts.nowMs()));
    if (reply !== null && reply.kind !== "elsewhere") return reply;
    const named = reply?.leader ?? null;
    const isNew = named !== null && named !== next;
    if (!isNew || hops >= HOPS_AT_ONCE_MAX)
      await parts.wait(Math.min(PAUSE_MS, Math.max(0, deadlineMs - parts.nowMs())));
    next = isNew ? named : await someLeader(parts);
  }
  throw new ConcordError({ code: "no_leader", detail: "No leader has answered in time; see GET /v1/cluster." });
}

/** Whoever the others say leads, else a voter, which wakes the others to find out. */
async function someLeader({ members, source }: AdministrationParts): Promise<NodeId> {
  const reports = await Promise.all(members.map((id) => source.report(id)));
  const nodes = reports.filter((report) => report !== null).map(({ status }) => status);
  const leader = leaderOf(nodes);
  const found = nodes.find(({ id }) => id === leader) ?? nodes.find(({ member }) => member === "voter");
  if (found !== undefined) return found.id;
  const isFormed = nodes.some(({ state }) => state === "formed" || state === "lost" || state === "halted");
  if (isFormed) throw new ConcordError({ code: "no_leader", detail: "No node that serves can be reached." });
  throw new ConcordError({ code: "cluster_not_ready", detail: "The cluster is not formed; see GET /v1/cluster." });
}

/** @throws ConcordError `timeout`: the node may have done it. */
async function askNode(
  parts: AdministrationParts,
  node: NodeId,
  errand: Errand,
  deadlineMs: number,
): Promise<ErrandReply> {
  const reply = await parts.ask(node, errand, Math.max(1, deadlineMs - parts.nowMs()));
  if (reply !== null) return reply;
  const detail = `Node ${node} has not answered; whether it has done it is unknown. Look at GET /v1/cluster, then ask again.`;
  throw new ConcordError({ code: "timeout", detail });
}

function checkNode({ members }: AdministrationParts, id: NodeId): void {
  if (members.includes(id)) return;
  const detail = `There is no node ${id}; the nodes are ${members.join(", ")}.`;
  throw new ConcordError({ code: "invalid_request", reason: "unknown_node", detail });
}

// --- answering -------------------------------------------------------------------------------------------------------

function answered(reply: ErrandReply): Answered {
  if (reply.kind === "refused") throw refusal(reply.refusal);
  if (reply.kind !== "elsewhere") return reply;
  throw new ConcordError({ code: "node_halted", detail: "That instance of the node has just ended; ask again." });
}

function refusal(reason: keyof typeof ADMIN_REFUSALS, cause?: unknown): ConcordError {
  const body: ErrorBody = { code: "admin_refused", reason, detail: ADMIN_REFUSALS[reason] };
  return new ConcordError(body, cause === undefined ? undefined : { cause });
}

function outcome({ kind, leader, membership }: Answered, detail: string): AdminOutcome {
  return { outcome: kind, detail, leader, membership };
}

const NOT_KNOWN = "It has begun and is not known to be committed yet; see `membership` of GET /v1/cluster.";

function memberDetail(kind: "add" | "remove" | "promote", node: NodeId, reply: Answered): string {
  if (reply.kind === "under_way") return NOT_KNOWN;
  const isNew = reply.kind === "done";
  switch (kind) {
    case "add":
      return isNew
        ? `Committed: node ${node} is a learner, and votes by itself as soon as it has caught up.`
        : `Node ${node} is a member already.`;
    case "remove":
      return isNew ? `Committed: node ${node} is no member any more.` : `Node ${node} is no member.`;
    case "promote":
      return isNew ? `Committed: node ${node} votes.` : `Node ${node} votes already.`;
  }
}

function transferDetail({ kind, leader }: Answered): string {
  switch (kind) {
    case "done":
      return `Node ${leader} leads now.`;
    case "unchanged":
      return `Node ${leader} leads already.`;
    case "under_way":
      return "The leader is handing over; see `leader` of GET /v1/cluster.";
  }
}

function initDetail(members: readonly NodeId[], { kind }: Answered): string {
  const who = `the nodes ${members.join(", ")}`;
  switch (kind) {
    case "done":
      return `The cluster is formed by ${who}; others can be added.`;
    case "unchanged":
      return `The cluster was formed by ${who} before.`;
    case "under_way":
      return `The cluster is being formed by ${who}; see GET /v1/cluster.`;
  }
}
