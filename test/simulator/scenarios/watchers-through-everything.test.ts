/**
 * A watcher on each of the five nodes, through 200 changes of leader and evictions: every event once, in order, whole
 * revisions, with the record before it. That each frame is right is checked as it comes (watch-check.ts); here is that
 * nothing is missing in the end, and that all of it really happened.
 */
import { expect, test } from "vitest";
import type { Command, Operation } from "../../../src/kv/command.ts";
import { endOf } from "../../../src/kv/position.ts";
import { evictHost } from "../world.ts";
import { Spectator } from "./audience.ts";
import { formed, type Stage } from "./stage.ts";

const CHANGES = 200;
/** Small enough that a revision of several changes is sent in parts. */
const NARROW = { creditPerWatchBytes: 4096, frameBytesMax: 512, frameBytesTarget: 256 };

function several(round: number): Command {
  const success = Array.from({ length: 1 + (round % 6) }, (_, at): Operation => {
    const key = `k${(round + at) % 9}`;
    return at % 4 === 3
      ? { type: "delete", selector: { key } }
      : { type: "put", key, value: { json: round * 10 + at } };
  });
  return { kind: "txn", compare: [], success, failure: [] };
}

test("a watcher on each of five nodes sees every event once through 200 changes of leader and evictions", () => {
  const stage = formed({ quiesceAfterMs: 800, hubLimits: NARROW });
  const audience = stage.ids.map((id) => new Spectator(stage).watch(id, { from: 1 }));
  stage.run(10);
  let changes = 0;
  let evictions = 0;
  for (let round = 0; changes < CHANGES; round += 1) {
    const leader = stage.leader();
    if (round % 4 === 3) evictions += rest(stage);
    const next = stage.ids[round % stage.ids.length] ?? 1;
    if (next !== leader) {
      stage.lead(next, false);
      changes += 1;
    }
    const pending = [0, 1, 2].map((at) =>
      stage.write(stage.ids[(round + at) % stage.ids.length] ?? 1, several(round + at)),
    );
    for (const one of pending) stage.answerTo(one);
  }
  stage.settle();
  stage.run(200);
  const { events } = stage.world.safety;
  for (const spectator of audience) {
    spectator.askProgress();
    stage.run(50);
    expect(spectator.connected).toBe(true); // no connection was ever opened anew
    expect(spectator.position).toEqual(endOf(events.length - 1));
    expect(spectator.seen).toHaveLength(events.flat().length);
  }
  expect(evictions).toBeGreaterThan(CHANGES / 2);
  expect(audience.some((spectator) => spectator.ofKind("events").some(({ complete }) => !complete))).toBe(true);
  expect(audience.every((spectator) => spectator.ofKind("leader_changed").length > 0)).toBe(true);
});

/** Nobody asks for anything: the cluster falls asleep and its objects are taken out of memory. How many. */
function rest(stage: Stage): number {
  stage.until("sleep", () => stage.world.sleep.cluster);
  stage.run(600);
  const evicted = stage.world.hosts.filter((host) => evictHost(stage.world, host)).length;
  stage.run(100);
  stage.ask(...stage.ids);
  stage.until("a leader", () => stage.leader() !== null);
  return evicted;
}
