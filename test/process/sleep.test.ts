/**
 * Goal: an idle cluster sleeps, costs nothing, and loses neither a lease's end nor a watcher's event by it (design 02 §4).
 * Method: one plain `workerd` process in real time; the nodes' own log lines count constructors and sleeps.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startWorkerdCluster, type WorkerdCluster } from "./workerd-cluster.ts";

const folder = mkdtempSync(join(tmpdir(), "concord-sleep-"));
let cluster: WorkerdCluster;

beforeAll(async () => {
  cluster = await startWorkerdCluster(folder);
});

afterAll(async () => {
  await cluster.stop();
  rmSync(folder, { recursive: true, force: true });
});

interface Heard {
  readonly atMs: number;
  readonly frame: { kind: string; position?: string; events?: { revision: number; key: string; type: string }[] };
}

function watch(query: string): { heard: Heard[]; close: () => void; ready: Promise<void> } {
  const heard: Heard[] = [];
  const socket = new WebSocket(`${cluster.url.replace("http", "ws")}/v1/watch?${query}`);
  const ready = new Promise<void>((resolve, reject) => {
    socket.addEventListener("error", () => reject(new Error(`no watch ${query.slice(0, 80)}`)));
    socket.addEventListener("message", ({ data }) => {
      const frame = JSON.parse(String(data)) as Heard["frame"];
      heard.push({ atMs: Date.now(), frame });
      if (frame.position !== undefined) socket.send(JSON.stringify({ ack: frame.position }));
      if (frame.kind === "ready") resolve();
    });
  });
  return { heard, close: () => socket.close(), ready };
}

async function post(path: string, body: unknown): Promise<Record<string, unknown>> {
  const response = await fetch(cluster.url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  expect(response.status).toBeLessThan(300);
  return (await response.json()) as Record<string, unknown>;
}

const until = (atMs: number) => new Promise((resolve) => setTimeout(resolve, Math.max(0, atMs - Date.now())));

test("a lease of 30 s with 101 keys ends on time at one revision though everybody sleeps, and 100 watches hear of it", async () => {
  // 100 watches with keys of the greatest length, over all nodes, and one of the leased keys.
  const long = "k".repeat(4090);
  const watches = Array.from({ length: 100 }, (_, n) => watch(`node=${1 + (n % 5)}&key=${long}${n}`));
  const leased = watch("node=3&prefix=/leased/");
  await Promise.all([...watches, leased].map(({ ready }) => ready));
  const grantedAtMs = Date.now();
  const { id } = await post("/v1/leases", { ttl_s: 30 });
  const puts = (from: number, to: number) => ({
    success: Array.from({ length: to - from }, (_, n) => ({
      type: "put",
      key: `/leased/${from + n}`,
      value: n,
      lease: id,
    })),
  });
  await post("/v1/txn", puts(0, 101));
  const quietAtMs = Date.now();
  await until(grantedAtMs + 22_000);
  // Everybody fell asleep once, and nobody has been busy since.
  expect(cluster.logged("asleep", quietAtMs).length).toBe(5);
  const asleepAtMs = Math.max(...cluster.logged("asleep", quietAtMs).map(({ atMs }) => atMs));
  expect(cluster.log.filter(({ atMs }) => atMs > asleepAtMs)).toEqual([]);
  await until(grantedAtMs + 34_000);
  const deletes = leased.heard.flatMap(({ atMs, frame }) =>
    (frame.events ?? []).filter(({ type }) => type === "delete").map((event) => ({ atMs, ...event })),
  );
  expect(deletes.length).toBe(101);
  expect(new Set(deletes.map(({ revision }) => revision)).size).toBe(1);
  const endedAfterS = ((deletes[0]?.atMs ?? 0) - grantedAtMs) / 1000;
  expect(endedAfterS).toBeGreaterThanOrEqual(30);
  expect(endedAfterS).toBeLessThanOrEqual(33);
  // The objects had gone from memory: each was constructed anew.
  expect(cluster.logged("instance started", asleepAtMs).length).toBe(5);
  // The next write reaches every watch that slept through it all.
  for (let n = 0; n < 100; n += 50) {
    const success = Array.from({ length: 50 }, (_, m) => ({ type: "put", key: `${long}${n + m}`, value: n + m }));
    await post("/v1/txn", { success });
  }
  const events = () => watches.filter(({ heard }) => heard.some(({ frame }) => frame.kind === "events")).length;
  await expect.poll(events, { timeout: 5000 }).toBe(100);
  for (const { heard } of watches) {
    expect(heard.flatMap(({ frame }) => frame.events ?? []).map(({ type }) => type)).toEqual(["put"]);
  }
  // Asleep again, with all watches open: a question about health constructs whom it asks and wakes nobody.
  const writtenAtMs = Date.now();
  await until(writtenAtMs + 22_000);
  expect(cluster.logged("asleep", writtenAtMs).length).toBe(5);
  const askedAtMs = Date.now();
  for (const path of ["/livez", "/readyz", "/healthz", "/v1/cluster"]) {
    expect((await fetch(cluster.url + path)).status).toBe(200);
  }
  expect(cluster.logged("instance started", askedAtMs).length).toBe(5);
  await until(askedAtMs + 1000);
  expect(cluster.logged("awake", askedAtMs)).toEqual([]);
  for (const { close } of [...watches, leased]) close();
}, 120_000);
