/** The physical part of compaction: which rows go, in which steps, and that nothing that can be asked changes. */
import { describe, expect, test } from "vitest";
import { COMPACT_REMOVE_BYTES_MAX } from "../../src/base/limits.ts";
import { removesHistory } from "../../src/kv/compaction.ts";
import { del, Harness, okResult, put } from "./harness.ts";
import { changesSince, weigh } from "./naive-model.ts";

function remove(h: Harness, rows_max = 1000): { removed: number; done: boolean } {
  const result = okResult(h.apply({ kind: "compact_remove", rows_max }));
  if (result.kind !== "compact_remove") throw new Error(result.kind);
  return { removed: result.removed, done: result.done };
}

function compactAndRemove(h: Harness, revision: number): void {
  okResult(h.apply({ kind: "compact", revision }));
  while (!remove(h).done);
}

/** `rev:op type key` of each history row, and of each version row: they must tell the same. */
function historyRows(h: Harness): string[] {
  const of = (table: string) => h.store.rows().filter(([row]) => row.startsWith(table));
  const history = of("r").map(
    ([row, text]) => `${Number(row.slice(1, 17))}:${Number(row.slice(17))} ${text.charAt(0)}`,
  );
  const versions = of("k").map(
    ([row, text]) => `${Number(row.slice(-21, -5))}:${Number(row.slice(-5))} ${text.charAt(0)}`,
  );
  expect(versions.sort()).toEqual([...history].sort());
  return history;
}

describe("removal", () => {
  test("leaves of what is compacted only the newest put of each key, and all events behind it", () => {
    const h = new Harness();
    for (const value of [1, 2, 3]) h.put("a", value);
    h.put("b", 1);
    h.delete("b");
    h.put("a", 6);
    h.delete("a");
    okResult(h.apply({ kind: "compact", revision: 5 }));
    expect(h.machine.removalPending).toBe(true);
    expect(remove(h)).toEqual({ removed: 4, done: true });
    expect(historyRows(h)).toEqual(["3:0 p", "6:0 p", "7:0 d"]);
    expect([h.json("a", 5), h.json("a", 6), h.json("a", 7), h.json("b", 5)]).toEqual([3, 6, undefined, undefined]);
    expect(h.history("a").map(({ revision }) => revision)).toEqual([3, 6, 7]);
    expect(h.history("b")).toEqual([]);
    expect(changesSince(h, 5)).toEqual(h.events.slice(5));
  });

  test("moves no revision, makes no event, and is harmless when nothing is pending", () => {
    const h = new Harness();
    h.put("k", 1);
    h.expectUnchanged(() => expect(remove(h)).toEqual({ removed: 0, done: true }));
    h.put("k", 2);
    okResult(h.apply({ kind: "compact", revision: 2 }));
    const events = h.events.length;
    expect(remove(h)).toEqual({ removed: 1, done: true });
    expect([h.machine.revision, h.events.length, h.machine.removalPending]).toEqual([2, events, false]);
    h.expectUnchanged(() => expect(remove(h)).toEqual({ removed: 0, done: true }));
  });

  test("goes on where it stopped, through restarts, and at every step the same can be asked", () => {
    const h = new Harness();
    for (let round = 0; round < 6; round += 1) {
      h.do(put("a", round), put("b", round), del("a"), put("c", round));
      if (round % 2 === 1) h.delete("b");
    }
    const compacted = h.machine.revision - 1;
    okResult(h.apply({ kind: "compact", revision: compacted }));
    const answers = () =>
      JSON.stringify([h.list({ revision: compacted }).records, h.list({}).records, changesSince(h, compacted)]);
    const before = answers();
    let steps = 0;
    let removed = 0;
    for (let done = false; !done; steps += 1) {
      const step = remove(h, 2);
      expect(step.removed).toBeLessThanOrEqual(4);
      removed += step.removed;
      done = step.done;
      expect(answers()).toBe(before);
      expect(h.machine.logicalBytes).toBe(weigh(h.store));
      h.restart();
      expect(h.machine.removalPending).toBe(!done);
    }
    expect(steps).toBe(14);
    // Of 26 changes up to the compaction the puts of b and c remain, and one delete of b lies behind it.
    expect(removed).toBe(24);
    expect(historyRows(h).length).toBe(3);
  });

  test("takes a version that an earlier removal left, once a later compaction has passed its successor", () => {
    const h = new Harness();
    h.put("k", 1);
    h.put("other", 1);
    compactAndRemove(h, 2);
    expect(historyRows(h)).toEqual(["1:0 p", "2:0 p"]);
    h.delete("k");
    h.put("k", 4);
    compactAndRemove(h, 3);
    expect(historyRows(h)).toEqual(["2:0 p", "4:0 p"]);
    expect([h.json("k", 3), h.json("k", 4)]).toEqual([undefined, 4]);
    compactAndRemove(h, 4);
    expect(h.json("k")).toBe(4);
  });

  test("that is overtaken by a further compaction removes for both", () => {
    const h = new Harness();
    for (const value of [1, 2, 3, 4]) h.put("k", value);
    okResult(h.apply({ kind: "compact", revision: 3 }));
    expect(remove(h, 2)).toEqual({ removed: 1, done: false });
    okResult(h.apply({ kind: "compact", revision: 4 }));
    expect(remove(h, 2)).toEqual({ removed: 2, done: false });
    expect(remove(h, 2)).toEqual({ removed: 0, done: true });
    expect(historyRows(h)).toEqual(["4:0 p"]);
  });

  test("keeps apart keys that only escaping tells apart", () => {
    const h = new Harness();
    const keys = ["a", "a\u0000", "a\u0001", "a\u0001b", "a\u0002", "aa"];
    for (const key of keys) h.put(key, key);
    h.put("a", "new");
    h.delete("a\u0001");
    compactAndRemove(h, h.machine.revision);
    expect(h.list({}).records.map(({ key, value }) => [key, value])).toEqual(
      keys.filter((key) => key !== "a\u0001").map((key) => [key, { json: key === "a" ? "new" : key }]),
    );
    expect(historyRows(h).length).toBe(5);
  });

  test("ends a step early behind large values", () => {
    const h = new Harness();
    const value = "v".repeat((1 << 20) - 2);
    for (let count = 0; count < 12; count += 1) h.put("k", value);
    okResult(h.apply({ kind: "compact", revision: 12 }));
    const first = remove(h);
    expect(first).toEqual({ removed: COMPACT_REMOVE_BYTES_MAX / (1 << 20) - 1, done: false });
    expect(remove(h)).toEqual({ removed: 11 - first.removed, done: true });
    expect(h.machine.logicalBytes).toBe(weigh(h.store));
    expect(h.json("k")).toBe(value);
  });

  test("is told from other entries, so that watches can catch up in front of it", () => {
    const payload = (command: object) => JSON.stringify({ format: 1, command });
    expect(removesHistory(payload({ kind: "compact_remove", rows_max: 2000 }))).toBe(true);
    expect(removesHistory(payload({ kind: "compact", revision: 1 }))).toBe(false);
    expect(removesHistory("")).toBe(false);
  });
});

describe("the stories of compaction, with the rows gone", () => {
  test("a put after a delete of one key in one txn survives compaction at that revision (S20)", () => {
    const h = new Harness();
    h.put("k", "old");
    h.do(del("k"), put("k", "new"));
    compactAndRemove(h, 2);
    expect(historyRows(h)).toEqual(["2:1 p"]);
    for (let round = 0; round < 2; round += 1) {
      expect(h.record("k")).toMatchObject({ value: { json: "new" }, create_revision: 2, version: 1 });
      expect(h.json("k", 2)).toBe("new");
      expect(h.history("k").map((event) => [event.revision, event.op_index, event.type])).toEqual([[2, 1, "put"]]);
      expect(changesSince(h, 2)).toEqual([]);
      h.restart();
    }
    h.put("k", "newer");
    expect(changesSince(h, 2).map(({ revision }) => revision)).toEqual([3]);
  });

  test("a put before a delete of one key in one txn is gone at that revision", () => {
    const h = new Harness();
    h.do(put("k", 1), del("k"), put("other", 1));
    compactAndRemove(h, 1);
    expect(historyRows(h)).toEqual(["1:2 p"]);
    expect(h.json("k", 1)).toBeUndefined();
  });

  test("a delete at the compacted revision is told or refused, never passed over (S39)", () => {
    const h = new Harness();
    h.put("other", 1);
    for (const value of [2, 3, 4]) h.put("k", value);
    h.delete("k");
    h.put("k", 6);
    compactAndRemove(h, 5);
    compactAndRemove(h, 5);
    h.restart();
    for (const revision of [3, 4]) {
      const after = [revision, 99_999] as const;
      const error = h.queryError({ kind: "changes", selector: { key: "k" }, after, limit: 9 });
      expect(error).toMatchObject({ code: "compacted", compact_revision: 5 });
    }
    expect(changesSince(h, 5).map(({ revision, type }) => [revision, type])).toEqual([[6, "put"]]);
    expect([h.json("k", 5), h.json("k", 6)]).toEqual([undefined, 6]);
  });

  test("the delete as the last write: refused at its revision, and absent in every read (S39, variant)", () => {
    const h = new Harness();
    h.put("k", 1);
    h.delete("k");
    compactAndRemove(h, 2);
    compactAndRemove(h, 2);
    h.restart();
    expect(historyRows(h)).toEqual([]);
    expect(h.queryError({ kind: "changes", selector: { key: "k" }, after: [1, 99_999], limit: 9 }).code).toBe(
      "compacted",
    );
    expect(h.record("k")).toBeNull();
    expect(h.put("k", 2)).toBe(3);
    expect(h.record("k")).toMatchObject({ create_revision: 3, version: 1 });
  });

  test("the revision neither falls nor repeats when the last rows are removed, also across a crash (S51)", () => {
    const h = new Harness();
    for (let index = 0; index < 7; index += 1) h.put(`k${index}`, 1);
    for (const key of ["k6", "k5", "k4"]) h.delete(key);
    okResult(h.apply({ kind: "compact", revision: 10 }));
    expect(remove(h, 8).done).toBe(false);
    h.restart();
    expect(h.machine).toMatchObject({ revision: 10, compactRevision: 10, removalPending: true });
    while (!remove(h, 1).done);
    h.restart();
    expect(historyRows(h).length).toBe(4);
    expect(h.machine).toMatchObject({ revision: 10, compactRevision: 10, removalPending: false });
    expect(h.put("next", 1)).toBe(11);
    expect(changesSince(h, 10).map(({ revision }) => revision)).toEqual([11]);
    expect(h.keys("", { revision: 10 })).toEqual(["k0", "k1", "k2", "k3"]);
  });

  test("a txn with a read below the compaction fails alike before, during and after removal (S22)", () => {
    const h = new Harness();
    for (const value of [1, 2, 3]) h.put("k", value);
    okResult(h.apply({ kind: "compact", revision: 3 }));
    for (let round = 0; round < 4; round += 1) {
      h.expectUnchanged(() => {
        const outcome = h.txn({ success: [put("x", 1), { type: "get", selector: { key: "k" }, revision: 2 }] });
        expect(outcome).toMatchObject({ ok: false, error: { code: "compacted", compact_revision: 3 } });
      });
      remove(h, 1);
    }
    expect(h.machine.removalPending).toBe(false);
  });
});
