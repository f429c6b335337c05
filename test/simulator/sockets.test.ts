/** Simulated connections are as the platform's: they outlive an eviction, die with a crash, and wait behind the gate. */

import { beforeEach, describe, expect, test } from "vitest";
import type { NodeSummary } from "../../src/api/backend.ts";
import { endOf } from "../../src/kv/position.ts";
import type { NodeReport } from "../../src/node-object/cluster-status.ts";
import type { Ports } from "../../src/node-object/ports.ts";
import type { Runtime } from "../../src/node-object/runtime.ts";
import type { Frame } from "../../src/watch/frames.ts";
import { CALM } from "./calm-options.ts";
import { hostOf, type World } from "./host.ts";
import { createSocket, leave, type Socket, type SocketMessage, sendRequest, subscribeOver } from "./sockets.ts";
import { runTurn } from "./turn.ts";
import { crashHost, createWorld, evictHost, runUntil, startInstance, supersedeHost } from "./world.ts";

const SYNC_MS = 10;
const OPTIONS = { selector: { key: "k" }, includeValues: true, prevValues: false, filter: null } as const;

let world: World;
let ports: Ports[];
let closed: string[];
let heard: SocketMessage[];
let lost: number;
let socket: Socket;

/** A runtime that accepts every watch, and tells nobody anything. */
function idleRuntime(): Runtime {
  return {
    start() {},
    onTimer() {},
    onAlarm() {},
    onPeer() {},
    execute() {},
    barrier() {},
    waitRevision() {},
    watches: {
      subscribe: () => ({ ok: true, position: endOf(7) }),
      cancel: () => true,
      acknowledge() {},
      requestProgress: () => false,
      closeConnection: (connection) => closed.push(connection),
    },
    publishTopic() {},
    query: () => ({ ok: true, revision: 0, result: { kind: "revision" } }),
    position: () => ({
      clusterId: null,
      node: 1,
      leader: null,
      revision: 0,
      ready: false,
      restoring: false,
      halted: null,
    }),
    status: () => ({ applied_index: 0, halted: null }) as NodeSummary,
    report: () => ({}) as NodeReport,
    administer: () => {},
    digestAt: () => null,
    changeMember: () => null,
    transferLeader: () => null,
    backup: {} as Runtime["backup"],
    spool: {} as Runtime["spool"],
  };
}

beforeEach(() => {
  ports = [];
  closed = [];
  heard = [];
  lost = 0;
  world = createWorld({
    ...CALM,
    size: 1,
    mutation: {
      ports: (real) => {
        ports.push(real);
        return real;
      },
      runtime: idleRuntime,
    },
  });
  world.timing.syncMsMin = SYNC_MS;
  world.timing.syncMsMax = SYNC_MS;
  const host = hostOf(world, 1);
  startInstance(world, host);
  socket = createSocket(host, "c", {
    receive: (_, message) => heard.push(message),
    lost: () => {
      lost += 1;
    },
  });
  sendRequest(world, socket, {
    label: "open",
    opens: true,
    watches: true,
    run(runtime) {
      subscribeOver(socket, { connection: "c", watchId: 3, ...OPTIONS, fromRevision: null }, runtime.watches.subscribe);
    },
  });
  runUntil(world, 5);
});

function ready(revision: number): Frame {
  return { kind: "ready", connection: "c", watchId: 3, revision, position: endOf(revision) };
}

function send(which: number, revision: number, write = false): void {
  const { live, zombie } = hostOf(world, 1);
  const instance = which === 0 && zombie !== null ? zombie : live!;
  runTurn(world, instance, () => {
    if (write) ports[which]!.storage.write({ fence: revision });
    ports[which]!.watchers.send([ready(revision)], () => [{ watchId: 3, position: endOf(revision), ready: true }]);
  });
}

const SAVED = { watchId: 3, position: endOf(9), ready: true };

describe("a watch", () => {
  test("is answered, and what the node sends arrives in order behind the answer", () => {
    expect(heard).toEqual([{ kind: "subscribed", watchId: 3, result: { ok: true, position: endOf(7) } }]);
    send(0, 8);
    send(0, 9);
    runUntil(world, 10);
    expect(heard.slice(1)).toEqual([
      { kind: "frame", frame: ready(8) },
      { kind: "frame", frame: ready(9) },
    ]);
  });

  test("is told nothing before what it stands on is durable", () => {
    send(0, 8, true);
    runUntil(world, 5 + SYNC_MS - 1);
    expect(heard).toHaveLength(1);
    runUntil(world, 5 + SYNC_MS + 2);
    expect(heard).toHaveLength(2);
  });

  test("outlives the eviction of its node with the position that was saved last, and goes on with the next instance", () => {
    send(0, 9);
    const host = hostOf(world, 1);
    expect(evictHost(world, host)).toBe(true);
    runUntil(world, 20);
    expect(lost).toBe(0);
    startInstance(world, host);
    expect(ports[1]!.watchers.restore()).toEqual([
      { options: { connection: "c", watchId: 3, ...OPTIONS }, saved: SAVED },
    ]);
    expect(ports[1]!.watchers.restore()).toEqual([]); // once
    send(1, 10);
    runUntil(world, 30);
    expect(heard[heard.length - 1]).toEqual({ kind: "frame", frame: ready(10) });
  });

  test("wakes an evicted node by what its client sends", () => {
    const host = hostOf(world, 1);
    evictHost(world, host);
    sendRequest(world, socket, { label: "ack", opens: false, watches: false, run() {} });
    runUntil(world, 20);
    expect(ports).toHaveLength(2);
    expect(host.live).not.toBeNull();
  });

  test.each([false, true])("dies with a crash, also of a node that was evicted before (%s)", (evicted) => {
    send(0, 9);
    const host = hostOf(world, 1);
    if (evicted) evictHost(world, host);
    crashHost(world, host, 0);
    startInstance(world, host);
    expect(ports[1]!.watchers.restore()).toEqual([]);
    runUntil(world, 1000);
    expect(lost).toBe(1);
  });

  test("dies with an abort, and what that turn sent is lost", () => {
    runTurn(world, hostOf(world, 1).live!, () => {
      ports[0]!.watchers.send([ready(8)], () => [SAVED]);
      ports[0]!.abort("why");
    });
    runUntil(world, 1000);
    expect(heard).toHaveLength(1);
    expect(lost).toBe(1);
  });

  test("stays with an instance that was superseded, until that ends", () => {
    const host = hostOf(world, 1);
    supersedeHost(world, host);
    expect(ports[1]!.watchers.restore()).toEqual([]);
    send(0, 8);
    runUntil(world, 20);
    expect(heard).toHaveLength(2);
    crashHost(world, host, 0);
    runUntil(world, 1000);
    expect(lost).toBe(1);
  });

  test("that is not among the positions saved has ended", () => {
    const host = hostOf(world, 1);
    runTurn(world, host.live!, () => ports[0]!.watchers.send([ready(8)], () => []));
    evictHost(world, host);
    startInstance(world, host);
    expect(ports[1]!.watchers.restore()).toEqual([]);
  });
});

describe("a client that goes", () => {
  test("tells its node, or does not", () => {
    leave(world, socket, true);
    send(0, 8);
    runUntil(world, 20);
    expect(closed).toEqual(["c"]);
    expect(heard).toHaveLength(1);
  });

  test("without a word is sent to as before, and hears nothing", () => {
    leave(world, socket, false);
    send(0, 8);
    runUntil(world, 20);
    expect(closed).toEqual([]);
    expect(heard).toHaveLength(1);
    expect(hostOf(world, 1).sockets.size).toBe(1);
  });
});
