/**
 * Goal: nothing of a tied process outlives the process that started it, however either of them ends.
 * Method: shells with grandchildren, started by this process and by one that is killed.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { groupMembers } from "../../scripts/exclusive-lock.mjs";
import { startTied, type TiedProcess } from "../../scripts/local-cluster/tied-process.ts";

const MODULE = new URL("../../scripts/local-cluster/tied-process.ts", import.meta.url).href;

/** A shell with a grandchild that both ignore nothing; resolves when it has said that it runs. */
async function start(script: string): Promise<{ tied: TiedProcess; lines: string[] }> {
  const lines: string[] = [];
  let tied: TiedProcess | undefined;
  await new Promise<void>((settle) => {
    tied = startTied({
      program: "sh",
      args: ["-c", script],
      cwd: ".",
      env: process.env,
      onLine: (line, stream) => {
        lines.push(`${stream}: ${line}`);
        if (line === "up") settle();
      },
    });
  });
  return { tied: tied as TiedProcess, lines };
}

async function emptied(groupId: number): Promise<void> {
  await expect.poll(() => groupMembers(groupId), { timeout: 10_000 }).toEqual([]);
}

test("a program that ends by itself is reported with its exit code and all of its output", async () => {
  const { tied, lines } = await start("echo up; echo oops >&2; printf unfinished; exit 7");
  expect(await tied.ended).toEqual({ code: 7, signal: null, wanted: false });
  expect(lines.sort()).toEqual(["stderr: oops", "stdout: unfinished", "stdout: up"]);
});

test("a stop ends the program and what it started", async () => {
  const { tied } = await start("sleep 100 & echo up; wait");
  expect(groupMembers(tied.groupId).length).toBe(3);
  await tied.stop();
  expect(groupMembers(tied.groupId)).toEqual([]);
  expect(await tied.ended).toMatchObject({ wanted: true });
});

test("a paused program stands still until it is resumed, while its keeper does not", async () => {
  const { tied, lines } = await start("echo up; while :; do sleep 0.02; echo on; done");
  tied.pause();
  // Lines that were on their way.
  await new Promise((settle) => setTimeout(settle, 200));
  const seen = lines.length;
  await new Promise((settle) => setTimeout(settle, 300));
  expect(lines.length).toBe(seen);
  tied.resume();
  await expect.poll(() => lines.length).toBeGreaterThan(seen + 2);
  tied.pause();
  const startedMs = Date.now();
  await tied.stop();
  expect(Date.now() - startedMs).toBeLessThan(4000);
  expect(groupMembers(tied.groupId)).toEqual([]);
});

test("a paused program ends with the parent", async () => {
  const script = `
    const { startTied } = await import(${JSON.stringify(MODULE)});
    const tied = startTied({ program: "sh", args: ["-c", "sleep 100 & echo up; wait"], cwd: ".", env: process.env,
      onLine: () => { tied.pause(); console.log(tied.groupId); } });`;
  const parent = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [text] = (await once(parent.stdout, "data")) as [Buffer];
  parent.kill("SIGKILL");
  await emptied(Number(text.toString()));
});

test("what a program leaves behind ends with it", async () => {
  const { tied } = await start("sleep 100 & echo up; exit 0");
  expect(await tied.ended).toMatchObject({ code: 0, wanted: false });
  await emptied(tied.groupId);
});

test("a program whose keeper is killed is killed too and reported", async () => {
  const { tied } = await start("sleep 100 & echo up; wait");
  process.kill(tied.groupId, "SIGKILL");
  expect(await tied.ended).toEqual({ code: null, signal: null, wanted: false });
  await emptied(tied.groupId);
});

test("a program that does not exist is reported as such", async () => {
  const lines: string[] = [];
  const tied = startTied({
    program: "/no/such/program",
    args: [],
    cwd: ".",
    env: process.env,
    onLine: (line) => lines.push(line),
  });
  expect(await tied.ended).toMatchObject({ code: 127, wanted: false });
  expect(lines.join()).toContain("cannot start /no/such/program");
});

test("a killed parent takes the program with it", async () => {
  const script = `
    const { startTied } = await import(${JSON.stringify(MODULE)});
    const tied = startTied({ program: "sh", args: ["-c", "sleep 100 & echo up; wait"], cwd: ".", env: process.env,
      onLine: () => console.log(tied.groupId) });`;
  const parent = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [text] = (await once(parent.stdout, "data")) as [Buffer];
  const groupId = Number(text.toString());
  expect(groupMembers(groupId).length).toBe(3);
  parent.kill("SIGKILL");
  await emptied(groupId);
});
