/**
 * What an administrator asks of one node (design 02 §6). Most of it only the leader can do; whoever gathers and passes on
 * requests of clients is administration.ts.
 *
 * R1. An errand is answered once: done, refused, or said to be under way when its time is over. What the leader cannot do
 *     yet is tried again with each heartbeat until then.
 * R2. `done` means that a change of membership is committed, that another node leads, or that the cluster is formed.
 * R3. An errand at a node that does not lead is answered `elsewhere`, with the leader as soon as there is one: the cluster
 *     is woken to find out. A node never passes an errand on.
 * R4. A node gives up its state only under an incarnation that the leader has committed for it beforehand, as a learner: so
 *     only one at a time does, and a majority of those who vote has kept what was acknowledged.
 */
import { unreachable } from "../base/assert.ts";
import { newestMembership, termAt } from "../raft/log.ts";
import { isReachable, type Leader, leaderOf, membershipOf, type RaftState } from "../raft/state.ts";
import type { NodeId } from "../raft/types.ts";
import type { NodeReport } from "./cluster-status.ts";
import { sayHello } from "./hello.ts";
import { changeMember, type MemberChange, type MemberRefusal } from "./member-changes.ts";
import { newIncarnation } from "./members.ts";
import { type Drive, type NodeState, type Running, routableLeader, serving } from "./runtime-state.ts";
import { membershipIn } from "./runtime-status.ts";
import { noticeRequest } from "./sleep.ts";

export type Errand =
  | { readonly kind: "add" | "remove" | "promote"; readonly id: NodeId }
  /** The node is a learner under a new incarnation, for which it will give up its state. */
  | { readonly kind: "renew"; readonly id: NodeId }
  /** Null: to any voter that could lead. */
  | { readonly kind: "transfer"; readonly to: NodeId | null }
  /** Of the node that is asked. */
  | { readonly kind: "restart" }
  | ({ readonly kind: "give_up" } & GiveUp)
  /** Forms a cluster of these; asked of the lowest. */
  | { readonly kind: "init"; readonly members: readonly NodeId[] };

/** Under which a node comes back. */
export interface Admission {
  readonly clusterId: string;
  readonly incarnation: number;
}

/** `replaces`: the incarnation that is given up; a late errand must not empty the storage that has come after it. */
export interface GiveUp extends Admission {
  readonly replaces: number;
}

export type ErrandRefusal =
  | MemberRefusal
  /** No other voter that is heard. */
  | "no_successor"
  /** The successor did not take over in time; the leader goes on. */
  | "transfer_failed"
  /** The node belongs to a cluster already, or another one has said that it does. */
  | "formed"
  /** Not everybody who is to form the cluster has answered that it is empty. */
  | "not_all_empty"
  /** The node belongs to another cluster. */
  | "other_cluster"
  /** The node has another storage by now than the one that was to be given up. */
  | "superseded"
  | "halted"
  /** So many are open that no more are taken. */
  | "too_many";

export type ErrandReply =
  | {
      readonly kind: "done" | "unchanged" | "under_way";
      readonly leader: NodeId | null;
      readonly membership: NodeReport["membership"];
      /** Of `renew` alone. */
      readonly admission: Admission | null;
    }
  | { readonly kind: "refused"; readonly refusal: ErrandRefusal }
  | { readonly kind: "elsewhere"; readonly leader: NodeId | null };

export interface OpenErrand {
  readonly errand: Exclude<Errand, { readonly kind: "restart" | "give_up" }>;
  readonly openedAtMs: number;
  readonly deadlineMs: number;
  readonly respond: (reply: ErrandReply) => void;
  tryAtMs: number;
  phase:
    | { readonly kind: "asking"; readonly refusal: ErrandRefusal | null }
    /** The entry of a change of membership. */
    | { readonly kind: "proposed"; readonly index: number; readonly term: number; readonly admission: Admission | null }
    | { readonly kind: "handing_over"; readonly term: number }
    | { readonly kind: "forming" };
}

/** Whoever has more to ask waits for answers. */
const OPEN_ERRANDS_MAX = 64;

/** What may be otherwise a moment later. */
const PASSING: ReadonlySet<ErrandRefusal> = new Set([
  "not_ready",
  "change_pending",
  "transferring",
  "not_caught_up",
  "quorum_unreachable",
  "not_heard",
]);
/** After a restart the next instance is woken by the alarm, which must not find this one. */
const RESTART_ALARM_MS = 500;

export interface ErrandCall {
  readonly errand: Errand;
  readonly timeoutMs: number;
  readonly respond: (reply: ErrandReply) => void;
}

/** Takes an errand on; {@link runErrands} follows it up at the end of this turn and of later ones. */
export function openErrand(state: NodeState, { errand, timeoutMs, respond }: ErrandCall, drive: Drive): void {
  const nowMs = state.ports.clock.nowMs();
  if (errand.kind === "restart") {
    respond(answer(state, "done"));
    // A halted node arms nothing: the next request starts it.
    endInstance(state, "restart was asked for", state.halted === null);
    return;
  }
  if (errand.kind === "give_up") {
    giveUp(state, errand, respond);
    return;
  }
  if (state.errands.length >= OPEN_ERRANDS_MAX) {
    respond(refused("too_many"));
    return;
  }
  if (errand.kind === "init") {
    greetIfEmpty(state, nowMs);
  } else {
    const running = serving(state);
    if (running !== null) noticeRequest(state, running, drive);
  }
  const tryAtMs = errand.kind === "init" ? nowMs + state.config.electionTimeoutMsMin : nowMs;
  const phase = { kind: "asking", refusal: null } as const;
  state.errands.push({ errand, openedAtMs: nowMs, deadlineMs: nowMs + timeoutMs, respond, tryAtMs, phase });
  // A halted node does nothing at the end of its turns.
  if (state.halted !== null) runErrands(state, nowMs, drive);
}

/** Called in every turn. */
export function runErrands(state: NodeState, nowMs: number, drive: Drive): void {
  if (state.errands.length === 0) return;
  const open = state.errands;
  state.errands = [];
  for (const one of open) {
    const reply = follow(state, one, nowMs, drive);
    if (reply === null) state.errands.push(one);
    else one.respond(reply);
  }
}

/** When there is something to do about errands without anything else happening. */
export function errandsAtMs({ errands }: NodeState): number {
  let atMs = Number.POSITIVE_INFINITY;
  for (const { deadlineMs, tryAtMs, phase } of errands) {
    atMs = Math.min(atMs, deadlineMs, phase.kind === "asking" ? tryAtMs : deadlineMs);
  }
  return atMs;
}

function follow(state: NodeState, open: OpenErrand, nowMs: number, drive: Drive): ErrandReply | null {
  const { errand } = open;
  if (errand.kind === "init") return followInit(state, open, errand.members, nowMs);
  const isAsking = open.phase.kind === "asking";
  // What has begun is followed to its end, also by a leader that has let itself go.
  const running = isAsking ? serving(state) : state.running;
  if (running === null) return elsewhere(state.running);
  const reply = isAsking ? ask(state, running, open, nowMs, drive) : outcome(state, running, open);
  if (reply !== null || nowMs < open.deadlineMs) return reply;
  if (open.phase.kind !== "asking") return answer(state, "under_way", admissionOf(open));
  return open.phase.refusal === null ? elsewhere(running) : refused(open.phase.refusal);
}

// --- what the leader does --------------------------------------------------------------------------------------------

/** Null: not answered yet. */
function ask(state: NodeState, running: Running, open: OpenErrand, nowMs: number, drive: Drive): ErrandReply | null {
  const { raft } = running;
  if (raft.role.kind !== "leader" && routableLeader(running) !== null) return elsewhere(running);
  if (nowMs < open.tryAtMs) return null;
  open.tryAtMs = nowMs + state.config.heartbeatMs;
  if (raft.role.kind !== "leader") return null;
  const { clusterId } = running;
  const admission = open.errand.kind === "renew" ? { clusterId, incarnation: newIncarnation(state.random) } : null;
  const refusal = begin(state, running, raft.role, open, admission, drive);
  if (refusal === null) return null;
  if (refusal === "unchanged" || refusal === "already_leader") return answer(state, "unchanged");
  // A node that takes no part may give up its state whenever it likes.
  if (refusal === "not_a_member" && admission !== null) return answer(state, "unchanged", admission);
  if (!PASSING.has(refusal)) return refused(refusal);
  open.phase = { kind: "asking", refusal };
  return null;
}

function begin(
  state: NodeState,
  running: Running,
  role: Leader,
  open: OpenErrand,
  admission: Admission | null,
  drive: Drive,
): ErrandRefusal | null {
  const { raft } = running;
  const { errand } = open;
  if (errand.kind === "transfer") {
    const to = errand.to ?? successor(state, raft, role);
    if (to === null) return "no_successor";
    const { term } = raft;
    const { refusal } = drive(state, running, { kind: "transfer", to });
    if (refusal === null) open.phase = { kind: "handing_over", term };
    return refusal;
  }
  const change = changeOf(errand, admission);
  if (change === null) return "invalid_membership";
  // What has come within a heartbeat may have been on its way from a node that is down by now.
  const repliedSinceMs = open.openedAtMs + state.config.heartbeatMs;
  const refusal = changeMember(state, running, { ...change, repliedSinceMs }, drive);
  if (refusal !== null) return refusal;
  open.phase = { kind: "proposed", index: newestMembership(raft.log).index, term: raft.term, admission };
  return null;
}

function changeOf(errand: OpenErrand["errand"], admission: Admission | null): MemberChange | null {
  switch (errand.kind) {
    case "add":
    case "remove":
    case "promote":
      return { kind: errand.kind, id: errand.id };
    case "renew":
      return admission === null ? null : { kind: "renew", id: errand.id, incarnation: admission.incarnation };
    case "transfer":
    case "init":
      return null;
    default:
      return unreachable(errand);
  }
}

/** Of the voters that are heard the one that has most. */
function successor(state: NodeState, raft: RaftState, role: Leader): NodeId | null {
  const nowMs = state.ports.clock.nowMs();
  let best: { readonly id: NodeId; readonly match: number } | null = null;
  for (const id of membershipOf(raft).voters) {
    const progress = role.progress.get(id);
    if (progress === undefined || !isReachable(raft, progress, nowMs)) continue;
    if (best === null || progress.match > best.match) best = { id, match: progress.match };
  }
  return best?.id ?? null;
}

/** What has become of what was begun; null: not known yet. */
function outcome(state: NodeState, running: Running, open: OpenErrand): ErrandReply | null {
  const { raft } = running;
  const { phase } = open;
  if (phase.kind === "proposed") {
    const { index, term } = phase;
    if (index > raft.log.lastIndex || (index > raft.log.base.index && termAt(raft.log, index) !== term)) {
      // Another leader's entry stands in its place: it never happened.
      return elsewhere(running);
    }
    return index <= raft.commit ? answer(state, "done", phase.admission) : null;
  }
  if (phase.kind !== "handing_over") return null;
  if (raft.role.kind === "leader" && raft.term === phase.term) {
    return raft.role.transfer === null ? refused("transfer_failed") : null;
  }
  return routableLeader(running) === null ? null : answer(state, "done");
}

// --- what a node does by itself --------------------------------------------------------------------------------------

/** R4. In one commit; the next instance is a lost node (readmission.ts). */
function giveUp(state: NodeState, { clusterId, incarnation, replaces }: GiveUp, respond: ErrandCall["respond"]): void {
  const { membership } = state.identity;
  if (state.identity.incarnation !== replaces) {
    respond(refused("superseded"));
    return;
  }
  if (membership.kind !== "empty" && membership.clusterId !== clusterId) {
    respond(refused("other_cluster"));
    return;
  }
  const { storage, log } = state.ports;
  log("warn", "state given up", { halted: state.halted, incarnation });
  storage.write({ reset: { incarnation, membership: { kind: "lost", clusterId } } });
  const done = answer(state, "done");
  storage.afterSync(() => respond(done));
  endInstance(state, "gave up its state", true);
}

function endInstance(state: NodeState, reason: string, isWoken: boolean): void {
  const { wake, clock, storage, log } = state.ports;
  log("info", "instance ends", { reason });
  if (isWoken) wake.setAlarm(clock.wallMs() + RESTART_ALARM_MS);
  state.dead = true;
  storage.afterSync(() => state.ports.restart(reason));
}

function greetIfEmpty(state: NodeState, nowMs: number): void {
  if (state.halted !== null || state.identity.membership.kind !== "empty") return;
  state.helloAtMs = nowMs;
  sayHello(state);
}

/** Before the others are heard nothing is begun: one of them may know of a cluster, also one that is not to take part. */
function followInit(state: NodeState, open: OpenErrand, members: readonly NodeId[], nowMs: number): ErrandReply | null {
  const { identity, config, answers } = state;
  const { membership } = identity;
  if (state.halted !== null) return refused("halted");
  if (membership.kind === "formed" || membership.kind === "forming") {
    const ids = membership.members.map(({ id }) => id);
    const isOurs = ids.length === members.length && members.every((id) => ids.includes(id));
    if (!isOurs) return refused("formed");
    if (membership.kind === "formed") return answer(state, open.phase.kind === "forming" ? "done" : "unchanged");
    open.phase = { kind: "forming" };
    return nowMs < open.deadlineMs ? null : answer(state, "under_way");
  }
  const isElsewhere = [...answers.values()].some((answered) => answered.membership.kind !== "empty");
  if (membership.kind === "lost" || isElsewhere) return refused("formed");
  if (nowMs >= open.deadlineMs) {
    state.founders = config.members;
    return refused("not_all_empty");
  }
  const isAnswered = config.members.every((id) => id === config.id || answers.has(id));
  if (open.phase.kind === "forming" || (!isAnswered && nowMs < open.tryAtMs)) return null;
  open.phase = { kind: "forming" };
  state.founders = members;
  greetIfEmpty(state, nowMs);
  return null;
}

// --- answers ---------------------------------------------------------------------------------------------------------

function admissionOf({ phase }: OpenErrand): Admission | null {
  return phase.kind === "proposed" ? phase.admission : null;
}

function answer(
  { running }: NodeState,
  kind: "done" | "unchanged" | "under_way",
  admission: Admission | null = null,
): ErrandReply {
  const leader = running === null ? null : leaderOf(running.raft);
  return { kind, leader, membership: running === null ? null : membershipIn(running), admission };
}

function refused(refusal: ErrandRefusal): ErrandReply {
  return { kind: "refused", refusal };
}

function elsewhere(running: Running | null): ErrandReply {
  return { kind: "elsewhere", leader: running === null ? null : routableLeader(running) };
}
