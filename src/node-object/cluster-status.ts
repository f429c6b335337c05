/**
 * What the nodes of a cluster say of themselves, gathered by one of them (`GET /v1/cluster`).
 * Must not: guess. A peer that does not answer in time, or not in this form, is shown as unreachable.
 */
import type { ClusterStatus, MembershipStatus, NodeStatus, NodeSummary } from "../api/backend.ts";
import { readMembership } from "../raft/membership.ts";
import type { NodeId } from "../raft/types.ts";
import { isCounter, isNode, isObject, parseJson } from "./json-guards.ts";

/** The status routes of a node, by whatever way it is reached. */
export interface StatusSource {
  /** Null: no usable answer in time. */
  report(id: NodeId): Promise<NodeReport | null>;
  digestAt(id: NodeId, index: number): Promise<string | null>;
}

/** What one node says to another of itself and of the cluster. */
export interface NodeReport {
  readonly status: NodeStatus;
  /** By its own log. */
  readonly membership: Omit<MembershipStatus, "node"> | null;
  /** Of a leader alone: for each member how many ms ago it was heard. */
  readonly contacts: readonly (readonly [id: NodeId, agoMs: number])[];
}

/** All nodes in order; who takes part as the leader knows it, or without one as the node of the longest log does. */
export async function gatherNodes(
  members: readonly NodeId[],
  source: StatusSource,
): Promise<Pick<ClusterStatus, "nodes" | "membership">> {
  const answers = await Promise.all(members.map((id) => source.report(id)));
  const reports = answers.filter((report) => report !== null);
  const leader = leaderOf(reports.map(({ status }) => status));
  const best = reports
    .filter(({ membership }) => membership !== null)
    .sort((left, right) => rank(right) - rank(left) || right.status.last_index - left.status.last_index)[0];
  function rank({ status: { id, term } }: NodeReport): number {
    return id === leader ? Number.POSITIVE_INFINITY : term;
  }
  const contacts = new Map(reports.find(({ status }) => status.id === leader)?.contacts);
  const nodes = members.map((id, at) => {
    const status = answers[at]?.status ?? unreachableNode(id);
    return { ...status, last_contact_ms: contacts.get(id) ?? null };
  });
  const known = best?.membership ?? null;
  return { nodes, membership: best === undefined || known === null ? null : { node: best.status.id, ...known } };
}

/**
 * Compares the state of all reachable members at one common index: the lowest that any of them has applied. Nodes ahead
 * of it are asked for the digest that they had there; null if one of them no longer remembers.
 */
export async function compareDigests(
  nodes: readonly NodeStatus[],
  source: StatusSource,
): Promise<ClusterStatus["digests"]> {
  const formed = nodes.filter((node) => node.state === "formed");
  if (formed.length === 0) return null;
  const index = Math.min(...formed.map((node) => node.digest_index));
  const digests = await Promise.all(
    formed.map(async (node) => (node.digest_index === index ? node.digest : await source.digestAt(node.id, index))),
  );
  if (digests.some((digest) => digest === null)) return null;
  return { index, equal: new Set(digests).size === 1 };
}

/** The leader of the highest term that anybody names. */
export function leaderOf(nodes: readonly NodeSummary[]): NodeId | null {
  let best: NodeSummary | null = null;
  for (const node of nodes) {
    if (node.leader !== null && (best === null || node.term > best.term)) best = node;
  }
  return best?.leader ?? null;
}

const STATES = ["empty", "forming", "formed", "lost", "halted"] as const satisfies readonly NodeStatus["state"][];
const ROLES = ["leader", "follower", "candidate", "pre_candidate"] as const satisfies readonly NodeStatus["role"][];
const MEMBERS = ["voter", "learner"] as const satisfies readonly NodeStatus["member"][];

/**
 * Reads a peer's answer, which may come from another version of this code; null if it is not a report of `id`. What an
 * earlier version does not say yet is left open.
 */
export function nodeReportFrom(text: string, id: NodeId): NodeReport | null {
  const value = parseJson(text);
  const status = isObject(value) ? nodeStatusFrom(value, id) : null;
  if (!isObject(value) || status === null) return null;
  const contacts = (Array.isArray(value.contacts) ? (value.contacts as unknown[]) : []).filter(isContact);
  return { status, membership: membershipFrom(value.membership), contacts };
}

function isContact(value: unknown): value is [NodeId, number] {
  return Array.isArray(value) && value.length === 2 && isNode(value[0]) && isCounter(value[1]);
}

export function membershipFrom(value: unknown): NodeReport["membership"] {
  const members = readMembership(value);
  if (members === null || !isObject(value) || !isCounter(value.index)) return null;
  const { voters, learners } = members;
  return { index: value.index, committed: value.committed === true, voters, learners };
}

function nodeStatusFrom(value: Readonly<Record<string, unknown>>, id: NodeId): NodeStatus | null {
  const state = STATES.find((name) => name === value.state);
  const { term, leader, last_index, commit_index, applied_index, revision, digest, digest_index } = value;
  const { incarnation, storage_bytes, halted, first_index, set_hash, set_hash_index } = value;
  if (value.id !== id || state === undefined || !isCounter(term) || !(leader === null || isNode(leader))) return null;
  if (!isCounter(last_index) || !isCounter(commit_index) || !isCounter(applied_index) || !isCounter(revision))
    return null;
  if (typeof digest !== "string" || !isCounter(digest_index) || !isCounter(incarnation)) return null;
  if (!isCounter(storage_bytes) || !(halted === null || typeof halted === "string")) return null;
  return {
    ...unreachableNode(id),
    state,
    role: ROLES.find((name) => name === value.role) ?? null,
    member: MEMBERS.find((name) => name === value.member) ?? null,
    term,
    leader,
    first_index: isCounter(first_index) ? first_index : 0,
    last_index,
    commit_index,
    applied_index,
    revision,
    digest,
    digest_index,
    set_hash: isCounter(set_hash) ? set_hash : null,
    set_hash_index: isCounter(set_hash_index) ? set_hash_index : 0,
    incarnation,
    storage_bytes,
    quiescent: value.quiescent === true,
    halted,
    snapshot_out: snapshotFrom(value.snapshot_out),
    snapshot_in: snapshotInFrom(value.snapshot_in),
    format: isCounter(value.format) ? value.format : 0,
    protocol: isCounter(value.protocol) ? value.protocol : 0,
    colo: typeof value.colo === "string" ? value.colo : null,
  };
}

function snapshotFrom(value: unknown): NodeStatus["snapshot_out"] {
  if (!isObject(value) || !isCounter(value.index) || !isCounter(value.rows_total)) return null;
  return { index: value.index, rows_total: value.rows_total };
}

function snapshotInFrom(value: unknown): NodeStatus["snapshot_in"] {
  const snapshot = snapshotFrom(value);
  return snapshot === null || !isObject(value) || !isCounter(value.rows) ? null : { ...snapshot, rows: value.rows };
}

function unreachableNode(id: NodeId): NodeStatus {
  return {
    id,
    state: "unreachable",
    role: null,
    member: null,
    term: 0,
    leader: null,
    first_index: 0,
    last_index: 0,
    commit_index: 0,
    applied_index: 0,
    revision: 0,
    digest: "",
    digest_index: 0,
    set_hash: null,
    set_hash_index: 0,
    incarnation: 0,
    storage_bytes: 0,
    quiescent: false,
    halted: null,
    snapshot_out: null,
    snapshot_in: null,
    format: 0,
    protocol: 0,
    colo: null,
    last_contact_ms: null,
  };
}
