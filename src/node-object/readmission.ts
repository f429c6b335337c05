/**
 * How a node that has lost its storage comes back without an operator (design 02 §2, Identity; thesis 4.2.1).
 *
 * A1. Until a membership names its new incarnation a lost node follows whoever leads and counts for nothing. It says hello
 *     now and then, which wakes the cluster if there is something to do.
 * A2. The leader acts on an answer to its own question only: a late greeting of a storage that is gone must not unseat the
 *     one that has come after it (strangers.ts).
 * A3. One entry makes the old voter a learner under the new incarnation; another one, when it has caught up, a voter.
 *     Before that no other node is taken in: what it has acknowledged is not forgotten twice.
 * A4. The lost node is a member again when it knows a committed membership that names it.
 * A5. While a learner can be reached, or a lost node has been heard lately and is next, the cluster does not sleep.
 */
import { membershipAt, newestMembership } from "../raft/log.ts";
import { isCaughtUp } from "../raft/membership-changes.ts";
import { isAsleep, isReachable, type Leader, membershipOf } from "../raft/state.ts";
import type { Membership, NodeId } from "../raft/types.ts";
import { adopt, ask, HELLO_HEARTBEATS_LOST } from "./hello.ts";
import { extraOf, incarnationsOf, names } from "./members.ts";
import type { Drive, NodeState, Running } from "./runtime-state.ts";
import { knownStranger, type Stranger } from "./strangers.ts";
import { olderMembers } from "./versions.ts";

interface LostNode {
  readonly id: NodeId;
  readonly stranger: Stranger;
}

/** A lost node that has not greeted for so long, in heartbeats, is not waited for. */
const LOST_HEARTBEATS = 2 * HELLO_HEARTBEATS_LOST;

// --- the lost node ---------------------------------------------------------------------------------------------------

/** A4. Called in every turn. */
export function noticeAdmission(state: NodeState, running: Running): void {
  const { membership, incarnation } = state.identity;
  if (membership.kind !== "lost") return;
  const { log, commit } = running.raft;
  if (!names(membershipAt(log, commit), state.config.id, incarnation)) return;
  adopt(state, { kind: "formed", clusterId: membership.clusterId, members: [] });
}

// --- the others ------------------------------------------------------------------------------------------------------

/** A3. A learner that is lost again goes on; of the voters the lowest is next, if nobody is on the way. */
export function nextLost(state: NodeState, running: Running, nowMs: number): LostNode | null {
  const { voters, learners } = membershipOf(running.raft);
  for (const id of learners.length > 0 ? learners : voters) {
    const stranger = knownStranger(state, running, id);
    const isNear = (heardAtMs: number) => heardAtMs + LOST_HEARTBEATS * state.config.heartbeatMs >= nowMs;
    if (stranger?.lost === true && isNear(stranger.heardAtMs)) return { id, stranger };
  }
  return null;
}

/** The leader's next step, if there is one. Called in every turn; a heartbeat brings the next try. */
export function readmit(state: NodeState, running: Running, nowMs: number, drive: Drive): void {
  const { raft } = running;
  const { role } = raft;
  if (role.kind !== "leader" || isAsleep(raft) || nowMs < running.changeAtMs) return;
  const { index, membership } = newestMembership(raft.log);
  if ((membership.learners.length === 0 && running.strangers.size === 0) || index > raft.commit) return;
  running.changeAtMs = nowMs + state.config.heartbeatMs;
  if (olderMembers(state, running).length > 0) return;
  const lost = nextLost(state, running, nowMs);
  if (lost === null) {
    const learner = membership.learners.find((one) => isCaughtUp(raft, role, one, nowMs));
    if (learner !== undefined) change(state, running, promoted(membership, learner), "learner votes", learner, drive);
    return;
  }
  const { id, stranger } = lost;
  if (!stranger.answered) ask(state, id, stranger.question);
  else change(state, running, renewed(membership, id, stranger.incarnation), "taken in again", id, drive);
}

function change(
  state: NodeState,
  running: Running,
  membership: Membership,
  what: string,
  node: NodeId,
  drive: Drive,
): void {
  const { refusal } = drive(state, running, { kind: "change_membership", membership });
  state.ports.log("info", what, { node, refusal });
}

export function promoted({ voters, learners, ...rest }: Membership, id: NodeId): Membership {
  return { ...rest, voters: [...voters, id], learners: learners.filter((one) => one !== id) };
}

/** The id is a learner under this incarnation, whatever it was before. */
export function renewed(membership: Membership, id: NodeId, incarnation: number): Membership {
  const others = (ids: readonly NodeId[]) => ids.filter((one) => one !== id);
  const extra = extraOf(new Map([...incarnationsOf(membership), [id, incarnation]]));
  return { voters: others(membership.voters), learners: [...others(membership.learners), id], extra };
}

/** A5. */
export function readmissionRests(state: NodeState, running: Running, role: Leader, nowMs: number): boolean {
  const { raft } = running;
  const isReached = (id: NodeId) => {
    const progress = role.progress.get(id);
    return progress !== undefined && isReachable(raft, progress, nowMs);
  };
  if (membershipOf(raft).learners.some(isReached)) return false;
  return nextLost(state, running, nowMs) === null;
}
