/** S04: an old or an empty message moves neither the log nor the commit index (the core alone: test/raft/replication). */
import { expect, test } from "vitest";
import type { PeerEnvelope } from "../../../src/node-object/ports.ts";
import { formed } from "./stage.ts";
import { carriesEntries, codeOf, isAppend, put } from "./vocabulary.ts";

test("a delayed append of a prefix truncates nothing, at a follower whose later entries are not committed (S04 a)", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  const late: PeerEnvelope[] = [];
  stage.rules = [
    (envelope) => {
      if (envelope.to === follower && carriesEntries(envelope)) late.push(envelope);
      return isAppend(envelope) && envelope.to !== follower ? "drop" : undefined;
    },
  ];
  stage.write(leader, put("a", 1));
  stage.write(leader, put("b", 2));
  stage.run(5);
  const { disk } = stage.host(follower);
  const held = [...disk.log];
  expect(stage.status(follower).commit_index).toBe(held.length - 2);
  expect(late).toHaveLength(2);
  for (const envelope of late) {
    stage.deliver(envelope); // the first of them is a prefix of what is held
    stage.run(5);
    expect(disk.log).toEqual(held);
  }
  stage.heal();
  stage.settle();
  expect(stage.value(follower, "b")).toBe(2);
});

test("a heartbeat's commit index does not commit a follower's own divergent entry (S04 b)", () => {
  const stage = formed();
  const [first, follower, ...others] = stage.cast();
  stage.cutBothWays([first, follower], others);
  const lost = stage.write(first, put("k", "lost"), { timeoutMs: 300 });
  stage.run(5);
  const { disk } = stage.host(follower);
  const divergent = disk.log[disk.log.length - 1];
  expect(divergent?.payload).toContain("lost");
  stage.cutBothWays([first], [follower]);
  stage.until("the others have a leader", () => others.includes(stage.leader() ?? 0));
  // Told now, or it would be carried out behind the other one: its entry is overwritten, so it never ran.
  stage.until("the client of the lost write is told", () => codeOf(lost) === "timeout");
  const leader = stage.leader() ?? 0;
  expect(stage.written(leader, put("k", "won")).ok).toBe(true);
  // Only heartbeats reach the follower: their commit index lies at or above its divergent entry.
  stage.mend([follower], others);
  let heartbeats = 0;
  stage.rules = [
    (envelope) => {
      if (envelope.to !== follower || !isAppend(envelope)) return undefined;
      if (carriesEntries(envelope)) return "drop";
      const { body } = envelope;
      if (body.kind === "raft" && body.message.kind === "append" && body.message.commit >= (divergent?.index ?? 0)) {
        heartbeats += 1;
      }
      return "pass";
    },
  ];
  stage.run(250);
  expect(heartbeats).toBeGreaterThan(2);
  expect(disk.log[(divergent?.index ?? 0) - 1]).toBe(divergent);
  expect(stage.status(follower).commit_index).toBeLessThan(divergent?.index ?? 0);
  stage.heal();
  stage.settle();
  for (const id of stage.ids) expect(stage.value(id, "k")).toBe("won");
});
