/**
 * The end of a seed in a cluster that sleeps (design 02 §4): it leaves no member behind that may hold watches, it is silent,
 * and one request wakes as much of it as is needed.
 */
import { nextInteger } from "../../src/base/random.ts";
import type { Faults } from "./faults.ts";
import type { Host, World } from "./host.ts";
import { cut, mend } from "./network.ts";
import { sendProbe } from "./probes.ts";
import { disturb } from "./rests.ts";
import { QUIET_MS_MAX, requireNobodyBehind, runWhile, statusText } from "./settling.ts";
import { Violation } from "./violation.ts";
import { askWatchClients, type WatchClients } from "./watch-clients.ts";
import type { Workload } from "./workload.ts";
import { runUntil } from "./world.ts";

/** An alarm that an earlier instance left fires within this, and wakes everybody once more. */
const SETTLED_MS = 40_000;
const SILENT_MS = 600_000;
/** Beside elections, of which a few may fail. */
const WAKING_MS = 500;

function anyHost(world: World): Host {
  return world.hosts[nextInteger(world.random, 0, world.hosts.length - 1)]!;
}

function fallAsleep(world: World): void {
  const deadline = world.now + QUIET_MS_MAX;
  runWhile(world, () => !world.sleep.cluster && world.now < deadline);
  if (!world.sleep.cluster)
    throw new Violation("a sleeping cluster is silent", `it does not sleep: ${statusText(world)}`);
}

/**
 * A member sleeps on, unreachable, while the others wake, write and fall asleep again. When it can be reached again nobody
 * asks for anything; and still it is looked after, for the watchers that it may hold.
 */
export function requireNobodyForgotten(world: World, workload: Workload, watching: WatchClients): void {
  if (world.hosts.length === 1) return;
  fallAsleep(world);
  const away = anyHost(world);
  const others = world.hosts.filter((host) => host !== away);
  for (const { id } of others) {
    cut(world.network, id, away.id);
    cut(world.network, away.id, id);
  }
  const deadline = world.now + QUIET_MS_MAX;
  let written = false;
  sendProbe(workload, others[nextInteger(world.random, 0, others.length - 1)]!.id, (ok) => {
    written = ok;
  });
  runWhile(world, () => world.now < deadline && !(written && world.sleep.cluster));
  for (const { id } of others) {
    mend(world.network, id, away.id);
    mend(world.network, away.id, id);
  }
  askWatchClients(watching, true);
  requireNobodyBehind(world, watching);
  askWatchClients(watching, false);
}

/** A cluster that nobody asks anything falls asleep, and then nothing happens in it at all. */
export function requireSilence(world: World): void {
  runUntil(world, world.now + SETTLED_MS);
  fallAsleep(world);
  const { messages } = world.sleep;
  const { steps } = world;
  runUntil(world, world.now + SILENT_MS);
  if (world.sleep.messages === messages && world.steps === steps) return;
  const detail = `${world.sleep.messages - messages} messages and ${world.steps - steps} turns in its sleep: ${statusText(world)}`;
  throw new Violation("a sleeping cluster is silent", detail);
}

/** One request at one node wakes as many as it needs, whether they are in memory or not. */
export function requireWaking(faults: Faults, workload: Workload): void {
  const { world } = faults;
  disturb(faults);
  const host = anyHost(world);
  const { id } = host;
  runWhile(world, () => world.now < host.downUntil);
  const deadline = world.now + 4 * world.options.electionTimeoutMsMax + WAKING_MS;
  let answered = false;
  sendProbe(workload, id, (ok) => {
    answered = ok;
  });
  runWhile(world, () => !answered && world.now < deadline);
  if (!answered) throw new Violation("a sleeping cluster wakes", `node ${id} was asked: ${statusText(world)}`);
}
