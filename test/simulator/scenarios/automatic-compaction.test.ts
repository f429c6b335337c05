/**
 * Automatic compaction: the leader compacts of its own accord, removes what nobody can read any more, and then there is
 * nothing that keeps the cluster awake.
 */
import { expect, test } from "vitest";
import { Spectator } from "./audience.ts";
import { untilAsleep } from "./owners.ts";
import { formed, type Stage } from "./stage.ts";
import { put, recordValue } from "./vocabulary.ts";

/** A mark is made every so many revisions; compaction aims at marks. */
const MARK_REVISIONS = 1000;
const KEPT_REVISIONS = 100;
const WRITES = 1250;
const IN_FLIGHT = 50;
const SILENT_MS = 600_000;

function written(size: number): Stage {
  const stage = formed({
    size,
    quiesceAfterMs: 1000,
    compaction: { keepRevisions: KEPT_REVISIONS, keepMs: 0, historyBytesMax: 0 },
  });
  for (let done = 0; done < WRITES; done += IN_FLIGHT) {
    const node = stage.ids[done % stage.ids.length] ?? 1;
    const pending = Array.from({ length: IN_FLIGHT }, (_, at) => stage.write(node, put(`k${at % 5}`, done + at)));
    for (const one of pending) expect(stage.answerTo(one).ok).toBe(true);
  }
  return stage;
}

test.each([1, 5])("a cluster of %i compacts to the last mark that is old enough, and removes what went", (size) => {
  const stage = written(size);
  const { replay } = stage.world.safety;
  stage.until("a compaction", () => replay.compactRevision > 0);
  stage.until("the removal", () => !replay.removalPending);
  expect(replay.compactRevision).toBe(MARK_REVISIONS);
  const [node] = stage.ids;
  if (node === undefined) throw new Error("no node");
  // Of five keys the state at the mark is left, and everything behind it.
  const rows = replay.store.scan({ start: "r", end: "s", limit: WRITES });
  expect(rows).toHaveLength(WRITES - MARK_REVISIONS + 5);
  expect(recordValue(stage.readNow(node, { kind: "get", key: "k4", revision: MARK_REVISIONS }))).toBe(999);
  const older = stage.readNow(node, { kind: "get", key: "k4", revision: MARK_REVISIONS - 1 });
  expect(older).toMatchObject({ ok: false, error: { code: "compacted", compact_revision: MARK_REVISIONS } });
});

test.each([1, 5])("a cluster of %i with nothing left to compact sleeps, whatever its watchers ask", (size) => {
  const stage = written(size);
  const audience = new Spectator(stage, { key: "k0" }).watch(stage.ids[0] ?? 1);
  stage.until("the removal", () => stage.world.safety.replay.compactRevision > 0);
  untilAsleep(stage);
  stage.run(30_000);
  const { sleep } = stage.world;
  const { messages } = sleep;
  audience.askProgress();
  stage.run(100);
  const { steps } = stage.world;
  stage.run(SILENT_MS);
  expect({ messages: sleep.messages, steps: stage.world.steps, asleep: sleep.cluster }).toEqual({
    messages,
    steps,
    asleep: true,
  });
  expect(audience.position.revision).toBe(WRITES);
});
