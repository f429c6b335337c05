/** Goal: watches come, go, survive an eviction and a snapshot, and are refused clearly (S41, S45, S48, S50). */
import { describe, expect, test } from "vitest";
import { openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { endOf } from "../../src/kv/position.ts";
import { createHistoryView } from "../../src/watch/history-view.ts";
import {
  cancel,
  closeConnection,
  hasWork,
  requestProgress,
  restore,
  savedPositions,
  subscribe,
} from "../../src/watch/hub.ts";
import { adoptSnapshot, announceLeader, changeCluster } from "../../src/watch/publish.ts";
import { ALL, Client, idOf, Rig } from "./rig.ts";

const OPTIONS = { includeValues: true, prevValues: false, filter: null, fromRevision: null } as const;

describe("watches on one connection (S48)", () => {
  test("id 0 is an id: it gets its own events, and its cancel ends it alone", () => {
    const rig = new Rig();
    const zero = rig.watch({ key: "k" }, {}, "a", 0);
    const one = rig.watch({ key: "k" }, {}, "a", 1);
    const elsewhere = rig.watch({ key: "k" }, {}, "b", 0);
    rig.put("k");
    rig.pump();
    expect(cancel(rig.hub, "a", 0)).toBe(true);
    rig.drop(zero);
    rig.put("k");
    rig.pump();
    expect(zero.story).toEqual(["put k@1"]);
    expect(one.story).toEqual(["put k@1", "put k@2"]);
    expect(elsewhere.story).toEqual(["put k@1", "put k@2"]);
  });

  test("a cancel in the turn of the subscription, or with events on their way, leaves nothing behind", () => {
    const rig = new Rig();
    const client = rig.watch(ALL, {}, "a", 0);
    rig.put("k");
    cancel(rig.hub, "a", 0);
    rig.drop(client);
    expect(rig.pump()).toEqual([]);
    expect(client.frames).toEqual([]);
    expect(rig.hub).toMatchObject({ watchesCount: 0, freshCount: 0, unacknowledged: 0 });
    expect(rig.hub.connections.size).toBe(0);
  });

  test("a refused watch leaves the others alone; an id in use is refused", () => {
    const rig = new Rig();
    const client = rig.watch({ key: "k" }, {}, "a", 0);
    const again = subscribe(rig.hub, { ...OPTIONS, connection: "a", watchId: 0, selector: ALL });
    expect(again).toMatchObject({ ok: false, error: { code: "invalid_request", reason: "watch_id_in_use" } });
    rig.put("k");
    rig.pump();
    expect(client.story).toEqual(["put k@1"]);
  });

  test("a cancel of nothing is answered with false, a cancelled id may be used again", () => {
    const rig = new Rig();
    expect(cancel(rig.hub, "a", 7)).toBe(false);
    rig.drop(rig.watch({ key: "k" }, {}, "a", 7));
    expect(cancel(rig.hub, "a", 7)).toBe(true);
    const again = rig.watch({ key: "k" }, {}, "a", 7);
    rig.put("k");
    rig.pump();
    expect(again.story).toEqual(["put k@1"]);
  });

  test("a closed connection takes all its watches along, in every phase, and all that they owed", () => {
    const rig = new Rig();
    for (let count = 0; count < 20; count += 1) rig.put(`k${count}`, "x".repeat(50_000));
    rig.watch(ALL);
    rig.watch(ALL, { fromRevision: 1 });
    rig.watch(ALL, { fromRevision: 100 });
    rig.watch({ key: "k1" }, { fromRevision: 2 });
    const other = rig.watch(ALL, {}, "b");
    rig.pump();
    rig.put("k", "x".repeat(1000));
    closeConnection(rig.hub, "a");
    for (const [id, client] of rig.clients) if (client !== other) rig.clients.delete(id);
    rig.pump();
    rig.ack(other);
    expect(other.story).toEqual(["put k@21"]);
    expect(rig.hub).toMatchObject({ watchesCount: 1, unacknowledged: 0, freshCount: 0 });
    expect(hasWork(rig.hub)).toBe(false);
  });
});

describe("limits", () => {
  test("a connection holds 100 watches and is refused one more", () => {
    const rig = new Rig();
    for (let id = 0; id < 100; id += 1) rig.watch({ key: `k${id}` });
    const refused = subscribe(rig.hub, { ...OPTIONS, connection: "a", watchId: 100, selector: ALL });
    expect(refused).toMatchObject({ ok: false, error: { code: "invalid_request", reason: "too_many_watches" } });
    expect(subscribe(rig.hub, { ...OPTIONS, connection: "b", watchId: 100, selector: ALL }).ok).toBe(true);
  });

  test("a node holds 10 000 watches, sends the next one elsewhere, and has room again after a cancel", () => {
    const rig = new Rig();
    const add = (count: number) =>
      subscribe(rig.hub, {
        ...OPTIONS,
        connection: `c${Math.floor(count / 100)}`,
        watchId: count,
        selector: { key: "k" },
      });
    for (let count = 0; count < 10_000; count += 1) expect(add(count).ok).toBe(true);
    expect(add(10_000)).toMatchObject({ ok: false, error: { code: "overloaded", reason: "too_many_watches" } });
    cancel(rig.hub, "c0", 0);
    expect(add(10_000).ok).toBe(true);
  });
});

test("a position that cannot be is refused, not believed", () => {
  const rig = new Rig();
  for (const afterPosition of [
    { revision: -1, opIndex: 0 },
    { revision: 1.5, opIndex: 0 },
    { revision: 1, opIndex: 1e6 },
  ]) {
    const refused = subscribe(rig.hub, { ...OPTIONS, connection: "a", watchId: 0, selector: ALL, afterPosition });
    expect(refused).toMatchObject({ ok: false, error: { code: "invalid_request", reason: "invalid_position" } });
  }
  expect(rig.hub.watchesCount).toBe(0);
});

describe("an evicted node (S50)", () => {
  test("goes on from the saved positions: what was sent is not repeated, what was not is not lost", () => {
    const rig = new Rig();
    const clients = Array.from({ length: 40 }, (_, count) => rig.watch({ prefix: `${"p".repeat(200)}/${count}/` }));
    const all = rig.watch(ALL, { prevValues: true });
    rig.pump();
    const write = (): void => {
      for (let count = 0; count < 40; count += 1) rig.put(`${"p".repeat(200)}/${count}/x`);
    };
    write();
    rig.pump();
    write();
    const saved = rig.attachments.get("a") ?? [];
    rig.restartHub();
    for (const one of saved) {
      const client = rig.clients.get(idOf("a", one.watchId));
      if (client === undefined) throw new Error("a saved watch has a client");
      expect(restore(rig.hub, client.options, one).ok).toBe(true);
    }
    rig.pump();
    write();
    rig.pump();
    for (const client of [...clients, all]) client.expectAll();
    expect(all.statuses).toEqual(["ready"]);
  });

  test("sends ready to a watch that had not got it", () => {
    const rig = new Rig();
    rig.put("k");
    const client = rig.watch(ALL, { fromRevision: 1 });
    const saved = savedPositions(rig.hub, "a");
    rig.restartHub();
    restore(rig.hub, client.options, saved[0] ?? { position: endOf(0), ready: false });
    rig.pump();
    expect(client.story).toEqual(["put k@1"]);
    expect(client.ready).toBe(1);
  });

  test("tells the progress that was asked for while its watch waited for the future", () => {
    const rig = new Rig();
    rig.put("k");
    const client = rig.watch(ALL, { fromRevision: 3 });
    requestProgress(rig.hub, "a", 0);
    rig.put("k");
    rig.pump();
    expect(client.statuses).toEqual(["ready", "progress"]);
  });

  test("that comes back with an older state waits until it has applied what the watch has", () => {
    const rig = new Rig();
    for (let count = 0; count < 5; count += 1) rig.put("k", count);
    const client = new Client({ ...OPTIONS, connection: "a", watchId: 0, selector: ALL }, rig.truth, endOf(7));
    rig.clients.set(idOf("a", 0), client);
    restore(rig.hub, client.options, { position: endOf(7), ready: true });
    for (let count = 0; count < 4; count += 1) {
      rig.put("k", count);
      rig.pump();
    }
    expect(client.story).toEqual(["put k@8", "put k@9"]);
  });
});

describe("a snapshot past the position of a watch (S41)", () => {
  /** A node that was cut off at revision 50 and installs the state of one that went on to 250. */
  function scenario(compactTo: number): { follower: Rig; watch: Client; install: () => void } {
    const leader = new Rig();
    const follower = new Rig({}, leader.truth);
    for (let count = 0; count < 250; count += 1) {
      leader.put(`k${count % 7}`, count);
      if (count < 50) {
        follower.harness.put(`k${count % 7}`, count);
        follower.publishApplied(false);
      }
      if (count === 40) follower.watch(ALL, { fromRevision: 1, prevValues: true });
    }
    if (compactTo > 0) leader.compact(compactTo);
    follower.pump();
    const [watch] = follower.clients.values();
    if (watch === undefined) throw new Error("no watch");
    const install = (): void => {
      const store = new MemoryStore();
      for (const [row, text] of leader.harness.store.rows()) store.put(row, text);
      follower.harness.machine = openMachine(store);
      adoptSnapshot(follower.hub, createHistoryView(follower.harness.machine));
    };
    return { follower, watch, install };
  }

  test("is read on from the history that came with it", () => {
    const { follower, watch, install } = scenario(50);
    expect(watch.got.length).toBe(50);
    install();
    follower.settle();
    expect(watch.got.length).toBe(250);
    watch.expectAll();
    expect(watch.ended).toBeNull();
  });

  test("ends with resync when that history begins later; a watch of the future waits on", () => {
    const { follower, watch, install } = scenario(51);
    const future = follower.watch(ALL, { fromRevision: 251 });
    install();
    follower.pump();
    expect(watch.ended).toMatchObject({ kind: "resync", revision: 250 });
    expect(future.ended).toBeNull();
    expect(future.ready).toBe(250);
    expect(watch.got.length).toBe(50);
  });

  test("an id whose last frame is not sent yet is not given away", () => {
    const { follower, watch, install } = scenario(51);
    install();
    const taken = subscribe(follower.hub, { ...OPTIONS, connection: "a", watchId: 0, selector: ALL });
    expect(taken).toMatchObject({ ok: false, error: { reason: "watch_id_in_use" } });
    follower.pump();
    expect(watch.ended?.kind).toBe("resync");
    expect(subscribe(follower.hub, { ...OPTIONS, connection: "a", watchId: 0, selector: ALL }).ok).toBe(true);
  });
});

describe("changes of the node", () => {
  test("a new leader is told once per connection, and watches go on", () => {
    const rig = new Rig();
    const clients = [rig.watch(ALL), rig.watch(ALL, {}, "b")];
    rig.pump();
    announceLeader(rig.hub, 3);
    announceLeader(rig.hub, 4);
    rig.put("k");
    expect(rig.pump().filter((frame) => frame.kind === "leader_changed")).toEqual([
      { kind: "leader_changed", connection: "a", leader: 4 },
      { kind: "leader_changed", connection: "b", leader: 4 },
    ]);
    for (const client of clients) client.expectAll();
  });

  test("another cluster ends every watch and begins the revisions anew", () => {
    const rig = new Rig();
    for (let count = 0; count < 5; count += 1) rig.put("k");
    const clients = [rig.watch(ALL), rig.watch(ALL, { fromRevision: 1 }), rig.watch(ALL, { fromRevision: 50 })];
    changeCluster(rig.hub, 0);
    expect(rig.hub).toMatchObject({ watchesCount: 0, revision: 0, unacknowledged: 0 });
    rig.hub.revision = rig.revision;
    rig.pump();
    for (const client of clients) expect(client.statuses).toEqual(["cluster_changed"]);
  });

  test("a hub with nothing to do says so, whatever its watches are", () => {
    const rig = new Rig();
    for (let count = 0; count < 100; count += 1) rig.put("k");
    rig.watch(ALL);
    rig.watch(ALL, { fromRevision: 1 });
    rig.watch(ALL, { fromRevision: 500 });
    rig.settle();
    const { frames, more, wakeAtMs } = rig.pumpOnce();
    expect({ frames, more, wakeAtMs }).toEqual({ frames: [], more: false, wakeAtMs: Number.POSITIVE_INFINITY });
  });
});
