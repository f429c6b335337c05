/** The administration of a cluster from TypeScript, against a test cluster in the same process. */
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ConcordAdmin } from "../../src/client/admin.ts";
import { ConcordError } from "../../src/client/index.ts";
import { startTestCluster, type TestCluster } from "../../src/testing/cluster.ts";

let cluster: TestCluster;
let admin: ConcordAdmin;

beforeEach(async () => {
  cluster = await startTestCluster();
  admin = ConcordAdmin.connect({ fetch: (request) => cluster.fetch(request), clock: cluster.clock });
});

afterEach(async () => {
  admin.close();
  await cluster.close();
});

describe("the administration", () => {
  test("shows the cluster, and hands leadership over", async () => {
    const { leader, membership } = await cluster.finish(admin.cluster.status());
    expect(membership).toMatchObject({ node: leader, voters: [1, 2, 3, 4, 5], learners: [] });
    const to = leader === 3 ? 4 : 3;
    expect(await cluster.finish(admin.cluster.transfer(to))).toMatchObject({ outcome: "done", leader: to });
    expect(await cluster.finish(admin.cluster.transfer(to))).toMatchObject({ outcome: "unchanged" });
    expect(await cluster.finish(admin.cluster.transfer())).toMatchObject({ outcome: "done" });
  });

  test("lets a node go and takes it in again", async () => {
    const { members } = admin.cluster;
    const removed = await cluster.finish(members.remove(5));
    expect(removed).toMatchObject({ outcome: "done", membership: { voters: [1, 2, 3, 4], committed: true } });
    expect(removed.detail).toContain("node 5 is no member");
    expect(await cluster.finish(members.add(5))).toMatchObject({ outcome: "done" });
    const promoted = await cluster.finish(members.promote(5));
    expect(promoted.membership).toMatchObject({ voters: [1, 2, 3, 4, 5], learners: [] });
  });

  test("restarts a node and repairs one", async () => {
    const before = cluster.status(2)?.incarnation;
    expect(await cluster.finish(admin.cluster.restart(2))).toMatchObject({ outcome: "under_way" });
    await cluster.advance(2000);
    expect(cluster.status(2)?.incarnation).toBe(before);
    await expect(cluster.finish(admin.cluster.repair(2))).rejects.toMatchObject({ reason: "not_halted" });
    expect(await cluster.finish(admin.cluster.repair(2, { force: true }))).toMatchObject({ outcome: "under_way" });
    await cluster.advance(5000);
    expect(cluster.status(2)).toMatchObject({ state: "formed", member: "voter" });
    expect(cluster.status(2)?.incarnation).not.toBe(before);
  });

  test("tells why something is refused", async () => {
    const refused = cluster.finish(admin.cluster.init([1, 2, 3]));
    await expect(refused).rejects.toThrow(ConcordError);
    await expect(refused).rejects.toMatchObject({ code: "admin_refused", reason: "formed", retry: "no" });
    await expect(cluster.finish(admin.cluster.restart(9))).rejects.toMatchObject({ reason: "unknown_node" });
  });

  test.each([
    ["a node that is no number", (one: ConcordAdmin) => one.cluster.members.add("5" as never), "wrong_type"],
    ["members that are no list", (one: ConcordAdmin) => one.cluster.init(5 as never), "wrong_type"],
    [
      "an option that does not exist",
      (one: ConcordAdmin) => one.cluster.restart(1, { force: true } as never),
      "unknown_field",
    ],
  ])("is refused before anything is sent: %s", async (_, act, reason) => {
    await expect(act(admin)).rejects.toMatchObject({ code: "invalid_request", reason });
  });
});
