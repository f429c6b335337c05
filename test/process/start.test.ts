/**
 * Goal: `npm start` gives a working cluster, keeps its data, refuses a folder or port in use, and leaves nothing behind.
 * Method: the start script itself, as npm runs it, on free ports and temporary folders.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { groupMembers } from "../../scripts/exclusive-lock.mjs";
import { freePort } from "../../scripts/local-cluster/ports.ts";

const ROOT = join(import.meta.dirname, "..", "..");

interface Run {
  readonly process: ChildProcess;
  readonly url: string;
  /** All that was written so far. */
  output(): string;
  /** Resolves with the exit code. */
  readonly ended: Promise<number | null>;
}

let folder: string;
const runs: Run[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "concord-start-"));
});

afterEach(async () => {
  for (const run of runs.splice(0)) {
    run.process.kill("SIGTERM");
    await run.ended;
  }
  rmSync(folder, { recursive: true, force: true });
});

function start(port: number, data: string): Run {
  const args = ["scripts/set-up.mjs", "scripts/start.ts", "--port", String(port), "--data", join(folder, data)];
  const child = spawn(process.execPath, args, { cwd: ROOT, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  const ended = once(child, "close").then(([code]) => code as number | null);
  const run = { process: child, url: `http://127.0.0.1:${port}`, output: () => output, ended };
  runs.push(run);
  return run;
}

async function ready(run: Run): Promise<void> {
  await expect.poll(run.output, { timeout: 90_000, interval: 100 }).toContain("Ready after");
}

async function put(run: Run, value: number): Promise<void> {
  const response = await fetch(`${run.url}/v1/kv?key=/start`, {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(value),
  });
  expect(response.status).toBe(200);
}

async function get(run: Run): Promise<unknown> {
  const response = await fetch(`${run.url}/v1/kv?key=/start`);
  return ((await response.json()) as { value?: unknown }).value;
}

function groupOf(data: string): number {
  const record = JSON.parse(readFileSync(join(folder, data, "concord.lock"), "utf8")) as { group: { pid: number } };
  return record.group.pid;
}

test("a start serves, prints no warning, and a stop leaves the data and no process", async () => {
  const run = start(await freePort(), "a");
  await ready(run);
  expect(run.output()).not.toMatch(/warn|error|update available/i);
  await put(run, 1);
  const group = groupOf("a");
  run.process.kill("SIGTERM");
  expect(await run.ended).toBe(0);
  expect(groupMembers(group)).toEqual([]);

  const again = start(await freePort(), "a");
  await ready(again);
  expect(await get(again)).toBe(1);
});

test("a second start on one data folder ends with a clear error and harms nothing", async () => {
  const first = start(await freePort(), "a");
  await ready(first);
  await put(first, 2);
  const second = start(await freePort(), "a");
  expect(await second.ended).toBe(1);
  expect(second.output()).toContain("Another cluster is running on this data folder");
  expect(await get(first)).toBe(2);
});

test("a start on a port in use ends with a clear error", async () => {
  const server = createServer();
  const port = await freePort();
  await new Promise<void>((settle) => server.listen(port, "127.0.0.1", settle));
  try {
    const run = start(port, "a");
    expect(await run.ended).toBe(1);
    expect(run.output()).toContain(`Port ${port} of 127.0.0.1 is in use`);
  } finally {
    server.close();
  }
});

test("a start that is killed takes its processes along, and the next one has the data", async () => {
  const run = start(await freePort(), "a");
  await ready(run);
  await put(run, 3);
  const group = groupOf("a");
  // Set-up is what npm starts; the start script is its child and notices that it is gone.
  run.process.kill("SIGKILL");
  await expect.poll(() => groupMembers(group), { timeout: 20_000 }).toEqual([]);
  const again = start(await freePort(), "a");
  await ready(again);
  expect(await get(again)).toBe(3);
});

test("a start after which the Workers runtime crashes serves again with its data", async () => {
  const run = start(await freePort(), "a");
  await ready(run);
  await put(run, 4);
  const runtime = groupMembers(groupOf("a")).find(
    (pid) => readFileSync(`/proc/${pid}/comm`, "utf8").trim() === "workerd",
  );
  if (runtime === undefined) throw new Error("no workerd runs");
  process.kill(runtime, "SIGKILL");
  await expect.poll(run.output, { timeout: 60_000, interval: 100 }).toContain("Ready again after");
  expect(run.output()).toContain("Crash: the Workers runtime crashed. Starting again; the data is kept.");
  expect(await get(run)).toBe(4);
});

test("wrong arguments are refused with the usage", async () => {
  const child = spawn(process.execPath, ["scripts/set-up.mjs", "scripts/start.ts", "--port", "x"], { cwd: ROOT });
  let output = "";
  child.stderr.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  const [code] = (await once(child, "close")) as [number];
  expect(code).toBe(2);
  expect(output).toContain("Usage: npm start");
});
