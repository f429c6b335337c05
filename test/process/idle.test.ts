/**
 * Goal: a cluster with open watches and long leases that nobody asks anything sends nothing, computes nothing and lets its
 * objects go; the next write is acknowledged and told at once. Also while one node is down (design 02 §4).
 * Method: clusters side by side in real time: the bytes on the links between five processes, the CPU time of each process,
 * and the nodes' own lines.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, test } from "vitest";
import { processCpuSeconds } from "../../scripts/local-cluster/cpu-time.ts";
import { freePort } from "../../scripts/local-cluster/ports.ts";
import { waitForLeader } from "../../scripts/local-cluster/readiness.ts";
import { NODE_IDS } from "../../scripts/local-cluster/verbs.ts";
import { startWranglerDev } from "../../scripts/local-cluster/wrangler-dev.ts";
import { startFiveTest } from "./five-cluster.ts";
import { type LogLine, structured } from "./workerd-cluster.ts";

const IDLE_MS = 60_000;
const WATCHES = 50;
const LEASES = 50;
/** QUIESCE_AFTER_MS, and what a busy machine adds. */
const FALL_ASLEEP_MS_MAX = 25_000;
/** A sleeping leader looks for a node that is down after 1, 2, 4 … 60 s: by then seldom. */
const PROBES_SETTLE_MS = 20_000;
const PROBES_BYTES_MAX = 3000;

const folder = mkdtempSync(join(tmpdir(), "concord-idle-"));
const clusters = new Map<string, Idle>();

/** A cluster with `up` nodes that are asked nothing. */
interface Idle {
  /** Of each node that is up, where it is watched; the first one is that of the leader. */
  readonly watched: readonly string[];
  /** What the nodes wrote, oldest first. */
  readonly log: readonly LogLine[];
  /** Of each process, by its id. */
  cpuSeconds(): ReadonlyMap<number, number>;
  /** Null where what nodes say to each other does not leave the process. */
  bytesBetweenNodes(): number | null;
  stop(): Promise<void>;
}

async function startSeparate(name: string, hasOneDown: boolean): Promise<Idle> {
  const { five, log, settled } = await startFiveTest({ folder: join(folder, name) });
  const leader = await settled();
  const down = hasOneDown ? (leader % NODE_IDS.length) + 1 : null;
  if (down !== null) await five.kill(down);
  const others = NODE_IDS.filter((id) => id !== down && id !== leader);
  return {
    watched: [leader, ...others].map((id) => `${five.urls[id - 1]}/v1/watch?prefix=/idle/`),
    log,
    cpuSeconds: () => new Map(five.groupIds().flatMap((group) => [...(processCpuSeconds(group) ?? [])])),
    bytesBetweenNodes: () => five.bytesBetweenNodes(),
    stop: () => five.stop(),
  };
}

async function startDev(name: string): Promise<Idle> {
  const log: LogLine[] = [];
  const groups: number[] = [];
  mkdirSync(join(folder, name));
  const dev = startWranglerDev({
    port: await freePort(),
    dataFolder: join(folder, name),
    verbose: true,
    onGroup: (group) => groups.push(group),
    onLine: (line) => {
      const parsed = structured(line);
      if (parsed !== null) log.push({ atMs: Date.now(), ...parsed });
    },
  });
  const { url } = dev;
  const { leader } = await waitForLeader({
    url,
    waitMsMax: 60_000,
    token: undefined,
    signal: AbortSignal.timeout(90_000),
  });
  const others = NODE_IDS.filter((id) => id !== leader);
  return {
    watched: [leader, ...others].map((id) => `${url}/v1/watch?node=${id}&prefix=/idle/`),
    log,
    // What wrangler itself does while it waits for changes of the source is not the nodes' doing.
    cpuSeconds: () => new Map(groups.flatMap((group) => [...(processCpuSeconds(group) ?? [])].filter(isRuntime))),
    bytesBetweenNodes: () => null,
    stop: () => dev.stop(),
  };
}

function isRuntime([pid]: readonly [pid: number, seconds: number]): boolean {
  return readFileSync(`/proc/${pid}/comm`, "utf8").trim() === "workerd";
}

const STARTS: readonly (readonly [string, () => Promise<Idle>])[] = [
  ["five processes", () => startSeparate("whole", false)],
  ["five processes, one down", () => startSeparate("one-down", true)],
  ["wrangler dev", () => startDev("dev")],
];

beforeAll(async () => {
  for (const [name, start] of STARTS) clusters.set(name, await start());
}, 180_000);

afterAll(async () => {
  for (const cluster of clusters.values()) await cluster.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Counts the events of a watch. */
async function watch(url: string): Promise<{ events: number; close(): void }> {
  const socket = new WebSocket(url.replace("http", "ws"));
  const counted = { events: 0, close: () => socket.close() };
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener("error", () => reject(new Error(`no watch at ${url}`)));
    socket.addEventListener("message", ({ data }) => {
      const frame = JSON.parse(String(data)) as { kind: string; position?: string; events?: unknown[] };
      counted.events += frame.events?.length ?? 0;
      if (frame.position !== undefined) socket.send(JSON.stringify({ ack: frame.position }));
      if (frame.kind === "ready") resolve();
    });
  });
  return counted;
}

async function send(url: string, method: string, body: unknown): Promise<number> {
  const headers = { "content-type": "application/json" };
  const response = await fetch(url, { method, headers, body: JSON.stringify(body) });
  await response.text();
  return response.status;
}

describe.concurrent("with 50 watches and 50 leases of ten minutes, asleep for a while", () => {
  // The context's own `expect`: the common one knows one test at a time.
  test.for(STARTS.map(([name]) => name))(
    "%s: nothing is sent or computed, and the next write is told at once",
    { timeout: 240_000 },
    async (name, { expect }) => {
      const cluster = clusters.get(name);
      if (cluster === undefined) throw new Error(`no cluster ${name}`);
      const { watched, log } = cluster;
      const { origin } = new URL(watched[0] ?? "");
      for (let n = 0; n < LEASES; n += 1) expect(await send(`${origin}/v1/leases`, "POST", { ttl_s: 600 })).toBe(201);
      const urls = Array.from({ length: WATCHES }, (_, n) => watched[n % watched.length] ?? "");
      const watches = await Promise.all(urls.map(watch));
      const quietAtMs = Date.now();
      const logged = (message: string, sinceMs: number) =>
        log.filter((line) => line.message === message && line.atMs >= sinceMs);
      await expect.poll(() => logged("asleep", quietAtMs).length, { timeout: FALL_ASLEEP_MS_MAX }).toBe(watched.length);
      const isWhole = watched.length === NODE_IDS.length;
      await sleep(isWhole ? 1000 : PROBES_SETTLE_MS);
      const bytes = cluster.bytesBetweenNodes();
      const before = cluster.cpuSeconds();
      const idleAtMs = Date.now();
      await sleep(IDLE_MS);
      // All that is said is the question to the node that is away, whether it is there again.
      const saidMax = isWhole ? 0 : PROBES_BYTES_MAX;
      expect((cluster.bytesBetweenNodes() ?? 0) - (bytes ?? 0)).toBeLessThanOrEqual(saidMax);
      for (const [pid, seconds] of cluster.cpuSeconds()) expect(seconds - (before.get(pid) ?? 0)).toBeLessThan(0.5);
      expect(logged("awake", idleAtMs)).toEqual([]);
      // A message that stays within the process would have made an object anew.
      if (isWhole) expect(logged("instance started", idleAtMs)).toEqual([]);
      const writtenAtMs = Date.now();
      expect(await send(`${origin}/v1/kv?key=/idle/k`, "PUT", 1)).toBe(200);
      expect(Date.now() - writtenAtMs).toBeLessThan(2000);
      await expect.poll(() => watches.filter(({ events }) => events === 1).length, { timeout: 2000 }).toBe(WATCHES);
      // The objects had gone from memory: each was constructed anew.
      expect(logged("instance started", idleAtMs).length).toBeGreaterThanOrEqual(watched.length);
      for (const { close } of watches) close();
    },
  );
});
