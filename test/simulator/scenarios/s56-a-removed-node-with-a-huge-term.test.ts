/** S56: a node that was removed while it was cut off has campaigned for long when it hears the others again. */
import { expect, test } from "vitest";
import type { NodeId } from "../../../src/raft/types.ts";
import { runTurn } from "../turn.ts";
import { expectEqualRows, leaveBehind, SHORT_LOG } from "./newcomers.ts";
import { ELECTION_MS_MAX, formed, type Stage } from "./stage.ts";
import { put } from "./vocabulary.ts";

const HUGE_TERM = 1_000_000;

function change(stage: Stage, kind: "add" | "remove", id: NodeId): string | null {
  let refusal: string | null = "never asked";
  const instance = stage.instance(stage.leader() ?? 0);
  runTurn(stage.world, instance, () => {
    refusal = instance.runtime.changeMember({ kind, id });
  });
  return refusal;
}

interface Removed {
  readonly stage: Stage;
  readonly leader: NodeId;
  readonly node: NodeId;
  readonly term: number;
}

/** The node is removed, and the others' logs do not reach back to it; it is cut off still, and has tried 100 times. */
function removed(): Removed {
  const stage = formed(SHORT_LOG);
  const [leader, , , , node] = stage.cast();
  leaveBehind(stage, node);
  expect(change(stage, "remove", node)).toBeNull();
  stage.settle(stage.ids.filter((id) => id !== node));
  const { term } = stage.status(leader);
  stage.run(100 * ELECTION_MS_MAX);
  return { stage, leader, node, term };
}

function expectUndisturbed({ stage, leader, node, term }: Removed): void {
  for (const id of stage.ids) if (id !== node) expect(stage.status(id)).toMatchObject({ term, leader });
  expect(stage.written(leader, put("x", 1)).ok).toBe(true);
}

function expectTakenIn(story: Removed): void {
  const { stage, leader, node } = story;
  stage.until("it has said who it is", () => change(stage, "add", node) === null);
  stage.until("it votes again", () => stage.status(node).member === "voter");
  expect(stage.leader()).toBe(leader);
  expectEqualRows(stage);
}

test("its term is what it was, it disturbs nobody, and taken in again it catches up without an election (S56)", () => {
  const story = removed();
  const { stage, node, term } = story;
  expect(stage.status(node).term).toBe(term);
  stage.heal();
  stage.run(20 * ELECTION_MS_MAX);
  expectUndisturbed(story);
  expectTakenIn(story);
  expectUndisturbed(story);
});

test("a term that is huge all the same unseats nobody while it is out (S56)", () => {
  const story = removed();
  const { stage, node } = story;
  stage.crash(node);
  stage.host(node).disk.hardState = { term: HUGE_TERM, votedFor: node };
  stage.start(node);
  stage.ask(node);
  stage.heal();
  stage.run(20 * ELECTION_MS_MAX);
  expectUndisturbed(story);
  // Taken in again it counts, and so does its term: one election, after which all is as before.
  stage.until("it has said who it is", () => change(stage, "add", node) === null);
  stage.until("it votes again", () => stage.status(node).member === "voter", 20_000);
  stage.settle();
  const { term } = stage.status(node);
  expect(term).toBeGreaterThanOrEqual(HUGE_TERM);
  stage.run(20 * ELECTION_MS_MAX);
  for (const id of stage.ids) expect(stage.status(id)).toMatchObject({ term, leader: stage.leader() });
  expectEqualRows(stage);
});
