/** The test cluster of `concord-edge/testing` inside the Workers runtime, where users of the vitest plugin run it. */
import { expect, test } from "vitest";
import { startTestCluster } from "../../src/testing/index.ts";

test("calls, leases, watches and a change of leader work in the Workers runtime as they do in Node", async () => {
  const cluster = await startTestCluster();
  const concord = cluster.client();
  const watch = concord.sync.watch({ prefix: "/workers/" });
  await watch.open();
  const { id } = await concord.lease.grant({ ttl_s: 30 });
  await concord.kv.put("/workers/a", "here", { lease: id });

  await cluster.kill("leader");
  await cluster.finish(concord.kv.put("/workers/b", "here"));
  await cluster.advance(35_000);
  expect(await concord.kv.get("/workers/a")).toBeNull();

  const seen: string[] = [];
  for await (const { type, key } of watch) {
    seen.push(`${type} ${key}`);
    if (seen.length === 3) break;
  }
  expect(seen).toEqual(["put /workers/a", "put /workers/b", "delete /workers/a"]);
  await cluster.close();
});
