/**
 * Goal: five processes with open watches and long leases that nobody asks anything send each other nothing, compute nothing
 * and let their objects go; the next write is acknowledged and told at once. Also while one of them is down (design 02 §4).
 * Method: two clusters side by side in real time: the bytes on the links between nodes, the CPU time of the processes, and the
 * nodes' own lines.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, test } from "vitest";
import { groupCpuSeconds } from "../../scripts/local-cluster/cpu-time.ts";
import { NODE_IDS } from "../../scripts/local-cluster/verbs.ts";
import { type FiveTest, startFiveTest } from "./five-cluster.ts";

/** `IDLE_S=60` for the whole minute: here it is what keeps the suite short. */
const IDLE_MS = Number(process.env.IDLE_S ?? 30) * 1000;
const WATCHES = 50;
const LEASES = 50;
/** QUIESCE_AFTER_MS, and what a busy machine adds. */
const FALL_ASLEEP_MS_MAX = 25_000;
/** A sleeping leader looks for a node that is down after 1, 2, 4 … 60 s: by then seldom. */
const PROBES_SETTLE_MS = 20_000;
const PROBES_BYTES_MAX = 3000;

const folder = mkdtempSync(join(tmpdir(), "concord-idle-"));
const clusters = new Map<string, FiveTest>();

beforeAll(async () => {
  for (const name of ["whole", "one down"]) {
    const cluster = await startFiveTest({ folder: join(folder, name.replace(" ", "-")) });
    clusters.set(name, cluster);
    await cluster.settled();
  }
}, 120_000);

afterAll(async () => {
  for (const cluster of clusters.values()) await cluster.five.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Counts the events of a watch on `/idle/`. */
async function watch(cluster: FiveTest, node: number): Promise<{ events: number; close(): void }> {
  const url = cluster.five.urls[node - 1] ?? "";
  const socket = new WebSocket(`${url.replace("http", "ws")}/v1/watch?prefix=/idle/`);
  const counted = { events: 0, close: () => socket.close() };
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener("error", () => reject(new Error(`no watch on node ${node}`)));
    socket.addEventListener("message", ({ data }) => {
      const frame = JSON.parse(String(data)) as { kind: string; position?: string; events?: unknown[] };
      counted.events += frame.events?.length ?? 0;
      if (frame.position !== undefined) socket.send(JSON.stringify({ ack: frame.position }));
      if (frame.kind === "ready") resolve();
    });
  });
  return counted;
}

describe.concurrent("with 50 watches and 50 leases of ten minutes, asleep for a while", () => {
  // The context's own `expect`: the common one knows one test at a time.
  test.for(["whole", "one down"])(
    "%s: nothing is sent or computed, and the next write is told at once",
    { timeout: 240_000 },
    async (name, { expect }) => {
      const cluster = clusters.get(name);
      if (cluster === undefined) throw new Error(`no cluster ${name}`);
      const leader = await cluster.settled();
      const down = name === "whole" ? null : (leader % NODE_IDS.length) + 1;
      const up = NODE_IDS.filter((id) => id !== down);
      if (down !== null) await cluster.five.kill(down);
      for (let n = 0; n < LEASES; n += 1) {
        const { status } = await cluster.send(leader, "POST", "/v1/leases", { body: { ttl_s: 600 } });
        expect(status).toBe(201);
      }
      const watches = await Promise.all(
        Array.from({ length: WATCHES }, (_, n) => watch(cluster, up[n % up.length] ?? leader)),
      );
      const quietAtMs = Date.now();
      const logged = (message: string, sinceMs: number) =>
        cluster.log.filter((line) => line.message === message && line.atMs >= sinceMs);
      await expect.poll(() => logged("asleep", quietAtMs).length, { timeout: FALL_ASLEEP_MS_MAX }).toBe(up.length);
      await sleep(down === null ? 1000 : PROBES_SETTLE_MS);
      const bytes = cluster.five.bytesBetweenNodes();
      const cpuS = () => cluster.five.groupIds().map((id) => groupCpuSeconds(id) ?? 0);
      const before = cpuS();
      const idleAtMs = Date.now();
      await sleep(IDLE_MS);
      // All that is said is the question to the node that is away, whether it is there again.
      const saidMax = down === null ? 0 : PROBES_BYTES_MAX;
      expect((cluster.five.bytesBetweenNodes() ?? 0) - (bytes ?? 0)).toBeLessThanOrEqual(saidMax);
      for (const [at, seconds] of cpuS().entries()) expect(seconds - (before[at] ?? 0)).toBeLessThan(0.5);
      expect(logged("awake", idleAtMs)).toEqual([]);
      const writtenAtMs = Date.now();
      expect((await cluster.put(leader, "/idle/k", 1)).status).toBe(200);
      expect(Date.now() - writtenAtMs).toBeLessThan(2000);
      await expect.poll(() => watches.filter(({ events }) => events === 1).length, { timeout: 2000 }).toBe(WATCHES);
      // The objects had gone from memory: each was constructed anew.
      expect(logged("instance started", idleAtMs).length).toBeGreaterThanOrEqual(up.length);
      for (const { close } of watches) close();
    },
  );
});
