/** Goal: a client that does not read costs a bounded amount, ends with its position, and disturbs nobody (S47, design 01 §4). */
import { describe, expect, test } from "vitest";
import { endOf } from "../../src/kv/position.ts";
import { hasWork } from "../../src/watch/hub.ts";
import { HUB_LIMITS } from "../../src/watch/limits.ts";
import { ALL, Rig } from "./rig.ts";

const KB = "x".repeat(1000);

describe("a paused reader (S47)", () => {
  test("is sent its credit and no more; the others see everything; it is cancelled where it stands and resumes there", () => {
    const rig = new Rig();
    const paused = rig.watch(ALL);
    const others = [rig.watch(ALL), rig.watch(ALL, {}, "b")];
    rig.pump();
    for (let count = 0; count < 10_000; count += 1) {
      rig.harness.put(`k${count % 50}`, KB);
      rig.nowMs += 2;
      if (count % 20 !== 19) continue;
      rig.publishApplied();
      rig.pumpOnce();
      for (const client of others) rig.ack(client);
      expect(rig.hub.unacknowledged).toBeLessThanOrEqual(HUB_LIMITS.creditPerWatchBytes + 3 * 64 * 1024);
      expect(rig.hub.freshCount).toBe(0);
    }
    for (let round = 0; round < 3; round += 1) {
      rig.pump();
      for (const client of others) rig.ack(client);
    }
    for (const client of others) client.expectAll();
    expect(paused.statuses).toEqual(["ready", "slow_consumer"]);
    expect(paused.ended).toMatchObject({ kind: "slow_consumer", position: paused.position });
    expect(paused.got.length).toBeLessThan(260);
    const resumed = rig.watch(ALL, { afterPosition: paused.position }, "c");
    rig.settle();
    expect(resumed.got[0]?.revision).toBe(paused.position.revision + 1);
    expect(paused.got.length + resumed.got.length).toBe(10_000);
  });

  test("is not cancelled before ten seconds of silence, nor while it is behind by less than the limits", () => {
    const rig = new Rig({ behindEventsMax: 10 });
    const client = rig.watch(ALL);
    rig.pump();
    while (client.got.length === rig.truth.events.length) {
      rig.put("k", KB);
      rig.pump();
    }
    for (let count = 0; count < 8; count += 1) rig.put("k", KB);
    rig.nowMs += 60_000;
    expect(rig.pumpOnce().wakeAtMs).toBe(Number.POSITIVE_INFINITY);
    expect(client.ended).toBeNull();
    rig.put("k", KB);
    rig.pump();
    expect(client.ended?.kind).toBe("slow_consumer");
  });

  test("that acknowledges anything within ten seconds stays, and the hub says when to look again", () => {
    const rig = new Rig({ behindEventsMax: 10 });
    const client = rig.watch(ALL);
    rig.pump();
    for (let count = 0; count < 400; count += 1) {
      rig.put("k", KB);
      rig.pumpOnce();
    }
    expect(rig.pumpOnce().wakeAtMs).toBe(10_000);
    rig.nowMs = 9_000;
    rig.ack(client, client.positions[1]);
    rig.nowMs = 10_000;
    expect(rig.pumpOnce().wakeAtMs).toBe(19_000);
    rig.nowMs = 18_999;
    rig.pump();
    expect(client.ended).toBeNull();
    rig.nowMs = 19_000;
    rig.pump();
    expect(client.ended?.kind).toBe("slow_consumer");
  });

  test("is cancelled for 4 MiB, too, and when it fell silent in the middle of a replay", () => {
    const rig = new Rig();
    for (let count = 0; count < 50; count += 1) rig.put(`k${count}`, "x".repeat(100_000));
    const far = rig.watch(ALL, { fromRevision: 1 });
    const near = rig.watch(ALL, { fromRevision: 30 }, "b");
    rig.pump();
    rig.nowMs = 10_000;
    rig.pump();
    rig.nowMs = 20_000;
    expect(rig.pumpOnce().wakeAtMs).toBe(Number.POSITIVE_INFINITY);
    expect(far.ended?.kind).toBe("slow_consumer");
    expect(near.ended).toBeNull();
    rig.settle();
    near.expectAll();
  });

  test("takes all watches of its connection along, which is to be closed: what lies unread cannot be taken back", () => {
    const rig = new Rig();
    for (let count = 0; count < 50; count += 1) rig.put(`k${count}`, "x".repeat(100_000));
    const far = rig.watch(ALL, { fromRevision: 1 });
    const near = rig.watch(ALL, { fromRevision: 30 });
    const other = rig.watch(ALL, { fromRevision: 1 }, "b");
    rig.pump();
    rig.nowMs = 10_000;
    rig.ack(other);
    const silent: string[] = [];
    for (let more = true; more; ) {
      const pumped = rig.pumpOnce();
      silent.push(...pumped.silent);
      more = pumped.more;
    }
    expect(silent).toEqual(["a"]);
    expect([far.ended?.kind, near.ended?.kind, other.ended]).toEqual(["slow_consumer", "slow_consumer", null]);
    expect(rig.hub.connections.has("a")).toBe(false);
  });

  test("loses only the slow watch if its client acknowledges another one", () => {
    const rig = new Rig();
    for (let count = 0; count < 50; count += 1) rig.put(`k${count}`, "x".repeat(100_000));
    const slow = rig.watch(ALL, { fromRevision: 1 });
    const read = rig.watch(ALL, { fromRevision: 49 });
    rig.pump();
    rig.nowMs = 9_000;
    rig.ack(read);
    rig.nowMs = 10_000;
    rig.pump();
    rig.nowMs = 12_000;
    expect(rig.pumpOnce().silent).toEqual([]);
    expect([slow.ended?.kind, read.ended]).toEqual(["slow_consumer", null]);
  });
});

describe("acknowledgements", () => {
  test("of a part of what was sent release that part; old, future and unknown ones do no harm", () => {
    const rig = new Rig();
    const client = rig.watch(ALL);
    rig.pump();
    for (let count = 0; count < 3; count += 1) {
      rig.put("k");
      rig.pump();
    }
    const before = rig.hub.unacknowledged;
    rig.ack(client, client.positions[1]);
    expect(rig.hub.unacknowledged).toBeCloseTo((before * 2) / 3);
    rig.ack(client, endOf(0));
    expect(rig.hub.unacknowledged).toBeCloseTo((before * 2) / 3);
    rig.ack(client, { revision: 2, opIndex: 0 });
    expect(rig.hub.unacknowledged).toBeCloseTo(before / 3);
    rig.ack(client, endOf(1000));
    expect(rig.hub.unacknowledged).toBe(0);
    rig.drop(client);
    rig.ack(client);
    expect(rig.hub.unacknowledged).toBe(0);
  });

  test("of many small frames are remembered in few entries", () => {
    const rig = new Rig();
    const client = rig.watch(ALL);
    for (let count = 0; count < 500; count += 1) {
      rig.put("k");
      rig.pump();
    }
    const watch = rig.hub.connections.get("a")?.get(0);
    expect(watch?.ledger.length).toBeLessThanOrEqual(16);
    const owed = rig.hub.unacknowledged;
    rig.ack(client, client.positions[300]);
    expect(rig.hub.unacknowledged).toBeGreaterThan(owed * 0.9);
    rig.ack(client);
    expect(rig.hub.unacknowledged).toBe(0);
  });
});

test("an acknowledgement that frees too little makes nobody read history", () => {
  const rig = new Rig({ frameBytesTarget: 1000, frameBytesMax: 4000, creditPerWatchBytes: 4000 });
  const client = rig.watch(ALL);
  for (let count = 0; count < 12; count += 1) {
    rig.put("k", count < 6 ? "x".repeat(300) : "x".repeat(2000));
    rig.pump();
  }
  rig.ack(client, client.positions[1]);
  expect(hasWork(rig.hub)).toBe(false);
  rig.ack(client);
  expect(hasWork(rig.hub)).toBe(true);
});

test("only events that a watch wants count as what it is behind by", () => {
  const limits = { frameBytesTarget: 500, frameBytesMax: 500, creditPerWatchBytes: 500, behindEventsMax: 5 };
  const rig = new Rig(limits);
  for (let count = 0; count < 4; count += 1) {
    rig.put("k", 1);
    rig.delete("k");
  }
  for (let count = 0; count < 50; count += 1) rig.put("k", count);
  const client = rig.watch(ALL, { filter: "deletes", fromRevision: 1 });
  rig.pump();
  expect(client.got.length).toBeLessThan(4);
  rig.nowMs = 20_000;
  rig.pump();
  expect(client.ended).toBeNull();
});

describe("the credit of the node", () => {
  const limits = { frameBytesTarget: 1000, frameBytesMax: 2000, creditPerWatchBytes: 2000, creditPerNodeBytes: 10_000 };

  test("is never exceeded; who found none is served when others acknowledge", () => {
    const rig = new Rig(limits);
    const clients = Array.from({ length: 20 }, () => rig.watch(ALL));
    for (let count = 0; count < 5; count += 1) {
      rig.put("k", KB);
      rig.pump();
      expect(rig.hub.unacknowledged).toBeLessThanOrEqual(10_000);
    }
    rig.settle();
    for (const client of clients) client.expectAll();
  });

  test("held by silent clients is taken back after ten seconds, so that the others go on", () => {
    const rig = new Rig(limits);
    const silent = Array.from({ length: 10 }, () => rig.watch(ALL));
    rig.put("k", "x".repeat(600));
    rig.pump();
    const reader = rig.watch(ALL, { fromRevision: 1 }, "b");
    rig.put("k", KB);
    const { wakeAtMs } = rig.pumpOnce();
    expect(reader.got).toEqual([]);
    rig.nowMs = wakeAtMs;
    expect(wakeAtMs).toBe(10_000);
    rig.pump();
    expect(silent.every((client) => client.ended?.kind === "slow_consumer")).toBe(true);
    rig.settle();
    reader.expectAll();
    expect(reader.ended).toBeNull();
  });
});

test("a pump makes a bounded number of bytes; what is left waits as positions", () => {
  const rig = new Rig({ pumpBytesMax: 50_000 });
  const clients = Array.from({ length: 100 }, () => rig.watch(ALL));
  rig.pump();
  rig.put("k", KB);
  const pumped = rig.pumpOnce();
  expect(pumped.more).toBe(true);
  expect(rig.hub.freshCount).toBe(0);
  expect(pumped.frames.reduce((sum, frame) => sum + (frame.kind === "events" ? frame.bytes : 0), 0)).toBeLessThan(
    52_000,
  );
  rig.pump();
  for (const client of clients) client.expectAll();
});

test("more events in one turn than the hub may note are read from history", () => {
  const rig = new Rig({ freshEventsMax: 10 });
  const clients = Array.from({ length: 4 }, () => rig.watch(ALL));
  rig.pump();
  for (let count = 0; count < 8; count += 1) rig.put("k", count);
  expect(rig.hub.freshCount).toBeLessThanOrEqual(10);
  rig.pump();
  for (const client of clients) client.expectAll();
});
