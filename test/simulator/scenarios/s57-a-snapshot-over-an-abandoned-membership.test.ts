/**
 * S57: a leader that is cut off begins a change of members which never happens; what it then gets is a snapshot in which
 * another one did. It counts by that one, and by nothing that it once wanted.
 */
import { expect, test } from "vitest";
import { newestMembership } from "../../../src/raft/log.ts";
import type { NodeId } from "../../../src/raft/types.ts";
import { runTurn } from "../turn.ts";
import { baseOf, expectEqualRows, SHORT_LOG, writeMany } from "./newcomers.ts";
import { ELECTION_MS_MAX, formed, type Stage } from "./stage.ts";
import { carriesEntries, codeOf, isMessage, put } from "./vocabulary.ts";

function remove(stage: Stage, of: NodeId, id: NodeId): string | null {
  let refusal: string | null = "never asked";
  const instance = stage.instance(of);
  runTurn(stage.world, instance, () => {
    refusal = instance.runtime.changeMember({ kind: "remove", id });
  });
  return refusal;
}

function votersOf(stage: Stage, node: NodeId): string {
  const { raft } = stage.instance(node);
  return raft === null ? "none" : newestMembership(raft.log).membership.voters.join("");
}

function without(...gone: readonly NodeId[]): string {
  return [1, 2, 3, 4, 5].filter((id) => !gone.includes(id)).join("");
}

test("the membership of a snapshot takes the place of one that was never committed, also when the node campaigns (S57)", () => {
  const stage = formed(SHORT_LOG);
  const [old, kept, other, left] = stage.cast();
  stage.isolate(old);
  // A leader that no longer knows of its followers' silence: the change stands in its log, and nowhere else.
  expect(remove(stage, old, kept)).toBeNull();
  expect(votersOf(stage, old)).toBe(without(kept));
  stage.until("another leads", () => ![null, old].includes(stage.leader()));
  const leader = stage.leader() ?? 0;
  const leaving = leader === left ? other : left;
  stage.until("the change is taken", () => remove(stage, leader, leaving) === null);
  stage.until("the change is committed", () => votersOf(stage, kept) === without(leaving));
  expect(remove(stage, leader, leaving)).not.toBeNull();
  writeMany(stage, leader, 60);
  stage.until("the log does not reach back", () => baseOf(stage, leader) > stage.status(old).last_index);
  stage.heal();
  const rest = stage.ids.filter((id) => id !== leaving);
  stage.settle(rest);
  expect(baseOf(stage, old)).toBeGreaterThan(20);
  expect(votersOf(stage, old)).toBe(without(leaving));
  // It campaigns, and asks whoever votes by the snapshot: the one that it wanted to let go too, the other one not.
  const asked = new Set<NodeId>();
  stage.rules = [
    (envelope) => {
      if (envelope.from === old && isMessage(envelope, "vote")) asked.add(envelope.to);
      return undefined;
    },
  ];
  stage.lead(old, false);
  expect([...asked].sort()).toEqual(rest.filter((id) => id !== old));
  // Two of the four are no majority, though they would be one of the three that it once counted.
  const [first = 0, second = 0, third = 0] = rest.filter((id) => id !== old);
  stage.isolate(second, third);
  expect(codeOfWrite(stage, old)).not.toBe("ok");
  stage.heal();
  stage.settle(rest);
  expect(stage.written(first, put("x", 1)).ok).toBe(true);
  expectEqualRows(stage, rest);
});

function codeOfWrite(stage: Stage, node: NodeId): string | null {
  const write = stage.write(node, put("y", 1), { timeoutMs: 300 });
  stage.run(500);
  return codeOf(write);
}

test("a second change is refused while the first is not committed, and done after it (S57)", () => {
  const stage = formed();
  const [leader, first, second] = stage.cast();
  stage.rules = [(envelope) => (envelope.from === leader && carriesEntries(envelope) ? "drop" : undefined)];
  expect(remove(stage, leader, first)).toBeNull();
  expect(remove(stage, leader, second)).toBe("change_pending");
  expect(votersOf(stage, leader)).toBe(without(first));
  stage.rules = [];
  stage.until("the first is done", () => votersOf(stage, second) === without(first));
  stage.until("the second is taken", () => remove(stage, leader, second) === null);
  stage.settle(stage.ids.filter((id) => ![first, second].includes(id)));
  expect(votersOf(stage, leader)).toBe(without(first, second));
});

test("a leader that removes itself counts the others only, and ends with what was under way (S57)", () => {
  const stage = formed();
  const [leader, one, two, three, four] = stage.cast();
  const others = [one, two, three, four];
  // With an entry under way, of which two of the four others hear: with itself that would have been a majority of five.
  stage.rules = [
    (envelope) =>
      envelope.from === leader && carriesEntries(envelope) && envelope.to > others[1]! ? "drop" : undefined,
  ];
  const silent = others.filter((id) => id > others[1]!);
  expect(silent).toHaveLength(2);
  expect(remove(stage, leader, leader)).toBeNull();
  const write = stage.write(leader, put("last", 1), { timeoutMs: 10_000 });
  stage.run(2 * ELECTION_MS_MAX);
  expect(codeOf(write)).toBeNull();
  expect(stage.world.safety.membership).toBeNull();
  stage.rules = [];
  stage.until("it is answered", () => codeOf(write) !== null);
  stage.until("another leads", () => others.includes(stage.leader() ?? 0));
  stage.settle(others);
  expect(votersOf(stage, one)).toBe(without(leader));
  expect(stage.status(leader).role).not.toBe("leader");
  expect(stage.written(one, put("x", 1)).ok).toBe(true);
  if (codeOf(write) === "ok") expect(stage.value(two, "last")).toBe(1);
});
