/**
 * S41, S45: watchers of a node that lags far behind, and watchers that move between nodes: later is fine, never twice, never
 * backwards, never silently nothing.
 */
import { expect, test } from "vitest";
import { Spectator } from "./audience.ts";
import { formed, type Stage } from "./stage.ts";
import { put } from "./vocabulary.ts";

function write(stage: Stage, node: number, count: number, key = "k"): void {
  const pending = Array.from({ length: count }, (_, at) => stage.write(node, put(`${key}${at % 7}`, at)));
  for (const one of pending) expect(stage.answerTo(one).ok).toBe(true);
}

test("a watcher of a follower that was cut off gets all 200 writes, once and in order, when it is back (S41)", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  write(stage, leader, 50);
  stage.settle();
  const audience = new Spectator(stage).watch(follower, { from: 51 });
  stage.run(10);
  expect(audience.ofKind("ready")).toHaveLength(1);
  stage.isolate(follower);
  write(stage, leader, 200);
  stage.run(2000);
  expect(audience.seen).toEqual([]);
  expect(audience.connected).toBe(true);
  stage.heal();
  stage.settle();
  stage.run(50);
  expect(audience.seen.map((seen) => Number(seen.split(" ")[0]))).toEqual(
    Array.from({ length: 200 }, (_, at) => 51 + at),
  );
});

test("a watcher whose node was compacted past its position while it was away is told so, and lists (S41)", () => {
  const stage = formed();
  const [leader, follower, other] = stage.cast();
  write(stage, leader, 20);
  const audience = new Spectator(stage).watch(follower, { from: 1 });
  stage.run(50);
  audience.leave();
  write(stage, leader, 30);
  expect(stage.written(other, { kind: "compact", revision: 40 }).ok).toBe(true);
  stage.settle();
  audience.resume(follower);
  stage.run(20);
  expect(audience.frames[audience.frames.length - 1]).toMatchObject({ kind: "compacted", compactRevision: 40 });
  write(stage, leader, 1);
  expect(audience.ofKind("events").flatMap(({ events }) => events)).toHaveLength(20);
});

test("a watch from now whose connection broke before anything happened misses nothing, also on a node that lags (S45)", () => {
  const stage = formed();
  const [leader, follower, lagging] = stage.cast();
  write(stage, leader, 3);
  stage.settle();
  const audience = new Spectator(stage).watch(follower, "now");
  stage.run(10);
  expect(audience.subscribed).toMatchObject({ ok: true, position: { revision: 3 } });
  audience.leave();
  stage.isolate(lagging);
  write(stage, leader, 1, "x");
  audience.resume(lagging);
  stage.run(500);
  expect(audience.seen).toEqual([]); // it waits, as the node does
  stage.heal();
  stage.settle();
  stage.run(20);
  expect(audience.seen).toEqual(["4 x0=0"]);
});

test("the same after five events, and ahead of the node that it comes to: nothing twice (S45)", () => {
  const stage = formed();
  const [leader, follower, lagging] = stage.cast();
  stage.isolate(lagging);
  const audience = new Spectator(stage).watch(follower, "now");
  stage.run(10);
  write(stage, leader, 5);
  stage.run(20);
  expect(audience.seen).toHaveLength(5);
  audience.resume(lagging);
  stage.run(50);
  expect(audience.subscribed).toMatchObject({ ok: true });
  write(stage, leader, 1, "x");
  stage.run(500);
  expect(audience.seen).toHaveLength(5);
  stage.heal();
  stage.settle();
  stage.run(20);
  expect(audience.seen.slice(5)).toEqual(["6 x0=0"]);
  expect(audience.ofKind("events").flatMap(({ events }) => events)).toHaveLength(6);
});
