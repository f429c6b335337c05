/** A log that begins behind a base: cutting it, and what happens at its border (thesis 5). */
import { describe, expect, test } from "vitest";
import { AssertionError } from "../../src/base/assert.ts";
import type { RaftState } from "../../src/raft/state.ts";
import type { Output } from "../../src/raft/types.ts";
import {
  append,
  entriesOf,
  happen,
  lead,
  logTerms,
  matched,
  members,
  membershipEntry,
  positionOf,
  raft,
  receive,
  sent,
  stored,
  theOnly,
} from "./fixtures.ts";

const truncate = (state: RaftState, index: number) => happen(state, { kind: "truncate_log", index });

describe("a log is cut behind what is applied", () => {
  test("and the caller is told what to drop, and what to remember of it", () => {
    const state = raft({ terms: [1, 1, 2, 2, 2], commit: 4 });
    const output = truncate(state, 3);
    expect(output.persist).toMatchObject({ dropThrough: positionOf(3, 2), append: [], install: null });
    expect(logTerms(state)).toEqual([2, 2]);
  });

  test("the membership at that entry is part of it, not a later one", () => {
    const entries = [...entriesOf([1, 1]), membershipEntry(3, 1, members([1, 2, 3], [4])), ...entriesOf([1], 4)];
    const state = raft({ entries, commit: 4 });
    expect(truncate(state, 2).persist?.dropThrough?.membership).toEqual(members([1, 2, 3]));
    expect(truncate(state, 4).persist?.dropThrough?.membership).toEqual(members([1, 2, 3], [4]));
  });

  test("but never beyond the commit index; and what is gone already is not dropped again", () => {
    const state = raft({ terms: [1, 1, 1], commit: 2 });
    expect(() => truncate(state, 3)).toThrow(AssertionError);
    const other = raft({ base: positionOf(5, 1), terms: [1], commit: 6 });
    for (const index of [0, 4, 5]) expect(truncate(other, index).persist).toBeNull();
  });

  test("what it covers was durable: a receipt for less changes nothing, and sleep does not wait for one", () => {
    const state = raft();
    const won = lead(state);
    for (const id of [2, 3]) receive(state, id, matched(1, 1));
    expect(state).toMatchObject({ commit: 1, durableIndex: 0 });
    truncate(state, 1);
    expect(state.durableIndex).toBe(1);
    stored(state, won);
    expect(state.durableIndex).toBe(1);
  });
});

describe("at the border of the log", () => {
  const follower = (commit = 10) => raft({ id: 2, base: positionOf(10, 1), terms: [1, 1, 1], term: 1, commit });
  const resultOf = (output: Output) => theOnly(output, "append_reply").result;

  test.each([
    { claim: "exactly behind the base", prevIndex: 10, terms: [1, 1] },
    { claim: "from below it", prevIndex: 7, terms: [1, 1, 1, 1, 1] },
    { claim: "all of it below", prevIndex: 3, terms: [1, 1] },
    { claim: "ending at it", prevIndex: 8, terms: [1, 1] },
  ])("an append $claim is acknowledged for what it verifies", ({ prevIndex, terms }) => {
    const state = follower();
    const entries = entriesOf(terms, prevIndex + 1);
    const output = receive(state, 1, append({ prevIndex, prevTerm: 1, entries }));
    expect(resultOf(output)).toEqual({ kind: "matched", index: Math.max(10, prevIndex + terms.length) });
    expect(state.log.lastIndex).toBe(13);
    expect(output.persist).toBeNull();
  });

  test("a heartbeat at the base is the leader's way to ask for it: who has it agrees, who has not says where it ends", () => {
    expect(resultOf(receive(follower(), 1, append({ prevIndex: 10, prevTerm: 1 })))).toEqual({
      kind: "matched",
      index: 10,
    });
    const late = raft({ id: 2, terms: [1, 1, 1], term: 1, commit: 2 });
    expect(resultOf(receive(late, 1, append({ term: 2, prevIndex: 10, prevTerm: 1 })))).toEqual({
      kind: "conflict",
      prevIndex: 10,
      index: 3,
      term: 1,
    });
  });

  test("a hint never points below what is committed, nor below the base", () => {
    const state = raft({ id: 2, base: positionOf(10, 3), terms: [5, 5, 5], term: 5, commit: 11 });
    const output = receive(state, 1, append({ term: 6, prevIndex: 13, prevTerm: 4 }));
    expect(resultOf(output)).toEqual({ kind: "conflict", prevIndex: 13, index: 11, term: 5 });
    const bare = raft({ id: 2, base: positionOf(10, 3), terms: [5, 5], term: 5 });
    expect(resultOf(receive(bare, 1, append({ term: 6, prevIndex: 12, prevTerm: 1 })))).toMatchObject({ index: 10 });
  });

  test("a tail can be cut back to the base", () => {
    const state = follower();
    receive(state, 1, append({ term: 2, prevIndex: 10, prevTerm: 1, entries: entriesOf([2], 11) }));
    expect(logTerms(state)).toEqual([2]);
  });

  test("a leader whose log is empty behind its base leads, and its time does not fall", () => {
    const state = raft({ base: { ...positionOf(10, 3), timeMs: 70_000 } });
    const output = lead(state, 0, [5000, 5000]);
    expect(output.persist?.append).toMatchObject([{ index: 11, term: 4, timeMs: 70_000 }]);
    expect(sent(output, "append", 2)).toMatchObject([{ prevIndex: 10, prevTerm: 3 }]);
  });

  test("an election compares by the base if there is nothing else", () => {
    const state = raft({ id: 2, base: positionOf(10, 3) });
    const ask = (lastIndex: number, lastTerm: number) => {
      return theOnly(receive(state, 1, { kind: "pre_vote", term: 9, lastIndex, lastTerm }), "pre_vote_reply").granted;
    };
    expect([ask(9, 3), ask(10, 2), ask(10, 3), ask(5, 4)]).toEqual([false, false, true, true]);
  });
});
