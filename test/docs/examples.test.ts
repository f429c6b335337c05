/**
 * Goal: the commands and programs in the documents do what the documents say. Method: one plain `workerd` cluster per
 * document, new as `npm start` gives it; all commands in one shell, all TypeScript as one module, compiled before it runs.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Bundle, buildBundle } from "../../scripts/local-cluster/bundle.ts";
import { freePort } from "../../scripts/local-cluster/ports.ts";
import { executable, ROOT } from "../../scripts/local-cluster/project.ts";
import { waitForLeader } from "../../scripts/local-cluster/readiness.ts";
import { startWorkerd, type WorkerdProcess } from "../../scripts/local-cluster/workerd.ts";
import { missingLine, programOf, shellSteps } from "./document-examples.ts";

/** Between what the steps print: a character that no reply holds. */
const SEPARATOR = "\u001e";
const CLIENT = join(ROOT, "src/client/index.ts");

let folder: string;
let bundle: Bundle;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "concord-docs-"));
  bundle = await buildBundle(join(folder, "build"));
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.each(["README.md", "docs/api.md"])("%s", (path) => {
  const markdown = readFileSync(join(ROOT, path), "utf8");
  let workerd: WorkerdProcess;
  let port: number;
  let own: string;

  beforeAll(async () => {
    ({ workerd, port, own } = await startCluster(path.replace(/\W/g, "-")));
  });

  afterAll(async () => await workerd.stop());

  const here = (text: string): string => text.replaceAll("8787", String(port));

  test("the commands print what is said", async () => {
    const steps = shellSteps(markdown);
    expect(steps.length).toBeGreaterThan(5);
    expect(steps.flatMap(({ expected }) => expected).length).toBeGreaterThan(4);
    writeFileSync(join(own, ".curlrc"), "silent\nshow-error\nmax-time = 20\n");
    const script = steps.map(({ commands }) => `${ended(here(commands))}\nprintf '\\n${SEPARATOR}'`).join("\n");
    writeFileSync(join(own, "commands.sh"), script);
    const { output } = await run("sh", ["-u", "commands.sh"], own);
    const printed = output.split(SEPARATOR);
    expect(printed.length).toBe(steps.length + 1);
    for (const [index, { commands, expected }] of steps.entries()) {
      const missing = missingLine(printed[index] ?? "", expected.map(here));
      expect(missing, `${commands}\nprinted\n${printed[index]}`).toBeNull();
    }
    expect(output).not.toMatch(/"code":"(?:internal|timeout|no_leader|overloaded)"/);
  });

  test("the TypeScript compiles, runs to its end and prints what is said", async () => {
    const { text, expected, blocksCount } = programOf(markdown, CLIENT);
    expect(blocksCount).toBeGreaterThan(0);
    writeFileSync(join(own, "program.ts"), here(text));
    writeFileSync(
      join(own, "tsconfig.json"),
      JSON.stringify({
        extends: join(ROOT, "tsconfig.base.json"),
        compilerOptions: { types: ["node"], typeRoots: [join(ROOT, "node_modules/@types")], noUnusedLocals: false },
        files: ["program.ts"],
      }),
    );
    expect(await run(executable("tsc"), ["-p", "."], own)).toEqual({ code: 0, output: "" });
    const { code, output } = await run(process.execPath, ["program.ts"], own);
    expect(missingLine(output, expected), output).toBeNull();
    expect(code, output).toBe(0);
  });

  if (path === "docs/api.md") {
    test("the commands that /docs shows reach their routes", async () => {
      const response = await fetch(`${workerd.url}/openapi.json`);
      const { paths } = (await response.json()) as { paths: Record<string, Record<string, Described>> };
      const samples = Object.values(paths)
        .flatMap((item) => Object.values(item))
        .flatMap((operation) => operation["x-codeSamples"] ?? [])
        .map(({ source }) => source);
      expect(samples.length).toBeGreaterThan(35);
      const told = "curl -s -o /dev/null -w '%{http_code}\\n' --max-time 1";
      const { output } = await run("sh", ["-c", samples.map((source) => source.replace("curl", told)).join("\n")], own);
      // Beside them curl tells that it has left a stream.
      const statuses = output.match(/^\d{3}$/gm) ?? [];
      expect(statuses.length).toBe(samples.length);
      const wrong = samples
        .map((source, index) => `${statuses[index]} ${source}`)
        .filter((_, index) => !REACHED.test(statuses[index] ?? ""));
      expect(wrong).toEqual([]);
      expect((await fetch(`${workerd.url}/docs`)).headers.get("content-type")).toBe("text/html; charset=utf-8");
    });
  }
});

interface Described {
  readonly "x-codeSamples"?: readonly { readonly source: string }[];
}

/** Understood: done, or refused for what one of the commands before has done or has not. */
const REACHED = /^(20[0-2]|304|404|409|410|412)$/;

async function startCluster(name: string): Promise<{ workerd: WorkerdProcess; port: number; own: string }> {
  const own = join(folder, name);
  mkdirSync(own, { recursive: true });
  const port = await freePort();
  const workerd = await startWorkerd({ bundle, port, dataFolder: join(own, "cluster"), onLine: () => {} });
  const signal = AbortSignal.timeout(60_000);
  await waitForLeader({ url: workerd.url, waitMsMax: 30_000, token: undefined, signal });
  return { workerd, port, own };
}

/** A stream has no end of its own. */
function ended(commands: string): string {
  return commands.replaceAll("curl -N ", "curl -N --max-time 2 ");
}

async function run(
  program: string,
  args: readonly string[],
  cwd: string,
): Promise<{ code: number | null; output: string }> {
  const child = spawn(program, args, {
    cwd,
    env: { PATH: process.env.PATH, HOME: cwd, NODE_NO_WARNINGS: "1" },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 60_000,
  });
  const chunks: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => chunks.push(text));
  }
  const [code] = (await once(child, "close")) as [number | null];
  return { code, output: chunks.join("") };
}
