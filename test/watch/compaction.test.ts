/** Goal: compaction never makes a watch silently lose an event (S39), and a quiet watch survives it (S44). */
import { describe, expect, test } from "vitest";
import { endOf } from "../../src/kv/position.ts";
import { requestProgress } from "../../src/watch/hub.ts";
import { backupOf, restored } from "../kv/backups.ts";
import { ALL, Rig, removeCompacted } from "./rig.ts";

describe("compaction exactly at a delete (S39)", () => {
  function rigWithDeleteAt5(): Rig {
    const rig = new Rig();
    rig.put("other");
    for (let count = 0; count < 3; count += 1) rig.put("k", count);
    rig.delete("k");
    return rig;
  }

  test("a watch from the compacted revision or before is told so; from the next one it sees that and all after", () => {
    for (const removes of [false, true]) {
      const rig = rigWithDeleteAt5();
      rig.put("k", "again");
      rig.compact(5);
      if (removes) removeCompacted(rig.harness);
      const at4 = rig.watch({ key: "k" }, { fromRevision: 4 });
      const at5 = rig.watch({ key: "k" }, { fromRevision: 5 });
      const at6 = rig.watch({ prefix: "k" }, { fromRevision: 6, prevValues: true });
      rig.pump();
      expect(at4.frames).toMatchObject([{ kind: "compacted", compactRevision: 5 }]);
      expect(at5.frames).toMatchObject([{ kind: "compacted", compactRevision: 5 }]);
      expect(at6.story).toEqual(["put k@6"]);
    }
  });

  test("compacted twice at a delete that is the last write, after a restart: told so, never silence", () => {
    const rig = rigWithDeleteAt5();
    rig.compact(5);
    rig.compact(5);
    removeCompacted(rig.harness);
    rig.restartHub();
    const client = rig.watch({ key: "k" }, { fromRevision: 5 });
    rig.pump();
    expect(client.frames).toMatchObject([{ kind: "compacted", compactRevision: 5 }]);
  });

  test("a watch that has the delete goes on behind it", () => {
    const rig = rigWithDeleteAt5();
    rig.compact(5);
    const client = rig.watch({ key: "k" }, { afterPosition: endOf(5) });
    rig.put("k", "again");
    rig.pump();
    expect(client.story).toEqual(["put k@6"]);
  });
});

describe("a watch that is behind when history is compacted", () => {
  test("is told so when its position is gone, whatever it waits for", () => {
    const rig = new Rig({ frameBytesTarget: 500, frameBytesMax: 500, creditPerWatchBytes: 500 });
    const blocked = rig.watch(ALL);
    for (let count = 0; count < 10; count += 1) rig.put("k", "x".repeat(200));
    rig.pump();
    expect(blocked.got.length).toBeLessThan(5);
    const future = rig.watch(ALL, { fromRevision: 100 });
    rig.compact(8);
    rig.pump();
    expect(blocked.ended).toMatchObject({ kind: "compacted", compactRevision: 8 });
    expect(future.ended).toBeNull();
    expect(rig.hub.watchesCount).toBe(1);
  });

  test("inside the compacted revision is told so; behind the whole of it, it goes on", () => {
    const rig = new Rig();
    for (let count = 0; count < 5; count += 1) rig.put("k", count);
    rig.compact(3);
    const inside = rig.watch(ALL, { afterPosition: { revision: 3, opIndex: 0 } });
    const whole = rig.watch(ALL, { afterPosition: endOf(3) });
    rig.pump();
    expect(inside.ended?.kind).toBe("compacted");
    expect(whole.story).toEqual(["put k@4", "put k@5"]);
  });

  test("but has caught up past it with others goes on, though it was sent nothing on the way", () => {
    const rig = new Rig({ pumpRowsMax: 10, sliceRowsMax: 10 });
    for (let count = 0; count < 50; count += 1) rig.put("loud");
    const quiet = rig.watch({ prefix: "quiet" }, { fromRevision: 1 });
    rig.pumpOnce();
    rig.pumpOnce();
    rig.compact(15);
    rig.put("quiet");
    rig.pump();
    expect(quiet.ended).toBeNull();
    expect(quiet.story).toEqual(["put quiet@51"]);
  });

  test("and has its events in this very turn still gets them", () => {
    const rig = new Rig();
    rig.put("k", "old");
    const client = rig.watch(ALL, { prevValues: true });
    rig.put("k", "new");
    rig.compact(2);
    rig.pump();
    expect(client.story).toEqual(["put k@2"]);
    expect(client.ended).toBeNull();
  });
});

describe("progress (S44)", () => {
  test("comes only after every event at or below it was sent, however it was asked for", () => {
    const rig = new Rig();
    const client = rig.watch(ALL);
    rig.pump();
    for (let count = 0; count < 400; count += 1) rig.put("k", "x".repeat(1000));
    rig.pump();
    expect(client.got.length).toBeLessThan(400);
    requestProgress(rig.hub, "a", 0);
    rig.pump();
    expect(client.statuses).toEqual(["ready"]);
    rig.settle();
    rig.pump();
    expect(client.frames.at(-1)).toMatchObject({ kind: "progress", revision: 400 });
    client.expectAll();
  });

  test("asked for without credit is sent once the client has acknowledged", () => {
    const rig = new Rig({ frameBytesTarget: 1000, frameBytesMax: 1000, creditPerWatchBytes: 1000 });
    const client = rig.watch(ALL);
    rig.put("k", "x".repeat(650));
    rig.pump();
    requestProgress(rig.hub, "a", 0);
    rig.pump();
    expect(client.statuses).toEqual(["ready"]);
    rig.ack(client);
    rig.pump();
    expect(client.statuses).toEqual(["ready", "progress"]);
  });

  test("reaches a quiet watch before its position is compacted away, so that it resumes from there", () => {
    const rig = new Rig();
    for (let count = 0; count < 8; count += 1) rig.put("loud");
    const quiet = rig.watch({ prefix: "/quiet" }, { fromRevision: 9 });
    rig.pump();
    for (let count = 0; count < 100; count += 1) {
      rig.put("loud");
      rig.pump();
    }
    expect(quiet.position).toEqual(endOf(8));
    rig.compact(100);
    rig.pump();
    expect(quiet.frames.at(-1)).toMatchObject({ kind: "progress", revision: 108 });
    const again = rig.watch({ prefix: "/quiet" }, { afterPosition: quiet.position }, "b");
    const lost = rig.watch({ prefix: "/quiet" }, { fromRevision: 9 }, "b");
    rig.put("/quiet/1");
    rig.pump();
    expect(again.story).toEqual(["put /quiet/1@109"]);
    expect(lost.ended).toMatchObject({ kind: "compacted", compactRevision: 100 });
  });

  test("comes by itself after many revisions and some time, and not before both", () => {
    const rig = new Rig({ progressRevisions: 100 });
    const quiet = rig.watch({ key: "quiet" });
    rig.pump();
    const step = (count: number, nowMs: number): void => {
      rig.nowMs = nowMs;
      for (let written = 0; written < count; written += 1) rig.put("loud");
      rig.pump();
    };
    step(150, 5_000);
    expect(quiet.statuses).toEqual(["ready"]);
    step(1, 11_000);
    expect(quiet.frames.at(-1)).toMatchObject({ kind: "progress", revision: 151 });
    step(50, 40_000);
    expect(quiet.statuses).toEqual(["ready", "progress"]);
  });
});

describe("a cluster that was restored from a backup", () => {
  test("tells every watch from before, also from behind the backup; from its own revisions a watch sees all", () => {
    const old = new Rig();
    for (let count = 0; count < 5; count += 1) old.put("k", count);
    const text = backupOf(old.harness.machine);
    for (let count = 0; count < 5; count += 1) old.put("k", count);

    const rig = new Rig();
    const { store } = restored(text, { index: 1, nowMs: rig.harness.timeMs, revisionJump: 1000 });
    for (const [row, value] of store.rows()) rig.harness.store.put(row, value);
    rig.harness.restart();
    rig.restartHub();
    expect(rig.revision).toBe(1005);
    const before = [1, 5, 10, 500, 1005].map((fromRevision) => rig.watch(ALL, { fromRevision }));
    const behindBackup = rig.watch(ALL, { afterPosition: endOf(old.revision) });
    const next = rig.watch(ALL, { fromRevision: 1006 });
    const listed = rig.watch(ALL, { afterPosition: endOf(1005) });
    const future = rig.watch(ALL, { fromRevision: 1007 });
    rig.put("k", "new");
    rig.put("l", "new");
    rig.pump();
    for (const client of [...before, behindBackup]) {
      expect(client.frames).toMatchObject([{ kind: "compacted", compactRevision: 1005 }]);
    }
    expect(next.story).toEqual(["put k@1006", "put l@1007"]);
    expect(listed.story).toEqual(next.story);
    expect(future.story).toEqual(["put l@1007"]);
  });
});
