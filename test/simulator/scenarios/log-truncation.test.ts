/** How much of the log stays: by count, by size, and not more because somebody is away (log-truncation.ts). */
import { expect, test } from "vitest";
import { PROMOTION_LAG_ENTRIES_MAX } from "../../../src/base/limits.ts";
import { baseOf, isChunk, writeMany } from "./newcomers.ts";
import { FLUSHED_MS, formed } from "./stage.ts";
import { carriesEntries, put } from "./vocabulary.ts";

test("the log keeps its number of entries behind what is on the disk, and is cut in steps", () => {
  const stage = formed({ logKeepEntries: 20 });
  const [leader] = stage.cast();
  for (let number = 0; number < 60; number += 1)
    expect(stage.written(leader, put(`k${number % 7}`, number)).ok).toBe(true);
  stage.run(FLUSHED_MS);
  for (const id of stage.ids) {
    const kept = stage.status(id).last_index - baseOf(stage, id);
    expect(kept).toBeGreaterThanOrEqual(20);
    expect(kept).toBeLessThanOrEqual(25);
  }
});

test("large entries are bounded by their size, long before their number counts, on every node", () => {
  const bytes = 1_000_000;
  const stage = formed({ logKeepEntries: 10_000, logKeepBytes: 4 * bytes });
  const [leader, , , , away] = stage.cast();
  stage.isolate(away);
  const value = "x".repeat(bytes / 4);
  for (let number = 0; number < 60; number += 1)
    expect(stage.written(leader, put("k", `${value}${number}`)).ok).toBe(true);
  stage.run(FLUSHED_MS);
  for (const id of stage.ids.filter((one) => one !== away)) {
    const { log } = stage.host(id).disk;
    const kept = log.reduce((sum, { payloadBytes }) => sum + payloadBytes, 0);
    expect(kept).toBeLessThanOrEqual(4 * bytes);
    expect(kept).toBeGreaterThan(2 * bytes);
  }
  stage.heal();
  stage.settle();
  expect(stage.value(away, "k")).toBe(`${value}59`);
});

test("a member that is silent for a moment gets the entries that it missed, and no snapshot", () => {
  const stage = formed({ logKeepEntries: 10 });
  const [leader, away] = stage.cast();
  stage.isolate(away);
  writeMany(stage, leader, 60);
  stage.run(FLUSHED_MS);
  stage.heal();
  stage.settle();
  expect(stage.world.transfers.begun).toBe(0);
  // Of one that stays away longer no log is kept.
  stage.isolate(away);
  writeMany(stage, leader, 60);
  stage.run(5000);
  expect(baseOf(stage, leader)).toBeGreaterThan(stage.status(away).last_index);
  stage.heal();
  stage.settle();
  expect(stage.world.transfers.begun).toBe(1);
});

test("a learner that is silent for long when it has taken a snapshot in needs no second one", () => {
  const stage = formed({ logKeepEntries: 10 });
  const [leader, node] = stage.cast();
  writeMany(stage, leader, 60);
  stage.run(FLUSHED_MS);
  stage.wipe(node);
  stage.start(node);
  let held = 0;
  stage.rules = [
    (envelope) => {
      if (!isChunk(envelope)) return undefined;
      held += 1;
      return "drop";
    },
  ];
  stage.until("it is served", () => held > 0);
  // So much comes meanwhile that it is not made a voter as soon as it has the snapshot.
  writeMany(stage, leader, PROMOTION_LAG_ENTRIES_MAX + 100);
  stage.rules = [(envelope) => (envelope.to === node && carriesEntries(envelope) ? "drop" : undefined)];
  stage.until("it has the snapshot", () => stage.world.transfers.installs === 1);
  stage.run(200);
  stage.isolate(node);
  for (const pause of [20_000, FLUSHED_MS]) {
    writeMany(stage, leader, 60);
    stage.run(pause);
  }
  expect(stage.status(node).member).not.toBe("voter");
  // Nor does it matter who leads by then.
  stage.crash(leader);
  stage.until("another leads", () => ![null, leader].includes(stage.leader()));
  stage.start(leader);
  stage.rules = [];
  stage.heal();
  stage.until("it votes again", () => stage.status(node).member === "voter");
  stage.settle();
  expect(stage.world.transfers.begun).toBe(1);
});
