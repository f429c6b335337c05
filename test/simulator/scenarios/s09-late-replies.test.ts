/** S09: a reply arrives after the role or the term has changed (the core alone: test/raft/elections, replication). */
import { expect, test } from "vitest";
import { ELECTION_MS_MAX, formed } from "./stage.ts";
import { carriesEntries, codeOf, isMessage, put } from "./vocabulary.ts";

test("votes of an earlier candidacy do not elect, those of the present one do (S09)", () => {
  const stage = formed();
  const [leader, candidate, ...others] = stage.cast();
  const term = stage.status(leader).term + 1;
  stage.rules = [
    (envelope) => {
      if (isMessage(envelope, "pre_vote", "vote")) return envelope.from === candidate ? "pass" : "drop";
      return envelope.to === candidate && isMessage(envelope, "vote_reply") ? "hold" : undefined;
    },
  ];
  stage.crash(leader);
  stage.until("a candidacy", () => stage.status(candidate).term === term);
  stage.until("all have voted", () => stage.held.length === others.length);
  stage.until("the next candidacy", () => stage.status(candidate).term === term + 1);
  stage.until("all have voted again", () => stage.held.length === 2 * others.length);
  expect(stage.status(candidate).role).toBe("candidate");
  const ofTerm = (wanted: number) =>
    stage.release(
      ({ body }) => body.kind === "raft" && body.message.kind === "vote_reply" && body.message.term === wanted,
    );
  expect(ofTerm(term)).toBe(others.length);
  stage.run(1);
  expect(stage.status(candidate).role).toBe("candidate");
  expect(ofTerm(term + 1)).toBe(others.length);
  stage.run(1);
  expect(stage.status(candidate)).toMatchObject({ role: "leader", term: term + 1 });
});

test("an acknowledgement of an older term commits nothing of the same leader's later term (S09)", () => {
  const stage = formed();
  const [leader, holder, ...others] = stage.cast();
  const start = stage.status(leader).last_index;
  // Two entries reach one follower, whose acknowledgements are under way for very long.
  stage.rules = [
    (envelope) => {
      if (envelope.from === leader && carriesEntries(envelope) && envelope.to !== holder) return "drop";
      return envelope.from === holder && isMessage(envelope, "append_reply") ? "hold" : undefined;
    },
  ];
  stage.write(leader, put("a", 1), { timeoutMs: 50 });
  stage.write(leader, put("b", 2), { timeoutMs: 50 });
  stage.run(10);
  const late = stage.held.filter(({ envelope }) => envelope.body.kind === "raft");
  expect(stage.host(holder).disk.log).toHaveLength(start + 2);
  // A majority without these entries elects another leader, whose first entry takes the place of the first of them.
  stage.heal();
  stage.isolate(leader, holder);
  stage.until("another leads", () => others.includes(stage.leader() ?? 0));
  stage.heal();
  stage.settle();
  expect(stage.status(leader).last_index).toBe(start + 1);
  // The first leader leads again; its first entry has the index of the second one, and only one follower gets it.
  const [only] = others;
  stage.rules = [
    (envelope) => {
      if (envelope.from !== leader || !carriesEntries(envelope)) return undefined;
      return envelope.to === only ? "pass" : "drop";
    },
  ];
  stage.lead(leader, false);
  stage.run(100);
  expect(stage.status(leader)).toMatchObject({ last_index: start + 2, commit_index: start + 1, role: "leader" });
  const matched = late.filter(({ envelope: { body } }) => {
    return body.kind === "raft" && body.message.kind === "append_reply" && body.message.result.index === start + 2;
  });
  expect(matched.length).toBeGreaterThan(0);
  stage.release();
  stage.run(1);
  expect(stage.status(leader).commit_index).toBe(start + 1);
  stage.heal();
  stage.settle();
  expect(stage.status(leader).commit_index).toBe(start + 2);
  expect(stage.value(leader, "a")).toBeNull();
});

test("the receipt of an entry that was overwritten meanwhile commits nothing and acknowledges nothing (S09)", () => {
  const stage = formed();
  const [leader, ...others] = stage.cast();
  const { term } = stage.status(leader);
  const { timing } = stage.world;
  // The leader's own write of its entry takes longer than its time in office.
  timing.syncMsMin = 4 * ELECTION_MS_MAX;
  timing.syncMsMax = 4 * ELECTION_MS_MAX;
  stage.cutOneWay([leader], others);
  const write = stage.write(leader, put("k", "lost"), { timeoutMs: 100 });
  timing.syncMsMin = 0.5;
  timing.syncMsMax = 0.5;
  stage.until("another leads", () => others.includes(stage.leader() ?? 0));
  const old = stage.instance(leader);
  stage.until("the old leader has the new one's entry in memory", () => (old.raft?.log.lastTerm ?? 0) > term);
  expect(old.inFlight.length).toBeGreaterThan(1); // its own write of the entry before is still under way
  const acknowledged: number[] = [];
  stage.rules = [
    ({ from, body }) => {
      if (from === leader && body.kind === "raft" && body.message.kind === "append_reply") {
        acknowledged.push(body.message.result.index);
      }
      return undefined;
    },
  ];
  const won = stage.written(stage.leader() ?? 0, put("k", "won"));
  expect(won.ok).toBe(true);
  stage.mend([leader], others);
  stage.run(300);
  expect(acknowledged).toEqual([]); // what it says of the new entries waits behind that write
  expect(old.inFlight.length).toBeGreaterThan(1);
  stage.settle();
  expect(acknowledged.length).toBeGreaterThan(0);
  expect(codeOf(write)).not.toBe("ok");
  expect(stage.value(leader, "k")).toBe("won");
});
