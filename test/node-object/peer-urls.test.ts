/** Peers in other processes: where a message goes, and what goes with it. */
import { expect, test } from "vitest";
import type { SeparateNode } from "../../src/api/separate-node.ts";
import { stubsByUrl } from "../../src/node-object/peer-urls.ts";

const NODE: SeparateNode = {
  id: 2,
  peers: new Map([
    [1, "http://10.0.0.1:8800"],
    [3, "https://three.internal/concord"],
  ]),
  secret: "correct-horse-battery",
};

function createNetwork() {
  const sent: Request[] = [];
  const network = {
    async fetch(url: string, init?: RequestInit) {
      sent.push(new Request(url, init));
      return new Response(null, { status: 204 });
    },
  };
  return { sent, network };
}

test("a message goes to the URL of its node, with the name of the object, the sender and the secret", async () => {
  const { sent, network } = createNetwork();
  const stub = stubsByUrl(NODE, "default", network);
  const init = { method: "POST", headers: { "x-concord-peer": "2" }, body: "frame" };
  expect((await stub(1).fetch("http://node/peer/message", init)).status).toBe(204);
  const [request] = sent;
  expect(request).toMatchObject({ url: "http://10.0.0.1:8800/peer/message", method: "POST", redirect: "manual" });
  expect(await request?.text()).toBe("frame");
  expect(Object.fromEntries(request?.headers ?? [])).toMatchObject({
    "x-concord-peer": "2",
    "x-concord-object": "default/1",
    "x-concord-secret": NODE.secret,
  });
});

test("a base URL may have a path, and a question its query", async () => {
  const { sent, network } = createNetwork();
  await stubsByUrl(NODE, "second", network)(3).fetch("http://node/peer/digest?index=7");
  expect(sent[0]?.url).toBe("https://three.internal/concord/peer/digest?index=7");
  expect(sent[0]?.headers.get("x-concord-object")).toBe("second/3");
});

test("without the network of the peers there is no node", () => {
  expect(() => stubsByUrl(NODE, "default", undefined)).toThrow(/PEER_NETWORK/);
});
