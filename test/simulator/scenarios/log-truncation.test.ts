/** How much of the log stays: by count, by size, and not more because somebody is away (log-truncation.ts). */
import { expect, test } from "vitest";
import { baseOf } from "./newcomers.ts";
import { FLUSHED_MS, formed } from "./stage.ts";
import { put } from "./vocabulary.ts";

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
