/**
 * Goal: a watch leaves a node that does not serve it, and does not go back in time by doing so, over both transports alike.
 * Method: as in watch.test.ts.
 */
import { describe, expect, test } from "vitest";
import type { WatchStatus } from "../../src/client/index.ts";
import { collect, createSetting, keysOf, settle, TRANSPORTS } from "./streaming.ts";

const ALL = { prefix: "" };

describe.each(TRANSPORTS)("a watch over %s", (transport) => {
  test("whose node falls silent goes on at another within half a minute (S84)", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    const statuses: string[] = [];
    const taken = collect(concord.sync.watch(ALL, { from_revision: 1, onStatus: ({ kind }) => statuses.push(kind) }));
    await settle();
    cluster.freeze();
    cluster.commit(["missed", 1]);
    await clock.advance(25_000);
    expect(taken.items).toEqual([]);
    cluster.isAlive = true;
    cluster.nextNode = 3;
    await clock.advance(6_000);
    expect(keysOf(taken.items)).toEqual(["missed"]);
    expect(cluster.opened.at(-1)?.node).toBe(3);
    expect(statuses).toEqual(["ready", "interrupted", "resumed", "ready"]);
  });

  test("whose node knows no leader for five seconds goes on at another", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    const statuses: WatchStatus[] = [];
    const taken = collect(concord.sync.watch(ALL, { from_revision: 1, onStatus: (status) => statuses.push(status) }));
    await settle();
    cluster.changeLeader(null);
    await clock.advance(4_000);
    expect(cluster.opened.length).toBe(1);
    cluster.changeLeader(2);
    await clock.advance(4_000);
    expect(cluster.opened.length).toBe(1);
    cluster.changeLeader(null);
    cluster.leader = 2;
    cluster.nextNode = 2;
    await clock.advance(5_500);
    cluster.commit(["a", 1]);
    await settle();
    expect(cluster.opened.at(-1)?.node).toBe(2);
    expect(keysOf(taken.items)).toEqual(["a"]);
    expect(
      statuses.filter(({ kind }) => kind === "leader_changed").map((status) => "leader" in status && status.leader),
    ).toEqual([null, 2, null]);
    expect(statuses).toContainEqual({ kind: "interrupted", error: expect.objectContaining({ code: "no_leader" }) });
  });

  test("never goes back behind what the client has seen, nor lets its reads (S86)", async () => {
    const { cluster, concord } = createSetting(transport);
    for (let count = 0; count < 10; count += 1) cluster.commit(["k", count]);
    await concord.currentRevision();
    cluster.lags = [0, 3, 0];
    cluster.nextNode = 2;
    const watch = concord.sync.watch(ALL);
    await watch.open();
    const taken = collect(watch);
    cluster.lags = [0, 0, 0];
    cluster.commit(["k", "new"]);
    await settle();
    expect(taken.items.map(({ value }) => value)).toEqual(["new"]);
    expect(concord.revision).toBe(11);
    await concord.currentRevision({ consistency: "serializable" });
    expect(Number(cluster.asked.at(-1)?.params.min_revision)).toBe(11);
  });

  test("waits longer and longer for a cluster that cannot be reached, and goes on for ever", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    const interruptions: number[] = [];
    const onStatus = ({ kind }: WatchStatus) => {
      if (kind === "interrupted") interruptions.push(clock.nowMs());
    };
    const taken = collect(concord.sync.watch(ALL, { from_revision: 1, onStatus }));
    await settle();
    cluster.refusesSockets = true;
    cluster.refusesEvents = true;
    cluster.breakAll();
    await clock.advance(600_000);
    const pauses = interruptions.slice(1).map((atMs, index) => atMs - (interruptions[index] ?? 0));
    expect(pauses.every((pauseMs) => pauseMs > 0)).toBe(true);
    expect(pauses.at(-1)).toBeGreaterThanOrEqual(2_500);
    expect(taken.outcome).toBe("open");
    cluster.refusesSockets = false;
    cluster.refusesEvents = false;
    cluster.commit(["a", 1]);
    await clock.advance(60_000);
    expect(keysOf(taken.items)).toEqual(["a"]);
  });
});
