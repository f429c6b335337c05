/** S06: the leader can send and not receive. Its heartbeats keep everybody quiet, and nothing can commit. */
import { expect, test } from "vitest";
import { APPEND_ENTRIES_MAX, PROPOSALS_IN_FLIGHT_MAX } from "../../../src/base/limits.ts";
import { ELECTION_MS_MAX, formed, HEARTBEAT_MS, HOP_MS } from "./stage.ts";
import { codeOf, put } from "./vocabulary.ts";

const WRITES = 1000;

test("a deaf leader steps down within about an election timeout, and another one commits (S06)", () => {
  const stage = formed();
  const [deaf, ...others] = stage.cast();
  stage.cutOneWay(others, [deaf]);
  const steppedDownMs = stage.until("it steps down", () => stage.status(deaf).role !== "leader");
  expect(steppedDownMs).toBeLessThanOrEqual(ELECTION_MS_MAX + 2 * HEARTBEAT_MS + HOP_MS);
  stage.until("another leads", () => others.includes(stage.leader() ?? 0), 3 * ELECTION_MS_MAX);
  expect(stage.written(stage.leader() ?? 0, put("k", 1)).ok).toBe(true);
});

test("its clients never hear success, nor a definite failure of what it has sent to a peer (S06)", () => {
  const stage = formed();
  const [deaf, ...others] = stage.cast();
  const { last_index } = stage.status(deaf);
  stage.cutOneWay(others, [deaf]);
  const writes = Array.from({ length: WRITES }, (_, number) => stage.write(deaf, put(`k${number}`, number)));
  stage.run(5);
  const appended = stage.status(deaf).last_index - last_index;
  stage.run(4000);
  const answers = writes.map(codeOf);
  expect(new Set(answers)).toEqual(new Set(["timeout", "no_leader"]));
  expect(answers.filter((code) => code === "timeout").length).toBeGreaterThanOrEqual(appended);
  // The successor got some of the entries and has committed them: exactly those whose clients were told `timeout`.
  stage.heal();
  stage.settle();
  const leader = stage.leader() ?? 0;
  let committed = 0;
  for (const [number, code] of answers.entries()) {
    const answer = stage.read(leader, { kind: "get", key: `k${number}` }, { local: true });
    const found = stage.answerTo(answer);
    const present = found.ok && found.result.kind === "get" && found.result.record !== null;
    if (present) committed += 1;
    expect(present && code !== "timeout", `write ${number}: ${code}`).toBe(false);
  }
  expect(committed).toBeGreaterThan(0);
});

test("its log and its queue are bounded: what is over is refused as overloaded (S06)", () => {
  const stage = formed();
  const [deaf, ...others] = stage.cast();
  const { last_index } = stage.status(deaf);
  stage.cutOneWay(others, [deaf]);
  const count = PROPOSALS_IN_FLIGHT_MAX + 3;
  const writes = Array.from({ length: count }, (_, number) => stage.write(deaf, put("k", number)));
  stage.run(5);
  expect(writes.filter((write) => codeOf(write) === "overloaded")).toHaveLength(3);
  // Two batches are under way and no third: the log does not grow while nothing commits.
  expect(stage.status(deaf).last_index - last_index).toBeLessThanOrEqual(2 * APPEND_ENTRIES_MAX);
  const { last_index: before } = stage.status(deaf);
  stage.run(200);
  expect(stage.status(deaf).last_index).toBe(before);
});
