/**
 * What the nodes of a cluster say of themselves, gathered by one of them (`GET /v1/cluster`).
 * Must not: guess. A peer that does not answer in time, or not in this form, is shown as unreachable.
 */
import type { ClusterStatus, NodeStatus } from "../api/backend.ts";
import type { NodeId } from "../raft/types.ts";
import { isCounter, isNode, isObject, parseJson } from "./json-guards.ts";

/** The status routes of a node, by whatever way it is reached. */
export interface StatusSource {
  /** Null: no usable answer in time. */
  status(id: NodeId): Promise<NodeStatus | null>;
  digestAt(id: NodeId, index: number): Promise<string | null>;
}

export async function gatherNodes(members: readonly NodeId[], source: StatusSource): Promise<NodeStatus[]> {
  return await Promise.all(members.map(async (id) => (await source.status(id)) ?? unreachableNode(id)));
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
export function leaderOf(nodes: readonly NodeStatus[]): NodeId | null {
  let best: NodeStatus | null = null;
  for (const node of nodes) {
    if (node.leader !== null && (best === null || node.term > best.term)) best = node;
  }
  return best?.leader ?? null;
}

const STATES = ["empty", "forming", "formed", "lost", "halted"] as const satisfies readonly NodeStatus["state"][];
const ROLES = ["leader", "follower", "candidate", "pre_candidate"] as const satisfies readonly NodeStatus["role"][];
const MEMBERS = ["voter", "learner"] as const satisfies readonly NodeStatus["member"][];

/** Reads a peer's answer, which may come from another version of this code; null if it is not a status of `id`. */
export function nodeStatusFrom(text: string, id: NodeId): NodeStatus | null {
  const value = parseJson(text);
  if (!isObject(value) || value.id !== id) return null;
  const state = STATES.find((name) => name === value.state);
  const role = ROLES.find((name) => name === value.role) ?? null;
  const member = MEMBERS.find((name) => name === value.member) ?? null;
  const { term, leader, last_index, commit_index, applied_index, revision, digest, digest_index } = value;
  const { incarnation, storage_bytes, halted } = value;
  const quiescent = value.quiescent === true;
  if (state === undefined || !isCounter(term) || !(leader === null || isNode(leader))) return null;
  if (!isCounter(last_index) || !isCounter(commit_index) || !isCounter(applied_index) || !isCounter(revision))
    return null;
  if (typeof digest !== "string" || !isCounter(digest_index) || !isCounter(incarnation)) return null;
  if (!isCounter(storage_bytes) || !(halted === null || typeof halted === "string")) return null;
  return {
    id,
    state,
    role,
    member,
    term,
    leader,
    last_index,
    commit_index,
    applied_index,
    revision,
    digest,
    digest_index,
    incarnation,
    storage_bytes,
    quiescent,
    halted,
  };
}

function unreachableNode(id: NodeId): NodeStatus {
  return {
    id,
    state: "unreachable",
    role: null,
    member: null,
    term: 0,
    leader: null,
    last_index: 0,
    commit_index: 0,
    applied_index: 0,
    revision: 0,
    digest: "",
    digest_index: 0,
    incarnation: 0,
    storage_bytes: 0,
    quiescent: false,
    halted: null,
  };
}
