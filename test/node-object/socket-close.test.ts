/** A client that ends its socket hears the end at once, whichever code it names or does not. */
import { reset } from "cloudflare:test";
import { afterEach, expect, test } from "vitest";
import { TestCluster } from "./cluster-harness.ts";
import { quietConsole } from "./quiet-console.ts";
import { TestSocket } from "./socket-client.ts";

quietConsole();
afterEach(async () => await reset());

test.each([
  ["no code", undefined, 1000],
  ["a code of its own", 4001, 4001],
])("closed with %s", async (_name, code, answered) => {
  const cluster = new TestCluster();
  await cluster.leader();
  const session = await TestSocket.open(cluster, 1, "/v1/session");
  if (code === undefined) session.socket.close();
  else session.socket.close(code);
  expect((await session.closing()).code).toBe(answered);
});
