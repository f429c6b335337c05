/**
 * Goal: one living process at a time holds a lock, and the death of the holder frees it.
 * Method: locks in a temporary folder, held by this process, by real child processes, and by records made by hand.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  acquireLock,
  endLeftovers,
  groupMembers,
  LockHeldError,
  processIdentity,
} from "../../scripts/exclusive-lock.mjs";

const MODULE = new URL("../../scripts/exclusive-lock.mjs", import.meta.url).href;

let folder: string;
let path: string;
const children: ChildProcess[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "concord-lock-"));
  path = join(folder, "concord.lock");
});

afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

/** A process that runs `code` with the lock module as `locks`, then waits. Resolves at its first output. */
async function holder(code: string, options: { detached?: boolean } = {}): Promise<[ChildProcess, string]> {
  const script = `const locks = await import(${JSON.stringify(MODULE)}); ${code}; setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
    detached: options.detached ?? false,
  });
  children.push(child);
  const [text] = (await once(child.stdout as NodeJS.ReadableStream, "data")) as [Buffer];
  return [child, text.toString().trim()];
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill("SIGKILL");
  await once(child, "exit");
}

test("a free lock is taken, names its holder, and is gone after its release", async () => {
  const lock = await acquireLock(path, { purpose: "test" });
  expect(JSON.parse(readFileSync(path, "utf8"))).toMatchObject({ pid: process.pid, purpose: "test", group: null });
  lock.release();
  expect(readdirSync(folder)).toEqual([]);
});

test("a lock whose holder lives is refused with the holder's id and purpose", async () => {
  const [child] = await holder(
    `await locks.acquireLock(${JSON.stringify(path)}, { purpose: "other" }); console.log(1)`,
  );
  const error = await acquireLock(path, { purpose: "test" }).catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(LockHeldError);
  expect(error).toMatchObject({ pids: [child.pid], purpose: "other" });
  expect(readdirSync(folder)).toEqual(["concord.lock"]);
});

test("the lock of a killed holder is taken over", async () => {
  const [child] = await holder(
    `await locks.acquireLock(${JSON.stringify(path)}, { purpose: "other" }); console.log(1)`,
  );
  await kill(child);
  const lock = await acquireLock(path, { purpose: "test" });
  lock.release();
});

test("a living process of the holder's id that started at another time does not hold the lock", async () => {
  writeFileSync(path, JSON.stringify({ pid: process.pid, identity: "another boot/1", purpose: "old", group: null }));
  const lock = await acquireLock(path, { purpose: "test" });
  expect(JSON.parse(readFileSync(path, "utf8"))).toMatchObject({ identity: processIdentity(process.pid) });
  lock.release();
});

test.for(["", "{", "null", '{"pid":"x"}'])("a lock file that holds %j is stale", async (text) => {
  writeFileSync(path, text);
  const lock = await acquireLock(path, { purpose: "test" });
  lock.release();
});

test("processes left behind by a dead holder keep the lock until they have ended", async () => {
  const [leftover] = await holder("console.log(1)", { detached: true });
  const group = { pid: leftover.pid as number, identity: processIdentity(leftover.pid as number) };
  writeFileSync(path, JSON.stringify({ pid: process.pid, identity: "dead", purpose: "old", group }));
  let taken = false;
  const taking = acquireLock(path, { purpose: "test" }).then((lock) => {
    taken = true;
    return lock;
  });
  await new Promise((settle) => setTimeout(settle, 300));
  expect(taken).toBe(false);
  await kill(leftover);
  (await taking).release();
});

test("what a dead holder has left behind is ended on request, if it was started with the given text", async () => {
  const [leftover] = await holder("/* the-folder/node-1 */ console.log(1)", { detached: true });
  const ended = once(leftover, "exit");
  const group = { pid: leftover.pid as number, identity: processIdentity(leftover.pid as number) };
  writeFileSync(path, JSON.stringify({ pid: process.pid, identity: "dead", purpose: "old", group }));
  await endLeftovers(path, "the-folder/node-2");
  expect(groupMembers(group.pid)).toEqual([group.pid]);
  await endLeftovers(path, "the-folder/node-1");
  await ended;
  (await acquireLock(path, { purpose: "test" })).release();
  await endLeftovers(path, "");
});

test("a holder that lives is no leftover", async () => {
  const [child] = await holder(
    `await locks.acquireLock(${JSON.stringify(path)}, { purpose: "other" }); console.log(1)`,
  );
  await endLeftovers(path, "");
  expect(processIdentity(child.pid as number)).not.toBeNull();
});

test("a waiting process gets the lock when it is released", async () => {
  const first = await acquireLock(path, { purpose: "first" });
  const second = acquireLock(path, { purpose: "second", waitMsMax: 10_000 });
  first.release();
  (await second).release();
});

test("of many processes that find one stale lock at once, one at a time takes it", async () => {
  writeFileSync(path, JSON.stringify({ pid: process.pid, identity: "dead", purpose: "old", group: null }));
  const counter = join(folder, "counter");
  writeFileSync(counter, "0");
  const code = `
    const fs = await import("node:fs");
    const lock = await locks.acquireLock(${JSON.stringify(path)}, { purpose: "race", waitMsMax: 20000 });
    const seen = Number(fs.readFileSync(${JSON.stringify(counter)}, "utf8"));
    await new Promise((settle) => setTimeout(settle, 20));
    fs.writeFileSync(${JSON.stringify(counter)}, String(seen + 1));
    lock.release();
    console.log("done")`;
  await Promise.all(Array.from({ length: 6 }, () => holder(code)));
  expect(readFileSync(counter, "utf8")).toBe("6");
  expect(readdirSync(folder)).toEqual(["counter"]);
});

test("a release after the lock was taken away leaves the new holder's lock alone", async () => {
  const lock = await acquireLock(path, { purpose: "test" });
  const other = JSON.stringify({ pid: 1, identity: processIdentity(1), purpose: "other", group: null });
  writeFileSync(path, other);
  lock.release();
  expect(readFileSync(path, "utf8")).toBe(other);
  expect(() => lock.setGroup(1)).toThrow("taken away");
});

test("a group has the members that live and not those that have ended", async () => {
  const [child] = await holder("console.log(1)", { detached: true });
  expect(groupMembers(child.pid as number)).toEqual([child.pid]);
  await kill(child);
  expect(groupMembers(child.pid as number)).toEqual([]);
  expect(processIdentity(child.pid as number)).toBe(null);
});
