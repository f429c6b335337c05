/**
 * Goal: never two that hold a valid fence, whatever happens to the processes that believe they do (S38); a lead that is
 * gone is taken over within its TTL and 2 s.
 * Method: programs of their own against one `workerd` process, paused with SIGSTOP and killed with SIGKILL.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Concord } from "../../src/client/index.ts";
import { startWorkerdCluster, type WorkerdCluster } from "./workerd-cluster.ts";

const PROGRAM = join(import.meta.dirname, "programs", "contender.ts");
const TTL_MS = 2000;

const folder = mkdtempSync(join(tmpdir(), "concord-locks-"));
let cluster: WorkerdCluster;
const contenders: Contender[] = [];

beforeAll(async () => {
  cluster = await startWorkerdCluster(folder);
});

afterEach(() => {
  for (const { child } of contenders.splice(0)) child.kill("SIGKILL");
});

afterAll(async () => {
  await cluster.stop();
  rmSync(folder, { recursive: true, force: true });
});

interface Said {
  readonly event: "started" | "leads" | "wrote" | "refused" | "lost";
  readonly id: string;
  readonly atMs: number;
  readonly fence: number;
  readonly reason?: string;
  readonly losses?: number;
}

interface Contender {
  readonly child: ChildProcess;
  readonly said: Said[];
}

function contend(kind: "lock" | "election", name: string, id: string, all: Said[]): Contender {
  const child = spawn(process.execPath, [PROGRAM, kind, cluster.url, name, id], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const said: Said[] = [];
  let rest = "";
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const one = JSON.parse(line) as Said;
      said.push(one);
      all.push(one);
    }
  });
  const contender = { child, said };
  contenders.push(contender);
  return contender;
}

const events = (said: readonly Said[], event: Said["event"]) => said.filter((one) => one.event === event);

/** The fences under which the record was written, in the order of the revisions: what the cluster let through. */
async function fencesWritten(name: string): Promise<number[]> {
  const concord = Concord.connect({ url: cluster.url });
  const fences: number[] = [];
  for await (const { value } of concord.kv.history(`${name}/state`, { limit: 1000 })) {
    fences.push((value as { fence: number }).fence);
  }
  await concord.close();
  return fences;
}

function expectOrdered(fences: readonly number[]): void {
  expect(fences.length).toBeGreaterThan(10);
  expect(fences).toEqual([...fences].sort((left, right) => left - right));
}

test("a holder that is paused past its TTL is followed by another, and its own guarded write fails when it wakes", async () => {
  const all: Said[] = [];
  const first = contend("lock", "/pause", "a", all);
  await expect.poll(() => events(first.said, "wrote").length, { timeout: 20_000 }).toBeGreaterThan(2);
  const second = contend("lock", "/pause", "b", all);
  await expect.poll(() => events(second.said, "started").length, { timeout: 10_000 }).toBe(1);
  first.child.kill("SIGSTOP");
  const pausedAtMs = Date.now();
  await expect.poll(() => events(second.said, "wrote").length, { timeout: 10_000 }).toBeGreaterThan(2);
  const [next] = events(second.said, "leads");
  expect((next?.atMs ?? 0) - pausedAtMs).toBeLessThanOrEqual(TTL_MS + 2000);
  const fence = events(first.said, "leads")[0]?.fence ?? 0;
  expect(next?.fence).toBeGreaterThan(fence);
  first.child.kill("SIGCONT");
  await expect.poll(() => events(first.said, "refused").length, { timeout: 10_000 }).toBeGreaterThan(0);
  expect(events(first.said, "refused").at(-1)).toMatchObject({
    fence,
    code: "precondition_failed",
    reason: "lock_lost",
  });
  await expect.poll(() => events(first.said, "lost").length, { timeout: 5000 }).toBe(1);
  expect(events(first.said, "lost")).toMatchObject([{ fence, losses: 1 }]);
  // The second goes on undisturbed; nothing of the first got in between.
  const before = events(second.said, "wrote").length;
  await expect.poll(() => events(second.said, "wrote").length, { timeout: 5000 }).toBeGreaterThan(before + 3);
  expect(events(second.said, "lost")).toEqual([]);
  expectOrdered(await fencesWritten("/pause"));
}, 90_000);

test("of 5 candidates one leads at a time, and the next leads within TTL + 2 s, though the leader is killed 20 times", async () => {
  const all: Said[] = [];
  const byId = new Map<string, Contender>();
  for (const id of ["a", "b", "c", "d", "e"]) byId.set(id, contend("election", "/elect", id, all));
  let fence = 0;
  const newest = () =>
    events(all, "leads").reduce<Said | null>((best, one) => (one.fence > (best?.fence ?? 0) ? one : best), null);
  const wrote = () => events(all, "wrote").some((one) => one.fence === newest()?.fence);
  await expect.poll(() => wrote(), { timeout: 30_000 }).toBe(true);
  for (let killed = 0; killed < 20; killed += 1) {
    const leader = newest();
    if (leader === null) throw new Error("nobody leads");
    expect(leader.fence).toBeGreaterThan(fence);
    fence = leader.fence;
    byId.get(leader.id)?.child.kill("SIGKILL");
    const killedAtMs = Date.now();
    byId.set(leader.id, contend("election", "/elect", leader.id, all));
    await expect.poll(() => (newest()?.fence ?? 0) > fence && wrote(), { timeout: 15_000, interval: 20 }).toBe(true);
    expect((newest()?.atMs ?? 0) - killedAtMs).toBeLessThanOrEqual(TTL_MS + 2000);
  }
  expect(events(all, "lost")).toEqual([]);
  expectOrdered(await fencesWritten("/elect"));
}, 180_000);
