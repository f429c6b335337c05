/**
 * The files of a project that uses the package, as text: written by the tests into an empty folder, where the only
 * `concord-edge` is the packed one.
 */

/** Runs on any Node from 20: every primitive once, against a cluster in the same process. Prints what it saw. */
export const SCRIPT = `
import { Concord, ConcordError } from "concord-edge/client";
import { ConcordAdmin, ConcordError as AdminError, openBackup } from "concord-edge/admin";
import { startTestCluster } from "concord-edge/testing";

const cluster = await startTestCluster({ seed: 7 });
const concord = cluster.client();
const saw = { isSameClass: concord instanceof Concord && AdminError === ConcordError };

await concord.kv.put("/a", { n: 1 });
saw.value = (await concord.kv.get("/a")).value;

const txn = await concord.txn({
  compare: [{ target: "value", key: "/a", op: "==", value: { n: 1 } }],
  success: [{ type: "put", key: "/b", value: "by txn" }],
});
saw.succeeded = txn.succeeded;

const watch = concord.sync.watch({ prefix: "/workers/" });
await watch.open();
const { id } = await concord.lease.grant({ ttl_s: 30 });
await concord.kv.put("/workers/1", "here", { lease: id });
await cluster.advance(35_000);
saw.record = await concord.kv.get("/workers/1");
saw.events = [];
for await (const event of watch) {
  saw.events.push(event.type);
  if (event.type === "delete") break;
}

try {
  await concord.kv.put("/workers/1", "here", { lease: id });
} catch (error) {
  saw.error = error instanceof ConcordError && error.code;
}
const admin = ConcordAdmin.connect({ fetch: (request) => cluster.fetch(request), clock: cluster.clock });
saw.voters = (await admin.cluster.status()).membership.voters;
const { text } = await openBackup({ fetch: (request) => cluster.fetch(request) });
saw.backup = (await new Response(text).text()).trimEnd().split("\\n").at(-1).startsWith('{"end":');
await concord.close();
await cluster.close();
console.log(JSON.stringify(saw));
`;

export const SCRIPT_SAW = {
  isSameClass: true,
  value: { n: 1 },
  succeeded: true,
  record: null,
  events: ["put", "delete"],
  error: "unknown_lease",
  voters: [1, 2, 3, 4, 5],
  backup: true,
};

/** Compiles against the declarations of the client and of the test cluster. */
export const PROGRAM = `
import { Concord, ConcordError, type ConnectOptions, type JsonValue } from "concord-edge/client";
import { type AdminOutcome, ConcordAdmin } from "concord-edge/admin";
import { startTestCluster, type TestCluster, type TestClusterOptions } from "concord-edge/testing";

export async function claim(options: ConnectOptions, key: string): Promise<number | null> {
  const concord: Concord = Concord.connect(options);
  const record = await concord.kv.get<{ readonly status: string }>(key);
  if (record === null || record.value.status !== "pending") return null;
  const result = await concord.kv.updateIf(key, record.mod_revision, { status: "claimed" });
  return result.succeeded ? result.revision : null;
}

export async function isStill(options: TestClusterOptions): Promise<boolean> {
  const cluster: TestCluster = await startTestCluster(options);
  const concord: Concord = cluster.client({ node: 1 });
  try {
    const value: JsonValue | undefined = (await concord.kv.get("/a"))?.value;
    return value === undefined;
  } catch (error) {
    return error instanceof ConcordError && error.retry === "yes";
  } finally {
    await cluster.advance(1_000);
    await cluster.close();
  }
}

export async function repairAll(options: ConnectOptions): Promise<readonly AdminOutcome[]> {
  const { cluster } = ConcordAdmin.connect(options);
  const { nodes } = await cluster.status();
  return await Promise.all(nodes.filter(({ halted }) => halted !== null).map(({ id }) => cluster.repair(id)));
}

// @ts-expect-error: the declarations are there, and say that a url is text
Concord.connect({ url: 1 });
`;

/** A Worker of somebody else's that serves a cluster under a path. */
export const WORKER = `
import { createEdge, type NodeBindings } from "concord-edge/worker";

export { ConcordNode } from "concord-edge/worker";

interface Env extends NodeBindings {
  readonly MINE?: string;
}

const concord = createEdge({ basePath: "/concord" });

export default {
  async fetch(request: Request, environment: Env): Promise<Response> {
    const { pathname } = new URL(request.url);
    return pathname.startsWith("/concord/") ? await concord.fetch(request, environment) : new Response("mine");
  },
};
`;

/** A Worker that is the cluster and nothing else. */
export const WHOLE_WORKER = `
export { ConcordNode, default } from "concord-edge/worker";
`;

export function wranglerToml(main: string): string {
  return `
name = "consumer"
main = "${main}"
compatibility_date = "2026-10-15"

[[durable_objects.bindings]]
name = "NODES"
class_name = "ConcordNode"

[[migrations]]
tag = "v1"
new_sqlite_classes = ["ConcordNode"]
`;
}
