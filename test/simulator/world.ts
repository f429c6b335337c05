/**
 * The simulated world: nodes, network, disks and clocks under one seed and one queue of events in virtual time.
 * A step is one turn of one node (message, timer, alarm, durable write, client call, start). There are no promises: the
 * whole world is one loop of callbacks, which is what makes it fast and repeatable.
 */
import { unreachable } from "../../src/base/assert.ts";
import { createRandom, nextFloat, nextInteger } from "../../src/base/random.ts";
import { applyEntries } from "../../src/kv/machine.ts";
import type { NodeConfig } from "../../src/node-object/ports.ts";
import { createRuntime } from "../../src/node-object/runtime.ts";
import type { Core } from "../../src/node-object/runtime-state.ts";
import { PROTOCOL_MAX } from "../../src/node-object/versions.ts";
import { leaderOf, membershipOf } from "../../src/raft/state.ts";
import { step as realStep } from "../../src/raft/step.ts";
import type { NodeId } from "../../src/raft/types.ts";
import { setRate } from "./clock.ts";
import { createDisk, lastIndex } from "./disk.ts";
import { createQueue, peek, pop, push } from "./event-queue.ts";
import { createFaultCounts } from "./fault-kinds.ts";
import { holdOrRelease } from "./gate.ts";
import {
  type Call,
  type CallTurn,
  type Host,
  hostOf,
  type Instance,
  type SimEvent,
  type World,
  type WorldOptions,
} from "./host.ts";
import { createNetwork } from "./network.ts";
import { checkStarted, createSafety, nextApplied } from "./safety.ts";
import { createSleep, noticeSleep } from "./sleep.ts";
import { createTransfers, isReceiving } from "./snapshot-ports.ts";
import { dropSocket } from "./sockets.ts";
import { retryAlarm, scheduleAlarm, scheduleTimer, takeAlarm, takeTimer } from "./timers.ts";
import { createTrace, traceEvent } from "./trace.ts";
import { createPorts, endCommit, killInstance, runTurn, supersedeInstance } from "./turn.ts";
import { Violation } from "./violation.ts";

export function createWorld(options: WorldOptions): World {
  const world: World = {
    options,
    now: 0,
    steps: 0,
    queue: createQueue<SimEvent>(),
    random: createRandom(options.seed),
    hosts: Array.from({ length: options.size }, (_, position) => createHost(position + 1)),
    network: createNetwork(),
    timing: {
      syncMsMin: 0.3,
      syncMsMax: 1.5,
      slowSyncRate: 0,
      slowSyncMsMax: 0,
      clientDelayMsMin: 0.1,
      clientDelayMsMax: 1,
      replyLostRate: 0,
    },
    counts: createFaultCounts(() => world.hosts.some(isReceiving)),
    transfers: createTransfers(),
    taintedAt: Number.NEGATIVE_INFINITY,
    halts: 0,
    safety: createSafety(options.size, options.mutation?.apply?.(applyEntries)),
    sleep: createSleep(),
    trace: createTrace(options.traceLines),
    violation: null,
    nextSerial: 1,
    intercept: null,
    toOld: { old: 0.8, new: 0.2, read: 0.4, write: 0.04 },
    restUntil: 0,
    published: new Set(),
    alarmLateRate: 0,
    alarmRepeatRate: 0,
    instances: [],
  };
  return world;
}

function createHost(id: NodeId): Host {
  return {
    id,
    disk: createDisk(id * 1000),
    protocolMax: PROTOCOL_MAX,
    wallSkewMs: 0,
    wallJumps: 0,
    clockRate: 1,
    live: null,
    zombie: null,
    downUntil: 0,
    pausedUntil: 0,
    armed: null,
    alarmEventAt: Number.POSITIVE_INFINITY,
    sockets: new Set(),
  };
}

// --- the loop --------------------------------------------------------------------------------------------------------

/** Handles the next event of the queue; false when there is none. */
export function advance(world: World): boolean {
  const event = pop(world.queue);
  if (event === undefined) return false;
  if (event.at > world.now) world.now = event.at;
  const host = "host" in event ? event.host : "instance" in event ? event.instance.host : null;
  if (host !== null && host.pausedUntil > world.now) {
    const { at } = event;
    if (event.kind === "timer" && event.instance.timerEventAt === at) event.instance.timerEventAt = host.pausedUntil;
    if (event.kind === "alarm" && host.alarmEventAt === at) host.alarmEventAt = host.pausedUntil;
    event.at = host.pausedUntil;
    push(world.queue, event);
    return true;
  }
  dispatch(world, event);
  return true;
}

/** Runs until `world.now` reaches `until` (events of that instant included). */
export function runUntil(world: World, until: number): void {
  for (;;) {
    const next = peek(world.queue);
    if (next === undefined || next.at > until) break;
    advance(world);
  }
  if (until > world.now) world.now = until;
}

function dispatch(world: World, event: SimEvent): void {
  world.sleep.cause = event.kind;
  switch (event.kind) {
    case "deliver": {
      const { envelope, sender } = event;
      const instance = receiver(world, event.host, sender?.superseded === true ? world.toOld.old : world.toOld.new);
      if (instance === null) return;
      note(world, instance, "deliver", event);
      runTurn(world, instance, () => instance.runtime.onPeer(envelope));
      return;
    }
    case "timer": {
      const { instance } = event;
      if (!instance.running || !takeTimer(world, instance, event.at)) return;
      note(world, instance, "timer", event);
      runTurn(world, instance, () => instance.runtime.onTimer());
      return;
    }
    case "alarm": {
      const { host } = event;
      if (!event.repeat && !takeAlarm(world, host, event.at)) return;
      const instance = host.live ?? startInstance(world, host);
      if (instance !== null) {
        note(world, instance, "alarm", event);
        runTurn(world, instance, () => instance.runtime.onAlarm());
      }
      if (instance === null || !instance.running) retryAlarm(world, host);
      return;
    }
    case "commit":
      endCommit(world, event.instance, event.commit);
      return;
    case "synced": {
      const { instance, done } = event;
      if (!instance.running) return;
      note(world, instance, "synced", event);
      runTurn(world, instance, done);
      return;
    }
    case "call":
      handleCall(world, event.host, event.call);
      return;
    case "socket":
      handleRequest(world, event);
      return;
    case "start":
      if (event.host.live === null) startInstance(world, event.host);
      return;
    case "act":
      event.run();
      return;
    default:
      unreachable(event);
  }
}

function note(world: World, instance: Instance, what: string, event: SimEvent): void {
  const envelope = event.kind === "deliver" ? event.envelope : null;
  traceEvent(world.trace, world.now, instance.host.id, instance.serial, what, envelope, "");
}

function receiver(world: World, host: Host, toOld: number): Instance | null {
  if (host.zombie !== null && nextFloat(world.random) < toOld) return host.zombie;
  return host.live ?? startInstance(world, host);
}

function handleCall(world: World, host: Host, call: Call): void {
  const instance = receiver(world, host, call.reads ? world.toOld.read : world.toOld.write);
  if (instance === null) {
    call.lost("refused");
    return;
  }
  traceEvent(world.trace, world.now, host.id, instance.serial, "call", null, call.label);
  instance.calls.add(call);
  const answer = (arrive: () => void): void => {
    if (call.answered) {
      world.violation ??= new Violation("answered exactly once", `call ${call.label} was answered twice`);
      return;
    }
    call.answered = true;
    holdOrRelease(instance, { call, arrive });
  };
  const turn: CallTurn = {
    defer: (work) => instance.turn?.after.push(work),
    appliedIndex() {
      // Not by its status, which looks at the storage: an instance that has lost it must be able to answer.
      let applied = instance.nextDigest - 1;
      for (let next = nextApplied(instance, applied + 1); next !== null; next = nextApplied(instance, applied + 1)) {
        applied = next;
      }
      return applied;
    },
  };
  runTurn(world, instance, () => call.run(instance.runtime, answer, turn));
}

/** A request over a socket goes to the instance that holds it; an evicted node starts again and takes it over. */
function handleRequest(world: World, { host, socket, request }: Extract<SimEvent, { kind: "socket" }>): void {
  if (!request.opens && !socket.open) return; // it died under way; the client will notice
  const instance = request.opens
    ? receiver(world, host, world.toOld.read)
    : (socket.instance ?? host.live ?? startInstance(world, host));
  if (instance === null) {
    dropSocket(world, socket);
    return;
  }
  if (!request.opens && !socket.open) return; // the node did not live through its start
  if (request.opens) {
    socket.open = true;
    host.sockets.add(socket);
  }
  socket.instance = instance;
  if (request.watches && (instance.raft === null || leaderOf(instance.raft) === null)) world.sleep.cause = "call";
  traceEvent(world.trace, world.now, host.id, instance.serial, "socket", null, `${socket.id} ${request.label}`);
  runTurn(world, instance, () => request.run(instance.runtime));
}

// --- the life of nodes -----------------------------------------------------------------------------------------------

/** A new instance over the host's disk; null while the host is down or if it dies in its first turn. */
export function startInstance(world: World, host: Host): Instance | null {
  if (host.live !== null) return host.live;
  if (world.now < host.downUntil || world.now < host.pausedUntil) return null;
  const { options, random } = world;
  const { disk } = host;
  const clock = { anchorMs: nextInteger(random, 0, 1_000_000), anchorAt: world.now, rate: host.clockRate };
  const config = nodeConfig(world, host);
  const shell: Omit<Instance, "runtime"> = {
    serial: world.nextSerial,
    host,
    clock,
    raft: null,
    running: true,
    superseded: false,
    turn: null,
    inFlight: [],
    durableHardState: disk.hardState,
    durableLastIndex: lastIndex(disk),
    timerAtMs: Number.POSITIVE_INFINITY,
    timerEventAt: Number.POSITIVE_INFINITY,
    calls: new Set(),
    committedUnder: null,
    asleep: false,
    seenCommit: 0,
    seenTerm: 0,
    leaderTerm: 0,
    nextDigest: 0,
  };
  world.nextSerial += 1;
  const instance = shell as Instance;
  const { mutation } = options;
  const ports = createPorts(world, instance);
  const mutatedStep = mutation?.step?.(realStep, config) ?? realStep;
  const core: Core = {
    step(...[state, event, nowMs, wallClockMs]: Parameters<typeof realStep>) {
      instance.raft = state;
      const { commit } = state;
      const output = mutatedStep(state, event, nowMs, wallClockMs);
      if (state.commit > commit) instance.committedUnder = membershipOf(state);
      return output;
    },
    apply: world.safety.apply,
    hubLimits: options.hubLimits,
  };
  const real = createRuntime(config, mutation?.ports?.(ports, config) ?? ports, core);
  const runtime = mutation?.runtime?.(real, config) ?? real;
  Object.assign(instance, { runtime });
  world.instances.push(instance);
  host.live = instance;
  traceEvent(world.trace, world.now, host.id, instance.serial, "start", null, "");
  const { cause } = world.sleep;
  world.sleep.cause = "start";
  runTurn(world, instance, () => {
    runtime.start();
    checkStarted(world, instance);
  });
  world.sleep.cause = cause;
  noticeSleep(world);
  return instance.running ? instance : null;
}

function nodeConfig(world: World, host: Host): NodeConfig {
  const { options, random } = world;
  const config: NodeConfig = {
    id: host.id,
    members: world.hosts.map((member) => member.id),
    heartbeatMs: options.heartbeatMs,
    electionTimeoutMsMin: options.electionTimeoutMsMin,
    electionTimeoutMsMax: options.electionTimeoutMsMax,
    fence: options.fence,
    quiesceAfterMs: options.quiesceAfterMs,
    quotaBytes: options.quotaBytes,
    logKeepEntries: options.logKeepEntries,
    logKeepBytes: options.logKeepBytes,
    housekeepingMs: options.housekeepingMs,
    protocolMax: host.protocolMax,
    compaction: options.compaction,
    seed: nextInteger(random, 1, 0x7fffffff),
  };
  return options.mutation?.config?.(config) ?? config;
}

/** Kills whatever runs; a new instance starts at the end of the down time, or with the first event after it. */
export function crashHost(world: World, host: Host, downMs: number): void {
  if (host.zombie !== null) killInstance(world, host.zombie);
  if (host.live !== null) killInstance(world, host.live);
  for (const socket of [...host.sockets]) dropSocket(world, socket);
  host.downUntil = Math.max(host.downUntil, world.now + downMs);
  if (Number.isFinite(downMs)) push(world.queue, { at: host.downUntil, seq: 0, kind: "start", host });
}

/** Memory lost, nothing else: only when nothing is under way. The next event starts a new instance. */
export function evictHost(world: World, host: Host): boolean {
  const { live } = host;
  if (live === null || live.inFlight.length > 0 || live.calls.size > 0) return false;
  killInstance(world, live, true);
  return true;
}

export function wipeHost(world: World, host: Host, downMs: number): void {
  crashHost(world, host, downMs);
  if (isReceiving(host)) world.transfers.abandoned += 1;
  host.disk = createDisk(host.disk.serial + 1);
  host.alarmEventAt = Number.POSITIVE_INFINITY;
}

/** A second instance takes over the disk; the first lives on. False if there is nothing to supersede. */
export function supersedeHost(world: World, host: Host): boolean {
  const { live } = host;
  if (live === null) return false;
  if (host.zombie !== null) killInstance(world, host.zombie);
  supersedeInstance(world, live);
  startInstance(world, host);
  return true;
}

export function pauseHost(world: World, host: Host, pauseMs: number): void {
  host.pausedUntil = Math.max(host.pausedUntil, world.now + pauseMs);
}

export function jumpWallClock(world: World, host: Host, byMs: number): void {
  host.wallSkewMs += byMs;
  host.wallJumps += 1;
  host.alarmEventAt = Number.POSITIVE_INFINITY;
  scheduleAlarm(world, host);
}

export function setClockRate(world: World, host: Host, rate: number): void {
  host.clockRate = rate;
  for (const instance of [host.live, host.zombie]) {
    if (instance === null) continue;
    setRate(instance.clock, world.now, rate);
    instance.timerEventAt = Number.POSITIVE_INFINITY;
    scheduleTimer(world, instance);
  }
}

/** Sends a client's call on its way to a node. */
export function sendCall(world: World, node: NodeId, call: Call, delayMs: number): void {
  push(world.queue, { at: world.now + delayMs, seq: 0, kind: "call", host: hostOf(world, node), call });
}

export function scheduleAct(world: World, at: number, label: string, run: () => void): void {
  push(world.queue, { at, seq: 0, kind: "act", label, run });
}
