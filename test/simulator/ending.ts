/**
 * The end of a seed: everything works again, and now it must show. In this order, since each step would hide what the one
 * before it asks: nobody is left behind although nobody asks for anything; writes go through every node; leases end; an idle
 * cluster sleeps and is silent; a request wakes it.
 */
import { nextFloat } from "../../src/base/random.ts";
import { evaluateQuery } from "../../src/kv/machine.ts";
import { logTimeMs } from "../../src/raft/state.ts";
import { monotonicMs } from "./clock.ts";
import { requireRepair } from "./corruption.ts";
import { requireNobodyForgotten, requireSilence, requireWaking } from "./ending-asleep.ts";
import type { Faults } from "./faults.ts";
import type { World } from "./host.ts";
import { clocksAreHarmless, endsBy, endsByAfterChanges, LOG_EPOCH_MS } from "./lease-check.ts";
import { isVoter, membershipInForce, removedHosts } from "./membership.ts";
import { addRemoved } from "./operator.ts";
import { sendCompaction, sendProbe } from "./probes.ts";
import { disturb, leaderHost } from "./rests.ts";
import { requireEqualRows } from "./rows-check.ts";
import {
  LEFT_BEHIND_MS_MAX,
  membersOf,
  QUIET_MS_MAX,
  requireNobodyBehind,
  runUntilQuiet,
  runWhile,
  statusText,
} from "./settling.ts";
import { isLost } from "./sleep.ts";
import { Violation } from "./violation.ts";
import { askWatchClients, calmWatchClients, lateWatchers, untoldWatchers, type WatchClients } from "./watch-clients.ts";
import { newestRevision, type Workload } from "./workload.ts";
import { runUntil, scheduleAct } from "./world.ts";

const PROBE_PAUSE_MS = 100;
/** Election timeouts: for whoever has left to hear of it or to try once more, and then again to show that all is calm. */
const CALM_TIMEOUTS = 15;
/** Leases with a longer TTL than this outlive the seed. */
const TTL_MS_MAX = 10_000;
/** From falling asleep until the alarm that goes with it is surely on the disk. */
const ASLEEP_MS = 500;
const DISTURBED_RATE = 0.5;

export function requireProgress(faults: Faults, workload: Workload, watching: WatchClients): void {
  const { world } = faults;
  runUntilQuiet(world, workload);
  requireRepair(world, workload);
  requireCalm(world);
  requireMembers(world);
  calmWatchClients(watching);
  askWatchClients(watching, true);
  requireNobodyBehind(world, watching);
  askWatchClients(watching, false);
  requireWrites(world, workload);
  requireAgreement(world);
  requireEqualRows(world);
  requireLeasesEnd(faults);
  requireWarning(world, workload, watching);
  requireRemoval(world);
  if (faults.profile.quiesceAfterMs < QUIET_MS_MAX && membersOf(world).length === world.hosts.length) {
    requireNobodyForgotten(world, workload, watching);
    requireSilence(world);
    requireWaking(faults, workload);
    requireWrites(world, workload);
    requireAgreement(world);
  }
  requireWatchers(world, watching);
  requireAnswers(world);
}

/** Who has left, and does not know it maybe, deposes no leader. Clocks that are wrong may. */
function requireCalm(world: World): void {
  const left = removedHosts(world, membershipInForce(world));
  if (left.length === 0 || world.hosts.some(({ wallJumps }) => wallJumps > 0)) return;
  const windowMs = CALM_TIMEOUTS * world.options.electionTimeoutMsMax;
  const end = Math.max(world.now, ...world.hosts.map(({ pausedUntil }) => pausedUntil)) + windowMs;
  runUntil(world, end);
  const before = newestTerm(world);
  runUntil(world, end + windowMs);
  if (newestTerm(world) === before) return;
  const detail = `without ${left.map(({ id }) => id)} term ${before} became ${newestTerm(world)}: ${statusText(world)}`;
  throw new Violation("who has left disturbs nobody", detail);
}

/** Whoever was wiped votes again, although nobody asks for it; an operator takes in again who was let go. */
function requireMembers(world: World): void {
  const add = (): void => {
    addRemoved(world);
    if (removedHosts(world, membershipInForce(world)).length > 0)
      scheduleAct(world, world.now + PROBE_PAUSE_MS, "take in again", add);
  };
  scheduleAct(world, world.now, "take in again", add);
  const missing = () => world.hosts.filter((host) => !isVoter(world, host) || isLost(host));
  const deadline = world.now + LEFT_BEHIND_MS_MAX;
  runWhile(world, () => world.now < deadline && missing().length > 0);
  if (missing().length === 0) return;
  const detail = `${missing().map(({ id }) => id)} of ${JSON.stringify(membershipInForce(world))}: ${statusText(world)}`;
  throw new Violation("lost node is admitted again", detail);
}

/** A leader, and a fresh write through every node. */
function requireWrites(world: World, workload: Workload): void {
  const members = membersOf(world);
  let answered = 0;
  const deadline = world.now + QUIET_MS_MAX;
  const probe = (node: number): void => {
    sendProbe(workload, node, (ok) => {
      if (ok) answered += 1;
      else scheduleAct(world, world.now + PROBE_PAUSE_MS, "probe again", () => probe(node));
    });
  };
  for (const { id } of members) probe(id);
  runWhile(world, () => answered < members.length && world.now < deadline);
  if (answered === members.length) return;
  const detail = `${answered} of ${members.length} nodes took a write: ${statusText(world)}`;
  throw new Violation("progress after healing", detail);
}

/** The same state everywhere. */
function requireAgreement(world: World): void {
  const agreed = (): boolean => {
    const { length } = world.safety.committed;
    return membersOf(world).every(({ live }) => live?.runtime.status().applied_index === length);
  };
  const deadline = world.now + QUIET_MS_MAX;
  runWhile(world, () => !agreed() && world.now < deadline);
  if (!agreed()) throw new Violation("progress after healing", `not every node has applied all: ${statusText(world)}`);
}

function requireAnswers(world: World): void {
  const waiting = (): string[] => {
    return membersOf(world).flatMap(({ live }) => [...(live?.calls ?? [])].map((call) => call.label));
  };
  const deadline = world.now + QUIET_MS_MAX;
  runWhile(world, () => waiting().length > 0 && world.now < deadline);
  if (waiting().length > 0) throw new Violation("answered exactly once", `never answered: ${waiting().join(", ")}`);
}

function requireWatchers(world: World, watching: WatchClients): void {
  const revision = newestRevision(world);
  askWatchClients(watching, true);
  const deadline = world.now + QUIET_MS_MAX;
  runWhile(world, () => world.now < deadline && lateWatchers(watching, revision).length > 0);
  const late = lateWatchers(watching, revision);
  if (late.length === 0) return;
  throw new Violation("watcher catches up or is told why not", `${late.join(", ")}; the revision is ${revision}`);
}

/** History goes. Who only waits for what is quiet is told beforehand, or could not come back to where it was. */
function requireWarning(world: World, workload: Workload, watching: WatchClients): void {
  const deadline = world.now + QUIET_MS_MAX;
  let compacted: number | null = null;
  const compact = (): void => {
    const node = membersOf(world)[0]!.id;
    sendCompaction(workload, node, (revision) => {
      compacted = revision;
      if (revision === null) scheduleAct(world, world.now + PROBE_PAUSE_MS, "compact again", compact);
    });
  };
  compact();
  const untold = (): string[] => (compacted === null ? [] : untoldWatchers(watching, compacted));
  runWhile(world, () => world.now < deadline && (compacted === null || untold().length > 0));
  if (compacted === null) throw new Violation("progress after healing", `no compaction: ${statusText(world)}`);
  if (untold().length === 0) return;
  throw new Violation("watcher catches up or is told why not", `${untold().join(", ")}; ${compacted} is compacted`);
}

// --- leases ----------------------------------------------------------------------------------------------------------

/** What is alive and ends soon, by virtual time. */
function leasesThatEnd(world: World): { readonly id: number; readonly endsAt: number }[] {
  const { replay } = world.safety;
  const outcome = evaluateQuery(replay, { kind: "lease_list", limit: 1000, anonymous: true }, replay.timeMs);
  if (!outcome.ok || outcome.result.kind !== "lease_list") throw new Error("the replay cannot list its leases");
  const ahead = logAhead(world);
  return outcome.result.leases
    .map(({ id, expires_at_ms }) => ({ id, endsAt: expires_at_ms - LOG_EPOCH_MS - ahead }))
    .filter(({ endsAt }) => endsAt < world.now + TTL_MS_MAX);
}

function newestTerm(world: World): number {
  return Math.max(...world.hosts.map(({ disk }) => disk.hardState.term));
}

/** By how much the log's clock is ahead of the true one. */
function logAhead(world: World): number {
  const instance = leaderHost(world)?.live;
  const logNow = instance?.raft == null ? null : logTimeMs(instance.raft, monotonicMs(instance.clock, world.now));
  return logNow === null ? 0 : logNow - LOG_EPOCH_MS - world.now;
}

/** L2 (lease-check.ts), also when the nodes are evicted, or the leader dies, while the cluster sleeps. */
function requireLeasesEnd(faults: Faults): void {
  const { world } = faults;
  if (!clocksAreHarmless(world)) return;
  const waiting = leasesThatEnd(world);
  if (waiting.length === 0) return;
  const term = newestTerm(world);
  let disturbed = false;
  if (nextFloat(world.random) < DISTURBED_RATE) {
    const last = Math.max(...waiting.map(({ endsAt }) => endsAt));
    const settled = (): boolean => world.sleep.cluster && world.now > world.sleep.sinceMs + ASLEEP_MS;
    runWhile(world, () => !settled() && world.now < last);
    disturbed = world.sleep.cluster;
    if (disturbed) disturb(faults);
  }
  for (const { id, endsAt } of waiting.sort((left, right) => left.endsAt - right.endsAt)) {
    const inTime = endsBy(world, endsAt);
    const afterChanges = endsByAfterChanges(world, endsAt);
    // A look at all leases for each event would be slow: each entry that is committed is looked at once.
    let seen = -1;
    let lives = true;
    runWhile(world, () => {
      if (world.safety.committed.length !== seen) {
        seen = world.safety.committed.length;
        lives = leasesThatEnd(world).some((lease) => lease.id === id);
      }
      return lives && world.now < (disturbed || newestTerm(world) !== term ? afterChanges : inTime);
    });
    if (!lives) continue;
    const detail = `lease ${id}, due at ${endsAt.toFixed(0)}, lives at ${world.now.toFixed(0)}: ${statusText(world)}`;
    throw new Violation("lease ends in time", detail);
  }
  // Whoever died meanwhile is back.
  runWhile(world, () => membersOf(world).some(({ downUntil }) => world.now < downUntil));
  for (const { id } of membersOf(world)) world.hosts[id - 1]!.downUntil = 0;
}

function requireRemoval(world: World): void {
  const { replay } = world.safety;
  const deadline = world.now + QUIET_MS_MAX;
  runWhile(world, () => replay.removalPending && world.now < deadline);
  if (replay.removalPending) throw new Violation("removal ends", `compacted history is left: ${statusText(world)}`);
}
