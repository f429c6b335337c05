/**
 * Halting (design 02 §1): a broken invariant or a corrupt row halts the node, never the data; a failed write ends the
 * instance in the same turn (ports P3). The others go on.
 */
import { describe, expect, test } from "vitest";
import { ELECTION_MS_MAX, FLUSHED_MS, formed, type Stage } from "./stage.ts";
import { carriesEntries, codeOf, isMessage, put } from "./vocabulary.ts";

/** A message that no correct peer sends: another entry in the place of a committed one. */
function contradictCommitted(stage: Stage, victim: number, liar: number): void {
  const { log } = stage.host(victim).disk;
  const { term, commit_index } = stage.status(victim);
  const before = log[commit_index - 2];
  const committed = log[commit_index - 1];
  if (committed === undefined) throw new Error("nothing is committed");
  stage.raft(liar, victim, {
    kind: "append",
    term: term + 1,
    prevIndex: commit_index - 1,
    prevTerm: before?.term ?? 0,
    commit: commit_index,
    round: 0,
    entries: [{ ...committed, term: term + 1, payload: "", payloadBytes: 0, kind: "leader_start" }],
  });
}

function expectHalted(stage: Stage, victim: number): void {
  stage.until("the halted row is durable and a new instance has read it", () => {
    const { live } = stage.host(victim);
    return stage.halted.has(victim) && live !== null && live.runtime.status().halted !== null;
  });
  const status = stage.status(victim);
  expect(status).toMatchObject({ state: "halted", role: null, halted: stage.halted.get(victim) });
  expect(stage.instance(victim).runtime.position()).toMatchObject({ ready: false, halted: status.halted });
  const refusal = { ok: false, error: { code: "node_halted" } };
  expect(stage.written(victim, put("k", "no"))).toMatchObject(refusal);
  expect(stage.readNow(victim, { kind: "get", key: "k" })).toMatchObject(refusal);
  expect(stage.readNow(victim, { kind: "get", key: "k" }, { local: true })).toMatchObject(refusal);
}

/** Nothing but hello leaves a halted node, whatever happens around it, and its data stay as they are. */
function expectSilent(stage: Stage, victim: number): void {
  const { disk } = stage.host(victim);
  const before = { log: [...disk.log], hardState: disk.hardState, rows: [...disk.rows] };
  const said: string[] = [];
  stage.rules = [
    ({ from, body }) => {
      if (from === victim && body.kind !== "hello") said.push(body.kind);
      return undefined;
    },
  ];
  const leader = stage.leader();
  if (leader === null) throw new Error("no leader");
  stage.crash(leader);
  stage.run(4 * ELECTION_MS_MAX);
  stage.start(leader);
  const others = stage.ids.filter((id) => id !== victim);
  stage.settle(others);
  expect(stage.written(others[0] ?? 0, put("later", 1)).ok).toBe(true);
  expect(said).toEqual([]);
  expect({ log: [...disk.log], hardState: disk.hardState, rows: [...disk.rows] }).toEqual(before);
}

describe("a node halts", () => {
  test("when a peer contradicts what is committed: it neither votes nor serves, and the others go on (S12)", () => {
    const stage = formed();
    const [leader, victim, liar] = stage.cast();
    stage.written(leader, put("k", 1));
    stage.settle();
    stage.run(FLUSHED_MS);
    contradictCommitted(stage, victim, liar);
    expectHalted(stage, victim);
    expect(stage.halted.get(victim)).toMatch(/is committed/);
    expectSilent(stage, victim);
  });

  test("when it leads and another node claims to lead the same term: nothing of that turn leaves", () => {
    const stage = formed();
    const [leader, liar] = stage.cast();
    const { term, last_index } = stage.status(leader);
    const left: string[] = [];
    stage.rules = [
      ({ from, body }) => {
        if (from === leader) left.push(body.kind);
        return undefined;
      },
    ];
    stage.raft(liar, leader, {
      kind: "append",
      term,
      prevIndex: last_index,
      prevTerm: term,
      commit: 0,
      round: 0,
      entries: [],
    });
    stage.run(5);
    expect(left.filter((kind) => kind !== "hello")).toEqual([]);
    stage.until("another leads", () => stage.leader() !== null && stage.leader() !== leader);
    expectHalted(stage, leader);
    expect(stage.halted.get(leader)).toMatch(/two leaders/);
    expectSilent(stage, leader);
  });

  test.each(["load", "row", "log"] as const)("when its %s is corrupt, and names the row", (what) => {
    const stage = formed();
    const [leader, victim] = stage.cast();
    stage.written(leader, put("k", 1));
    stage.settle();
    stage.run(FLUSHED_MS);
    // An entry that is applied and not flushed: after the restart it is read again, from the log.
    stage.written(leader, put("k", 2));
    stage.settle();
    stage.corrupt = (node, place) => node === victim && place === what;
    stage.crash(victim);
    stage.start(victim);
    stage.until("it halts", () => stage.halted.has(victim));
    stage.corrupt = null; // the next instance gets as far as the halted row
    stage.run(100);
    expectHalted(stage, victim);
    expect(stage.halted.get(victim)).toContain(what);
    expectSilent(stage, victim);
  });

  test("and two halted nodes of five leave a cluster, three do not", () => {
    const stage = formed();
    const [leader, first, second, third] = stage.cast();
    stage.written(leader, put("k", 1));
    stage.settle();
    contradictCommitted(stage, first, second);
    expectHalted(stage, first);
    contradictCommitted(stage, second, third);
    expectHalted(stage, second);
    expect(stage.written(leader, put("k", 2)).ok).toBe(true);
    contradictCommitted(stage, third, leader);
    stage.run(4 * ELECTION_MS_MAX);
    expectHalted(stage, third);
    expect(stage.written(leader, put("k", 3), { timeoutMs: 500 })).toMatchObject({ ok: false });
    expect(stage.leader()).toBeNull();
  });
});

describe("a failed write ends the instance in its turn", () => {
  test("the leader's: its early appends never leave, nothing stays on its disk, its client's connection breaks", () => {
    const stage = formed();
    const [leader] = stage.cast();
    const { disk } = stage.host(leader);
    const entries = disk.log.length;
    const instance = stage.instance(leader);
    let left = 0;
    stage.rules = [
      (envelope) => {
        if (envelope.from === leader && carriesEntries(envelope)) left += 1;
        return undefined;
      },
    ];
    stage.onStatement = ({ node, kind, when }) => {
      return node === leader && kind === "append" && when === "after" ? "fail" : undefined;
    };
    const write = stage.write(leader, put("k", 1));
    stage.onStatement = null;
    expect(instance.running).toBe(false);
    expect(disk.log).toHaveLength(entries);
    expect(write).toEqual({ answer: null, lost: "broken" });
    stage.run(20);
    expect(left).toBe(0);
    stage.settle(); // it is back, and takes part
    expect(stage.halted.size).toBe(0);
    expect(stage.value(leader, "k")).toBeNull();
  });

  test("a follower's: it acknowledges nothing, and has nothing of the entry until it is sent again", () => {
    const stage = formed();
    const [leader, victim] = stage.cast();
    const instance = stage.instance(victim);
    let acknowledged = 0;
    stage.rules = [
      (envelope, sender) => {
        if (sender === instance && isMessage(envelope, "append_reply")) acknowledged += 1;
        return undefined;
      },
    ];
    stage.onStatement = ({ node, kind }) => (node === victim && kind === "append" ? "fail" : undefined);
    const before = acknowledged;
    expect(stage.written(leader, put("k", 1)).ok).toBe(true); // four others are enough
    expect(instance.running).toBe(false);
    expect(acknowledged).toBe(before);
    stage.onStatement = null;
    stage.settle();
    expect(stage.value(victim, "k")).toBe(1);
  });

  test.each(["hardState", "identity"] as const)("one of its %s: no vote and no cluster comes of it", (kind) => {
    const stage = formed();
    const [leader, victim] = stage.cast();
    const { hardState } = stage.host(victim).disk;
    const instance = stage.instance(victim);
    const failing = kind === "hardState" ? victim : leader;
    stage.onStatement = (statement) => (statement.node === failing && statement.kind === kind ? "fail" : undefined);
    const left: string[] = [];
    stage.rules = [
      (envelope, sender) => {
        if (sender === instance && isMessage(envelope, "vote", "vote_reply")) left.push(envelope.body.kind);
        return undefined;
      },
    ];
    stage.crash(leader);
    if (kind === "identity") {
      stage.wipe(leader);
      stage.start(leader); // cannot even write who it is
      stage.run(ELECTION_MS_MAX);
      expect(stage.host(leader).disk.identity).toBeNull();
    } else {
      stage.until("it must write a vote", () => !instance.running);
      expect(stage.host(victim).disk.hardState).toEqual(hardState);
      expect(left).toEqual([]);
    }
    stage.onStatement = null;
    const rest = stage.ids.filter((id) => id !== leader);
    stage.settle(rest);
    expect(stage.written(rest[0] ?? 0, put("k", 1)).ok).toBe(true);
  });

  test("of the flush: what was applied in memory is applied again from the log", () => {
    const stage = formed();
    const [leader, victim] = stage.cast();
    let failures = 0;
    stage.onStatement = ({ node, kind, when }) => {
      if (node !== victim || kind !== "state" || when !== "after" || failures >= 3) return undefined;
      failures += 1;
      return "fail";
    };
    const write = stage.write(leader, put("k", 1));
    stage.run(4 * FLUSHED_MS);
    expect(codeOf(write)).toBe("ok");
    expect(failures).toBe(3);
    stage.settle();
    stage.run(FLUSHED_MS);
    expect([...stage.host(victim).disk.rows]).toEqual([...stage.host(leader).disk.rows]);
  });
});
