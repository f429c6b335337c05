/**
 * `npm test [-- vitest arguments]`: every test but the long soak, in two runs: first all that shares the machine well,
 * then the tests that start whole clusters, alone. The last line counts the tests of both.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { executable, ROOT } from "./local-cluster/project.ts";
import { startTied } from "./local-cluster/tied-process.ts";
import { toolEnvironment } from "./local-cluster/tool-environment.ts";
import { addCounts, type Counts, countsOfReport, countsText, NO_TESTS } from "./test-counts.ts";

const RUNS: readonly (readonly string[])[] = [
  ["--project", "node", "--project", "workers"],
  ["--project", "process"],
];

/** A run that takes this long hangs: a test in the Workers runtime can block the thread that its timeout needs. */
const RUN_MS_MAX = 20 * 60 * 1000;

async function runVitest(args: readonly string[], reportFile: string): Promise<Counts> {
  // Tied: no runtime that vitest has started stays behind, whatever ends this process.
  const vitest = startTied({
    program: executable("vitest"),
    args: [
      "run",
      "--passWithNoTests",
      "--reporter=default",
      "--reporter=json",
      `--outputFile.json=${reportFile}`,
      ...args,
    ],
    cwd: ROOT,
    env: toolEnvironment(),
    onLine: (line, stream) => process[stream].write(`${line}\n`),
  });
  const late = setTimeout(() => {
    process.stderr.write(`The tests have run for ${RUN_MS_MAX / 60_000} minutes; they hang and are ended.\n`);
    vitest.kill();
  }, RUN_MS_MAX);
  const { code } = await vitest.ended.finally(() => clearTimeout(late));
  const text = existsSync(reportFile) ? readFileSync(reportFile, "utf8") : null;
  return countsOfReport(text, code === 0);
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
