/** Goal: frames are bounded, hold whole revisions, and a revision larger than a frame comes in parts with an end mark (S43). */
import { describe, expect, test } from "vitest";
import { endOf } from "../../src/kv/position.ts";
import type { EventsFrame } from "../../src/watch/frames.ts";
import { FRAME_OVERHEAD_BYTES, HUB_LIMITS } from "../../src/watch/limits.ts";
import { put } from "../kv/harness.ts";
import { ALL, type Client, Rig } from "./rig.ts";

function eventsFrames(client: Client): EventsFrame[] {
  return client.frames.filter((frame): frame is EventsFrame => frame.kind === "events");
}

const KB32 = "x".repeat(32_000);

describe("a txn of 64 puts of 32 kB (S43)", () => {
  function write(rig: Rig): void {
    rig.harness.do(...Array.from({ length: 40 }, (_, count) => put(`k${String(count).padStart(2, "0")}`, KB32)));
    rig.publishApplied();
  }

  test("comes live in parts that each fit a frame, with one end mark, as the client acknowledges", () => {
    const rig = new Rig();
    const client = rig.watch(ALL);
    write(rig);
    rig.settle();
    const frames = eventsFrames(client);
    expect(client.got.length).toBe(40);
    expect(frames.length).toBeGreaterThan(4);
    expect(frames.map((frame) => frame.complete)).toEqual([...frames.slice(1).map(() => false), true]);
    for (const frame of frames) expect(frame.bytes).toBeLessThanOrEqual(HUB_LIMITS.frameBytesMax);
  });

  test("is resumed from before it, or from inside it, ten times, without a hole or a repeat", () => {
    const rig = new Rig();
    write(rig);
    for (let round = 0; round < 10; round += 1) {
      const first = rig.watch(ALL, { fromRevision: 1 });
      rig.pump();
      expect(first.got.length).toBeGreaterThan(0);
      expect(first.got.length).toBeLessThan(40);
      const rest = rig.watch(ALL, { afterPosition: first.position }, "b");
      rig.settle();
      expect(rest.got[0]?.op_index).toBe(first.frames.length > 0 ? 8 : 0);
      rest.expectAll();
      first.expectAll();
      rig.drop(first);
      rig.drop(rest);
      rig.hub = new Rig().hub;
      rig.hub.revision = 1;
    }
  });

  test("is never held in memory for a client that does not read", () => {
    const rig = new Rig();
    const client = rig.watch(ALL);
    write(rig);
    rig.pump();
    expect(eventsFrames(client).length).toBe(1);
    expect(rig.hub.freshCount).toBe(0);
    expect(rig.hub.unacknowledged).toBeLessThanOrEqual(HUB_LIMITS.creditPerWatchBytes);
  });
});

test("a single event larger than a frame travels alone, when nothing is owed", () => {
  const rig = new Rig();
  const client = rig.watch(ALL, { prevValues: true });
  rig.put("small");
  rig.put("big", "x".repeat(1_000_000));
  rig.pump();
  expect(client.story).toEqual(["put small@1"]);
  rig.ack(client);
  rig.pump();
  expect(client.story).toEqual(["put small@1", "put big@2"]);
  rig.put("small");
  rig.pump();
  expect(client.got.length).toBe(2);
  rig.settle();
  client.expectAll();
});

test("small revisions share a frame when they are replayed, up to the target, never beyond the limit", () => {
  const rig = new Rig({ frameBytesTarget: 2000, frameBytesMax: 4000 });
  for (let count = 0; count < 100; count += 1) rig.put(`k${count}`, "x".repeat(100));
  const client = rig.watch({ prefix: "k" }, { fromRevision: 1 });
  rig.settle();
  const frames = eventsFrames(client);
  expect(frames.length).toBeLessThan(30);
  for (const frame of frames) {
    expect(frame.complete).toBe(true);
    // It stops at the first revision that takes it over the target.
    expect(frame.bytes).toBeLessThan(2000 + 500);
    expect(frame.events.length).toBeGreaterThan(1);
  }
});

test("a large revision is not taken for whole where watches catch up together", () => {
  const rig = new Rig();
  const values = Array.from({ length: 14 }, (_, count) => put(`k${count % 7}/${count}`, "x".repeat(100_000)));
  rig.harness.do(...values);
  rig.harness.do(...values);
  rig.publishApplied();
  const clients = Array.from({ length: 7 }, (_, count) => rig.watch({ prefix: `k${count}/` }, { fromRevision: 1 }));
  rig.settle();
  for (const client of clients) {
    client.expectAll();
    expect(eventsFrames(client).map((frame) => [frame.events.length, frame.complete])).toEqual([
      [2, true],
      [2, true],
    ]);
  }
});

test("10 000 deletes of one revision arrive, live and replayed, in parts with one end mark", () => {
  const rig = new Rig();
  for (let batch = 0; batch < 100; batch += 1) {
    rig.harness.do(...Array.from({ length: 100 }, (_, count) => put(`d/${batch}/${count}`, 1)));
  }
  rig.publishApplied();
  const live = rig.watch(ALL, { prevValues: true });
  rig.pump();
  rig.harness.do({ type: "delete", selector: { prefix: "d/" } });
  rig.publishApplied();
  const replayed = rig.watch({ prefix: "d/" }, { fromRevision: 101, filter: "deletes" });
  rig.settle();
  for (const client of [live, replayed]) {
    expect(client.got.length).toBe(10_000);
    const frames = eventsFrames(client);
    expect(frames.length).toBeGreaterThan(5);
    expect(frames.filter((frame) => frame.complete).length).toBe(1);
    expect(client.position).toEqual(endOf(101));
  }
});

test("a revision that fits a frame waits for credit rather than being sent in parts", () => {
  const rig = new Rig({ frameBytesTarget: 1000, frameBytesMax: 2000, creditPerWatchBytes: 2500 });
  const client = rig.watch(ALL);
  rig.put("a", "x".repeat(600));
  rig.harness.do(put("b", "x".repeat(600)), put("c", "x".repeat(600)));
  rig.publishApplied();
  rig.pump();
  expect(client.story).toEqual(["put a@1"]);
  rig.ack(client);
  rig.pump();
  expect(client.story).toEqual(["put a@1", "put b@2", "put c@2"]);
  for (const frame of eventsFrames(client)) expect(frame.complete).toBe(true);
  expect(eventsFrames(client)[0]?.bytes).toBeGreaterThan(FRAME_OVERHEAD_BYTES + 600);
});

test("parts of which nothing is left to send are closed by an empty frame", () => {
  const rig = new Rig({ frameBytesTarget: 500, frameBytesMax: 1000, creditPerWatchBytes: 1000 });
  const client = rig.watch({ prefix: "k" }, { filter: "puts" });
  rig.harness.do(put("k1", "x".repeat(600)), put("k2", "x".repeat(600)), put("z", 1));
  rig.publishApplied();
  rig.settle();
  const frames = eventsFrames(client);
  expect(frames.map((frame) => [frame.events.length, frame.complete])).toEqual([
    [1, false],
    [1, true],
  ]);
});
