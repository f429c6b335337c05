/**
 * A node gives up its state because an administrator wants it to (design 02 §6): the leader has committed before under which
 * incarnation it comes back, so what its old storage acknowledges counts no more, and one node at a time does.
 */
import { describe, expect, test } from "vitest";
import type { Admission, ErrandReply } from "../../../src/node-object/errands.ts";
import type { NodeId } from "../../../src/raft/types.ts";
import { FLUSHED_MS, formed, type Stage } from "./stage.ts";
import { put } from "./vocabulary.ts";

function halt(stage: Stage, victim: NodeId): void {
  stage.corrupt = (node, what) => node === victim && what === "load";
  stage.crash(victim);
  stage.start(victim);
  stage.until("it halts", () => stage.halted.has(victim));
  stage.corrupt = null;
  stage.until("a new instance knows", () => (stage.host(victim).live?.runtime.status().halted ?? null) !== null);
}

/** The first half of a repair. */
function renewed(stage: Stage, leader: NodeId, id: NodeId): Admission {
  const reply = stage.answerTo(stage.administer(leader, { kind: "renew", id }));
  if (reply.kind !== "done" || reply.admission === null) throw new Error(`not renewed: ${JSON.stringify(reply)}`);
  return reply.admission;
}

function gaveUp(stage: Stage, id: NodeId, admission: Admission, replaces = storageOf(stage, id)): ErrandReply {
  return stage.answerTo(stage.administer(id, { kind: "give_up", ...admission, replaces }));
}

/** The incarnation of what the node has on its disk. */
function storageOf(stage: Stage, id: NodeId): number {
  return stage.host(id).disk.identity?.incarnation ?? 0;
}

function isBack(stage: Stage, id: NodeId, { incarnation }: Admission): boolean {
  const { live } = stage.host(id);
  if (live?.running !== true) return false;
  const status = stage.status(id);
  return status.incarnation === incarnation && status.member === "voter" && status.state === "formed";
}

describe("a node that votes again", () => {
  test("does not give up what it has for a repair of the storage before", () => {
    const stage = formed({ logKeepEntries: 10 });
    const [leader, victim] = stage.cast();
    stage.written(leader, put("k", 1));
    stage.settle();
    const before = storageOf(stage, victim);
    const late = renewed(stage, leader, victim);
    const admission = renewed(stage, leader, victim);
    expect(gaveUp(stage, victim, admission)).toMatchObject({ kind: "done" });
    stage.until("it is back", () => isBack(stage, victim, admission));
    expect(gaveUp(stage, victim, late, before)).toEqual({ kind: "refused", refusal: "superseded" });
    stage.run(1000);
    expect(isBack(stage, victim, admission)).toBe(true);
  });
});

describe("a halted node", () => {
  test("gives up everything in one step and votes again with the state of the others", () => {
    const stage = formed({ logKeepEntries: 10 });
    const [leader, victim] = stage.cast();
    for (let count = 0; count < 40; count += 1) stage.written(leader, put(`k${count % 7}`, count));
    stage.settle();
    stage.run(FLUSHED_MS);
    halt(stage, victim);
    const { disk } = stage.host(victim);
    const before = disk.identity?.incarnation;
    const admission = renewed(stage, leader, victim);
    // So far it has lost nothing: whoever stops here can go on later.
    expect(disk.identity?.incarnation).toBe(before);
    expect(stage.halted.has(victim)).toBe(true);
    expect(gaveUp(stage, victim, admission)).toMatchObject({ kind: "done" });
    expect(disk.identity).toEqual({
      incarnation: admission.incarnation,
      membership: { kind: "lost", clusterId: admission.clusterId },
    });
    expect([disk.log.length, disk.rows.size, disk.halted]).toEqual([0, 0, null]);
    stage.until("it is back", () => isBack(stage, victim, admission));
    stage.settle();
    expect(stage.value(victim, "k4")).toBe(39);
    expect(stage.status(victim).incarnation).toBe(admission.incarnation);
  });

  test("whose process dies as it gives up is as it was, or new; either way it is repaired by asking again", () => {
    const stage = formed();
    const [leader, victim] = stage.cast();
    stage.written(leader, put("k", 1));
    for (const when of ["before", "after"] as const) {
      stage.settle();
      halt(stage, victim);
      const admission = renewed(stage, leader, victim);
      stage.onStatement = (one) =>
        one.node === victim && one.kind === "reset" && one.when === when ? "crash" : undefined;
      const pending = stage.administer(victim, {
        kind: "give_up",
        ...admission,
        replaces: storageOf(stage, victim),
      });
      stage.until("the process dies", () => pending.lost !== null);
      stage.onStatement = null;
      // Neither is durable: the turn was not.
      expect(stage.halted.has(victim)).toBe(true);
      stage.start(victim);
      stage.until("it runs", () => stage.host(victim).live?.running === true);
      const next = renewed(stage, leader, victim);
      expect(gaveUp(stage, victim, next)).toMatchObject({ kind: "done" });
      stage.until("it is back", () => isBack(stage, victim, next));
    }
    stage.settle();
    expect(stage.value(victim, "k")).toBe(1);
  });
});

describe("what counts", () => {
  test("is no acknowledgement of the storage that is to be given up, from the moment that the leader decides", () => {
    const stage = formed();
    const [leader, victim, left, right, far] = stage.cast();
    stage.written(leader, put("k", 1));
    stage.settle();
    const admission = renewed(stage, leader, victim);
    // Of the four that vote now two are away: the old storage of the victim would be the third of five.
    stage.isolate(right, far);
    stage.mend([right], [far]);
    const pending = stage.write(leader, put("k", 2), { timeoutMs: 400 });
    stage.until("an answer", () => pending.answer !== null || pending.lost !== null);
    expect(pending.answer).toMatchObject({ ok: false });
    stage.heal();
    expect(gaveUp(stage, victim, admission)).toMatchObject({ kind: "done" });
    stage.until("it is back", () => isBack(stage, victim, admission));
    stage.settle();
    expect([left, victim].map((node) => stage.value(node, "k"))).toEqual([2, 2]);
  });

  test("a second node waits until the first one votes, and no node is asked when none of the others may be missed", () => {
    const stage = formed();
    const [leader, first, second, third, fourth] = stage.cast();
    stage.settle();
    renewed(stage, leader, first);
    const refused = stage.answerTo(stage.administer(leader, { kind: "renew", id: second }, 300));
    expect(refused).toEqual({ kind: "refused", refusal: "change_pending" });
    // The first may be asked for again: it is still the only one.
    const admission = renewed(stage, leader, first);
    expect(gaveUp(stage, first, admission)).toMatchObject({ kind: "done" });
    stage.until("it is back", () => isBack(stage, first, admission));
    stage.settle();
    const leads = stage.leader() ?? 0;
    const others = [first, second, third, fourth, leader].filter((node) => node !== leads);
    const [one, two, three] = others;
    if (one === undefined || two === undefined || three === undefined) throw new Error("there are five nodes");
    stage.crash(one, two);
    stage.run(700);
    const costly = stage.answerTo(stage.administer(leads, { kind: "renew", id: three }, 300));
    expect(costly).toEqual({ kind: "refused", refusal: "quorum_unreachable" });
  });

  test("an incarnation of another cluster's admission is not taken", () => {
    const stage = formed();
    const [leader, victim] = stage.cast();
    const { incarnation } = renewed(stage, leader, victim);
    const refused = gaveUp(stage, victim, { clusterId: "another", incarnation });
    expect(refused).toEqual({ kind: "refused", refusal: "other_cluster" });
    expect(stage.host(victim).disk.log.length).toBeGreaterThan(0);
  });
});
