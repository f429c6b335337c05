/** The `changes` query; the walk behind it is tested with the watches (test/watch/history-view.test.ts). */
import { describe, expect, test } from "vitest";
import type { Query } from "../../src/kv/command.ts";
import { REVISION_END } from "../../src/kv/position.ts";
import { del, Harness, okResult, put } from "./harness.ts";

type Changes = Query & { readonly kind: "changes" };

const query = (options: Partial<Changes>): Changes => ({
  kind: "changes",
  selector: { prefix: "" },
  after: [0, REVISION_END],
  limit: 1000,
  ...options,
});

function changes(h: Harness, options: Partial<Changes> = {}) {
  const result = h.query(query(options));
  if (result.kind !== "changes") throw new Error(result.kind);
  return result;
}

describe("changes", () => {
  test("are the events behind a position, in op order, filtered by a selector", () => {
    const h = new Harness();
    h.do(put("a", 1), put("b", 1), del("a"));
    h.put("b/1", 2);
    expect(changes(h)).toEqual({
      kind: "changes",
      events: h.events,
      next: [2, REVISION_END],
      whole: true,
      has_more: false,
    });
    const positions = (options: Partial<Changes>) =>
      changes(h, options).events.map(({ revision, op_index }) => [revision, op_index]);
    expect(positions({ after: [1, 0] })).toEqual([
      [1, 1],
      [1, 2],
      [2, 0],
    ]);
    expect(positions({ selector: { key: "a" } })).toEqual([
      [1, 0],
      [1, 2],
    ]);
    expect(positions({ selector: { prefix: "b" }, after: [1, REVISION_END] })).toEqual([[2, 0]]);
    expect(positions({ after: [2, REVISION_END] })).toEqual([]);
  });

  test("end inside a revision where the limit does, say so, and go on there", () => {
    const h = new Harness();
    h.do(put("a", 1), put("b", 1), put("c", 1));
    h.put("d", 1);
    const first = changes(h, { limit: 2 });
    expect(first).toMatchObject({ next: [1, 1], whole: false, has_more: true });
    const second = changes(h, { limit: 2, after: first.next });
    expect(second.events.map((event) => event.key)).toEqual(["c", "d"]);
    expect(second).toMatchObject({ next: [2, REVISION_END], whole: true, has_more: false });
    expect(changes(h, { limit: 3 })).toMatchObject({ next: [1, REVISION_END], whole: true, has_more: true });
  });

  test("end a page before it is over a reply, but hold at least one event", () => {
    const h = new Harness();
    for (const key of ["a", "b", "c", "d", "e"]) h.put(key, "v".repeat((1 << 20) - 2));
    const first = changes(h);
    expect(first.events.length).toBe(3);
    expect(first).toMatchObject({ next: [3, REVISION_END], whole: true, has_more: true });
  });

  test("weigh what they weigh in UTF-8, not in characters", () => {
    const h = new Harness();
    for (const key of ["a", "b", "c", "d", "e"]) h.put(key, "\u20ac".repeat(((1 << 20) - 2) / 3));
    expect(changes(h).events.length).toBe(3);
    expect(changes(h, { selector: { key: "e" } }).events.length).toBe(1);
  });

  test("need their events: a position at or below the compacted revision is refused, before and after removal", () => {
    const h = new Harness();
    for (const value of [1, 2, 3]) h.put("k", value);
    okResult(h.apply({ kind: "compact", revision: 2 }));
    for (let round = 0; round < 2; round += 1) {
      for (const after of [
        [0, REVISION_END],
        [1, REVISION_END],
        [2, 0],
      ] as const) {
        expect(h.queryError(query({ after }))).toMatchObject({ code: "compacted", compact_revision: 2 });
      }
      expect(changes(h, { after: [2, REVISION_END] }).events.map(({ revision }) => revision)).toEqual([3]);
      okResult(h.apply({ kind: "compact_remove", rows_max: 100 }));
    }
    expect(h.queryError(query({ after: [4, 0] })).code).toBe("revision_in_future");
  });
});
