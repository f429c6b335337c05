/**
 * Goal: `npm run workerd` that cannot do what was asked says why in a sentence, without a stack, and with an exit code.
 * Method: the script itself, as npm runs it.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { acquireLock } from "../../scripts/exclusive-lock.mjs";
import { freePort } from "../../scripts/local-cluster/ports.ts";

const ROOT = join(import.meta.dirname, "..", "..");

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "concord-workerd-"));
});

afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function run(args: readonly string[], variables: Readonly<Record<string, string>> = {}) {
  const script = ["scripts/set-up.mjs", "scripts/local-cluster/main.ts", ...args];
  const env = { ...process.env, ...variables };
  const child = spawn(process.execPath, script, { cwd: ROOT, env, stdio: ["ignore", "pipe", "pipe"] });
  const texts = { out: "", error: "" };
  child.stdout.on("data", (chunk: Buffer) => {
    texts.out += chunk.toString();
  });
  child.stderr.on("data", (chunk: Buffer) => {
    texts.error += chunk.toString();
  });
  const [code] = (await once(child, "close")) as [number | null];
  expect(texts.error).not.toMatch(/^\s+at |node:internal|Node\.js v/m);
  return { code, ...texts };
}

test.each<[claim: string, args: string[], variables: Record<string, string>, error: RegExp]>([
  ["a port that is none", ["--port", "x"], {}, /^--port wants a number from 1 to 65535, not "x"\n/],
  ["an option that there is not", ["--prot", "9000"], {}, /--prot/],
  ["an argument too many", ["start"], {}, /start/],
  ["an empty folder", ["--data", ""], {}, /^--data wants/],
  [
    "an address that others reach, without a token",
    ["--host", "0.0.0.0"],
    { CONCORD_ROOT_TOKEN: "" },
    /CONCORD_ROOT_TOKEN/,
  ],
])("%s is refused with the usage", async (_claim, args, variables, error) => {
  const ended = await run(args, variables);
  expect(ended.code).toBe(2);
  expect(ended.error).toMatch(error);
  expect(ended.error).toContain("Usage: npm run workerd");
});

test("half of a configuration of one node is refused in one line", async () => {
  const ended = await run([], { NODE_ID: "3" });
  expect(ended).toEqual({ code: 1, out: "", error: expect.stringMatching(/^CLUSTER_SECRET must be .*\n$/) });
});

test("a port in use is told in one line", async () => {
  const server = createServer();
  const port = await freePort();
  await new Promise<void>((settle) => server.listen(port, "127.0.0.1", settle));
  try {
    const ended = await run(["--port", String(port), "--data", folder]);
    expect(ended.code).toBe(1);
    expect(ended.error).toMatch(new RegExp(`^Port ${port} of 127\\.0\\.0\\.1 is in use.*\\n$`));
  } finally {
    server.close();
  }
});

test("a data folder in use is told, with whom", async () => {
  const lock = await acquireLock(join(folder, "concord.lock"), { purpose: "a test" });
  try {
    const ended = await run(["--port", String(await freePort()), "--data", folder]);
    expect(ended.code).toBe(1);
    expect(ended.error).toContain(`Another cluster is running on this data folder: process ${process.pid} (a test)`);
  } finally {
    lock.release();
  }
});

test("the usage is told on request", async () => {
  expect(await run(["--help"])).toEqual({ code: 0, out: expect.stringContaining("Usage: npm run workerd"), error: "" });
});
