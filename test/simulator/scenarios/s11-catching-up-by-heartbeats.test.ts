/** S11: nothing new is written, and yet whoever is behind catches up. */
import { expect, test } from "vitest";
import { formed, HEARTBEAT_MS } from "./stage.ts";
import { carriesEntries, codeOf, put } from "./vocabulary.ts";

test("a follower that was down catches up by heartbeats alone, applied index and digest (S11)", () => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  stage.crash(follower);
  for (const value of [1, 2, 3]) expect(stage.written(leader, put(`k${value}`, value)).ok).toBe(true);
  stage.start(follower);
  const tookMs = stage.until("the follower has caught up", () => stage.agree());
  expect(tookMs).toBeLessThan(3 * HEARTBEAT_MS);
  expect(stage.status(follower).revision).toBe(3);
});

test("a single write whose appends were all dropped once is committed by heartbeats alone (S11)", () => {
  const stage = formed();
  const [leader] = stage.cast();
  let dropped = 0;
  stage.rules = [
    (envelope) => {
      if (!carriesEntries(envelope)) return undefined;
      dropped += 1;
      return "drop";
    },
  ];
  const write = stage.write(leader, put("k", 1));
  stage.run(1);
  expect(dropped).toBe(4);
  stage.heal();
  const tookMs = stage.until("the write is answered", () => codeOf(write) !== null);
  expect(codeOf(write)).toBe("ok");
  expect(tookMs).toBeLessThan(3 * HEARTBEAT_MS);
  stage.settle();
});

test("a single write whose acknowledgements were all dropped once is committed by heartbeats alone (S11)", () => {
  const stage = formed();
  const [leader] = stage.cast();
  stage.rules = [({ to, body }) => (to === leader && body.kind === "raft" ? "drop" : undefined)];
  const write = stage.write(leader, put("k", 1));
  stage.run(5);
  expect(codeOf(write)).toBeNull();
  stage.heal();
  stage.until("the write is answered", () => codeOf(write) !== null, 3 * HEARTBEAT_MS);
  expect(codeOf(write)).toBe("ok");
});
