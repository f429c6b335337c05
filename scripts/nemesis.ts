/**
 * `npm run nemesis -- [--minutes M] [--seed N] [--clients C] [--no-wipe] [--json FILE]`: five `workerd` processes under load,
 * killed, paused and cut off from each other by a seeded nemesis; then everything that the clients saw is judged
 * (test/nemesis). Exit code 1 with the violation, the seed, and where the logs of the nodes are.
 */
import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { runWithNemesis } from "../test/nemesis/run.ts";
import { summaryOf, summaryText } from "../test/nemesis/summary.ts";

const CLIENTS_MIN = 4;

function numberOf(name: string, text: string, isAllowed: (value: number) => boolean, wanted: string): number {
  const value = Number(text);
  if (text !== "" && isAllowed(value)) return value;
  process.stderr.write(`--${name} wants ${wanted}, not ${JSON.stringify(text)}\n`);
  process.exit(2);
}

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "10" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 1_000_000) + 1) },
    clients: { type: "string", default: "6" },
    "no-wipe": { type: "boolean", default: false },
    json: { type: "string" },
  },
});
const isCount = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;
const seed = numberOf("seed", values.seed, isCount, "a whole number");
const minutes = numberOf("minutes", values.minutes, (value) => value > 0 && value <= 600, "minutes up to 600");
const clients = numberOf(
  "clients",
  values.clients,
  (value) => Number.isSafeInteger(value) && value >= CLIENTS_MIN && value <= 50,
  `${CLIENTS_MIN} to 50 clients`,
);

const result = await runWithNemesis({
  seed,
  durationMs: minutes * 60_000,
  clients,
  wipes: !values["no-wipe"],
  onLine: (line) => void process.stdout.write(`${line}\n`),
});
const summary = summaryOf(result);
process.stdout.write(`\n${summaryText(summary)}`);
if (values.json !== undefined) {
  // npm itself moves to the project's root.
  const file = resolve(process.env.INIT_CWD ?? process.cwd(), values.json);
  writeFileSync(file, `${JSON.stringify(summary, null, 2)}\n`);
}
process.exitCode = summary.violation === null ? 0 : 1;
