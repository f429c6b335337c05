/**
 * Goal: with a majority clients go on as if nothing were; without one they are told so in time, and nothing that was
 * acknowledged is lost, whoever is killed and when (design 02, S01).
 * Method: five processes under load by the SDK over both transports, behind a balancer that goes on to another node;
 * SIGKILL.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { NODE_IDS } from "../../scripts/local-cluster/verbs.ts";
import { createRandom } from "../../src/base/random.ts";
import { Concord, ConcordError } from "../../src/client/index.ts";
import { connect, type TransportName } from "../nemesis/access.ts";
import { type FiveTest, startFiveTest } from "./five-cluster.ts";

const TRANSPORTS: readonly TransportName[] = ["session", "http", "session", "http"];
/** An election, and what a busy machine adds. */
const RESUME_MS_MAX = 15_000;
const CALL_MS = 2000;
/** What a call may take beyond its own time. */
const LATE_MS_MAX = 1500;

const folder = mkdtempSync(join(tmpdir(), "concord-majority-"));
let cluster: FiveTest;

beforeAll(async () => {
  cluster = await startFiveTest({ folder: join(folder, "five") });
  await cluster.settled();
});

afterAll(async () => {
  await cluster?.five.stop();
  rmSync(folder, { recursive: true, force: true });
});

interface Load {
  /** Keys that were acknowledged, in order. */
  readonly acknowledged: string[];
  /** Errors of the writes that were not. */
  readonly refusals: ConcordError[];
  end(): Promise<void>;
}

function startLoad(name: string): Load {
  const acknowledged: string[] = [];
  const refusals: ConcordError[] = [];
  let isOver = false;
  const write = async (transport: TransportName, writer: number): Promise<void> => {
    const concord = connect({ urls: cluster.five.urls, home: null, transport, random: createRandom(writer) });
    for (let n = 0; !isOver; n += 1) {
      const key = `/${name}/${writer}/${n}`;
      try {
        await concord.kv.put(key, n, { timeoutMs: CALL_MS });
        acknowledged.push(key);
      } catch (error) {
        if (!(error instanceof ConcordError)) throw error;
        refusals.push(error);
      }
      await sleep(5);
    }
    concord.close();
  };
  const writers = TRANSPORTS.map(write);
  return {
    acknowledged,
    refusals,
    async end() {
      isOver = true;
      await Promise.all(writers);
    },
  };
}

/** So many writes are acknowledged from now on, within the bound. */
async function goesOn({ acknowledged }: Load, count: number): Promise<void> {
  const wanted = acknowledged.length + count;
  await expect.poll(() => acknowledged.length, { timeout: RESUME_MS_MAX }).toBeGreaterThanOrEqual(wanted);
}

async function lostOf(name: string, { acknowledged }: Load): Promise<string[]> {
  const found = new Set<unknown>();
  const concord = Concord.connect({ url: cluster.five.urls[1] ?? "" });
  for await (const { key } of concord.kv.list({ prefix: `/${name}/` }, { limit: 1000 })) found.add(key);
  concord.close();
  return acknowledged.filter((key) => !found.has(key));
}

test("two nodes are killed under load, the leader among them: writes go on, none is lost", async () => {
  const leader = await cluster.settled();
  const [other = 0] = NODE_IDS.filter((id) => id !== leader);
  const load = startLoad("two");
  await goesOn(load, 50);
  await cluster.five.kill(leader, other);
  await goesOn(load, 100);
  await load.end();
  await cluster.five.restart(leader, other);
  await cluster.settled();
  expect(await lostOf("two", load)).toEqual([]);
});

test("three nodes are killed under load: calls fail with a clear code and in time; with one back, service returns by itself", async () => {
  const leader = await cluster.settled();
  const [first = 0, second = 0, ...left] = NODE_IDS.filter((id) => id !== leader);
  const load = startLoad("three");
  await goesOn(load, 50);
  await cluster.five.kill(leader, first, second);
  // What was under way may still be answered.
  await sleep(CALL_MS);
  const before = load.acknowledged.length;
  load.refusals.splice(0);
  const fails = async (node: number, transport: TransportName): Promise<void> => {
    const concord = Concord.connect({ url: cluster.five.urls[node - 1] ?? "", transport });
    const startedMs = performance.now();
    const [written, read] = await Promise.allSettled([
      concord.kv.put("/none", 1, { timeoutMs: CALL_MS }),
      concord.kv.get("/none", { timeoutMs: CALL_MS }),
    ]);
    expect(performance.now() - startedMs).toBeLessThan(CALL_MS + LATE_MS_MAX);
    for (const outcome of [written, read]) {
      const code = outcome.status === "rejected" && outcome.reason instanceof ConcordError ? outcome.reason.code : null;
      expect(["no_leader", "timeout"]).toContain(code);
    }
    concord.close();
  };
  await Promise.all(left.flatMap((node) => TRANSPORTS.slice(0, 2).map((transport) => fails(node, transport))));
  await expect.poll(() => load.refusals.length, { timeout: RESUME_MS_MAX }).toBeGreaterThan(0);
  expect(load.acknowledged.length).toBe(before);
  for (const { code } of load.refusals) expect(["no_leader", "timeout"]).toContain(code);
  await cluster.five.restart(second);
  await goesOn(load, 100);
  await load.end();
  await cluster.five.restart(leader, first);
  await cluster.settled();
  expect(await lostOf("three", load)).toEqual([]);
});

test("all five are killed at once under load: every acknowledged write is there, and clients go on by themselves", async () => {
  await cluster.settled();
  const load = startLoad("five");
  await goesOn(load, 150);
  await cluster.five.kill(...NODE_IDS);
  await cluster.five.restart(...NODE_IDS);
  await goesOn(load, 50);
  await load.end();
  await cluster.settled();
  expect(await lostOf("five", load)).toEqual([]);
});
