/**
 * Turns: one call into a runtime with the semantics of the platform (ports P1–P3).
 *
 * T1. What is sent before the first write leaves at the end of the turn; what is sent after it, or while an earlier turn
 *     is not durable yet, leaves with that commit. Answers to clients are held alike (the output gate).
 * T2. Commits of one instance complete in order; a crash keeps a prefix of those under way and undoes the rest.
 * T3. `abort` in a turn undoes the turn and cancels what it sent. A statement that throws and is not followed by
 *     `abort` leaves earlier statements done and sends on their way, as the real platform does.
 * T4. A superseded instance fails at every touch of its storage; what it sends before that still leaves.
 */
import { nextFloat, nextInteger } from "../../src/base/random.ts";
import type { PeerEnvelope, Ports, WriteBatch } from "../../src/node-object/ports.ts";
import { indexWithin } from "../../src/testing/memory-disk.ts";
import { monotonicMs, wallMs } from "./clock.ts";
import {
  countStatements,
  lastIndex,
  loadDisk,
  readLog,
  scanDisk,
  takeJournal,
  undo,
  writeAlarm,
  writeDisk,
} from "./disk.ts";
import { push } from "./event-queue.ts";
import { holdOrRelease } from "./gate.ts";
import type { Commit, Host, Instance, Release, Turn, World } from "./host.ts";
import { checkIdentity, checkTransmit, checkTurn } from "./safety.ts";
import { checkSilence, noticeSleep, observeSleep } from "./sleep.ts";
import { createWatchers, deliverMessage, releaseSockets } from "./sockets.ts";
import { scheduleAlarm, scheduleTimer } from "./timers.ts";
import { traceEvent } from "./trace.ts";
import { transmit } from "./transmit.ts";
import { Violation } from "./violation.ts";

/** The process died between two statements: nothing may catch this and go on, whatever it tries. */
class CrashSignal extends Error {
  override readonly name = "CrashSignal";
}

/** What a real disk or platform throws. */
class StorageFault extends Error {
  override readonly name = "StorageFault";
}

/** Runs one turn of `instance`, then releases, commits or kills as its outcome demands, and lets the checkers look. */
export function runTurn(world: World, instance: Instance, body: () => void): void {
  const turn: Turn = {
    wrote: false,
    died: null,
    deathReason: "",
    immediate: [],
    behindEarlier: [],
    behindOwn: [],
    syncsEarlier: [],
    syncsOwn: [],
    after: [],
  };
  instance.turn = turn;
  world.steps += 1;
  try {
    body();
    for (const work of turn.after) if (turn.died === null) runAfter(turn, work);
  } catch (error) {
    // A crash has marked the turn already; a fault of the disk that was not turned into an abort is a bug.
    if (turn.died === null && !instance.superseded) {
      const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
      world.violation ??= new Violation("no uncaught exception", `node ${instance.host.id}: ${text}`);
    }
  }
  instance.turn = null;
  if (world.violation !== null) throw world.violation;
  endTurn(world, instance, turn);
}

/** What runs beside the runtime in its turn ends the instance when the storage fails it, as the runtime itself would. */
function runAfter(turn: Turn, work: () => void): void {
  try {
    work();
  } catch (error) {
    if (!(error instanceof StorageFault)) throw error;
    turn.died = "abort";
    turn.deathReason = String(error);
  }
}

function endTurn(world: World, instance: Instance, turn: Turn): void {
  const { host } = instance;
  if (turn.died !== null) {
    if (!instance.superseded) undo(takeJournal(host.disk));
    traceEvent(world.trace, world.now, host.id, instance.serial, turn.died, null, turn.deathReason);
    killInstance(world, instance);
    host.downUntil = Math.max(host.downUntil, world.now + nextFloat(world.random) * 20);
    return;
  }
  const earlier = instance.inFlight[instance.inFlight.length - 1];
  if (earlier !== undefined) {
    earlier.held.push(...turn.behindEarlier);
    earlier.syncs.push(...turn.syncsEarlier);
  } else
    for (const done of turn.syncsEarlier) push(world.queue, { at: world.now, seq: 0, kind: "synced", instance, done });
  if (turn.wrote) beginCommit(world, instance, turn);
  // Immediate sends exist only while nothing was in flight, so what they claim was durable before the turn.
  for (const release of turn.immediate) letOut(world, instance, release);
  checkTurn(world, instance);
  observeSleep(world, instance);
}

function beginCommit(world: World, instance: Instance, turn: Turn): void {
  const { host, inFlight } = instance;
  const { disk } = host;
  const { timing, random } = world;
  const previous = inFlight[inFlight.length - 1]?.doneAt ?? 0;
  let syncMs = timing.syncMsMin + nextFloat(random) * (timing.syncMsMax - timing.syncMsMin);
  if (timing.slowSyncRate > 0 && nextFloat(random) < timing.slowSyncRate)
    syncMs += nextFloat(random) * timing.slowSyncMsMax;
  const fails = host.armed === "commit_failure";
  if (fails) {
    host.armed = null;
    world.counts.add("commit_failure");
  }
  const commit: Commit = {
    journal: takeJournal(disk),
    held: turn.behindOwn,
    syncs: turn.syncsOwn,
    identity: disk.identity,
    hardState: disk.hardState,
    lastIndex: lastIndex(disk),
    doneAt: Math.max(previous, world.now + syncMs),
    fails,
  };
  inFlight.push(commit);
  push(world.queue, { at: commit.doneAt, seq: 0, kind: "commit", instance, commit });
}

/** The oldest commit of the instance is through, or has failed: then everything behind it is gone as well. */
export function endCommit(world: World, instance: Instance, commit: Commit): void {
  if (!instance.running || instance.superseded || instance.inFlight[0] !== commit) return;
  const { host } = instance;
  if (commit.fails) {
    undoInFlight(instance, 0);
    traceEvent(world.trace, world.now, host.id, instance.serial, "commit failed", null, "");
    killInstance(world, instance);
    return;
  }
  instance.inFlight.shift();
  completeCommit(world, instance, commit);
  scheduleAlarm(world, host);
}

function completeCommit(world: World, instance: Instance, commit: Commit): void {
  instance.durableHardState = commit.hardState;
  instance.durableLastIndex = commit.lastIndex;
  checkIdentity(world, instance.host, commit.identity);
  for (const release of commit.held) letOut(world, instance, release);
  for (const done of commit.syncs) push(world.queue, { at: world.now, seq: 0, kind: "synced", instance, done });
}

function undoInFlight(instance: Instance, kept: number): void {
  const { inFlight } = instance;
  for (let position = inFlight.length - 1; position >= kept; position -= 1) undo(inFlight[position]!.journal);
  inFlight.length = 0;
}

/** Memory is lost; of the turns under way a prefix has reached the disk (T2), but nothing that waited for it leaves. */
export function killInstance(world: World, instance: Instance, evicted = false): void {
  const { host } = instance;
  if (!instance.superseded) undoInFlight(instance, nextInteger(world.random, 0, instance.inFlight.length));
  instance.running = false;
  if (host.live === instance) host.live = null;
  if (host.zombie === instance) host.zombie = null;
  for (const call of instance.calls) call.lost("broken");
  instance.calls.clear();
  releaseSockets(world, instance, evicted);
  noticeSleep(world);
  scheduleAlarm(world, host);
}

/** The disk passes to a newer instance; this one goes on without knowing. What it had under way is settled now. */
export function supersedeInstance(world: World, instance: Instance): void {
  const { host, inFlight } = instance;
  const kept = nextInteger(world.random, 0, inFlight.length);
  const lost = inFlight.length > kept;
  for (let position = inFlight.length - 1; position >= kept; position -= 1) undo(inFlight[position]!.journal);
  const durable = inFlight.splice(0);
  for (let position = 0; position < kept; position += 1) completeCommit(world, instance, durable[position]!);
  // The gate of a commit that never completes stays shut: what is sent behind it never leaves.
  const last = durable[durable.length - 1];
  if (lost && last !== undefined)
    inFlight.push({ ...last, journal: [], held: [], syncs: [], doneAt: Number.POSITIVE_INFINITY });
  instance.superseded = true;
  host.zombie = instance;
  host.live = null;
  scheduleAlarm(world, host);
}

function letOut(world: World, instance: Instance, release: Release): void {
  if ("call" in release) {
    const { call, arrive } = release;
    instance.calls.delete(call);
    const { timing, random } = world;
    traceEvent(world.trace, world.now, instance.host.id, instance.serial, "answer", null, call.label);
    if (timing.replyLostRate > 0 && nextFloat(random) < timing.replyLostRate) {
      world.counts.add("reply_lost");
      return;
    }
    const delay = timing.clientDelayMsMin + nextFloat(random) * (timing.clientDelayMsMax - timing.clientDelayMsMin);
    push(world.queue, { at: world.now + delay, seq: 0, kind: "act", label: call.label, run: arrive });
    return;
  }
  if ("socket" in release) {
    deliverMessage(world, release.socket, release.message);
    return;
  }
  checkTransmit(world, instance, release);
  transmit(world, instance, release);
}

export function createPorts(world: World, instance: Instance): Ports {
  const { host } = instance;
  const touch = (): void => {
    if (instance.superseded) throw new StorageFault("this instance has been superseded");
    if (!instance.running || instance.turn?.died === "crash") throw new CrashSignal("the process is dead");
  };
  const beforeRead = (): void => {
    touch();
    if (host.armed !== "disk_error_on_read") return;
    host.armed = null;
    world.counts.add("disk_error");
    throw new StorageFault("disk error on a read");
  };
  const change = <T>(work: () => T, dead: T): T => {
    touch();
    return (
      writing(world, instance, 1, (onStatement) => {
        onStatement();
        return work();
      }) ?? dead
    );
  };
  return {
    storage: {
      load() {
        touch();
        return loadDisk(host.disk);
      },
      write(batch) {
        touch();
        write(world, instance, batch);
      },
      readLog(from, to, bytesMax) {
        beforeRead();
        return readLog(host.disk, from, to, bytesMax);
      },
      logIndexWithin(bytesMax) {
        beforeRead();
        return indexWithin(host.disk.log, bytesMax, lastIndex(host.disk) + 1);
      },
      get(key) {
        beforeRead();
        return host.disk.rows.get(key);
      },
      scan(range) {
        beforeRead();
        return scanDisk(host.disk, range);
      },
      snapshot: {
        begin(position) {
          beforeRead();
          return host.disk.snapshots.snapshot.begin(position);
        },
        read(after, bytesMax) {
          beforeRead();
          return host.disk.snapshots.snapshot.read(after, bytesMax);
        },
        end() {
          touch();
          host.disk.snapshots.snapshot.end();
        },
      },
      staging: {
        begin: (manifest) => change(() => host.disk.snapshots.staging.begin(manifest), false),
        add: (chunk) => change(() => host.disk.snapshots.staging.add(chunk), "stale"),
        state() {
          touch();
          return host.disk.snapshots.staging.state();
        },
        discard: () => change(() => host.disk.snapshots.staging.discard(), undefined),
      },
      spool: {
        begin: () => change(() => host.disk.snapshots.spool.begin(), false),
        write: (changes) => change(() => host.disk.snapshots.spool.write(changes), undefined),
        get(key) {
          beforeRead();
          return host.disk.snapshots.spool.get(key);
        },
        scan(range) {
          beforeRead();
          return host.disk.snapshots.spool.scan(range);
        },
        end() {
          touch();
          host.disk.snapshots.spool.end();
        },
      },
      scrub: {
        step(rowsMax) {
          beforeRead();
          return host.disk.snapshots.scrub.step(rowsMax);
        },
      },
      get stateHash() {
        touch();
        return host.disk.snapshots.stateHash;
      },
      cleanUp: () => change(() => host.disk.snapshots.cleanUp(), false),
      get bytes() {
        touch();
        return host.disk.log.length + host.disk.rows.size;
      },
      afterSync(done) {
        touch();
        const { turn } = instance;
        if (turn === null) throw new Violation("no uncaught exception", "afterSync outside a turn");
        if (turn.wrote) turn.syncsOwn.push(done);
        else turn.syncsEarlier.push(done);
      },
    },
    transport: {
      send(envelope: PeerEnvelope) {
        checkSilence(world, instance, envelope);
        holdOrRelease(instance, world.options.freeze ? deepFreeze(envelope) : envelope);
      },
      setResting() {},
    },
    watchers: createWatchers(world, instance),
    clock: {
      nowMs: () => monotonicMs(instance.clock, world.now),
      wallMs: () => wallMs(host.wallSkewMs, world.now),
    },
    wake: {
      setTimer(atMs) {
        instance.timerAtMs = atMs;
        scheduleTimer(world, instance);
      },
      setAlarm(atWallMs) {
        const { turn } = instance;
        if (turn === null || turn.died !== null) return;
        if (instance.superseded) {
          turn.died = "abort";
          turn.deathReason = "alarm set by a superseded instance";
          return;
        }
        turn.wrote = true;
        writeAlarm(host.disk, atWallMs);
      },
    },
    abort(reason) {
      const { turn } = instance;
      if (turn === null || turn.died !== null) return;
      turn.died = "abort";
      turn.deathReason = reason;
    },
    log() {},
  };
}

function write(world: World, instance: Instance, batch: WriteBatch): void {
  writing(world, instance, countStatements(batch), (onStatement) => writeDisk(instance.host.disk, batch, onStatement));
}

/** Undefined: the turn is dead already, and nothing is written any more. */
function writing<T>(
  world: World,
  instance: Instance,
  statements: number,
  work: (onStatement: () => void) => T,
): T | undefined {
  const { host, turn } = instance;
  if (turn === null) throw new Violation("no uncaught exception", "a write outside a turn");
  if (turn.died !== null) return undefined;
  turn.wrote = true;
  try {
    return work(strike(world, host, turn, statements));
  } catch (error) {
    if (error instanceof Violation) world.violation ??= error;
    throw error;
  }
}

/** What runs before each statement: nothing, or the armed fault at a statement chosen by the seed. */
function strike(world: World, host: Host, turn: Turn, statements: number): () => void {
  const { armed } = host;
  if (armed === null || armed === "commit_failure" || armed === "disk_error_on_read" || statements === 0)
    return nothing;
  host.armed = null;
  world.counts.add(armed);
  let left = nextInteger(world.random, 1, statements);
  return () => {
    left -= 1;
    if (left > 0) return;
    left = Number.POSITIVE_INFINITY;
    if (armed === "disk_error") throw new StorageFault("disk error");
    turn.died = "crash";
    turn.deathReason = "crash between statements";
    throw new CrashSignal("crash between statements");
  };
}

function nothing(): void {}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const member of Object.values(value)) deepFreeze(member);
  }
  return value;
}
