/**
 * Goal: `npm run cluster` starts five nodes, does to them what it is told, says what cannot be done, and starts again whatever
 * has happened to it.
 * Method: the command itself, as npm runs it, on free ports and a temporary folder.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, test } from "vitest";
import { groupMembers } from "../../scripts/exclusive-lock.mjs";
import { freePortsFrom } from "../../scripts/local-cluster/ports.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const NODES = [1, 2, 3, 4, 5];

const folder = mkdtempSync(join(tmpdir(), "concord-cluster-"));
const data = join(folder, "data");
let running: Run | null = null;

interface Run {
  readonly child: ChildProcess;
  readonly basePort: number;
  output(): string;
  readonly ended: Promise<number | null>;
}

afterEach(async () => {
  running?.child.kill("SIGTERM");
  await running?.ended;
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

function spawnCommand(args: readonly string[]): Run {
  const script = ["scripts/set-up.mjs", "scripts/local-cluster/cluster.ts"];
  const child = spawn(process.execPath, [...script, ...args, "--data", data], {
    cwd: ROOT,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  const ended = once(child, "close").then(([code]) => code as number | null);
  return { child, basePort: 0, output: () => output, ended };
}

async function start(): Promise<Run> {
  const basePort = (await freePortsFrom(NODES.length)) - 1;
  running = { ...spawnCommand(["start", "--base-port", String(basePort)]), basePort };
  await expect.poll(running.output, { timeout: 90_000, interval: 100 }).toContain("Ctrl-C stops");
  expect(running.output()).toContain("Ready: node");
  return running;
}

async function verb(...args: string[]): Promise<{ code: number | null; output: string }> {
  const run = spawnCommand(args);
  return { code: await run.ended, output: run.output() };
}

/** The process group of each node, as its lock names it. */
function groups(): number[] {
  return NODES.map((node) => {
    const record = readFileSync(join(data, `node-${node}`, "concord.lock"), "utf8");
    return (JSON.parse(record) as { group: { pid: number } }).group.pid;
  });
}

async function call(run: Run, node: number, method: string, value?: number): Promise<unknown> {
  const response = await fetch(`http://127.0.0.1:${run.basePort + node}/v1/kv?key=/a`, {
    method,
    headers: { "content-type": "application/json" },
    ...(value === undefined ? {} : { body: JSON.stringify(value) }),
  });
  return ((await response.json()) as { value?: unknown }).value;
}

async function stateOf(run: Run, node: number): Promise<string | undefined> {
  const response = await fetch(`http://127.0.0.1:${run.basePort + node}/v1/cluster`);
  const { nodes } = (await response.json()) as { nodes: { id: number; state: string }[] };
  return nodes.find(({ id }) => id === node)?.state;
}

test("start, every verb, a crash of all that keeps it together, start again, and stop", async () => {
  const run = await start();
  await call(run, 5, "PUT", 1);
  const started = groups();
  const all = await verb("status");
  expect(all.output.match(/^\d +running .* formed +(leader|follower)/gm)?.length).toBe(5);
  expect(all.output).toContain("equal at index");

  expect(await verb("kill", "3")).toEqual({ code: 0, output: "Killed: 3\n" });
  expect(groupMembers(started[2] ?? 0)).toEqual([]);
  expect((await verb("kill", "3")).output).toBe("node 3 is not running\n");
  expect((await verb("pause", "2")).code).toBe(0);
  expect((await verb("partition", "1/4,5", "--one-way")).output).toBe("Cut: 1 to 4,5\n");
  const broken = await verb("status");
  expect(broken.output).toMatch(/^2 +paused /m);
  expect(broken.output).toMatch(/^3 +down /m);
  expect(broken.output).toContain("Cut: 1>4 1>5\n");
  expect((await verb("heal")).output).toBe("Healed.\n");
  expect((await verb("resume", "2")).code).toBe(0);
  expect((await verb("restart", "3", "4")).output).toBe("Restarted: 3, 4\n");
  expect(await call(run, 3, "GET")).toBe(1);
  expect((await verb("wipe", "4")).code).toBe(0);
  // The others take it in again by themselves; until then it serves nobody.
  await expect.poll(() => stateOf(run, 4), { timeout: 20_000 }).toBe("formed");

  expect(await verb("kill", "6")).toMatchObject({ code: 2, output: expect.stringContaining("there is no node 6") });
  const second = await verb("start");
  expect([second.code, second.output]).toEqual([1, expect.stringContaining("Another cluster is running on this")]);

  // The secret is in files of their owner alone, and was written nowhere else.
  const secret = /"CLUSTER_SECRET", text = "(\w+)"/.exec(readFileSync(join(data, "node-1", "workerd.capnp"), "utf8"));
  expect(secret?.[1]).toMatch(/^[0-9a-f]{64}$/);
  expect(run.output() + all.output + broken.output).not.toContain(secret?.[1]);

  // A crash of everything that could end the nodes, each alone; one node stands still and could not end by itself.
  const left = groups();
  expect((await verb("pause", "5")).code).toBe(0);
  const { pid } = JSON.parse(readFileSync(join(data, "cluster.json"), "utf8")) as { pid: number };
  for (const id of [pid, ...left]) process.kill(id, "SIGKILL");
  await run.ended;
  await expect.poll(() => left.flatMap((group) => groupMembers(group)).length).toBe(5);
  expect(await verb("status")).toMatchObject({ code: 1, output: expect.stringContaining("No cluster runs on") });

  const again = await start();
  expect(left.flatMap((group) => groupMembers(group))).toEqual([]);
  expect(await call(again, 5, "GET")).toBe(1);
  const last = groups();
  expect(await verb("stop")).toEqual({ code: 0, output: "Stopped; the data is kept.\n" });
  expect(await again.ended).toBe(0);
  expect(last.flatMap((group) => groupMembers(group))).toEqual([]);
  expect(existsSync(join(data, "cluster.json"))).toBe(false);
}, 240_000);
