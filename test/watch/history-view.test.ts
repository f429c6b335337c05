/**
 * Goal: a walk and a page of changes give exactly the matching events, whichever index they read, and stop where they
 * promise to. Method: random histories, compared with the list of events.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { ChangeEvent, Selector } from "../../src/kv/command.ts";
import { selects } from "../../src/kv/history-walk.ts";
import { comparePositions, endOf, isWhole, type Position, positionOf } from "../../src/kv/position.ts";
import { readChanges } from "../../src/watch/changes.ts";
import { createHistoryView } from "../../src/watch/history-view.ts";
import { del, Harness, put } from "../kv/harness.ts";
import { removeCompacted, Truth } from "./rig.ts";

const KEYS = ["a", "a\u0000", "ab", "b/1", "b/2", "b/2/x", "c", "\u0000sys", "\u00ff"];
const key = fc.constantFrom(...KEYS);
const operation = fc.oneof(
  { weight: 3, arbitrary: key.map((one) => put(one, "v")) },
  { weight: 1, arbitrary: key.map(del) },
);
const history = fc.array(fc.array(operation, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 40 });
const selector: fc.Arbitrary<Selector> = fc.oneof(
  key.map((one) => ({ key: one })),
  fc.constantFrom("", "a", "b/", "b/2", "\u0000").map((prefix) => ({ prefix })),
  fc.tuple(key, key).map(([start, end]) => ({ range: { start, end } })),
);

function build(txns: readonly (readonly ReturnType<typeof put>[])[], quietRevisions: number): Harness {
  const harness = new Harness();
  for (let count = 0; count < quietRevisions; count += 1) harness.put("quiet", count);
  for (const operations of txns) harness.do(...operations);
  return harness;
}

function expected(harness: Harness, wanted: Selector, after: Position): ChangeEvent[] {
  return harness.events.filter((event) => selects(wanted, event.key) && comparePositions(positionOf(event), after) > 0);
}

describe("a walk", () => {
  test("visits exactly the matching events in order, in bounded pieces that end between revisions", () => {
    void fc.assert(
      // Behind a long quiet stretch a narrow selector is read through its keys, else through the log.
      fc.property(
        history,
        selector,
        fc.constantFrom(0, 200),
        fc.integer({ min: 1, max: 12 }),
        (txns, wanted, quiet, rowsMax) => {
          const harness = build(txns, quiet);
          const view = createHistoryView(harness.machine);
          const seen: ChangeEvent[] = [];
          let after = endOf(0);
          for (let round = 0; comparePositions(after, endOf(view.revision)) < 0; round += 1) {
            const walked = view.walk({ selector: wanted, after, rowsMax }, (event) => seen.push(event) > 0);
            expect(comparePositions(walked.next, after), `round ${round}`).toBeGreaterThan(0);
            expect(isWhole(walked.next)).toBe(true);
            after = walked.next;
            expect(seen).toEqual(
              expected(harness, wanted, endOf(0)).filter(({ revision }) => revision <= after.revision),
            );
          }
          expect(after).toEqual(endOf(view.revision));
        },
      ),
      { numRuns: 150 },
    );
  });

  test("goes on exactly where the visitor stopped it", () => {
    void fc.assert(
      fc.property(
        history,
        selector,
        fc.constantFrom(0, 200),
        fc.integer({ min: 1, max: 5 }),
        (txns, wanted, quiet, step) => {
          const harness = build(txns, quiet);
          const view = createHistoryView(harness.machine);
          const seen: ChangeEvent[] = [];
          let after = endOf(0);
          while (comparePositions(after, endOf(view.revision)) < 0) {
            let left = step;
            const walked = view.walk({ selector: wanted, after, rowsMax: 1000 }, (event) => {
              if (left === 0) return false;
              left -= 1;
              return seen.push(event) > 0;
            });
            after = walked.next;
          }
          expect(seen).toEqual(expected(harness, wanted, endOf(0)));
        },
      ),
      { numRuns: 150 },
    );
  });

  test("of a few keys in a long history does not look at the rest of it", () => {
    const harness = build([], 3000);
    harness.put("b/1", 1);
    harness.put("b/2", 1);
    const view = createHistoryView(harness.machine);
    for (const wanted of [{ prefix: "b/" }, { key: "b/1" }, { range: { start: "b/", end: "b0" } }]) {
      const seen: number[] = [];
      const walked = view.walk(
        { selector: wanted, after: endOf(1), rowsMax: 100 },
        (event) => seen.push(event.revision) > 0,
      );
      expect(seen.length).toBe("key" in wanted ? 1 : 2);
      expect(walked.next).toEqual(endOf(view.revision));
      expect(walked.rows).toBeLessThan(10);
    }
  });

  test("of many keys looks at no more rows than it may, and the rest of one revision", () => {
    const harness = new Harness();
    for (let revision = 0; revision < 300; revision += 1)
      harness.do(put(`k${revision}`, 1), put("other", 1), put("more", 1));
    const view = createHistoryView(harness.machine);
    const walked = view.walk({ selector: { prefix: "k" }, after: endOf(0), rowsMax: 50 }, () => true);
    expect(walked.rows).toBeGreaterThanOrEqual(50);
    expect(walked.rows).toBeLessThanOrEqual(50 + 33 + 3);
    expect(walked.next).toEqual(endOf(17));
  });
});

test("the record before any event is right, also when compaction has removed what it may", () => {
  void fc.assert(
    fc.property(history, fc.nat(), (txns, pick) => {
      const harness = build(txns, 0);
      const truth = new Truth();
      for (const event of harness.events) truth.add(event);
      const compacted = pick % (harness.machine.revision + 1);
      harness.apply({ kind: "compact", revision: compacted });
      removeCompacted(harness);
      const view = createHistoryView(harness.machine);
      for (const [index, event] of truth.events.entries()) {
        if (event.revision <= compacted) continue;
        expect(view.recordBefore(event.key, positionOf(event))).toEqual(truth.previous[index]);
      }
    }),
    { numRuns: 150 },
  );
});

describe("changes", () => {
  test("pages give every matching event once, and say when they end inside a revision", () => {
    void fc.assert(
      fc.property(history, selector, fc.integer({ min: 1, max: 7 }), (txns, wanted, limit) => {
        const harness = build(txns, 0);
        const view = createHistoryView(harness.machine);
        const seen: ChangeEvent[] = [];
        let after = endOf(0);
        for (let more = true; more; ) {
          const page = readChanges(view, { selector: wanted, after, limit, bytesMax: 1 << 20 });
          expect(page.events.length).toBeLessThanOrEqual(limit);
          seen.push(...page.events);
          const rest = expected(harness, wanted, endOf(0)).slice(seen.length);
          if (isWhole(page.next))
            expect(rest[0]?.revision ?? Number.POSITIVE_INFINITY).toBeGreaterThan(page.next.revision);
          after = page.next;
          more = page.hasMore;
        }
        expect(seen).toEqual(expected(harness, wanted, endOf(0)));
      }),
      { numRuns: 150 },
    );
  });

  test("a page over its bytes ends early but is never empty", () => {
    const harness = new Harness();
    harness.do(put("a", "x".repeat(1000)), put("b", "y".repeat(1000)));
    const view = createHistoryView(harness.machine);
    const page = readChanges(view, { selector: { prefix: "" }, after: endOf(0), limit: 10, bytesMax: 500 });
    expect(page.events.map((event) => event.key)).toEqual(["a"]);
    expect(page.next).toEqual({ revision: 1, opIndex: 0 });
    expect(page.hasMore).toBe(true);
  });

  test("a quiet selector in a long history is read in bounded pages, some of them empty", () => {
    const harness = new Harness();
    for (let count = 0; count < 40; count += 1) harness.put(`quiet/${count}`, 1);
    for (let count = 0; count < 5000; count += 1) harness.put("loud", count);
    const view = createHistoryView(harness.machine);
    const request = { selector: { prefix: "quiet/" }, limit: 1000, bytesMax: 1 << 20 };
    const first = readChanges(view, { ...request, after: endOf(0) });
    expect(first.events.length).toBe(40);
    expect(first.hasMore).toBe(true);
    const second = readChanges(view, { ...request, after: first.next });
    expect(second).toEqual({ events: [], next: endOf(5040), hasMore: false });
  });

  test("a position in compacted history, or in the future, is refused", () => {
    const harness = new Harness();
    for (let count = 0; count < 5; count += 1) harness.put("k", count);
    harness.apply({ kind: "compact", revision: 3 });
    const view = createHistoryView(harness.machine);
    const request = { selector: { key: "k" }, limit: 10, bytesMax: 1000 };
    expect(readChanges(view, { ...request, after: endOf(3) }).events.length).toBe(2);
    expect(() => readChanges(view, { ...request, after: endOf(2) })).toThrow("compacted");
    expect(() => readChanges(view, { ...request, after: { revision: 3, opIndex: 0 } })).toThrow("compacted");
    expect(() => readChanges(view, { ...request, after: endOf(6) })).toThrow("revision_in_future");
    expect(() => readChanges(view, { ...request, after: endOf(-1) })).toThrow("invalid_position");
    expect(() => readChanges(view, { ...request, after: { revision: 4, opIndex: 100_000 } })).toThrow(
      "invalid_position",
    );
  });
});
