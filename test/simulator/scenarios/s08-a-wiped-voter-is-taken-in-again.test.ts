/**
 * S08, the other half: a voter that has lost its storage comes back by itself, first as a learner, under a new incarnation.
 * Until it votes again no other one is taken in, and what an earlier storage behind its id was is nothing to it.
 */
import { expect, test } from "vitest";
import type { PeerEnvelope } from "../../../src/node-object/ports.ts";
import { newestMembership } from "../../../src/raft/log.ts";
import { parseMembership } from "../../../src/raft/membership.ts";
import type { Membership, NodeId } from "../../../src/raft/types.ts";
import { runTurn } from "../turn.ts";
import { formed, type Stage } from "./stage.ts";
import { isAppend, put } from "./vocabulary.ts";

const ELECTIONS_MS = 5000;
const ALL = [1, 2, 3, 4, 5];

/** Voters and learners after each change, as the log of this node tells. */
function changes(stage: Stage, node: NodeId): string[] {
  const entries = stage.host(node).disk.log.filter(({ kind }) => kind === "membership");
  return entries.map(({ payload }) => textOf(parseMembership(payload)));
}

function textOf(membership: Membership | null): string {
  return membership === null ? "none" : `${membership.voters.join("")}/${membership.learners.join("")}`;
}

function membership(stage: Stage, node: NodeId): string {
  const { raft } = stage.instance(node);
  return raft === null ? "none" : textOf(newestMembership(raft.log).membership);
}

function isBack(stage: Stage, node: NodeId): boolean {
  return (
    stage.host(node).live !== null && stage.status(node).state === "formed" && stage.status(node).member === "voter"
  );
}

function wipeAndStart(stage: Stage, node: NodeId): void {
  stage.wipe(node);
  stage.start(node);
}

/** Without the node. */
function others(node: NodeId): string {
  return ALL.filter((id) => id !== node).join("");
}

function takesPart(envelope: PeerEnvelope): boolean {
  return envelope.body.kind === "raft" && ["vote", "vote_reply", "pre_vote"].includes(envelope.body.message.kind);
}

test("a wiped voter is a learner until it has caught up, then it votes, and its state is that of the others (S08)", () => {
  const stage = formed();
  const [leader, , , node] = stage.cast();
  for (let count = 0; count < 20; count += 1) stage.written(leader, put(`k${count}`, count));
  const before = stage.status(node).incarnation;
  wipeAndStart(stage, node);
  expect(stage.until("it is back", () => isBack(stage, node))).toBeLessThan(500);
  stage.settle();
  expect(changes(stage, leader)).toEqual([`${others(node)}/${node}`, "12345/"]);
  expect(changes(stage, node)).toEqual(changes(stage, leader));
  expect(stage.status(node).incarnation).not.toBe(before);
  expect(stage.value(node, "k7")).toBe(7);
  // Restarted it is who it has become, though it knows nothing of the founding.
  stage.crash(node);
  stage.start(node);
  stage.ask(node);
  stage.settle();
  expect(stage.status(node)).toMatchObject({ state: "formed", member: "voter" });
});

test("two others may be gone: the wiped one completes the majority again (S08)", () => {
  const stage = formed();
  const [leader, , away, other, node] = stage.cast();
  wipeAndStart(stage, node);
  stage.until("it is back", () => isBack(stage, node));
  stage.crash(away, other);
  expect(stage.written(leader, put("x", 1)).ok).toBe(true);
});

test("a second wiped voter waits until the first one votes (S08)", () => {
  const stage = formed();
  const [leader, , , first, second] = stage.cast();
  stage.rules = [(envelope) => (envelope.to === first && isAppend(envelope) ? "drop" : undefined)];
  wipeAndStart(stage, first);
  stage.until("it is a learner", () => membership(stage, leader) === `${others(first)}/${first}`);
  wipeAndStart(stage, second);
  stage.run(ELECTIONS_MS);
  expect(membership(stage, leader)).toBe(`${others(first)}/${first}`);
  expect(stage.status(second)).toMatchObject({ state: "lost", role: null, member: null, term: 0, last_index: 0 });
  expect(stage.written(leader, put("x", 1)).ok).toBe(true); // three of four vote
  stage.rules = [];
  stage.until("both are back", () => isBack(stage, first) && isBack(stage, second));
  stage.settle();
  expect(changes(stage, leader)).toEqual([
    `${others(first)}/${first}`,
    "12345/",
    `${others(second)}/${second}`,
    "12345/",
  ]);
});

test("a learner that is wiped again is taken in anew (S08)", () => {
  const stage = formed();
  const [leader, , , node] = stage.cast();
  stage.rules = [(envelope) => (envelope.to === node && isAppend(envelope) ? "drop" : undefined)];
  wipeAndStart(stage, node);
  stage.until("it is a learner", () => membership(stage, leader) === `${others(node)}/${node}`);
  stage.wipe(node);
  stage.rules = [];
  stage.start(node);
  stage.until("it is back", () => isBack(stage, node));
  stage.settle();
  expect(changes(stage, leader)).toEqual([`${others(node)}/${node}`, `${others(node)}/${node}`, "12345/"]);
});

test("a log that names an earlier storage of the id as a voter does not make the new one campaign (S08)", () => {
  const stage = formed();
  const [leader, , , node] = stage.cast();
  wipeAndStart(stage, node);
  stage.until("it is back", () => isBack(stage, node));
  stage.settle();
  const last = stage.host(leader).disk.log.findLast(({ kind }) => kind === "membership")?.index ?? 0;
  // It is wiped again, and gets the log up to where its storage before this one began to vote.
  stage.rules = [
    (envelope) => {
      const { body } = envelope;
      if (envelope.to !== node || body.kind !== "raft" || body.message.kind !== "append") return undefined;
      const { entries } = body.message;
      if (entries.every(({ index }) => index <= last)) return undefined;
      const message = { ...body.message, commit: 0, entries: entries.filter(({ index }) => index <= last) };
      stage.deliver({ ...envelope, body: { kind: "raft", message } });
      return "drop";
    },
  ];
  wipeAndStart(stage, node);
  stage.until("it has that much", () => stage.status(node).last_index === last);
  expect(membership(stage, node)).toBe("12345/");
  const campaigns: PeerEnvelope[] = [];
  stage.rules = [
    (envelope) => {
      if (envelope.from === node && takesPart(envelope)) campaigns.push(envelope);
      return envelope.to === node ? "drop" : undefined;
    },
  ];
  stage.run(ELECTIONS_MS);
  expect(campaigns).toEqual([]);
  stage.heal();
  stage.until("it is back", () => isBack(stage, node));
  stage.settle();
});

test("a leader that was taken in again is followed by a node that has not heard of it (S08)", () => {
  const stage = formed();
  const [, , , node, late] = stage.cast();
  stage.isolate(late);
  wipeAndStart(stage, node);
  stage.until("it is back", () => isBack(stage, node));
  stage.lead(node, false);
  expect(stage.written(node, put("x", 1)).ok).toBe(true);
  expect(membership(stage, late)).toBe("12345/");
  stage.heal();
  stage.settle();
  expect(stage.leader()).toBe(node);
  expect(stage.value(late, "x")).toBe(1);
});

test("a late greeting of a storage that is gone does not unseat the one after it (S08)", () => {
  const stage = formed();
  const [leader, , , node] = stage.cast();
  const greetings: PeerEnvelope[] = [];
  stage.rules = [
    (envelope) => {
      const { from, to, body } = envelope;
      if (from !== node || to !== leader || body.kind !== "hello") return undefined;
      if (body.membership.kind === "lost") greetings.push(envelope);
      return undefined;
    },
  ];
  wipeAndStart(stage, node);
  stage.until("it has greeted", () => greetings.length >= 2);
  stage.rules = [];
  wipeAndStart(stage, node);
  stage.until("it is back", () => isBack(stage, node));
  stage.settle();
  const known = changes(stage, leader);
  for (const greeting of greetings) stage.deliver(greeting);
  stage.run(ELECTIONS_MS);
  expect(changes(stage, leader)).toEqual(known);
  expect(isBack(stage, node)).toBe(true);
});

test("what a leader once heard of a storage counts for nothing once that is gone, however long it leads again (S08)", () => {
  const stage = formed();
  const [first, second, , node] = stage.cast();
  wipeAndStart(stage, node);
  stage.until("it is back", () => isBack(stage, node));
  stage.lead(second);
  wipeAndStart(stage, node);
  stage.until("it is back", () => isBack(stage, node));
  stage.lead(first);
  const known = changes(stage, first);
  expect(known).toHaveLength(4);
  stage.run(ELECTIONS_MS);
  expect(changes(stage, first)).toEqual(known);
});

test("a cluster that sleeps wakes for a wiped node, and sleeps again once it votes (S08)", () => {
  const stage = formed({ quiesceAfterMs: 1000 });
  const [leader, , , node] = stage.cast();
  stage.until("all sleep", () => stage.world.sleep.cluster);
  wipeAndStart(stage, node);
  stage.until("it is back", () => isBack(stage, node));
  stage.until("all sleep", () => stage.world.sleep.cluster);
  expect(changes(stage, leader)).toHaveLength(2);
});

test("a cluster with a learner sleeps only while that cannot be reached, and goes on when it is back (S08)", () => {
  const stage = formed({ quiesceAfterMs: 1000 });
  const [leader, , , node] = stage.cast();
  stage.rules = [(envelope) => (envelope.to === node && isAppend(envelope) ? "drop" : undefined)];
  wipeAndStart(stage, node);
  stage.until("it is a learner", () => membership(stage, leader) === `${others(node)}/${node}`);
  stage.crash(node);
  stage.rules = [];
  const asleep = () => ALL.every((id) => id === node || stage.status(id).quiescent);
  stage.until("the others sleep", asleep, 20_000);
  stage.start(node);
  stage.until("it is back", () => isBack(stage, node), 70_000);
});

test("a cluster of which a member never came back is formed all the same: only its first start needs all (S08)", () => {
  const stage = formed();
  const [leader, , first, second, gone] = stage.cast();
  stage.crash(gone);
  wipeAndStart(stage, first);
  stage.until("it is back", () => isBack(stage, first));
  wipeAndStart(stage, second);
  stage.until("it is back too", () => isBack(stage, second));
  expect(stage.written(leader, put("x", 1)).ok).toBe(true);
  stage.start(gone);
  stage.ask(gone);
  stage.settle();
});

test("an operator lets a node go and takes it in again; one that has left is told, and disturbs nobody", () => {
  const stage = formed();
  const [leader, , , node] = stage.cast();
  const { term } = stage.status(leader);
  const answers: (string | null)[] = [];
  const ask = (kind: "add" | "remove", id: NodeId, of = leader): string | null => {
    const instance = stage.instance(of);
    runTurn(stage.world, instance, () => answers.push(instance.runtime.changeMember({ kind, id })));
    return answers.pop() ?? null;
  };
  expect(ask("remove", node, node)).toBe("not_leader");
  expect(ask("add", node)).toBe("unchanged");
  expect(ask("remove", node)).toBeNull();
  expect(ask("remove", leader)).toBe("change_pending");
  stage.until("it has left", () => membership(stage, node) === `${others(node)}/`);
  stage.run(ELECTIONS_MS);
  expect(stage.status(leader)).toMatchObject({ role: "leader", term });
  expect(stage.status(node)).toMatchObject({ state: "formed", member: null });
  expect(ask("add", 6)).toBe("unknown_node");
  expect(ask("add", node)).toBe("not_heard");
  stage.until("it has said who it is", () => ask("add", node) === null);
  stage.until("it votes again", () => isBack(stage, node));
  expect(stage.status(leader)).toMatchObject({ role: "leader", term });
  stage.settle();
});

test("a leader hands over when it is asked to, without a timeout", () => {
  const stage = formed();
  const [leader, next] = stage.cast();
  const instance = stage.instance(leader);
  let refusal: string | null = "none";
  const transfer = (to: NodeId) =>
    runTurn(stage.world, instance, () => (refusal = instance.runtime.transferLeader(to)));
  transfer(leader);
  expect(refusal).toBe("already_leader");
  const write = stage.write(leader, put("x", 1));
  transfer(next);
  expect(refusal).toBeNull();
  expect(stage.until("the other one leads", () => stage.leader() === next)).toBeLessThan(50);
  expect(stage.answerTo(write).ok).toBe(true);
  stage.settle();
});
