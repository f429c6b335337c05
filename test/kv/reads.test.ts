import { describe, expect, test } from "vitest";
import { bytesFromText, prefixEnd } from "../../src/base/bytes.ts";
import type { Query } from "../../src/kv/command.ts";
import { del, Harness, okResult, put } from "./harness.ts";

const utf8 = (text: string): string => bytesFromText(text) ?? "";

describe("one order of keys everywhere (S13)", () => {
  const keys = ["a", "\uFF61", "\u{1F600}"].map(utf8);

  function filled(): Harness {
    const h = new Harness();
    h.do(...[...keys].reverse().map((key) => put(key, 1)));
    return h;
  }

  test("pages of one follow the cursor through every key once, in byte order, both ways", () => {
    for (const order of ["asc", "desc"] as const) {
      const h = filled();
      const seen: string[] = [];
      for (let after: string | undefined; ; ) {
        const page = h.list({ limit: 1, order, revision: 1, ...(after === undefined ? {} : { after }) });
        seen.push(...page.records.map((record) => record.key));
        if (!page.more) break;
        after = seen[seen.length - 1];
      }
      expect(seen).toEqual(order === "asc" ? keys : [...keys].reverse());
    }
  });

  test("a range lists, deletes and publishes the keys of that order", () => {
    const h = filled();
    const range = { start: utf8("\uFF00"), end: utf8("\u{1F700}") };
    expect(h.list({ selector: { range } }).records.map((record) => record.key)).toEqual(keys.slice(1));
    h.events.length = 0;
    h.do({ type: "delete", selector: { range } });
    expect(h.events.map((event) => event.key)).toEqual(keys.slice(1));
    expect(h.keys()).toEqual(["a"]);
  });
});

test("keys of any bytes, the shortest and the longest, are listed in order and found by their prefix", () => {
  const h = new Harness();
  const names = [
    "\u0000",
    "\u0000\u0000",
    "\u0000\u0001",
    "\u0001",
    "\u0002",
    "\u0002\u0001",
    "a",
    "a\u0000",
    "a\u0001",
    "aa",
    "\u00ff",
    "\u00ff\u00ff",
    "\u00ff".repeat(4096),
  ];
  h.do(...[...names].reverse().map((key) => put(key, key.length)));
  expect(h.keys()).toEqual(names);
  expect(h.keys("", { revision: 1 })).toEqual(names);
  h.do(put("later", 1), del("a"), put("a", 2));
  expect(h.keys("", { revision: 1 })).toEqual(names);
  expect(h.keys("", { revision: 1, order: "desc" })).toEqual([...names].reverse());
  h.delete("later");
  for (const prefix of ["\u0000", "a", "\u00ff", "\u0002"]) {
    const matches = names.filter((name) => name.startsWith(prefix));
    expect(h.keys(prefix)).toEqual(matches);
    expect(h.keys(prefix, { revision: 1 })).toEqual(matches);
    const end = prefixEnd(prefix);
    const range = end === null ? { start: prefix } : { start: prefix, end };
    expect(h.list({ selector: { range } }).records.map((record) => record.key)).toEqual(matches);
  }
  for (const [position, name] of names.entries()) {
    for (const at of [{}, { revision: 1 }, { revision: 3 }]) {
      expect(h.keys("", { after: name, ...at })).toEqual(names.slice(position + 1));
      expect(h.keys("", { after: name, order: "desc", ...at })).toEqual(names.slice(0, position).reverse());
    }
  }
});

describe("a read at a revision", () => {
  function filled(): Harness {
    const h = new Harness();
    h.put("a", 1); // 1
    h.put("b", 1); // 2
    h.put("a", 2); // 3
    h.delete("a"); // 4
    h.put("c", 1); // 5
    h.do(put("a", 3), del("b"), put("d", 1)); // 6
    h.put("a", 4); // 7
    return h;
  }

  test("shows the state as it was then, through get, get_many and list alike", () => {
    const h = filled();
    const states: Record<string, number>[] = [
      {},
      { a: 1 },
      { a: 1, b: 1 },
      { a: 2, b: 1 },
      { b: 1 },
      { b: 1, c: 1 },
      { a: 3, c: 1, d: 1 },
      { a: 4, c: 1, d: 1 },
    ];
    for (const [revision, state] of states.entries()) {
      const names = Object.keys(state);
      const page = h.list({ revision });
      expect(Object.fromEntries(page.records.map((record) => [record.key, jsonOf(record.value)]))).toEqual(state);
      expect(h.keys("", { revision, order: "desc" })).toEqual([...names].reverse());
      expect(h.list({ revision, count_only: true })).toMatchObject({ count: names.length, records: [], more: false });
      for (const key of ["a", "b", "c", "d"]) expect(h.json(key, revision)).toEqual(state[key]);
      const many = h.query({ kind: "get_many", keys: ["d", "a", "a"], revision });
      expect(many.kind === "get_many" && many.records.map((record) => record?.key ?? null)).toEqual(
        ["d", "a", "a"].map((key) => (key in state ? key : null)),
      );
    }
    expect(h.record("a", 6)).toMatchObject({ version: 1, create_revision: 6 });
  });

  test("of the future is an error, not an empty answer", () => {
    const h = filled();
    const queries: Query[] = [
      { kind: "get", key: "a", revision: 8 },
      { kind: "get_many", keys: ["a"], revision: 8 },
      { ...LIST, revision: 8 },
      { kind: "history", key: "a", limit: 10, from: 8 },
      { kind: "history", key: "a", limit: 10, to: 8 },
    ];
    for (const query of queries) expect(h.queryError(query)).toMatchObject({ code: "revision_in_future", revision: 7 });
  });

  test("below the compacted revision fails compacted, and at it still works", () => {
    const h = filled();
    okResult(h.apply({ kind: "compact", revision: 5 }));
    const queries: Query[] = [
      { kind: "get", key: "a", revision: 4 },
      { kind: "get_many", keys: ["a"], revision: 4 },
      { ...LIST, revision: 4 },
      { kind: "history", key: "a", limit: 10, from: 5 },
    ];
    for (const query of queries) expect(h.queryError(query)).toMatchObject({ code: "compacted", compact_revision: 5 });
    expect(h.keys("", { revision: 5 })).toEqual(["b", "c"]);
    expect(h.json("b", 5)).toBe(1);
    expect(h.json("b", 6)).toBeUndefined();
  });
});

describe("a page", () => {
  test("pinned to a revision goes on over the same state while writes go on", () => {
    const h = new Harness();
    const names = Array.from({ length: 30 }, (_, index) => `k${String(index).padStart(2, "0")}`);
    for (const name of names) h.put(name, 0);
    const revision = h.machine.revision;
    const seen: string[] = [];
    for (let after: string | undefined; ; ) {
      const page = h.list({ limit: 7, revision, ...(after === undefined ? {} : { after }) });
      seen.push(...page.records.map((record) => record.key));
      expect(page.records.every((record) => jsonOf(record.value) === 0)).toBe(true);
      after = seen[seen.length - 1] ?? "";
      h.do(put(after, "changed"), put(`${after}x`, "new"), del(names[29] ?? ""), del(names[0] ?? ""));
      if (!page.more) break;
    }
    expect(seen).toEqual(names);
  });

  test("ends early at 4 MiB with more set, and holds at least one record", () => {
    const h = new Harness();
    for (let index = 0; index < 6; index += 1) h.put(`k${index}`, "v".repeat(1_000_000));
    const first = h.list({});
    expect(first.records.map((record) => record.key)).toEqual(["k0", "k1", "k2", "k3"]);
    expect(first).toMatchObject({ count: 4, more: true });
    expect(h.list({ after: "k3" })).toMatchObject({ count: 2, more: false });
    expect(h.list({ keys_only: true })).toMatchObject({ count: 6, more: false });
    h.queryError({ kind: "get_many", keys: ["k0", "k1", "k2", "k3", "k4"] });
  });

  test("says more exactly when keys of the selector remain", () => {
    const h = new Harness();
    h.do(put("a", 1), put("b", 1), put("c", 1));
    expect(h.list({ limit: 3 }).more).toBe(false);
    expect(h.list({ limit: 2 }).more).toBe(true);
    expect(h.list({ selector: { prefix: "a" }, limit: 1 }).more).toBe(false);
    expect(h.list({ selector: { key: "b" }, limit: 1 })).toMatchObject({ count: 1, more: false });
    expect(h.list({ limit: 1, count_only: true, after: "b" })).toMatchObject({ count: 3, more: false });
  });

  test("over more keys than one scan fetches counts them all", () => {
    const h = new Harness();
    for (let from = 0; from < 2560; from += 128) {
      h.do(...Array.from({ length: 128 }, (_, index) => put(`k${from + index}`, 1)));
    }
    expect(h.list({ count_only: true }).count).toBe(2560);
    expect(h.list({ count_only: true, order: "desc" }).count).toBe(2560);
    expect(h.list({ count_only: true, revision: 10 }).count).toBe(1280);
  });
});

describe("the history of a key", () => {
  test("is every event in order, with values, paged by (revision, op index)", () => {
    const h = new Harness();
    h.put("other", 1);
    h.do(put("k", 1), put("k", 2), del("k"), put("k", 3));
    h.put("k", 4, { metadata: { m: 1 } });
    const all = h.history("k");
    expect(all).toEqual(h.events.filter((event) => event.key === "k"));
    const seen = [];
    for (let after: readonly [number, number] | undefined; ; ) {
      const page = h.query({ kind: "history", key: "k", limit: 2, ...(after === undefined ? {} : { after }) });
      if (page.kind !== "history") throw new Error("wrong kind");
      seen.push(...page.events);
      const last = page.events[page.events.length - 1];
      if (!page.more || last === undefined) break;
      after = [last.revision, last.op_index];
    }
    expect(seen).toEqual(all);
    expect(h.history("k", { from: 3 }).map((event) => event.revision)).toEqual([3]);
    expect(h.history("k", { to: 2 })).toHaveLength(4);
    expect(h.history("absent")).toEqual([]);
  });

  test("ends a page early at 4 MiB", () => {
    const h = new Harness();
    for (let index = 0; index < 6; index += 1) h.put("k", "v".repeat(1_000_000));
    expect(h.query({ kind: "history", key: "k", limit: 100 })).toMatchObject({ more: true, events: { length: 4 } });
  });

  test("after compaction starts with the state at the compacted revision", () => {
    const h = new Harness();
    h.put("k", 1);
    h.put("k", 2);
    h.put("other", 1);
    h.put("k", 4);
    okResult(h.apply({ kind: "compact", revision: 3 }));
    expect(h.history("k").map((event) => event.revision)).toEqual([2, 4]);
    expect(h.history("k", { from: 4 }).map((event) => event.revision)).toEqual([4]);
    expect(h.queryError({ kind: "history", key: "k", limit: 9, from: 3 }).code).toBe("compacted");
  });

  test("that lost events between two pages fails compacted instead of skipping them", () => {
    const h = new Harness();
    h.put("k", 1);
    h.put("k", 2);
    h.delete("k");
    h.put("k", 4);
    okResult(h.apply({ kind: "compact", revision: 3 }));
    expect(h.queryError({ kind: "history", key: "k", limit: 9, after: [1, 0] }).code).toBe("compacted");
    expect(h.queryError({ kind: "history", key: "k", limit: 9, after: [2, 0] }).code).toBe("compacted");
    okResult(h.apply({ kind: "compact", revision: 4 }));
    expect(h.history("k", { after: [4, 0] })).toEqual([]);
    h.put("k", 5);
    expect(h.history("k", { after: [4, 0] }).map((event) => event.revision)).toEqual([5]);
  });
});

describe("compaction, the replicated part", () => {
  test("a put after a delete of one key in one txn survives compaction at that revision (S20)", () => {
    const h = new Harness();
    h.put("k", "old");
    h.do(del("k"), put("k", "new"));
    okResult(h.apply({ kind: "compact", revision: 2 }));
    for (let round = 0; round < 2; round += 1) {
      expect(h.record("k")).toMatchObject({ value: { json: "new" }, create_revision: 2, version: 1 });
      expect(h.json("k", 2)).toBe("new");
      expect(h.history("k").map((event) => [event.revision, event.type])).toEqual([[2, "put"]]);
      h.restart();
    }
  });

  test("a delete at the compacted revision is never passed over in silence (S39)", () => {
    const h = new Harness();
    h.put("other", 1);
    for (const value of [2, 3, 4]) h.put("k", value);
    h.delete("k");
    h.put("k", 6);
    okResult(h.apply({ kind: "compact", revision: 5 }));
    okResult(h.apply({ kind: "compact", revision: 5 }));
    h.restart();
    for (const from of [4, 5]) {
      expect(h.queryError({ kind: "history", key: "k", limit: 9, from }).code).toBe("compacted");
    }
    expect(h.history("k", { from: 6 }).map((event) => event.type)).toEqual(["put"]);
    expect(h.json("k", 5)).toBeUndefined();
  });

  test("the revision neither falls nor repeats after deletes, compaction and a restart (S51)", () => {
    const h = new Harness();
    for (let index = 0; index < 7; index += 1) h.put(`k${index}`, 1);
    for (const key of ["k0", "k1", "k2"]) h.delete(key);
    okResult(h.apply({ kind: "compact", revision: 10 }));
    h.restart();
    expect(h.machine).toMatchObject({ revision: 10, compactRevision: 10 });
    expect(h.put("next", 1)).toBe(11);
    expect(h.keys("", { revision: 10 })).toEqual(["k3", "k4", "k5", "k6"]);
  });

  test("at or below what is compacted is done already; in the future it is an error", () => {
    const h = new Harness();
    h.put("k", 1);
    h.put("k", 2);
    expect(okResult(h.apply({ kind: "compact", revision: 2 }))).toEqual({ kind: "compact", compact_revision: 2 });
    expect(okResult(h.apply({ kind: "compact", revision: 1 }))).toEqual({ kind: "compact", compact_revision: 2 });
    expect(h.apply({ kind: "compact", revision: 3 })).toMatchObject({ error: { code: "revision_in_future" } });
    expect(h.machine.compactRevision).toBe(2);
  });
});

describe("other queries", () => {
  test("a txn as a read answers at the current revision and refuses to write", () => {
    const h = new Harness();
    h.put("k", 1);
    const query: Query & { kind: "txn" } = {
      kind: "txn",
      compare: [{ target: "exists", key: "k", op: "==", value: true }],
      success: [{ type: "get", selector: { key: "k" } }],
      failure: [],
    };
    expect(h.query(query)).toMatchObject({ succeeded: true, revision: 1, responses: [{ count: 1 }] });
    h.expectUnchanged(() => {
      expect(h.queryError({ ...query, success: [put("k", 2)] })).toMatchObject({ reason: "write_in_read" });
    });
  });

  test("the revision query names the revision in its outcome", () => {
    const h = new Harness();
    expect(h.query({ kind: "revision" })).toEqual({ kind: "revision" });
  });
});

const LIST = {
  kind: "list",
  selector: { prefix: "" },
  limit: 10,
  order: "asc",
  keys_only: false,
  count_only: false,
} as const;

function jsonOf(value: { json: unknown } | { base64: string }): unknown {
  return "json" in value ? value.json : undefined;
}
