/**
 * S01: an object instance that was replaced goes on with its memory and does not know (nothing tells it before it
 * touches its storage). A is the old instance, B the new one over the same disk.
 */
import { expect, test } from "vitest";
import type { Query } from "../../../src/kv/command.ts";
import type { Instance } from "../host.ts";
import { FLUSHED_MS, formed, type Stage } from "./stage.ts";
import { carriesEntries, codeOf, isAppend, isMessage, type Pending, put, type ReadAnswer } from "./vocabulary.ts";

interface Split {
  readonly stage: Stage;
  readonly oldLeader: number;
  readonly newLeader: number;
  readonly old: Instance;
}

/**
 * The worst split: the host of the leader A is counted on both sides. A still reaches two followers, B and the other
 * two elect a new leader and commit k=2. Each side has three members only because one of them is there twice.
 */
function splitBrain(fence: boolean): Split {
  const stage = formed({ fence });
  const [oldLeader, newLeader, third, ...rest] = stage.cast();
  stage.written(oldLeader, put("k", 1));
  stage.settle();
  stage.run(FLUSHED_MS); // or A would end by its own flush
  const old = stage.supersede(oldLeader);
  stage.cutBothWays([newLeader, third], rest);
  stage.rules = [
    (envelope, sender) => {
      const { from, to } = envelope;
      if (from === oldLeader && isMessage(envelope, "pre_vote")) return "drop"; // B does not want to lead
      if (sender === old) return rest.includes(to) ? "pass" : "drop";
      if (to === oldLeader && rest.includes(from)) return old;
      return from === oldLeader && rest.includes(to) ? "drop" : undefined;
    },
  ];
  stage.until("a new leader", () => [newLeader, third].includes(stage.leader() ?? 0));
  const leader = stage.leader() ?? 0;
  expect(stage.written(leader, put("k", 2)).ok).toBe(true);
  expect(old.running).toBe(true);
  expect(old.raft?.role.kind).toBe("leader");
  return { stage, oldLeader, newLeader: leader, old };
}

/** The revision is in memory: no storage is touched when it is read, unlike a record that has been flushed. */
const FROM_MEMORY: Query = { kind: "revision" };

function askOld({ stage, oldLeader }: Split, query: Query): Pending<ReadAnswer> {
  const read = stage.read(oldLeader, query, { old: true });
  stage.run(20);
  return read;
}

test.each([FROM_MEMORY, { kind: "get", key: "k" } satisfies Query])(
  "a superseded leader that two followers still confirm never answers a linearizable read (S01, %j)",
  (query) => {
    const split = splitBrain(true);
    const read = askOld(split, query);
    expect(read).toEqual({ answer: null, lost: "broken" });
    expect(split.old.running).toBe(false);
    split.stage.heal();
    expect(split.stage.value(split.oldLeader, "k")).toBe(2);
  },
);

test("without the fence the same story serves a stale answer: the fence is what prevents it (S01)", () => {
  expect(askOld(splitBrain(false), FROM_MEMORY).answer).toMatchObject({ ok: true, revision: 1 });
});

test("a superseded leader that everybody can hear again steps down or ends before it serves a read (S01)", () => {
  const split = splitBrain(true);
  const { stage, oldLeader, old } = split;
  stage.heal();
  const read = stage.read(oldLeader, { kind: "get", key: "k" }, { old: true });
  stage.run(3000);
  expect(codeOf(read)).not.toBe("ok");
  expect(old.running && old.raft?.role.kind === "leader").toBe(false);
  stage.settle();
  for (const id of stage.ids) expect(stage.value(id, "k")).toBe(2);
});

test("acknowledgements of both instances count as one member (S01)", () => {
  const stage = formed();
  const [leader, follower, ...others] = stage.cast();
  const { commit_index } = stage.status(leader);
  const acknowledged = { old: 0, new: 0 };
  stage.cutBothWays([leader, follower], others);
  const write = stage.write(leader, put("k", 1));
  stage.run(5); // the follower has written the entry
  expect(stage.host(follower).disk.log).toHaveLength(commit_index + 1);
  const old = stage.supersede(follower);
  stage.rules = [
    (envelope, sender) => {
      if (envelope.to === leader && isMessage(envelope, "append_reply")) {
        const { body } = envelope;
        const { result } =
          body.kind === "raft" && body.message.kind === "append_reply" ? body.message : { result: null };
        if (result?.kind === "matched" && result.index === commit_index + 1) {
          acknowledged[sender === old ? "old" : "new"] += 1;
        }
        return "pass";
      }
      if (envelope.to !== follower) return undefined;
      stage.deliver(envelope);
      return old;
    },
  ];
  stage.run(200);
  expect(acknowledged.old).toBeGreaterThan(0);
  expect(acknowledged.new).toBeGreaterThan(0);
  expect(stage.status(leader).commit_index).toBe(commit_index);
  expect(codeOf(write)).toBeNull();
  stage.heal();
  stage.until("the write is answered", () => codeOf(write) !== null);
  expect(codeOf(write)).toBe("ok");
});

test("the next write of a superseded leader ends it, and nothing of that turn leaves (S01)", () => {
  const stage = formed();
  const [leader] = stage.cast();
  const old = stage.supersede(leader);
  const left: string[] = [];
  stage.rules = [
    (envelope, sender) => {
      if (sender === old && carriesEntries(envelope)) left.push(envelope.body.kind);
      return undefined;
    },
  ];
  const write = stage.write(leader, put("k", 1), { old: true });
  stage.run(20);
  expect(old.running).toBe(false);
  expect(left).toEqual([]);
  expect(write).toEqual({ answer: null, lost: "broken" });
  stage.settle();
  expect(stage.value(leader, "k")).toBeNull();
});

test("the next write of a superseded follower ends it, and it acknowledges nothing (S01)", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  const old = stage.supersede(follower);
  let acknowledged = 0;
  stage.rules = [
    (envelope, sender) => {
      if (sender === old) acknowledged += 1;
      return envelope.to === follower && isAppend(envelope) ? old : undefined;
    },
  ];
  stage.run(200);
  expect(old.running).toBe(true); // heartbeats alone need no write
  const before = acknowledged;
  expect(stage.written(leader, put("k", 1)).ok).toBe(true);
  stage.run(5);
  expect(old.running).toBe(false);
  expect(acknowledged).toBe(before);
  stage.heal();
  stage.settle();
});
