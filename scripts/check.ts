/**
 * `npm run check`: all that can be checked without running the product: format, lint, types of every part, the layer
 * table, the environment's types, a deployment that is not sent, and the size of its bundle. Works offline.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BUNDLE_GZIP_BYTES_MAX, buildBundle } from "./local-cluster/bundle.ts";
import { executable } from "./local-cluster/project.ts";
import { report, runStep, type Step, typesCommand } from "./steps.ts";

const STEPS: readonly Step[] = [
  { name: "format and lint", program: executable("biome"), args: ["check", "--error-on-warnings", "."] },
  { name: "types: scripts, benchmark, tests, pure layers", program: executable("tsc"), args: ["-p", "."] },
  { name: "types: worker", program: executable("tsc"), args: ["-p", "src"] },
  { name: "types: tests in the Workers runtime", program: executable("tsc"), args: ["-p", "test/node-object"] },
  typesCommand(["--check"]),
  {
    name: "layer table",
    program: executable("vitest"),
    args: ["run", "--project", "node", "test/architecture.test.ts"],
  },
];

async function checkBundle(): Promise<boolean> {
  const startedMs = Date.now();
  const folder = mkdtempSync(join(tmpdir(), "concord-bundle-"));
  try {
    const bundle = await buildBundle(folder);
    const passed = bundle.gzipBytes <= BUNDLE_GZIP_BYTES_MAX;
    const size = `${Math.ceil(bundle.gzipBytes / 1024)} of at most ${BUNDLE_GZIP_BYTES_MAX / 1024} KiB gzipped`;
    report("deployment (dry run) and bundle size", passed, startedMs, size);
    return passed;
  } catch (error) {
    report("deployment (dry run) and bundle size", false, startedMs, error instanceof Error ? error.message : "");
    return false;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const results: boolean[] = [];
for (const step of STEPS) results.push(await runStep(step, { show: "failure" }));
results.push(await checkBundle());
const failed = results.filter((passed) => !passed).length;
process.stdout.write(failed === 0 ? "All checks passed.\n" : `${failed} of ${results.length} checks failed.\n`);
process.exitCode = failed === 0 ? 0 : 1;
