/** Waiting until things have settled, and what is said when they do not. */
import type { Host, World } from "./host.ts";
import { isLost } from "./sleep.ts";
import { Violation } from "./violation.ts";
import { lateWatchers, type WatchClients } from "./watch-clients.ts";
import { newestRevision, type Workload } from "./workload.ts";
import { advance } from "./world.ts";

/** Virtual time that a healed cluster has to answer everything and to agree. */
export const QUIET_MS_MAX = 20_000;
/** A sleeping leader looks for members that are behind once a minute; the watchdog of a node fires within 15 s. */
export const LEFT_BEHIND_MS_MAX = 100_000;

export function runWhile(world: World, condition: () => boolean): void {
  while (condition()) if (!advance(world)) return;
}

export function runUntilQuiet(world: World, workload: Workload): void {
  const deadline = world.now + QUIET_MS_MAX;
  runWhile(world, () => workload.open > 0 && world.now < deadline);
}

export function membersOf(world: World): Host[] {
  return world.hosts.filter((host) => !isLost(host));
}

/** Nobody asks for anything, and still every node comes to know what is committed, and every watcher. */
export function requireNobodyBehind(world: World, watching: WatchClients): void {
  const { length } = world.safety.committed;
  const revision = newestRevision(world);
  const behind = (): string[] => {
    const nodes = membersOf(world).filter(({ live }) => live !== null && live.runtime.status().applied_index < length);
    return [...nodes.map(({ id }) => `node ${id}`), ...lateWatchers(watching, revision)];
  };
  const deadline = world.now + LEFT_BEHIND_MS_MAX;
  runWhile(world, () => world.now < deadline && behind().length > 0);
  if (behind().length === 0) return;
  throw new Violation("nobody is left behind", `${behind().join(", ")} of ${length}: ${statusText(world)}`);
}

export function statusText(world: World): string {
  return world.hosts
    .map(({ id, live }) => {
      if (live === null) return `n${id} off`;
      const status = live.runtime.status();
      const { state, role, term, leader, last_index, commit_index, applied_index, quiescent } = status;
      const log = `log ${last_index} commit ${commit_index} applied ${applied_index}`;
      return `n${id} ${state} ${role} term ${term} leader ${leader} ${log}${quiescent ? " asleep" : ""}`;
    })
    .join("; ");
}
