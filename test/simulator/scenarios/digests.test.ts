/** Whoever has another state than a majority halts, and says behind which entry (digest-check.ts). */
import { expect, test } from "vitest";
import { formed, type Stage } from "./stage.ts";
import { put } from "./vocabulary.ts";

const ASKED_MS = 6000;

/** The leader has asked for the digests after an entry, and `answer` took the place of what these nodes said. */
function answeredBy(stage: Stage, nodes: readonly number[], digest: string): { index: number; told: number[] } {
  const [leader] = stage.cast();
  const seen = { index: 0, told: [] as number[] };
  stage.rules = [
    ({ from, to, body }) => {
      if (body.kind === "diverged") seen.told.push(to);
      if (body.kind !== "digest_reply") return undefined;
      seen.index = body.index;
      if (!nodes.includes(from)) return undefined;
      stage.deliver(stage.envelope(from, leader, { ...body, digest }));
      return "drop";
    },
  ];
  expect(stage.written(leader, put("k", 1)).ok).toBe(true);
  stage.run(ASKED_MS);
  expect(seen.index).toBeGreaterThan(0);
  return seen;
}

test("five equal states: nobody is told anything", () => {
  const stage = formed();
  expect(answeredBy(stage, [], "").told).toEqual([]);
});

test("one that differs is told by the leader, and is believed by nobody", () => {
  const stage = formed();
  const [leader, odd] = stage.cast();
  expect(answeredBy(stage, [odd], "another").told).toEqual([odd]);
  expect(stage.halted.size).toBe(0); // its own digest is that of the majority
  expect(stage.leader()).toBe(leader);
});

test("a leader that differs from a majority halts, and the others go on", () => {
  const stage = formed();
  const [leader, ...others] = stage.cast();
  const { index } = answeredBy(stage, others.slice(0, 3), "another");
  expect(stage.halted.get(leader)).toContain(`after entry ${index}`);
  stage.rules = [];
  stage.until("another leads", () => others.includes(stage.leader() ?? 0));
  expect(stage.written(others[0] ?? 0, put("k", 2)).ok).toBe(true);
});

test("two against two and one that is silent: nothing is concluded", () => {
  const stage = formed();
  const [leader, first, second, third] = stage.cast();
  stage.isolate(third);
  expect(answeredBy(stage, [first, second], "another").told).toEqual([]);
  expect(stage.halted.size).toBe(0);
  expect(stage.leader()).toBe(leader);
});

test("a follower that is told that a majority differs halts; by anybody but its leader it is told nothing", () => {
  const stage = formed();
  const [leader, follower, other] = stage.cast();
  expect(stage.written(leader, put("k", 1)).ok).toBe(true);
  stage.settle();
  const { term, applied_index: index } = stage.status(follower);
  const told = { kind: "diverged", index, digest: "another" } as const;
  stage.deliver(stage.envelope(other, follower, { ...told, term }));
  stage.deliver(stage.envelope(leader, follower, { ...told, term: term - 1 }));
  stage.run(50);
  expect(stage.halted.size).toBe(0);
  stage.deliver(stage.envelope(leader, follower, { ...told, term }));
  stage.run(50);
  expect(stage.halted.get(follower)).toMatch(new RegExp(`^diverged: .*after entry ${index}`));
  expect(stage.halted.size).toBe(1);
});
