/** The judge of watchers is judged: each kind of lie is noticed, and the truth next to it is not. */
import { beforeEach, describe, expect, test } from "vitest";
import type { Command, Operation } from "../../src/kv/command.ts";
import { applyEntries } from "../../src/kv/machine.ts";
import { endOf, type Position } from "../../src/kv/position.ts";
import type { Frame } from "../../src/watch/frames.ts";
import { createSafety, type KnownEvent, type Safety } from "./safety.ts";
import { encodeEvent } from "./sockets.ts";
import { checkFrame, type Sight } from "./watch-check.ts";

const WATCH = { connection: "c", watchId: 0 };

let safety: Safety;
let sight: Sight;

/** Revisions: 1 k=a; 2 q=b; 3 k=c, k gone, k=d; 4 q gone. */
beforeEach(() => {
  safety = createSafety(1);
  commit([put("k", "a")], [put("q", "b")]);
  commit([put("k", "c"), { type: "delete", selector: { key: "k" } }, put("k", "d")]);
  commit([{ type: "delete", selector: { key: "q" } }]);
  sight = {
    name: "watcher",
    wants: { selector: { prefix: "k" }, includeValues: true, prevValues: true, filter: null },
    position: endOf(0),
    ready: false,
    events: 0,
  };
});

function put(key: string, json: string): Operation {
  return { type: "put", key, value: { json } };
}

function commit(...txns: Operation[][]): void {
  for (const success of txns) apply({ kind: "txn", compare: [], success, failure: [] });
}

function apply(command: Command): void {
  const { replay } = safety;
  const payload = JSON.stringify({ format: 1, command });
  const entry = { index: replay.appliedIndex + 1, timeMs: replay.appliedIndex + 1, payload };
  const { events } = applyEntries(replay, [entry])[0]!;
  if (events.length === 0) return;
  const known = events.map((event): KnownEvent => {
    const before = safety.latest.get(event.key) ?? null;
    safety.latest.set(event.key, event);
    return { event, before };
  });
  safety.events.push(known);
}

/** A frame of the events at these places, as a right node would encode them. */
function events(position: Position, ...places: readonly (readonly [revision: number, opIndex: number])[]): Frame {
  const encoded = places.map(([revision, opIndex]) => {
    const { event, before } = safety.events[revision]![opIndex]!;
    const value = before?.value ?? null;
    const previous = before === null || value === null ? null : { ...before, value };
    return { event, previous, text: encodeEvent(event, previous, true), bytes: 0 };
  });
  return { kind: "events", ...WATCH, events: encoded, complete: position.opIndex === 99_999, position, bytes: 0 };
}

function ready(revision: number): Frame {
  return { kind: "ready", ...WATCH, revision, position: endOf(revision) };
}

function progress(revision: number): Frame {
  return { kind: "progress", ...WATCH, revision, position: endOf(revision) };
}

function tell(...frames: readonly Frame[]): void {
  for (const frame of frames) if (frame.kind !== "leader_changed") checkFrame(safety, sight, frame);
}

/** The last frame is the lie. */
function expectLie(rule: string, ...frames: readonly Frame[]): void {
  tell(...frames.slice(0, -1));
  expect(() => tell(...frames.slice(-1))).toThrow(rule);
}

const ALL = [
  [3, 0],
  [3, 1],
  [3, 2],
] as const;

describe("a watcher may be told", () => {
  test("everything at once, then that it is live, then how far", () => {
    tell(events(endOf(4), [1, 0], ...ALL), ready(4), progress(4));
    expect(sight).toMatchObject({ position: endOf(4), ready: true, events: 4 });
  });

  test("a revision in parts with an end mark, and that nothing more of it comes", () => {
    tell(
      events(endOf(1), [1, 0]),
      events({ revision: 3, opIndex: 1 }, [3, 0], [3, 1]),
      events(endOf(3), [3, 2]),
      ready(4),
    );
    sight.position = { revision: 3, opIndex: 2 };
    tell(events(endOf(3)));
    expect(sight.position).toEqual(endOf(3));
  });

  test("that it is too slow, or that history is gone", () => {
    tell(events(endOf(1), [1, 0]), { kind: "slow_consumer", ...WATCH, position: endOf(2) });
    expect(sight.position).toEqual(endOf(2));
    apply({ kind: "compact", revision: 3 });
    tell({ kind: "compacted", ...WATCH, compactRevision: 3 });
  });
});

describe("it is a lie", () => {
  const events1 = () => events(endOf(1), [1, 0]);

  test("to leave an event out", () => {
    expectLie("sees every event once", events(endOf(3), [1, 0], [3, 0], [3, 2]));
  });

  test("to leave out the events of a whole frame", () => {
    expectLie("sees every event once", events(endOf(3), ...ALL));
  });

  test("to tell an event twice, or to go back", () => {
    expectLie("sees every event once", events1(), events1());
  });

  test("to tell what is not asked for", () => {
    expectLie("sees every event once", events(endOf(2), [1, 0], [2, 0]));
  });

  test("to tell another record before an event", () => {
    const frame = events1();
    if (frame.kind !== "events") throw new Error("no events");
    const [first] = frame.events;
    const text = encodeEvent(first!.event, undefined, true);
    expectLie("sees every event once", { ...frame, events: [{ ...first!, text }] });
  });

  test("to call a part complete, or the whole a part", () => {
    expectLie("sees every event once", events1(), events(endOf(3), [3, 0]));
    expectLie("sees every event once", { ...events1(), complete: false } as Frame);
  });

  test("to go on behind a part without its end", () => {
    tell(events1(), events({ revision: 3, opIndex: 2 }, ...ALL));
    expectLie("told the truth", ready(4));
  });

  test("to end what has no part", () => {
    expectLie("sees every event once", events1(), events(endOf(2)));
  });

  test("to tell progress before the events, or before it is ready, or ready twice", () => {
    expectLie("told the truth", events1(), ready(3));
    expectLie("told the truth", progress(3));
    sight.ready = false;
    expectLie("told the truth", progress(1));
    expectLie("told the truth", ready(1), ready(2));
  });

  test("to tell of revisions that are not committed", () => {
    sight.position = endOf(4);
    expectLie("told the truth", ready(5));
  });

  test("to cancel for slowness behind events that were not sent, or before what was", () => {
    expectLie("told the truth", { kind: "slow_consumer", ...WATCH, position: endOf(1) });
    tell(events1());
    expectLie("told the truth", { kind: "slow_consumer", ...WATCH, position: endOf(0) });
  });

  test("to say that history is gone when it is not, or not needed", () => {
    expectLie("told the truth", { kind: "compacted", ...WATCH, compactRevision: 2 });
    apply({ kind: "compact", revision: 2 });
    sight.position = endOf(2);
    expectLie("told the truth", { kind: "compacted", ...WATCH, compactRevision: 2 });
  });

  test("to speak of another cluster, or of a snapshot", () => {
    expectLie("told the truth", { kind: "resync", ...WATCH, revision: 4 });
    expectLie("told the truth", { kind: "cluster_changed", ...WATCH });
  });
});
