/**
 * Rests: now and then nobody asks for anything, so that the cluster falls asleep. While it sleeps its nodes are evicted, or
 * one of them dies: leases that end meanwhile must end all the same.
 */
import { nextFloat } from "../../src/base/random.ts";
import type { Faults } from "./faults.ts";
import type { Host, World } from "./host.ts";
import { crashHost, evictHost, scheduleAct } from "./world.ts";

/** From the last request until a node surely sleeps, with its rows on the disk. */
const SETTLED_MS = 1200;

export function scheduleRest(faults: Faults): void {
  const { world, profile } = faults;
  if (profile.restEveryMs === null) return;
  const delay = -Math.log(1 - nextFloat(world.random)) * profile.restEveryMs;
  scheduleAct(world, world.now + delay, "rest", () => {
    if (!faults.active) return;
    world.restUntil = world.now + (0.3 + nextFloat(world.random)) * profile.restMs;
    const at = world.now + profile.quiesceAfterMs + SETTLED_MS + nextFloat(world.random) * 1000;
    scheduleAct(world, at, "while they sleep", () => {
      if (faults.active && world.now < world.restUntil) disturb(faults);
    });
    scheduleAct(world, world.restUntil, "rest ends", () => scheduleRest(faults));
  });
}

/** What becomes of objects that nobody uses. */
export function disturb({ world, profile }: Pick<Faults, "world" | "profile">): void {
  const { random } = world;
  const roll = nextFloat(random);
  if (profile.kinds.includes("eviction") && roll < 0.7) {
    for (const host of world.hosts) {
      if (nextFloat(random) < 0.8 && evictHost(world, host)) world.counts.add("eviction");
    }
  } else if (profile.kinds.includes("crash")) {
    const host = leaderHost(world);
    if (host === null) return;
    // A cluster of one is not there while its node is down.
    const long = world.hosts.length > 1 && nextFloat(random) < 0.5;
    crashHost(world, host, long ? nextFloat(random) * 8000 : 0);
    world.counts.add("crash");
  }
}

export function leaderHost(world: World): Host | null {
  return world.hosts.find(({ live }) => live?.raft?.role.kind === "leader") ?? null;
}
