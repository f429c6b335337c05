/** What an operator asks of the leader: to let a node go, to take one in again, to hand over. */
import { nextFloat, nextInteger } from "../../src/base/random.ts";
import type { Runtime } from "../../src/node-object/runtime.ts";
import { membershipOf } from "../../src/raft/state.ts";
import type { Membership } from "../../src/raft/types.ts";
import type { Instance, World } from "./host.ts";
import { canRemove, removedHosts } from "./membership.ts";
import { leaderHost } from "./rests.ts";
import { runTurn } from "./turn.ts";
import { scheduleAct } from "./world.ts";

/** Shares: of those who are let go that stay out, and of a second change that is asked for at once and must be refused. */
const OUT_SHARE = 0.3;
const TWICE_SHARE = 0.5;
const OUT_MS_MAX = 2000;
/** An operator who is refused asks again, but not for ever. */
const ADD_PAUSE_MS = 40;
const ADD_TRIES_MAX = 50;
const WAKE_MS = 500;

/** A leader that can be asked now, and the membership that it goes by. */
function leaderNow(world: World): { readonly leader: Instance; readonly membership: Membership } | null {
  const leader = leaderHost(world)?.live ?? null;
  if (leader === null || leader.raft === null || leader.host.pausedUntil > world.now) return null;
  return { leader, membership: membershipOf(leader.raft) };
}

/** True if the leader has begun what it was asked for. */
function begun(world: World, leader: Instance, ask: (runtime: Runtime) => string | null): boolean {
  let refusal: string | null = "never asked";
  if (!leader.running) return false;
  runTurn(world, leader, () => {
    refusal = ask(leader.runtime);
  });
  return refusal === null;
}

export function changeSomeMember(world: World): boolean {
  const { random } = world;
  const found = leaderNow(world);
  if (found === null) return false;
  const { leader, membership } = found;
  const ids = [...membership.voters, ...membership.learners].filter((id) => canRemove(world, membership, id));
  const first = ids[nextInteger(random, 0, Math.max(0, ids.length - 1))];
  if (first === undefined) return false;
  const done = begun(world, leader, (runtime) => runtime.changeMember({ kind: "remove", id: first }));
  const second = ids.find((id) => id !== first && id !== leader.host.id);
  if (second !== undefined && nextFloat(random) < TWICE_SHARE) {
    begun(world, leader, (runtime) => runtime.changeMember({ kind: "remove", id: second }));
  }
  if (done && nextFloat(random) >= OUT_SHARE) addLater(world, nextFloat(random) * OUT_MS_MAX, ADD_TRIES_MAX);
  return done;
}

function addLater(world: World, delayMs: number, tries: number): void {
  scheduleAct(world, world.now + delayMs, "take in again", () => {
    if (!addRemoved(world) && tries > 1) addLater(world, ADD_PAUSE_MS, tries - 1);
  });
}

/** Takes in the lowest that is out; false if nobody is, or not now. */
export function addRemoved(world: World): boolean {
  const found = leaderNow(world);
  if (found === null) {
    wakeAll(world);
    return false;
  }
  const host = removedHosts(world, found.membership)[0];
  if (host === undefined) return false;
  return begun(world, found.leader, (runtime) => runtime.changeMember({ kind: "add", id: host.id }));
}

/** Who asks for something wakes the cluster, whether it is done or not. */
function wakeAll(world: World): void {
  for (const { live, pausedUntil } of world.hosts) {
    if (live === null || !live.running || pausedUntil > world.now) continue;
    runTurn(world, live, () => live.runtime.barrier({ timeoutMs: WAKE_MS, respond: () => {} }));
  }
}

export function transferLeadership(world: World): boolean {
  const found = leaderNow(world);
  if (found === null) return false;
  const to = nextInteger(world.random, 1, world.hosts.length);
  return begun(world, found.leader, (runtime) => runtime.transferLeader(to));
}
