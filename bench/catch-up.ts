/**
 * `npm run catch-up -- [--keys N] [--rate W] [--json FILE]`: how a node that has lost its storage comes back into a cluster with
 * N keys of 100 bytes while W writes a second go on (five `workerd` processes on this machine). Reports how long it takes,
 * what the processes' memory grows to, and what writes cost before and meanwhile. Exit code 1 if the node does not come back
 * or its state is not that of the others.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { groupMembers } from "../scripts/exclusive-lock.mjs";
import { type FiveCluster, startFive } from "../scripts/local-cluster/five.ts";
import type { ClusterStatus } from "../src/api/backend.ts";
import { Concord } from "../src/client/index.ts";

const TXN_KEYS = 128;
const LOADERS = 8;
const BASELINE_MS = 20_000;
const WAIT_MS_MAX = 1_200_000;

const { values } = parseArgs({
  options: {
    keys: { type: "string", default: "1000000" },
    rate: { type: "string", default: "500" },
    json: { type: "string" },
  },
});
const keys = Number(values.keys);
const rate = Number(values.rate);
if (!Number.isSafeInteger(keys) || keys < 1 || !Number.isSafeInteger(rate) || rate < 1) {
  process.stderr.write("--keys and --rate want whole numbers from 1\n");
  process.exit(2);
}

const folder = mkdtempSync(join(tmpdir(), "concord-catch-up-"));
const say = (line: string) => void process.stdout.write(`${line}\n`);
const five = await startFive({ folder, hasLinks: false });
try {
  const report = await measure(five);
  say(JSON.stringify(report, null, 2));
  if (values.json !== undefined) {
    // npm itself moves to the project's root.
    writeFileSync(resolve(process.env.INIT_CWD ?? process.cwd(), values.json), `${JSON.stringify(report, null, 2)}\n`);
  }
  process.exitCode = report.equal ? 0 : 1;
} finally {
  await five.stop();
  rmSync(folder, { recursive: true, force: true });
}

async function measure(cluster: FiveCluster) {
  const clients = cluster.urls.slice(0, 4).map((url) => Concord.connect({ url, timeoutMs: 30_000 }));
  await until("a leader", async () => (await statusOf(cluster, 1))?.leader != null);
  const loadS = await load(clients);
  say(`${keys} keys written in ${loadS.toFixed(0)} s`);
  const before = await underLoad(clients, () => sleep(BASELINE_MS));
  say(`writes before: ${JSON.stringify(before)}`);
  const startMs = performance.now();
  await cluster.wipe(5);
  let told = 0;
  const during = await underLoad(clients, () =>
    until("node 5 votes again", async () => {
      const own = (await statusOf(cluster, 5))?.nodes.find(({ id }) => id === 5);
      if (own !== undefined && performance.now() > told + 10_000) {
        told = performance.now();
        say(`node 5: ${own.state}, applied ${own.applied_index}, ${own.storage_bytes >> 20} MiB`);
      }
      return own?.member === "voter";
    }),
  );
  const catchUpS = (performance.now() - startMs) / 1000;
  await until("all agree", async () => (await statusOf(cluster, 1))?.digests?.equal === true);
  const digests = (await statusOf(cluster, 1))?.digests;
  for (const client of clients) client.close();
  return {
    keys,
    writesPerS: rate,
    catchUpS: round(catchUpS),
    writeMs: { before, during },
    peakMiB: peakMemory(cluster),
    equal: digests?.equal === true,
  };
}

/** Seconds. */
async function load(clients: readonly Concord[]): Promise<number> {
  const startMs = performance.now();
  let next = 0;
  const loader = async (number: number) => {
    while (next < keys) {
      const first = next;
      next += TXN_KEYS;
      const success = Array.from({ length: Math.min(TXN_KEYS, keys - first) }, (_, at) => {
        const key = `/k/${String(first + at).padStart(9, "0")}`;
        return { type: "put", key, value: "v".repeat(98) } as const;
      });
      await clients[number % clients.length]?.txn({ success });
      if (first % (TXN_KEYS * 1000) === 0) say(`${first} keys`);
    }
  };
  await Promise.all(Array.from({ length: LOADERS }, (_, number) => loader(number)));
  return (performance.now() - startMs) / 1000;
}

/** Open loop: `rate` puts a second, whatever the answers take, until `work` is done. */
async function underLoad(clients: readonly Concord[], work: () => Promise<void>) {
  const latencies: number[] = [];
  let failed = 0;
  let isOver = false;
  const pending = new Set<Promise<void>>();
  const put = async (number: number) => {
    const sentMs = performance.now();
    try {
      await clients[number % clients.length]?.kv.put(`/w/${number % 5000}`, number);
      latencies.push(performance.now() - sentMs);
    } catch {
      failed += 1; // counted and reported
    }
  };
  const writer = (async () => {
    const startMs = performance.now();
    for (let sent = 0; !isOver; ) {
      for (const due = ((performance.now() - startMs) * rate) / 1000; sent < due; sent += 1) {
        const one = put(sent).finally(() => pending.delete(one));
        pending.add(one);
      }
      await sleep(5);
    }
    await Promise.all(pending);
  })();
  try {
    await work();
  } finally {
    isOver = true;
    await writer;
  }
  latencies.sort((left, right) => left - right);
  const at = (share: number) => round(latencies[Math.floor(latencies.length * share)] ?? 0);
  return { count: latencies.length, failed, p50: at(0.5), p90: at(0.9), p99: at(0.99) };
}

async function statusOf(cluster: FiveCluster, node: number): Promise<ClusterStatus | null> {
  try {
    const response = await fetch(`${cluster.urls[node - 1]}/v1/cluster`, { signal: AbortSignal.timeout(3000) });
    return response.ok ? ((await response.json()) as ClusterStatus) : null;
  } catch {
    return null; // the process is starting; asked again
  }
}

async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  const endMs = performance.now() + WAIT_MS_MAX;
  while (!(await condition())) {
    if (performance.now() > endMs) throw new Error(`${what}: not within ${WAIT_MS_MAX / 1000} s`);
    await sleep(250);
  }
}

/** Of the present processes, in MiB (VmHWM): a node that was wiped began anew. Null where there is no /proc. */
function peakMemory(cluster: FiveCluster): readonly (number | null)[] {
  return cluster.groupIds().map((group) => {
    if (process.platform !== "linux") return null;
    const peaks = groupMembers(group).map((pid) => {
      const status = readFileSync(`/proc/${pid}/status`, "utf8");
      return /^Name:\s+workerd/m.test(status) ? Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) : 0;
    });
    return Math.round(Math.max(...peaks) / 1024);
  });
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
