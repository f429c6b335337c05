/** The edge under a path of its host's: what it answers there, what leaves for a node, and how it names itself. */
import { expect, test } from "vitest";
import { createEdge } from "../../src/api/edge.ts";
import { FakeNodes } from "../api/fake-nodes.ts";

const ORIGIN = "http://127.0.0.1:8787";

function setting(basePath: string) {
  const nodes = new FakeNodes();
  const edge = createEdge({ random: () => 0, basePath });
  const environment = { NODES: nodes, CONCORD_LOOPBACK_DEV: "1" };
  return {
    nodes,
    send: (path: string, init?: RequestInit) => edge.fetch(new Request(ORIGIN + path, init), environment),
  };
}

test("a request under the base path reaches a node without it", async () => {
  const { nodes, send } = setting("/apps/concord");
  expect((await send("/apps/concord/v1/kv?key=a&raw=true")).headers.get("concord-node")).toBe("1");
  expect(nodes.requests[0]?.url).toBe("http://node/v1/kv?key=a&raw=true");
});

test("the edge names itself, and new clusters, with the base path", async () => {
  const { send } = setting("/concord");
  for (const path of ["/concord", "/concord/"]) {
    expect(await (await send(path)).json()).toMatchObject({ api: `${ORIGIN}/concord/v1` });
  }
  const body = JSON.stringify({ name: "second" });
  const headers = { "content-type": "application/json" };
  const created = await send("/concord/v1/clusters", { method: "POST", body, headers });
  expect(created.headers.get("location")).toBe("/concord/c/second/v1");
  expect(await created.json()).toMatchObject({ url: `${ORIGIN}/concord/c/second/v1` });
  expect((await send("/concord/livez")).status).toBe(200);
});

test.each(["/", "/v1/kv?key=a", "/concordance/v1/kv?key=a", "/CONCORD/v1/revision"])(
  "%s is outside of the base path and no route",
  async (path) => {
    const { nodes, send } = setting("/concord");
    const response = await send(path);
    expect(response.status).toBe(404);
    expect(await response.json()).toMatchObject({ code: "not_found", reason: "route" });
    expect(nodes.requests).toEqual([]);
  },
);

test.each(["concord", "/concord/", "/", "/a?b", "//"])("%j is no base path", (basePath) => {
  expect(() => createEdge({ basePath })).toThrow(TypeError);
});
