/**
 * S08: a voter comes back with empty storage. It must not help a quorum of forgetful and lagging members to overwrite
 * what is committed, nor begin a second cluster.
 */
import { describe, expect, test } from "vitest";
import { FLUSHED_MS, formed, Stage } from "./stage.ts";
import { put } from "./vocabulary.ts";

const ELECTIONS_MS = 5000;

describe("X is committed on three nodes, one of them is wiped, the two others go away, the two that lag return", () => {
  test.each(["paused", "stopped"] as const)(
    "no leader until a node with X returns, and X is there (S08, %s)",
    (how) => {
      const stage = formed();
      const [n1, n2, n3, n4, n5] = stage.cast();
      const away = (...ids: number[]): void => {
        stage.isolate(...ids);
        if (how === "paused") stage.pause(...ids);
        else stage.crash(...ids);
      };
      const back = (...ids: number[]): void => {
        stage.mend(ids, stage.ids);
        if (how === "paused") stage.resume(...ids);
        else {
          stage.start(...ids);
          stage.ask(...ids);
        }
      };
      away(n4, n5);
      expect(stage.written(n1, put("x", 1)).ok).toBe(true);
      stage.wipe(n3);
      away(n1, n2);
      back(n4, n5);
      stage.start(n3);
      stage.run(ELECTIONS_MS);
      expect(stage.status(n3).state).toBe("lost");
      expect(stage.status(n3).term).toBe(0);
      expect(stage.host(n3).disk.hardState).toEqual({ term: 0, votedFor: null });
      for (const id of [n4, n5]) expect(stage.status(id).role).not.toBe("leader");
      back(n2);
      stage.until("a leader", () => stage.leader() !== null);
      expect(stage.leader()).toBe(n2); // the only one of three voters that holds X
      expect(stage.value(n4, "x")).toBe(1);
      expect(stage.status(n3).state).toBe("lost");
      back(n1);
      stage.settle([n1, n2, n4, n5]);
    },
  );
});

test("a lost node refuses clients and says why (S08)", () => {
  const stage = formed();
  const [n1, , n3] = stage.cast();
  stage.wipe(n3);
  stage.start(n3);
  stage.until("it is lost", () => stage.status(n3).state === "lost");
  const lost = { code: "cluster_not_ready", reason: "node_lost" };
  expect(stage.written(n3, put("x", 1))).toMatchObject({ ok: false, error: lost });
  expect(stage.readNow(n3, { kind: "get", key: "x" })).toMatchObject({ ok: false, error: lost });
  expect(stage.written(n1, put("x", 1)).ok).toBe(true);
});

test("a wiped voter and two that were away make no leader, whatever their logs say (S08)", () => {
  const stage = formed();
  const [n1, n2, n3, n4, n5] = stage.cast();
  stage.crash(n1, n2);
  stage.wipe(n3);
  stage.start(n3);
  stage.run(ELECTIONS_MS);
  expect(stage.status(n3).state).toBe("lost");
  expect(stage.leader()).toBeNull();
  const terms = [n4, n5].map((id) => stage.status(id).term);
  stage.run(ELECTIONS_MS);
  expect([n4, n5].map((id) => stage.status(id).term)).toEqual(terms); // pre-vote: nobody raises it for nothing
});

test("a cluster of which two members never started neither forms nor elects, until they do (S08)", () => {
  const stage = new Stage();
  stage.start(1, 2, 3);
  stage.run(ELECTIONS_MS);
  for (const id of [1, 2, 3]) expect(stage.status(id)).toMatchObject({ state: "empty", role: null, term: 0 });
  const write = stage.written(1, put("x", 1), { timeoutMs: 100 });
  expect(write).toMatchObject({ ok: false, error: { code: "cluster_not_ready" } });
  stage.start(4);
  stage.run(ELECTIONS_MS);
  for (const id of [1, 2, 3, 4]) expect(stage.status(id).state).toBe("empty");
  stage.start(5);
  stage.settle();
});

test("a wiped lowest member does not form a second cluster, alone or after it hears the others (S08)", () => {
  const stage = formed();
  stage.lead(3);
  stage.wipe(1);
  stage.isolate(1);
  stage.start(1);
  stage.run(ELECTIONS_MS);
  expect(stage.status(1).state).toBe("empty");
  stage.heal();
  stage.until("it is lost", () => stage.status(1).state === "lost");
  expect(stage.written(2, put("x", 1)).ok).toBe(true);
  stage.settle([2, 3, 4, 5]);
});

test("a wiped majority with the lowest member among it does not form again while the two others are away (S08)", () => {
  const stage = formed();
  stage.written(1, put("x", 1));
  stage.settle();
  stage.run(FLUSHED_MS);
  stage.crash(4, 5);
  for (const id of [1, 2, 3]) stage.wipe(id);
  stage.start(1, 2, 3);
  stage.run(ELECTIONS_MS);
  for (const id of [1, 2, 3]) expect(stage.status(id).state).toBe("empty");
  stage.start(4, 5);
  stage.until("all three are lost", () => [1, 2, 3].every((id) => stage.status(id).state === "lost"));
  stage.run(ELECTIONS_MS);
  for (const id of [4, 5]) expect(stage.status(id).role).not.toBe("leader");
  // What the two still hold can be read where it lies.
  const local = stage.read(4, { kind: "get", key: "x" }, { local: true });
  expect(stage.answerTo(local)).toMatchObject({ ok: true, result: { record: { value: { json: 1 } } } });
});

test("answers that an earlier incarnation asked for do not count as answers to the next one (S08)", () => {
  const stage = new Stage();
  stage.rules = [({ to, body }) => (to === 1 && body.kind === "hello" && body.reply ? "hold" : undefined)];
  stage.start(1, 2, 3, 4, 5);
  stage.run(1000);
  expect(stage.held.length).toBeGreaterThanOrEqual(4);
  stage.wipe(1);
  stage.crash(5);
  stage.start(1);
  expect(stage.release()).toBeGreaterThanOrEqual(4); // four answers `empty`, one of a node that is gone
  stage.rules = [];
  stage.run(ELECTIONS_MS);
  for (const id of [1, 2, 3, 4]) expect(stage.status(id).state).toBe("empty");
  stage.start(5);
  stage.settle();
});

test("a node that is wiped while the cluster forms never votes in it: there is no election without all members (S08)", () => {
  const stage = new Stage();
  // Node 5 adopts last: its answer to the first round is heard, what comes after it is not.
  stage.rules = [
    ({ to, body }) => (to === 5 && body.kind === "hello" && body.membership.kind === "forming" ? "drop" : undefined),
  ];
  stage.start(1, 2, 3, 4, 5);
  stage.until("the others are forming", () => [1, 2, 3, 4].every((id) => stage.status(id).state === "forming"));
  stage.wipe(5);
  stage.rules = [];
  stage.start(5);
  stage.run(ELECTIONS_MS);
  expect(stage.status(5).state).toBe("lost");
  for (const id of [1, 2, 3, 4]) expect(stage.status(id)).toMatchObject({ state: "forming", role: null });
});

test.each([
  ["from another incarnation", { fromIncarnation: 1 }],
  ["for another incarnation", { toIncarnation: 1 }],
  ["for no incarnation", { toIncarnation: null }],
  ["of another cluster", { clusterId: "0123456789abcdef01234567" }],
  ["of no cluster", { clusterId: null }],
] as const)("a message %s moves nothing, though it names a higher term (S08)", (_what, wrong) => {
  const stage = formed();
  const [leader, follower, other] = stage.cast();
  const { term } = stage.status(leader);
  const empty = { kind: "append", prevIndex: 0, prevTerm: 0, commit: 0, round: 0, entries: [] } as const;
  for (const to of [leader, follower]) {
    const right = stage.envelope(other, to, { kind: "raft", message: { ...empty, term: term + 5 } });
    stage.deliver({ ...right, ...wrong });
    stage.run(5);
    expect(stage.status(to)).toMatchObject({ term, leader });
    stage.deliver(right);
    stage.run(0);
    expect(stage.status(to)).toMatchObject({ term: term + 5, leader: other }); // only the address was wrong
  }
});

/** Forms a cluster while one node crashes at the `count`-th statement; false when there are not so many. */
function formWithCrash(count: number, when: "before" | "after"): boolean {
  const stage = new Stage();
  let left = count;
  stage.onStatement = (statement) => {
    if (statement.when !== when) return undefined;
    left -= 1;
    return left === 0 ? "crash" : undefined;
  };
  stage.start(...stage.ids);
  stage.settle();
  stage.onStatement = null;
  const clusters = new Set(stage.world.hosts.map(({ disk }) => JSON.stringify(disk.identity?.membership)));
  expect(clusters.size, `crash ${when} statement ${count}`).toBe(1);
  return left <= 0;
}

test.each(["before", "after"] as const)(
  "a crash %s any statement of forming still ends in exactly one cluster (S08)",
  (when) => {
    let count = 1;
    while (formWithCrash(count, when)) count += 1;
    expect(count).toBeGreaterThan(15); // five identities, each written as empty, forming and formed
  },
);
