/** S47: one reader stops reading. Neither the writers nor the other readers notice, and it loses nothing but its watch. */
import { expect, test } from "vitest";
import { Spectator } from "./audience.ts";
import { formed, type Stage } from "./stage.ts";
import { put } from "./vocabulary.ts";

const WRITES = 2000;
const VALUE = "x".repeat(1000);
const IN_FLIGHT = 100;

function write(stage: Stage, node: number, count: number): void {
  for (let done = 0; done < count; done += IN_FLIGHT) {
    const pending = Array.from({ length: IN_FLIGHT }, (_, at) => stage.write(node, put(`k${at % 10}`, VALUE)));
    for (const one of pending) expect(stage.answerTo(one).ok).toBe(true);
  }
}

test("the slow one is cancelled with its last position, the others see everything, and its resumption has no hole (S47)", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  const readers = [leader, follower].map((node) => new Spectator(stage).watch(node));
  const slow = new Spectator(stage).watch(follower);
  stage.run(10);
  slow.stopReading();
  write(stage, leader, WRITES);
  stage.run(100);
  for (const reader of readers) expect(reader.seen).toHaveLength(WRITES);
  stage.run(15_000);
  write(stage, leader, IN_FLIGHT);
  stage.run(100);
  for (const reader of readers) expect(reader.seen).toHaveLength(WRITES + IN_FLIGHT);
  slow.readOn();
  stage.run(10);
  const last = slow.frames[slow.frames.length - 1];
  expect(last).toMatchObject({ kind: "slow_consumer", position: slow.position });
  // What waited for it was bounded by its credit, not by how long it slept.
  const bytes = slow.ofKind("events").reduce((sum, frame) => sum + frame.bytes, 0);
  expect(bytes).toBeLessThanOrEqual(256 << 10);
  expect(slow.seen.length).toBeLessThan(WRITES);
  slow.resume(leader);
  stage.run(500);
  expect(slow.seen).toHaveLength(WRITES + IN_FLIGHT);
});

test("a reader that only pauses for a while is not cancelled, and catches up (S47)", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  const reader = new Spectator(stage).watch(follower);
  stage.run(10);
  reader.stopReading();
  write(stage, leader, WRITES);
  stage.run(5000);
  reader.readOn();
  stage.run(500);
  expect(reader.ofKind("slow_consumer")).toEqual([]);
  expect(reader.seen).toHaveLength(WRITES);
});
