/**
 * `npm run workerd -- [--host ADDRESS] [--port N] [--data DIR]`: one plain `workerd` process, from a freshly built bundle,
 * until a signal ends it. It serves the five nodes, or, with NODE_ID, PEERS and CLUSTER_SECRET in the environment, one of
 * them, whose peers are processes like it on other machines (docs/operations.md).
 *
 * Takes the root token, if there is to be one, from CONCORD_ROOT_TOKEN.
 */
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { type SeparateNode, separateNodeOf } from "../../src/api/separate-node.ts";
import { buildBundle } from "./bundle.ts";
import { HOST, isLoopback, isPortFree } from "./ports.ts";
import { ROOT } from "./project.ts";
import { waitForLeader } from "./readiness.ts";
import { startWorkerd, type WorkerdProcess } from "./workerd.ts";

const PORT_DEFAULT = 8788;
const NODES_COUNT = 5;
const LEADER_WAIT_MS_MAX = 30_000;

const { values } = parseArgs({
  options: { host: { type: "string" }, port: { type: "string" }, data: { type: "string" } },
});
const host = values.host ?? HOST;
const port = values.port === undefined ? PORT_DEFAULT : Number(values.port);
const rootToken = process.env.CONCORD_ROOT_TOKEN ?? "";
const separate = separateNodeOf(process.env, NODES_COUNT);
if (!Number.isInteger(port) || port < 1 || port > 65_535) throw new Error("--port wants a number from 1 to 65535");
if (!isLoopback(host) && rootToken === "") {
  throw new Error(`on ${host} others can reach the cluster: set CONCORD_ROOT_TOKEN, without it nobody is served there`);
}
if (!(await isPortFree(port, host))) throw new Error(`port ${port} of ${host} is in use by another program`);
// npm itself moves to the project's root.
const userFolder = process.env.INIT_CWD ?? process.cwd();
const dataFolder = resolve(userFolder, values.data ?? join(ROOT, ".concord", "workerd"));
mkdirSync(dataFolder, { recursive: true });

process.stdout.write("Building the bundle …\n");
const bundle = await buildBundle(join(dataFolder, "build"));
const workerd = await startWorkerd({
  bundle,
  host,
  port,
  dataFolder,
  variables: rootToken === "" ? {} : { CONCORD_ROOT_TOKEN: rootToken },
  ...(separate === null ? {} : { separate: placeOf(separate) }),
  onLine: (line, stream) => process[stream].write(`${line}\n`),
});
const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => stopping.abort());
// Set-up started this process and is its parent; without it nobody would pass on a signal.
process.once("disconnect", () => stopping.abort());
process.channel?.unref();
stopping.signal.addEventListener("abort", () => void workerd.stop());
void workerd.ended.then(() => stopping.abort());
await sayReady(workerd);
const end = await workerd.ended;
process.exitCode = end.wanted ? 0 : 1;

function placeOf({ id, peers, secret }: SeparateNode) {
  return { nodeId: id, peers: Object.fromEntries(peers), secret };
}

/** Five nodes without a leader are of no use; one node stays and waits for the others. */
async function sayReady({ url }: WorkerdProcess): Promise<void> {
  try {
    const view = await waitForLeader({
      url,
      waitMsMax: separate === null ? LEADER_WAIT_MS_MAX : Number.POSITIVE_INFINITY,
      token: rootToken === "" ? undefined : rootToken,
      signal: stopping.signal,
      onState: (state) => {
        if (separate !== null) process.stdout.write(`Node ${separate.id} at ${url}: ${state}\n`);
      },
    });
    process.stdout.write(`Ready: ${url}/v1 — node ${view.leader} leads ${view.nodesCount} nodes.\n`);
  } catch (error) {
    if (!stopping.signal.aborted) process.stderr.write(`${String(error)}\n`);
    stopping.abort();
  }
}
