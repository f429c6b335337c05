/** Goal: replay from history, then live, without gap, repeat or reorder, for every way to begin a watch (design 01 §4). */
import { describe, expect, test } from "vitest";
import { endOf } from "../../src/kv/position.ts";
import { subscribe } from "../../src/watch/hub.ts";
import { del, put } from "../kv/harness.ts";
import { ALL, encode, Rig } from "./rig.ts";

describe("a watch without from_revision", () => {
  test("sees nothing older, is ready at once, and sees what comes", () => {
    const rig = new Rig();
    rig.put("k");
    const client = rig.watch({ key: "k" });
    rig.pump();
    expect(client.ready).toBe(1);
    rig.put("k");
    rig.put("other");
    rig.delete("k");
    rig.pump();
    expect(client.story).toEqual(["put k@2", "delete k@4"]);
  });

  test("is ready at the revision at which it came, in front of the events of the same turn", () => {
    const rig = new Rig();
    rig.put("k");
    const client = rig.watch({ key: "k" });
    rig.put("k");
    rig.pump();
    expect(client.frames.map((frame) => frame.kind)).toEqual(["ready", "events"]);
    expect(client.ready).toBe(1);
  });

  test("knows its position from the answer, before any frame (S45)", () => {
    const rig = new Rig();
    rig.put("k");
    const options = {
      connection: "a",
      watchId: 5,
      selector: { key: "k" },
      includeValues: true,
      prevValues: false,
    } as const;
    expect(subscribe(rig.hub, { ...options, filter: null, fromRevision: null })).toEqual({
      ok: true,
      position: endOf(1),
    });
  });
});

describe("a watch from a revision", () => {
  test("gets history from that revision on, then ready, then what comes", () => {
    const rig = new Rig();
    for (let count = 0; count < 5; count += 1) rig.put("k", count);
    const client = rig.watch({ prefix: "k" }, { fromRevision: 3 });
    rig.pump();
    expect(client.story).toEqual(["put k@3", "put k@4", "put k@5"]);
    expect(client.statuses).toEqual(["ready"]);
    expect(client.ready).toBe(5);
    rig.put("k", 6);
    rig.pump();
    expect(client.story.at(-1)).toBe("put k@6");
  });

  test("in the future waits for it, sees none before, and is ready when it is reached", () => {
    const rig = new Rig();
    rig.put("k");
    const client = rig.watch({ key: "k" }, { fromRevision: 4 });
    rig.put("k");
    rig.pump();
    expect(client.frames).toEqual([]);
    rig.put("k");
    rig.pump();
    expect(client.ready).toBe(3);
    rig.put("k");
    rig.pump();
    expect(client.story).toEqual(["put k@4"]);
  });

  test("0 or 1 begins with the first event", () => {
    const rig = new Rig();
    rig.put("k");
    const zero = rig.watch(ALL, { fromRevision: 0 });
    const one = rig.watch(ALL, { fromRevision: 1 });
    rig.pump();
    expect([zero.story, one.story]).toEqual([["put k@1"], ["put k@1"]]);
  });

  test("waits across a jump of the revision, which a restored backup makes", () => {
    const rig = new Rig();
    rig.put("k");
    const live = rig.watch({ prefix: "k" });
    const between = rig.watch({ prefix: "k" }, { fromRevision: 500 });
    const behind = rig.watch({ prefix: "k" }, { fromRevision: 1001 });
    rig.pump();
    const { store } = rig.harness;
    store.put("m", JSON.stringify({ ...JSON.parse(store.get("m") ?? ""), revision: 999 }));
    rig.harness.restart();
    rig.put("k");
    rig.put("k");
    rig.pump();
    expect(live.story).toEqual(["put k@1000", "put k@1001"]);
    expect(between.story).toEqual(["put k@1000", "put k@1001"]);
    expect(behind.story).toEqual(["put k@1001"]);
  });
});

describe("a watch behind a position", () => {
  test("inside a revision gets the rest of it, then an end mark's worth of wholeness", () => {
    const rig = new Rig();
    rig.harness.do(put("a", 1), put("b", 1), put("c", 1));
    rig.publishApplied();
    const client = rig.watch(ALL, { afterPosition: { revision: 1, opIndex: 0 } });
    rig.pump();
    expect(client.story).toEqual(["put b@1", "put c@1"]);
    expect(client.position).toEqual(endOf(1));
  });

  test("at the last event of a revision gets an end mark alone", () => {
    const rig = new Rig();
    rig.harness.do(put("a", 1), put("b", 1));
    rig.publishApplied();
    const client = rig.watch({ key: "a" }, { afterPosition: { revision: 1, opIndex: 0 } });
    rig.pump();
    expect(client.frames).toMatchObject([{ kind: "events", events: [], complete: true }, { kind: "ready" }]);
  });

  test("on a node that lags waits there, and skips nothing and repeats nothing (S45)", () => {
    const rig = new Rig();
    rig.put("k");
    const whole = rig.watch({ prefix: "k" }, { afterPosition: endOf(3) });
    const inside = rig.watch({ prefix: "k" }, { afterPosition: { revision: 2, opIndex: 0 } });
    rig.pump();
    rig.harness.do(put("k1", 1), put("k2", 1), put("k3", 1));
    rig.publishApplied();
    rig.put("k");
    rig.pump();
    rig.put("k");
    rig.pump();
    expect(inside.story).toEqual(["put k2@2", "put k3@2", "put k@3", "put k@4"]);
    expect(whole.story).toEqual(["put k@4"]);
  });
});

describe("what a watch sees", () => {
  test("is whole revisions, in op order, with several events of one key", () => {
    const rig = new Rig();
    const client = rig.watch(ALL);
    rig.harness.do(put("b", 1), put("a", 1), del("b"), put("b", 2));
    rig.publishApplied();
    rig.pump();
    expect(client.story).toEqual(["put b@1", "put a@1", "delete b@1", "put b@1"]);
    expect(client.frames.filter((frame) => frame.kind === "events").length).toBe(1);
  });

  test("is puts or deletes alone when it filters, live and from history", () => {
    const rig = new Rig();
    const live = rig.watch(ALL, { filter: "deletes" });
    rig.harness.do(put("a", 1), del("a"), put("b", 1));
    rig.publishApplied();
    rig.pump();
    const puts = rig.watch(ALL, { filter: "puts", fromRevision: 1 });
    const deletes = rig.watch(ALL, { filter: "deletes", fromRevision: 1 });
    rig.pump();
    expect(live.story).toEqual(["delete a@1"]);
    expect(deletes.story).toEqual(["delete a@1"]);
    expect(puts.story).toEqual(["put a@1", "put b@1"]);
  });

  test("has the record before each event when it asks, live and from history, inside one revision too", () => {
    const rig = new Rig();
    rig.put("k", "old");
    const live = rig.watch({ key: "k" }, { prevValues: true });
    const without = rig.watch({ key: "k" });
    rig.harness.do(put("k", "one"), del("k"), put("k", "two"));
    rig.publishApplied();
    rig.pump();
    const replayed = rig.watch({ key: "k" }, { prevValues: true, fromRevision: 1 });
    rig.pump();
    const values = (client: typeof live): unknown[] =>
      client.frames.flatMap((frame) =>
        frame.kind === "events" ? frame.events.map(({ previous }) => previous?.value ?? previous) : [],
      );
    expect(values(live)).toEqual([{ json: "old" }, { json: "one" }, null]);
    expect(values(replayed)).toEqual([null, { json: "old" }, { json: "one" }, null]);
    expect(values(without)).toEqual([undefined, undefined, undefined]);
  });

  test("has no values when it does not want them", () => {
    const rig = new Rig();
    const client = rig.watch(ALL, { includeValues: false });
    rig.put("k", "secret");
    rig.pump();
    const [, frame] = client.frames;
    expect(frame?.kind === "events" && frame.events[0]?.text).not.toContain("secret");
  });
});

describe("the cost of events", () => {
  test("an event is encoded once for all watches with the same options", () => {
    const rig = new Rig();
    let encodedCount = 0;
    const hub = {
      ...rig.hub,
      encode: (...parts: Parameters<typeof encode>) => {
        encodedCount += 1;
        return encode(...parts);
      },
    };
    rig.hub = hub;
    for (let count = 0; count < 50; count += 1) rig.watch(ALL);
    rig.watch(ALL, { includeValues: false });
    rig.put("k");
    rig.pump();
    expect(encodedCount).toBe(2);
  });

  test("a thousand watches that come back together read the log once", () => {
    const rig = new Rig();
    for (let count = 0; count < 500; count += 1) rig.put(`k${count}`);
    for (let count = 0; count < 1000; count += 1) {
      const selector = count % 2 === 0 ? { key: `k${count}` } : { prefix: `k${count}` };
      rig.watch(selector, { fromRevision: 400 + (count % 100) }, `c${count % 20}`);
    }
    const view = rig.view();
    let rows = 0;
    const counting = {
      revision: view.revision,
      compactRevision: view.compactRevision,
      recordBefore: view.recordBefore,
      walk: (...parts: Parameters<typeof view.walk>) => {
        const walked = view.walk(...parts);
        rows += walked.rows;
        return walked;
      },
    };
    while (rig.pumpOnce(counting).more);
    expect(rows).toBeLessThan(120);
    for (const client of rig.clients.values()) client.expectAll();
  });

  test("one pump looks at a bounded number of rows, however much there is to replay", () => {
    const rig = new Rig({ pumpRowsMax: 100, sliceRowsMax: 40, nearRevisions: 50 });
    for (let count = 0; count < 1000; count += 1) rig.put(`k${count % 100}`);
    for (let count = 0; count < 10; count += 1) rig.watch({ prefix: "k" }, { fromRevision: 1 + count * 90 });
    const view = rig.view();
    for (let more = true; more; ) {
      let rows = 0;
      const pumped = rig.pumpOnce({
        revision: view.revision,
        compactRevision: 0,
        recordBefore: view.recordBefore,
        walk: (...parts) => {
          const walked = view.walk(...parts);
          rows += walked.rows;
          return walked;
        },
      });
      expect(rows).toBeLessThanOrEqual(100 + 40 + 33);
      more = pumped.more;
    }
    for (const client of rig.clients.values()) client.expectAll();
  });
});
