/** Injects the faults of a profile while the seed runs, and ends them all when it is time to heal. */
import { nextFloat, nextInteger, type Random } from "../../src/base/random.ts";
import { PROTOCOL_MAX, PROTOCOL_MIN } from "../../src/node-object/versions.ts";
import { corruptDisk } from "./corruption.ts";
import { push } from "./event-queue.ts";
import type { FaultKind } from "./fault-kinds.ts";
import { type Host, hostOf, type World } from "./host.ts";
import { canSpare } from "./membership.ts";
import { calm, cut, mend, mendAll } from "./network.ts";
import { changeSomeMember, transferLeadership } from "./operator.ts";
import type { Profile } from "./profile.ts";
import { scheduleRest } from "./rests.ts";
import { killInstance } from "./turn.ts";
import {
  crashHost,
  evictHost,
  jumpWallClock,
  pauseHost,
  scheduleAct,
  setClockRate,
  supersedeHost,
  wipeHost,
} from "./world.ts";

export interface Faults {
  readonly world: World;
  readonly profile: Profile;
  readonly events: readonly FaultKind[];
  active: boolean;
  wiped: number;
}

const READ_ERROR_SHARE = 0.25;
const OLD_SHARE = 0.6;
/** Of the faults that would strike during a rest: nobody falls asleep in a storm. */
const REST_SHARE = 0.95;
/** Of the transfers of snapshots, those that a fault is aimed at; so long after their beginning at most. */
const IN_FLIGHT_SHARE = 0.8;
const IN_FLIGHT_TRIES = 4;
const IN_FLIGHT_MS_MAX = 20;

/** Kinds that are rates, not events. */
const RATES: ReadonlySet<FaultKind> = new Set([
  "drop",
  "delay",
  "duplicate",
  "reorder",
  "alarm_late",
  "alarm_repeated",
  "reply_lost",
  "quiescence",
  "snapshot_in_flight",
]);

export function createFaults(world: World, profile: Profile): Faults {
  const { network, timing } = world;
  network.delayMsMax = profile.networkMsMax;
  timing.syncMsMax = profile.syncMsMax;
  timing.slowSyncRate = profile.slowSyncRate;
  timing.slowSyncMsMax = profile.slowSyncMsMax;
  world.toOld.old = profile.oldToOld;
  world.toOld.new = profile.newToOld;
  world.toOld.read = profile.readToOld;
  world.toOld.write = profile.writeToOld;
  // Some nodes begin as those of an earlier version, and are upgraded one by one.
  if (profile.kinds.includes("version_mix")) {
    for (const host of world.hosts) if (nextFloat(world.random) < OLD_SHARE) host.protocolMax = PROTOCOL_MIN;
  }
  const events = profile.kinds.filter((kind) => !RATES.has(kind));
  return { world, profile, events, active: false, wiped: 0 };
}

export function startFaults(faults: Faults): void {
  const { world, profile } = faults;
  const { network, timing } = world;
  const has = (kind: FaultKind): boolean => profile.kinds.includes(kind);
  faults.active = true;
  network.dropRate = profile.dropRate;
  network.bulkDropRate = profile.bulkDropRate;
  network.duplicateRate = profile.duplicateRate;
  network.reorderRate = profile.reorderRate;
  network.slowRate = profile.slowRate;
  network.slowMsMax = profile.slowMsMax;
  timing.replyLostRate = has("reply_lost") ? 0.03 : 0;
  world.alarmLateRate = has("alarm_late") ? 0.5 : 0;
  world.alarmRepeatRate = has("alarm_repeated") ? 0.5 : 0;
  if (faults.events.length > 0) {
    scheduleFault(faults);
    world.transfers.onBegun = () => scheduleFaultInFlight(faults);
  }
  scheduleRest(faults);
}

/** A transfer lasts for milliseconds: left to chance, most kinds of faults would hardly ever strike during one. */
function scheduleFaultInFlight(faults: Faults): void {
  const { world } = faults;
  if (nextFloat(world.random) > IN_FLIGHT_SHARE) return;
  scheduleAct(world, world.now + nextFloat(world.random) * IN_FLIGHT_MS_MAX, "fault in flight", () => {
    // Some of the rarest can seldom be done.
    for (let tries = 0; faults.active && tries < IN_FLIGHT_TRIES && !injectAny(faults); tries += 1);
  });
}

function injectAny(faults: Faults): boolean {
  const { world, events } = faults;
  const kind = events[nextInteger(world.random, 0, events.length - 1)]!;
  const isDone = inject(faults, kind);
  if (isDone) world.counts.add(kind);
  return isDone;
}

function scheduleFault(faults: Faults): void {
  const { world, profile } = faults;
  const { random } = world;
  const delay = -Math.log(1 - nextFloat(world.random)) * profile.faultEveryMs;
  scheduleAct(world, world.now + delay, "fault", () => {
    if (!faults.active) return;
    if (world.now < world.restUntil && nextFloat(random) < REST_SHARE) {
      scheduleFault(faults);
      return;
    }
    injectAny(faults);
    scheduleFault(faults);
  });
}

/** False when it cannot be done now, or counts itself when it strikes. */
function inject(faults: Faults, kind: FaultKind): boolean {
  const { world, profile } = faults;
  const { random } = world;
  const host = anyHost(world);
  switch (kind) {
    case "crash":
      if (host.live === null) return false;
      crashHost(world, host, nextFloat(random) < 0.3 ? 0 : nextFloat(random) * 800);
      return true;
    case "disk_error":
      host.armed ??= nextFloat(random) < READ_ERROR_SHARE ? "disk_error_on_read" : kind;
      return false;
    case "crash_between_statements":
    case "commit_failure":
      host.armed ??= kind;
      return false;
    case "wiped_disk":
      return wipe(faults, host);
    case "pause":
      pauseHost(world, host, nextFloat(random) < 0.5 ? nextFloat(random) * 100 : nextFloat(random) * 1500);
      return true;
    case "clock_jump":
      jumpWallClock(
        world,
        hostOf(world, nextInteger(random, 1, profile.wrongClocks)),
        Math.floor((nextFloat(random) - 0.4) * (nextFloat(random) < 0.5 ? 3000 : 30_000)),
      );
      return true;
    case "clock_drift":
      setClockRate(world, host, 0.7 + nextFloat(random) * 0.7);
      return true;
    case "eviction":
      return evictHost(world, host);
    case "all_reset":
      for (const each of world.hosts) crashHost(world, each, nextFloat(random) * 50);
      return true;
    case "two_instances":
      return supersedeSome(faults, host);
    case "version_mix":
      return upgrade(world, host);
    case "disk_corruption":
      // One that is just writing cannot be struck.
      return [host, ...world.hosts].some((one) => corruptDisk(world, one));
    case "membership_change":
      return changeSomeMember(world);
    case "leader_transfer":
      return transferLeadership(world);
    default:
      return partition(faults, kind);
  }
}

function upgrade(world: World, host: Host): boolean {
  if (host.protocolMax === PROTOCOL_MAX) return false;
  host.protocolMax = PROTOCOL_MAX;
  crashHost(world, host, nextFloat(world.random) * 200);
  return true;
}

function anyHost(world: World): Host {
  return world.hosts[nextInteger(world.random, 0, world.hosts.length - 1)]!;
}

/** Only in a formed cluster, and never a majority unless the seed is about that. */
function wipe(faults: Faults, host: Host): boolean {
  const { world, profile } = faults;
  if (!isFormed(world)) return false;
  if (profile.amnesia && faults.wiped === 0 && nextFloat(world.random) < 0.5) {
    const count = Math.floor(profile.size / 2) + 1;
    for (const each of world.hosts.slice(0, count)) wipeHost(world, each, nextFloat(world.random) * 50);
    // The survivors are away for a while: the forgetful majority is alone.
    for (const each of world.hosts.slice(count)) crashHost(world, each, 500 + nextFloat(world.random) * 1000);
    faults.wiped = count;
    return true;
  }
  if (!canSpare(world, host)) return false;
  wipeHost(world, host, nextFloat(world.random) * 300);
  return true;
}

export function isFormed(world: World): boolean {
  return world.hosts.every(({ disk }) => {
    const kind = disk.identity?.membership.kind;
    return kind === "formed" || kind === "lost" || (disk.serial % 1000 > 0 && kind !== "forming");
  });
}

function supersedeSome(faults: Faults, host: Host): boolean {
  const { world } = faults;
  const { random } = world;
  // A deploy replaces all nodes at once; a moved object is one.
  const hosts = nextFloat(random) < 0.4 ? world.hosts : [host];
  let any = false;
  for (const each of hosts) any = supersedeHost(world, each) || any;
  scheduleAct(world, world.now + 50 + nextFloat(random) * 1500, "older instances end", () => {
    for (const { zombie } of hosts) if (zombie !== null) killInstance(world, zombie);
  });
  return any;
}

function partition(faults: Faults, kind: FaultKind): boolean {
  const { world } = faults;
  const { random } = world;
  if (world.hosts.length === 1) return false;
  const pairs = cutPairs(world, kind, random);
  for (const [from, to] of pairs) cut(world.network, from, to);
  scheduleAct(world, world.now + 30 + nextFloat(random) * 1500, "partition heals", () => {
    for (const [from, to] of pairs) mend(world.network, from, to);
  });
  return true;
}

function cutPairs(world: World, kind: FaultKind, random: Random): [number, number][] {
  const ids = world.hosts.map(({ id }) => id);
  const pairs: [number, number][] = [];
  if (kind === "full_partition") {
    const side = new Set(ids.filter(() => nextFloat(random) < 0.5));
    for (const from of ids) {
      for (const to of ids) if (from !== to && side.has(from) !== side.has(to)) pairs.push([from, to]);
    }
    return pairs;
  }
  const node = ids[nextInteger(random, 0, ids.length - 1)]!;
  const others = ids.filter((id) => id !== node);
  if (kind === "one_way_partition") {
    const inward = nextFloat(random) < 0.5;
    for (const other of others) if (nextFloat(random) < 0.8) pairs.push(inward ? [other, node] : [node, other]);
    return pairs;
  }
  // Partial: some pairs do not hear each other although both hear the rest.
  for (const other of others) if (nextFloat(random) < 0.5) pairs.push([other, node], [node, other]);
  return pairs;
}

/** The world as it should be: everything up, connected, in time. Wrong wall clocks stay wrong. */
export function heal(faults: Faults): void {
  const { world } = faults;
  faults.active = false;
  calm(world.network);
  mendAll(world.network);
  world.timing.replyLostRate = 0;
  world.timing.slowSyncRate = 0;
  world.alarmLateRate = 0;
  world.alarmRepeatRate = 0;
  for (const host of world.hosts) {
    upgrade(world, host);
    host.armed = null;
    host.downUntil = world.now;
    if (host.zombie !== null) killInstance(world, host.zombie);
    setClockRate(world, host, 1);
    // A pause still ends in its own time: the start waits for it like every other event.
    push(world.queue, { at: world.now, seq: 0, kind: "start", host });
  }
}
