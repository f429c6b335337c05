/**
 * Goal: whatever happens to processes and links, nobody who uses the cluster ever sees a wrong answer, loses an acknowledged
 * write, an event or a lease, and all nodes hold the same afterwards (design 06 §2).
 * Method: the short version of `npm run nemesis`. `NEMESIS_SEED` chooses another seed; the summary names it.
 */
import { expect, test } from "vitest";
import { runWithNemesis } from "../nemesis/run.ts";
import { summaryOf, summaryText } from "../nemesis/summary.ts";

const SEED_DEFAULT = 20_261;
/** Of faults. */
const DURATION_MS = 60_000;
const KINDS_MIN = 4;
/** Above all bounds of a run: one that fails says by which of them. */
const TEST_MS_MAX = 300_000;

test(
  "under kills, pauses, partitions and restarts, all that six clients see is right",
  async () => {
    const seed = Number(process.env.NEMESIS_SEED ?? SEED_DEFAULT);
    const lines: string[] = [];
    const options = { seed, durationMs: DURATION_MS, clients: 6, wipes: true };
    const summary = summaryOf(await runWithNemesis({ ...options, onLine: (line) => lines.push(line) }));
    process.stdout.write(`\nnemesis, ${summaryText(summary)}`);
    if (summary.violation !== null) process.stdout.write(`${lines.join("\n")}\n`);
    expect(summary.violation, `seed ${seed}; logs in ${summary.folder}`).toBe(null);
    expect(Object.keys(summary.faults).length).toBeGreaterThanOrEqual(KINDS_MIN);
    expect(summary.checks).toMatchObject({ registers: { undecided: 0 } });
  },
  TEST_MS_MAX,
);
