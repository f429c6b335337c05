/**
 * Disks that lie, and the operator who looks after them. A row changes, or is gone; the node must notice, halt, and spread
 * nothing of it. Then its storage is replaced, and the cluster takes it in again by itself. Until then it counts as down.
 */
import { nextFloat } from "../../src/base/random.ts";
import { isLogDamaged, isStateDamaged, isTainted, strikeDisk } from "./damage.ts";
import type { Host, World } from "./host.ts";
import { canSpare, isVoter } from "./membership.ts";
import { sendProbe } from "./probes.ts";
import { QUIET_MS_MAX, runWhile, statusText } from "./settling.ts";
import { Violation } from "./violation.ts";
import type { Workload } from "./workload.ts";
import { scheduleAct, wipeHost } from "./world.ts";

const LOOK_EVERY_MS = 100;
const REPAIR_MS_MAX = 600;
const PROBE_EVERY_MS = 200;

/** False: not now, or there is nothing to strike. */
export function corruptDisk(world: World, host: Host): boolean {
  const { disk, live, zombie } = host;
  // What is under way would be undone over it.
  if (zombie !== null || (live !== null && live.inFlight.length > 0)) return false;
  if (disk.damage.struck || disk.identity?.membership.kind !== "formed" || !canSpare(world, host)) return false;
  if (!strikeDisk(disk, world.random)) return false;
  noteTaint(world);
  lookAfter(world, host);
  return true;
}

function lookAfter(world: World, host: Host): void {
  const { disk } = host;
  scheduleAct(world, world.now + LOOK_EVERY_MS, "operator looks", () => {
    if (host.disk !== disk) return;
    if (disk.halted === null) {
      if (isDamaged(host)) lookAfter(world, host);
      else disk.damage.struck = false; // all of it has been written again, or is not needed any more
      return;
    }
    scheduleAct(world, world.now + nextFloat(world.random) * REPAIR_MS_MAX, "operator repairs", () => {
      if (host.disk === disk) repair(world, host);
    });
  });
}

function isDamaged({ disk }: Host): boolean {
  return isStateDamaged(disk) || isLogDamaged(disk);
}

function repair(world: World, host: Host): void {
  noteTaint(world);
  if (host.disk.halted !== null) world.halts += 1;
  wipeHost(world, host, nextFloat(world.random) * 50);
}

/** Everybody is up again. Who has lost or changed rows of its state finds out while it is awake, and halts. */
export function requireRepair(world: World, workload: Workload): void {
  const deadline = world.now + QUIET_MS_MAX;
  const unnoticed = (): Host[] => {
    return world.hosts.filter((host) => isStateDamaged(host.disk) && host.disk.halted === null && isVoter(world, host));
  };
  const probe = (): void => {
    for (const { id } of unnoticed()) sendProbe(workload, id, () => {});
    if (unnoticed().length > 0) scheduleAct(world, world.now + PROBE_EVERY_MS, "probe the damaged", probe);
  };
  probe();
  runWhile(world, () => unnoticed().length > 0 && world.now < deadline);
  if (unnoticed().length > 0) {
    throw new Violation("corruption is found", `not by ${unnoticed().map(({ id }) => id)}: ${statusText(world)}`);
  }
  for (const host of world.hosts) if (host.disk.damage.struck) repair(world, host);
}

// --- what a node says that has lost rows and cannot know it (damage.ts B2) -------------------------------------------

function noteTaint(world: World): void {
  if (world.hosts.some(({ disk }) => isTainted(disk))) world.taintedAt = world.now;
}

/** A leader may have answered from what it has lost since then. */
export function wasTaintedSince(world: World, atMs: number): boolean {
  noteTaint(world);
  return world.taintedAt >= atMs;
}
