/** Backups through the client: of one whole cluster in memory, into another. */
import { describe, expect, test } from "vitest";
import { type Backup, openBackup, restoreBackup } from "../../src/client/backup.ts";
import { startTestCluster, type TestCluster } from "../../src/testing/cluster.ts";

function connection(cluster: TestCluster, node?: number) {
  return { fetch: (request: Request) => cluster.fetch(request, node === undefined ? {} : { node }), token: "root" };
}

async function loaded(): Promise<TestCluster> {
  const cluster = await startTestCluster({ seed: 3 });
  const concord = cluster.client();
  for (let at = 0; at < 300; at += 1) await concord.kv.put(`/k/${at}`, { at, text: "x".repeat(3000) });
  const { id } = await concord.lease.grant({ ttl_s: 60 });
  await concord.kv.put("/leased", 1, { lease: id });
  await cluster.advance(59_000);
  await concord.kv.put("/last", 1);
  return cluster;
}

async function textOf({ text }: Backup): Promise<string> {
  return await new Response(text).text();
}

describe("a backup", () => {
  test("of one cluster makes another one serve the same, whose clients are told", async () => {
    const old = await loaded();
    const backup = await openBackup(connection(old, 2));
    expect(backup).toMatchObject({ node: 2, revision: 302 });
    const cluster = await startTestCluster({ seed: 4 });
    const changes: unknown[] = [];
    const concord = cluster.client({ onClusterChanged: (change) => changes.push(change) });
    expect(await concord.currentRevision()).toBe(0);
    const follower = cluster.nodes.find((node) => node !== cluster.leader());
    const restored = await cluster.finish(restoreBackup(connection(cluster, follower), backup.text));
    expect(restored).toMatchObject({ revision: 1_000_302, backup: { cluster_id: backup.clusterId, revision: 302 } });
    expect(await concord.kv.get("/k/7").catch((error: { code: string }) => error.code)).toBe("cluster_changed");
    expect(changes).toMatchObject([{ to: restored.cluster_id }]);
    expect((await concord.kv.get("/k/7"))?.value).toMatchObject({ at: 7 });
    // The lease had a second left.
    await cluster.advance(50_000);
    expect(await concord.kv.get("/leased")).not.toBeNull();
    await cluster.advance(12_000);
    expect(await concord.kv.get("/leased")).toBeNull();
    const digests = cluster.nodes.map((node) => cluster.status(node)?.digest);
    expect(new Set(digests).size).toBe(1);
    await old.close();
    await cluster.close();
  });

  test("survives the end of the leader in the middle of its restore", async () => {
    const old = await loaded();
    const text = await textOf(await openBackup(connection(old)));
    for (const delayMs of [1, 7]) {
      const cluster = await startTestCluster({ seed: delayMs, messageDelayMs: delayMs });
      const leader = cluster.leader();
      const follower = cluster.nodes.find((node) => node !== leader);
      const restoring = restoreBackup(connection(cluster, follower), text);
      await cluster.advance(10 * delayMs);
      if (leader !== null) await cluster.kill(leader);
      const restored = await cluster.finish(restoring);
      if (leader !== null) await cluster.restart(leader);
      await cluster.advance(5000);
      const digests = cluster.nodes.map((node) => cluster.status(node)?.digest);
      expect(new Set(digests).size).toBe(1);
      const concord = cluster.client(leader === null ? {} : { node: leader });
      const record = await cluster.finish(concord.kv.get("/k/299"));
      expect(record?.value).toMatchObject({ at: 299 });
      expect(cluster.status(leader ?? 1)?.revision).toBe(restored.revision);
      await cluster.close();
    }
    await old.close();
  });

  test("that is refused, or was cut off on the way, is an error", async () => {
    const old = await loaded();
    const text = await textOf(await openBackup(connection(old)));
    const refused = { code: "precondition_failed", reason: "cluster_not_empty" };
    await expect(restoreBackup(connection(old), text)).rejects.toMatchObject(refused);
    const cluster = await startTestCluster();
    await expect(restoreBackup(connection(cluster), text.slice(0, -1))).rejects.toMatchObject({
      code: "invalid_request",
      reason: "backup_truncated",
    });
    await expect(restoreBackup(connection(cluster), text, { revisionJump: 0 })).rejects.toMatchObject({
      reason: "invalid_revision_jump",
    });
    const headers = { "concord-backup-revision": "3", "concord-cluster": "c", "concord-node": "1" };
    for (const length of [text.length - 1, 1000, 0]) {
      const cut = { fetch: () => new Response(text.slice(0, length), { headers }) };
      await expect(textOf(await openBackup(cut))).rejects.toMatchObject({ code: "timeout", reason: "connection" });
    }
    const whole = { fetch: () => new Response(text, { headers }) };
    expect(await textOf(await openBackup(whole))).toBe(text);
    await expect(openBackup({ fetch: () => Promise.reject(new TypeError("gone")) })).rejects.toMatchObject({
      code: "timeout",
      reason: "connection",
    });
    await expect(openBackup({ fetch: () => new Response("hello") })).rejects.toMatchObject({ reason: "no_backup" });
    await old.close();
    await cluster.close();
  });
});
