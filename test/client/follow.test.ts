/**
 * Goal: what `follow` tells, applied in order, is the data, also where the changes in between cannot be had; and `changes`
 * goes through all pages. Method: the model's records against a copy made from the items.
 */
import { describe, expect, test } from "vitest";
import type { WireChanges } from "../../src/api/wire.ts";
import type { Concord, FollowItem } from "../../src/client/index.ts";
import type { ModelCluster } from "./model-cluster.ts";
import { collect, createSetting, settle, TRANSPORTS } from "./streaming.ts";

const JOBS = { prefix: "/jobs/" };

/** A copy as an application keeps it. */
function copyOf(items: readonly FollowItem[]): Record<string, unknown> {
  const copy = new Map<unknown, unknown>();
  for (const item of items) {
    if (item.kind === "put") copy.set(item.key, item.record.value);
    else if (item.kind === "delete") copy.delete(item.key);
  }
  return Object.fromEntries([...copy].sort());
}

function recordsOf(cluster: ModelCluster, prefix: string): Record<string, unknown> {
  const inside = [...cluster.records].filter(([key]) => key.startsWith(prefix));
  return Object.fromEntries(inside.map(([key, { value }]) => [key, value]).sort());
}

function kindsOf(items: readonly FollowItem[]): string[] {
  return items.map((item) => ("key" in item ? `${item.kind} ${String(item.key)}` : item.kind));
}

function follow(concord: Concord, options = {}) {
  return collect(concord.sync.follow(JOBS, { limit: 2, ...options }));
}

describe.each(TRANSPORTS)("follow over %s", (transport) => {
  test("lists, says when that is complete, and goes on with every change", async () => {
    const { cluster, concord } = createSetting(transport);
    for (const name of ["a", "b", "c"]) cluster.commit([`/jobs/${name}`, name]);
    cluster.commit(["/other", 1]);
    const taken = follow(concord);
    await settle();
    expect(kindsOf(taken.items)).toEqual(["put /jobs/a", "put /jobs/b", "put /jobs/c", "synced"]);
    expect(taken.items.at(-1)).toEqual({ kind: "synced", revision: 4 });
    cluster.commit(["/jobs/a", undefined], ["/jobs/d", "d"], ["/other", 2]);
    await settle();
    expect(taken.items.slice(4)).toEqual([
      { kind: "delete", key: "/jobs/a", revision: 5, computed: false },
      { kind: "put", key: "/jobs/d", revision: 5, record: cluster.records.get("/jobs/d") },
    ]);
    expect(cluster.opened[0]?.terms.from_revision).toBe(5);
  });

  test("of one key, and of a range without values", async () => {
    const { cluster, concord } = createSetting(transport);
    cluster.commit(["k", 1], ["k ", 1], ["l", 1]);
    const one = collect(concord.sync.follow({ key: "k" }));
    const range = collect(concord.sync.follow({ range: { start: "k " } }, { include_values: false }));
    await settle();
    cluster.commit(["k", 2], ["m", 2]);
    await settle();
    expect(kindsOf(one.items)).toEqual(["put k", "synced", "put k"]);
    expect(kindsOf(range.items)).toEqual(["put k ", "put l", "synced", "put m"]);
    expect(range.items.some((item) => item.kind === "put" && "value" in item.record)).toBe(false);
  });

  test.each([
    ["compacted", { kind: "compacted", compact_revision: 9 }],
    ["resync", { kind: "resync", revision: 9 }],
  ] as const)("lists again after %s, tells only the difference, and computes deletes", async (reason, frame) => {
    const { cluster, clock, concord } = createSetting(transport);
    for (const name of ["a", "b", "c"]) cluster.commit([`/jobs/${name}`, name]);
    const taken = follow(concord);
    await settle();
    const before = taken.items.length;
    cluster.isHolding = true;
    cluster.commit(["/jobs/a", undefined], ["/jobs/b", "b2"], ["/jobs/e", "e"]);
    cluster.tell(frame);
    cluster.isHolding = false;
    await clock.advance(1_000);
    expect(taken.items.slice(before)).toEqual([
      { kind: "restarted", reason },
      { kind: "put", key: "/jobs/b", revision: 4, record: cluster.records.get("/jobs/b") },
      { kind: "put", key: "/jobs/e", revision: 4, record: cluster.records.get("/jobs/e") },
      { kind: "delete", key: "/jobs/a", revision: 4, computed: true },
      { kind: "synced", revision: 4 },
    ]);
    cluster.commit(["/jobs/f", "f"]);
    await settle();
    expect(copyOf(taken.items)).toEqual(recordsOf(cluster, "/jobs/"));
  });

  test("does not list without a pause where changes are gone as soon as they are wanted", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    cluster.commit(["/jobs/a", 1]);
    cluster.compactRevision = 100;
    const taken = follow(concord);
    await clock.advance(60_000);
    const lists = cluster.asked.filter(({ method }) => method === "kv.list").length;
    expect(lists).toBeGreaterThan(5);
    expect(lists).toBeLessThan(40);
    expect(taken.outcome).toBe("open");
  });

  test("begins anew in another cluster, and says so before revisions fall (S86)", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    for (let count = 0; count < 20; count += 1) cluster.commit(["/jobs/a", count], ["/jobs/b", count]);
    const taken = follow(concord);
    await settle();
    cluster.restore("c-2", 3);
    cluster.records.delete("/jobs/b");
    await clock.advance(2_000);
    const at = taken.items.findIndex(({ kind }) => kind === "restarted");
    expect(taken.items[at]).toEqual({ kind: "restarted", reason: "cluster_changed" });
    expect(kindsOf(taken.items.slice(at + 1))).toEqual(["put /jobs/a", "delete /jobs/b", "synced"]);
    expect(taken.items.at(-1)).toEqual({ kind: "synced", revision: 3 });
    cluster.commit(["/jobs/c", 1]);
    await settle();
    expect(copyOf(taken.items)).toEqual(recordsOf(cluster, "/jobs/"));
  });

  test("knows of the other cluster although another call was told of it first", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    cluster.commit(["/jobs/a", 1]);
    const taken = follow(concord);
    await settle();
    cluster.restore("c-2", 1);
    await concord.currentRevision().catch(() => {});
    await clock.advance(2_000);
    expect(kindsOf(taken.items)).toEqual(["put /jobs/a", "synced", "restarted", "put /jobs/a", "synced"]);
  });

  test("waits for a cluster that cannot be reached, and throws what cannot be cured", async () => {
    const { cluster, clock, concord } = createSetting(transport, { timeoutMs: 100 });
    cluster.refusesSockets = true;
    const { fetch } = cluster;
    let isDown = true;
    const other = createSetting(transport, {
      timeoutMs: 100,
      fetch: async (request) => {
        if (isDown) throw new TypeError("fetch failed");
        return await fetch(request);
      },
      webSocket: cluster.openSocket,
      clock,
    });
    cluster.commit(["/jobs/a", 1]);
    const taken = follow(other.concord);
    await clock.advance(60_000);
    expect([taken.items, taken.outcome]).toEqual([[], "open"]);
    isDown = false;
    await clock.advance(10_000);
    expect(kindsOf(taken.items)).toEqual(["put /jobs/a", "synced"]);
    cluster.forbiddenPrefix = "/jobs/";
    const refused = follow(concord);
    await clock.advance(1_000);
    expect(refused.outcome).toMatchObject({ code: "forbidden" });
  });

  test("ends when it is left, when it is aborted, and with the client", async () => {
    const { cluster, concord } = createSetting(transport);
    cluster.commit(["/jobs/a", 1]);
    for await (const item of concord.sync.follow(JOBS)) if (item.kind === "synced") break;
    const controller = new AbortController();
    const aborted = follow(concord, { signal: controller.signal });
    const closed = follow(concord);
    await settle();
    controller.abort();
    await settle();
    expect([aborted.outcome, closed.outcome, cluster.watches.size]).toEqual(["done", "open", 1]);
    concord.close();
    await settle();
    expect([closed.outcome, cluster.watches.size]).toEqual(["done", 0]);
  });
});

describe("changes", () => {
  test("are read page by page, from a position on, also inside a revision", async () => {
    const pages: WireChanges[] = [
      { events: [{ revision: 1 }, { revision: 2 }], next: "2.0", whole: false, has_more: true, revision: 9 },
      { events: [], next: "5", whole: true, has_more: true, revision: 9 },
      { events: [{ revision: 7 }], next: "9", whole: true, has_more: false, revision: 9 },
    ] as unknown as WireChanges[];
    const asked: string[] = [];
    const { concord } = createSetting("events", {
      fetch: async (request) => {
        const url = new URL(request.url);
        asked.push(url.pathname + url.search.replace(/&timeout_ms=\d+/, ""));
        return Response.json(pages[asked.length - 1], { headers: { "concord-revision": "9" } });
      },
    });
    const taken = collect(concord.sync.allChanges({ range: { start: "a b", end: "c" } }, { limit: 2 }));
    await settle();
    expect(taken.items.map(({ revision }) => revision)).toEqual([1, 2, 7]);
    expect(asked).toEqual([
      "/v1/changes?limit=2&start=a%20b&end=c",
      "/v1/changes?after=2.0&limit=2&start=a%20b&end=c",
      "/v1/changes?after=5&limit=2&start=a%20b&end=c",
    ]);
    expect([taken.outcome, concord.revision]).toEqual(["done", 9]);
  });
});
