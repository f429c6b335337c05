/** A cluster that falls asleep without one of its members (design 02 §4): that one is looked for, and the rest sleeps on. */
import { expect, test } from "vitest";
import { evict, untilAsleep } from "./owners.ts";
import { formed, type Stage } from "./stage.ts";
import { put } from "./vocabulary.ts";

const TWO_MINUTES_MS = 120_000;

/** Everybody sleeps but the one that is down and lacks the last write, and no instance is left that knows it. */
function asleepWithout(): { readonly stage: Stage; readonly leader: number; readonly away: number; heard: string[] } {
  const stage = formed({ quiesceAfterMs: 2000 });
  const [leader, , , , away] = stage.cast();
  stage.crash(away);
  expect(stage.written(leader, put("k", 1)).ok).toBe(true);
  untilAsleep(stage, 30_000);
  stage.run(600);
  evict(stage, ...stage.ids.filter((id) => id !== away));
  const heard: string[] = [];
  stage.rules = [
    ({ to, body }) => {
      heard.push(`${body.kind} to ${to}`);
      return undefined;
    },
  ];
  return { stage, leader, away, heard };
}

test("while it is away it is asked for ever more seldom, and nobody else is told anything", () => {
  const { stage, away, heard } = asleepWithout();
  stage.run(TWO_MINUTES_MS);
  expect(new Set(heard)).toEqual(new Set([`hello to ${away}`]));
  expect(heard.length).toBeLessThan(10);
  expect(heard.length).toBeGreaterThan(1);
  for (const id of stage.ids) if (stage.host(id).live !== null) expect(stage.status(id).quiescent).toBe(true);
});

test("when it is there again it gets what it lacks, though nobody asks for anything", () => {
  const { stage, away } = asleepWithout();
  stage.run(10_000);
  stage.start(away);
  const took = stage.until("it has the write", () => stage.status(away).revision === 1, 70_000);
  expect(took).toBeLessThan(61_000);
  untilAsleep(stage, 30_000);
  stage.rules = [];
  const { messages } = stage.world.sleep;
  stage.run(TWO_MINUTES_MS);
  expect(stage.world.sleep.messages).toBe(messages); // nobody is missed any more
});
