/**
 * The simulated platform keeps the promises of the ports (P1–P3), and breaks what the real one breaks. The runtime is
 * replaced by one that does nothing; the turns are written here.
 */

import { beforeEach, describe, expect, test } from "vitest";
import type { NodeSummary } from "../../src/api/backend.ts";
import type { NodeReport } from "../../src/node-object/cluster-status.ts";
import type { PeerEnvelope, Ports } from "../../src/node-object/ports.ts";
import type { Runtime } from "../../src/node-object/runtime.ts";
import type { Entry } from "../../src/raft/types.ts";
import { CALM } from "./calm-options.ts";
import { type Call, hostOf, type Instance, type World } from "./host.ts";
import { runTurn } from "./turn.ts";
import {
  advance,
  crashHost,
  createWorld,
  runUntil,
  sendCall,
  setClockRate,
  startInstance,
  supersedeHost,
} from "./world.ts";

const SYNC_MS = 10;

let world: World;
/** Ports of each instance in order of start. */
let ports: Ports[];
let sent: string[];
let instance: Instance;

const idleRuntime: Runtime = {
  start() {},
  onTimer() {},
  onAlarm() {},
  onPeer() {},
  execute() {},
  barrier() {},
  waitRevision() {},
  watches: {
    subscribe: () => ({ ok: true, position: { revision: 0, opIndex: 0 } }),
    cancel: () => true,
    acknowledge() {},
    requestProgress: () => false,
    closeConnection() {},
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

function envelope(label: string): PeerEnvelope {
  const outcome = { kind: "outcome", outcome: label } as const;
  const body = { kind: "forward_reply", replies: [{ id: 1, outcome }] } as const;
  return { protocol: 2, speaks: 2, clusterId: null, from: 1, fromIncarnation: 1, to: 2, toIncarnation: null, body };
}

function entry(index: number): Entry {
  return { index, term: 1, timeMs: 0, kind: "command", payload: "", payloadBytes: 0 };
}

beforeEach(() => {
  ports = [];
  sent = [];
  world = createWorld({
    ...CALM,
    size: 3,
    mutation: {
      ports: (real) => {
        ports.push(real);
        return real;
      },
      runtime: () => idleRuntime,
    },
  });
  world.timing.syncMsMin = SYNC_MS;
  world.timing.syncMsMax = SYNC_MS;
  world.intercept = ({ body }) => {
    if (body.kind !== "forward_reply") return true;
    for (const { outcome } of body.replies) if (outcome.kind === "outcome") sent.push(outcome.outcome);
    return true;
  };
  instance = startInstance(world, hostOf(world, 1))!;
});

function turn(body: (ports: Ports) => void): void {
  runTurn(world, instance, () => body(ports[0]!));
}

describe("the output gate", () => {
  test("lets out at once what is sent before the first write, and the rest once that is durable", () => {
    turn(({ transport, storage }) => {
      transport.send(envelope("early"));
      storage.write({ fence: 1 });
      transport.send(envelope("late"));
      expect(sent).toEqual([]);
    });
    expect(sent).toEqual(["early"]);
    runUntil(world, SYNC_MS - 1);
    expect(sent).toEqual(["early"]);
    runUntil(world, SYNC_MS);
    expect(sent).toEqual(["early", "late"]);
  });

  test("holds what a later turn sends while an earlier one is not durable", () => {
    turn(({ storage }) => storage.write({ fence: 1 }));
    runUntil(world, 5);
    turn(({ transport, storage }) => {
      transport.send(envelope("behind the first"));
      storage.write({ fence: 2 });
      transport.send(envelope("behind the second"));
    });
    expect(sent).toEqual([]);
    runUntil(world, SYNC_MS);
    expect(sent).toEqual(["behind the first"]);
    runUntil(world, 5 + SYNC_MS);
    expect(sent).toEqual(["behind the first", "behind the second"]);
  });

  test("counts an alarm as a write", () => {
    turn(({ transport, wake }) => {
      wake.setAlarm(2_000_000_000_000);
      transport.send(envelope("late"));
    });
    expect(sent).toEqual([]);
    runUntil(world, SYNC_MS);
    expect(sent).toEqual(["late"]);
  });

  test("holds a client's answer like a message", () => {
    const arrived: string[] = [];
    const call: Call = {
      label: "call",
      reads: false,
      answered: false,
      run(_runtime, answer) {
        ports[0]!.storage.write({ fence: 1 });
        answer(() => arrived.push("answer"));
      },
      lost: (kind) => arrived.push(kind),
    };
    sendCall(world, 1, call, 0);
    runUntil(world, SYNC_MS - 1);
    expect(arrived).toEqual([]);
    runUntil(world, SYNC_MS + 2);
    expect(arrived).toEqual(["answer"]);
  });
});

describe("a turn", () => {
  test("that aborts leaves nothing: no writes, no sends, no instance", () => {
    turn(({ transport, storage, abort }) => {
      transport.send(envelope("early"));
      storage.write({ append: [entry(1)] });
      abort("why");
    });
    runUntil(world, 100);
    expect(sent).toEqual([]);
    expect(hostOf(world, 1).disk.log).toEqual([]);
    expect(instance.running).toBe(false);
  });

  test("that a crash ends between two statements leaves nothing", () => {
    hostOf(world, 1).armed = "crash_between_statements";
    turn(({ transport, storage }) => {
      transport.send(envelope("early"));
      storage.write({ append: [entry(1), entry(2)], fence: 1 });
    });
    runUntil(world, 100);
    expect(sent).toEqual([]);
    expect(hostOf(world, 1).disk.log).toEqual([]);
    expect(instance.running).toBe(false);
  });

  test("that goes on after a disk error keeps its earlier statements and sends what it sends", () => {
    const kept = new Set<number>();
    for (let attempt = 0; attempt < 30; attempt += 1) {
      const { disk } = hostOf(world, 1);
      hostOf(world, 1).armed = "disk_error";
      turn(({ transport, storage }) => {
        expect(() => storage.write({ append: [entry(1), entry(2), entry(3)] })).toThrow("disk error");
        transport.send(envelope("swallowed"));
      });
      runUntil(world, world.now + 100);
      expect(sent.pop()).toBe("swallowed");
      kept.add(disk.log.length);
      disk.log.length = 0;
    }
    expect([...kept].sort()).toEqual([0, 1, 2]);
    expect(instance.running).toBe(true);
  });

  test("whose exception nobody catches is a broken rule", () => {
    expect(() =>
      turn(() => {
        throw new Error("a bug");
      }),
    ).toThrow("no uncaught exception");
  });
});

describe("a commit", () => {
  test("that fails undoes its turn and all behind it, but not what was sent before it", () => {
    turn(({ storage }) => storage.write({ append: [entry(1)] }));
    runUntil(world, SYNC_MS);
    hostOf(world, 1).armed = "commit_failure";
    turn(({ transport, storage }) => {
      transport.send(envelope("early"));
      storage.write({ append: [entry(2)] });
      transport.send(envelope("late"));
    });
    turn(({ storage }) => storage.write({ append: [entry(3)] }));
    runUntil(world, 100);
    expect(sent).toEqual(["early"]);
    expect(hostOf(world, 1).disk.log).toEqual([entry(1)]);
    expect(instance.running).toBe(false);
  });

  test("tells those who wait for it in a later turn, after every write so far", () => {
    const told: string[] = [];
    turn(({ storage }) => {
      storage.afterSync(() => told.push(`nothing to wait for, ${world.now}`));
    });
    expect(told).toEqual([]);
    runUntil(world, 1);
    turn(({ storage }) => {
      storage.write({ fence: 1 });
      storage.afterSync(() => told.push(`own write, ${world.now}`));
    });
    turn(({ storage }) => {
      storage.afterSync(() => told.push(`earlier write, ${world.now}`));
    });
    runUntil(world, 100);
    expect(told).toEqual(["nothing to wait for, 0", `own write, ${1 + SYNC_MS}`, `earlier write, ${1 + SYNC_MS}`]);
  });

  test("tells nobody when the node dies before it", () => {
    const told: string[] = [];
    turn(({ storage, transport }) => {
      storage.write({ append: [entry(1)] });
      transport.send(envelope("late"));
      storage.afterSync(() => told.push("durable"));
    });
    crashHost(world, hostOf(world, 1), 5);
    runUntil(world, 100);
    expect(told).toEqual([]);
    expect(sent).toEqual([]);
    expect(world.instances).toHaveLength(2);
  });

  test("of a crashed node may have reached the disk or not, and those before it first", () => {
    const lengths = new Set<number>();
    for (let attempt = 0; attempt < 60; attempt += 1) {
      const host = hostOf(world, 2);
      const live = startInstance(world, host)!;
      const own = ports[ports.length - 1]!;
      for (const index of [1, 2, 3]) runTurn(world, live, () => own.storage.write({ append: [entry(index)] }));
      crashHost(world, host, 0);
      expect(host.disk.log.map(({ index }) => index)).toEqual([1, 2, 3].slice(0, host.disk.log.length));
      lengths.add(host.disk.log.length);
      host.disk.log.length = 0;
    }
    expect([...lengths].sort()).toEqual([0, 1, 2, 3]);
  });
});

describe("a superseded instance", () => {
  test("lives on in memory, sends, and fails at the first touch of its storage", () => {
    supersedeHost(world, hostOf(world, 1));
    const [older, newer] = ports;
    runTurn(world, instance, () => older!.transport.send(envelope("from the older")));
    expect(sent).toEqual(["from the older"]);
    for (const touch of [
      () => older!.storage.write({ fence: 1 }),
      () => older!.storage.get("a"),
      () => older!.storage.load(),
      () => older!.storage.afterSync(() => {}),
    ]) {
      runTurn(world, instance, () => expect(touch).toThrow("superseded"));
    }
    const { live } = hostOf(world, 1);
    runTurn(world, live!, () => newer!.storage.write({ append: [entry(1)] }));
    expect(hostOf(world, 1).disk.log).toHaveLength(1);
  });

  test("never lets out what waits behind a write that did not reach the disk", () => {
    for (let attempt = 0; attempt < 20; attempt += 1) {
      sent = [];
      const host = hostOf(world, 2);
      const live = startInstance(world, host)!;
      const own = ports[ports.length - 1]!;
      const before = host.disk.log.length;
      runTurn(world, live, () => {
        own.storage.write({ append: [entry(before + 1)] });
        own.transport.send(envelope("acknowledged"));
      });
      supersedeHost(world, host);
      runUntil(world, world.now + 100);
      expect(sent.length).toBe(host.disk.log.length - before);
      crashHost(world, host, 0);
      runUntil(world, world.now + 1);
    }
  });

  test("ends when it sets the alarm", () => {
    supersedeHost(world, hostOf(world, 1));
    runTurn(world, instance, () => ports[0]!.wake.setAlarm(2_000_000_000_000));
    expect(instance.running).toBe(false);
  });
});

describe("time", () => {
  test("of a timer is the node's own clock, fast or slow", () => {
    const fired: number[] = [];
    Object.assign(instance, { runtime: { ...idleRuntime, onTimer: () => fired.push(world.now) } });
    setClockRate(world, hostOf(world, 1), 2);
    turn(({ clock, wake }) => wake.setTimer(clock.nowMs() + 100));
    runUntil(world, 200);
    expect(fired).toHaveLength(1);
    expect(fired[0]).toBeCloseTo(50, 0);
  });

  test("of a timer that is moved counts once, at the last wish", () => {
    const fired: number[] = [];
    Object.assign(instance, { runtime: { ...idleRuntime, onTimer: () => fired.push(world.now) } });
    turn(({ clock, wake }) => {
      wake.setTimer(clock.nowMs() + 10);
      wake.setTimer(clock.nowMs() + 30);
    });
    runUntil(world, 200);
    expect(fired).toHaveLength(1);
    expect(fired[0]).toBeCloseTo(30, 0);
  });

  test("of an alarm outlives the instance", () => {
    turn(({ clock, wake }) => wake.setAlarm(clock.wallMs() + 50));
    runUntil(world, 20);
    crashHost(world, hostOf(world, 1), Number.POSITIVE_INFINITY);
    hostOf(world, 1).downUntil = 30;
    runUntil(world, 60);
    expect(world.instances).toHaveLength(2);
    expect(hostOf(world, 1).disk.alarmAtWallMs).toBeNull();
    expect(advance(world)).toBe(false);
  });
});
