/** Timers of instances and alarms of hosts: one queue event each, re-examined when it fires, never searched for. */
import { nextFloat } from "../../src/base/random.ts";
import { monotonicMs, virtualTimeOf, WALL_EPOCH_MS, wallMs } from "./clock.ts";
import { push } from "./event-queue.ts";
import type { Host, Instance, World } from "./host.ts";

/** An alarm handler that died runs again about this much later. */
const ALARM_RETRY_MS = 2000;
/** "Usually a few ms, up to a minute during failover": more than a few seconds adds nothing within a seed. */
const ALARM_LATE_MS_MAX = 4000;

/** Sees to it that the queue holds an event at or before the time the timer is due. */
export function scheduleTimer(world: World, instance: Instance): void {
  if (!Number.isFinite(instance.timerAtMs)) return;
  const at = Math.max(world.now, virtualTimeOf(instance.clock, instance.timerAtMs));
  if (instance.timerEventAt <= at) return;
  instance.timerEventAt = at;
  push(world.queue, { at, seq: 0, kind: "timer", instance });
}

/** True when the timer is due now; otherwise the event was early or stale and another one is in the queue. */
export function takeTimer(world: World, instance: Instance, at: number): boolean {
  if (at < instance.timerEventAt) return false;
  instance.timerEventAt = Number.POSITIVE_INFINITY;
  if (monotonicMs(instance.clock, world.now) < instance.timerAtMs) {
    scheduleTimer(world, instance);
    return false;
  }
  instance.timerAtMs = Number.POSITIVE_INFINITY;
  return true;
}

export function scheduleAlarm(world: World, host: Host): void {
  const alarmAtWallMs = host.disk.alarmAtWallMs;
  if (alarmAtWallMs === null) return;
  const at = Math.max(world.now, alarmAtWallMs - WALL_EPOCH_MS - host.wallSkewMs);
  if (host.alarmEventAt <= at) return;
  host.alarmEventAt = at;
  push(world.queue, { at, seq: 0, kind: "alarm", host, repeat: false });
}

/** True when the alarm is due now; it is then off the disk. A late alarm is put off first. */
export function takeAlarm(world: World, host: Host, at: number): boolean {
  if (at < host.alarmEventAt) return false;
  host.alarmEventAt = Number.POSITIVE_INFINITY;
  const { disk } = host;
  if (disk.alarmAtWallMs === null) return false;
  if (wallMs(host.wallSkewMs, world.now) < disk.alarmAtWallMs) {
    scheduleAlarm(world, host);
    return false;
  }
  if (world.alarmLateRate > 0 && nextFloat(world.random) < world.alarmLateRate) {
    world.counts.add("alarm_late");
    host.alarmEventAt = world.now + nextFloat(world.random) * ALARM_LATE_MS_MAX;
    push(world.queue, { at: host.alarmEventAt, seq: 0, kind: "alarm", host, repeat: false });
    return false;
  }
  disk.alarmAtWallMs = null;
  if (world.alarmRepeatRate > 0 && nextFloat(world.random) < world.alarmRepeatRate) {
    world.counts.add("alarm_repeated");
    push(world.queue, { at: world.now + nextFloat(world.random) * 100, seq: 0, kind: "alarm", host, repeat: true });
  }
  return true;
}

/** The alarm's turn died: at least once means that it comes again. */
export function retryAlarm(world: World, host: Host): void {
  if (host.disk.alarmAtWallMs !== null) return;
  host.disk.alarmAtWallMs = wallMs(host.wallSkewMs, world.now) + ALARM_RETRY_MS;
  scheduleAlarm(world, host);
}
