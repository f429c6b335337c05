/**
 * `npm test [-- vitest arguments]`: every test but the long soak, in two runs: first all that shares the machine well,
 * then the tests that start whole clusters, alone. The last line counts the tests of both.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { executable } from "./local-cluster/project.ts";
import { runStep } from "./steps.ts";
import { addCounts, type Counts, countsOfReport, countsText, NO_TESTS } from "./test-counts.ts";

const RUNS: readonly (readonly string[])[] = [
  ["--project", "node", "--project", "workers"],
  ["--project", "process"],
];

async function runVitest(args: readonly string[], reportFile: string): Promise<Counts> {
  const passed = await runStep(
    {
      name: "tests",
      program: executable("vitest"),
      args: [
        "run",
        "--passWithNoTests",
        "--reporter=default",
        "--reporter=json",
        `--outputFile.json=${reportFile}`,
        ...args,
      ],
    },
    { show: "always" },
  );
  const text = existsSync(reportFile) ? readFileSync(reportFile, "utf8") : null;
  return countsOfReport(text, passed);
}

const folder = mkdtempSync(join(tmpdir(), "concord-test-"));
let total = NO_TESTS;
try {
  const extra = process.argv.slice(2);
  // Whoever names projects or files gets one run of just those.
  const runs = extra.length > 0 ? [extra] : RUNS;
  for (const [index, args] of runs.entries()) {
    total = addCounts(total, await runVitest(args, join(folder, `${index}.json`)));
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.stdout.write(`${countsText(total)}\n`);
process.exitCode = total.failed === 0 && total.passed > 0 ? 0 : 1;
