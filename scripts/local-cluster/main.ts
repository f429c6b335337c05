/**
 * `npm run workerd -- [--host ADDRESS] [--port N] [--data DIR]`: one plain `workerd` process, from a freshly built bundle,
 * until a signal ends it. It serves the five nodes, or, with NODE_ID, PEERS and CLUSTER_SECRET in the environment, one of
 * them, whose peers are processes like it on other machines (docs/operations.md).
 *
 * Takes the root token, if there is to be one, from CONCORD_ROOT_TOKEN, and the settings of the nodes (docs/operations.md)
 * from the variables of their names, where they are to differ from wrangler.toml.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type SeparateNode, separateNodeOf } from "../../src/api/separate-node.ts";
import type { NodeVariables } from "../../src/node-object/node-environment.ts";
import { buildBundle } from "./bundle.ts";
import { folderOf, parsed, portOf, runCommand, UsageError } from "./command-line.ts";
import { HOST, isLoopback, isPortFree } from "./ports.ts";
import { ROOT } from "./project.ts";
import { waitForLeader } from "./readiness.ts";
import { startWorkerd } from "./workerd.ts";

const PORT_DEFAULT = 8788;
const NODES_COUNT = 5;
const LEADER_WAIT_MS_MAX = 30_000;

/** Settings of a node that its environment may name (src/node-object/node-environment.ts). */
const SETTINGS: readonly (keyof NodeVariables)[] = [
  "HEARTBEAT_MS",
  "ELECTION_TIMEOUT_MS_MIN",
  "ELECTION_TIMEOUT_MS_MAX",
  "QUIESCE_AFTER_MS",
  "QUOTA_BYTES",
  "LOG_KEEP_ENTRIES",
  "LOG_KEEP_BYTES",
  "HOUSEKEEPING_MS",
  "PROTOCOL_MAX",
  "COMPACTION_KEEP_REVISIONS",
  "COMPACTION_KEEP_MS",
  "COMPACTION_HISTORY_BYTES",
];

const USAGE = `Usage: npm run workerd -- [--host ADDRESS] [--port N] [--data DIR]

  --host ADDRESS  address of this machine to listen on (default ${HOST})
  --port N        port (default ${PORT_DEFAULT})
  --data DIR      data folder, made if absent (default .concord/workerd)

With NODE_ID, PEERS and CLUSTER_SECRET in the environment it serves that one node: docs/operations.md
`;

interface Options {
  readonly host: string;
  readonly port: number;
  readonly dataFolder: string;
  /** Empty: none. */
  readonly rootToken: string;
  readonly separate: SeparateNode | null;
}

function settingsOf(environment: NodeJS.ProcessEnv): Record<string, string> {
  const set = SETTINGS.map((name) => [name, environment[name]] as const);
  return Object.fromEntries(set.filter((one): one is readonly [keyof NodeVariables, string] => one[1] !== undefined));
}

/** @throws UsageError */
function readOptions(): Options | null {
  const { values } = parsed(() =>
    parseArgs({
      options: {
        host: { type: "string" },
        port: { type: "string" },
        data: { type: "string" },
        help: { type: "boolean", short: "h" },
      },
    }),
  );
  if (values.help === true) return null;
  const host = values.host ?? HOST;
  const rootToken = process.env.CONCORD_ROOT_TOKEN ?? "";
  if (host === "") throw new UsageError("--host wants an address of this machine");
  if (!isLoopback(host) && rootToken === "") {
    const reason = "set CONCORD_ROOT_TOKEN, without it nobody is served there";
    throw new UsageError(`On ${host} others can reach the cluster: ${reason}`);
  }
  return {
    host,
    port: portOf(values.port, "--port", { byDefault: PORT_DEFAULT, max: 65_535 }),
    dataFolder: folderOf(values.data, join(ROOT, ".concord", "workerd")),
    rootToken,
    separate: separateNodeOf(process.env, NODES_COUNT),
  };
}

async function main(): Promise<void> {
  const options = readOptions();
  if (options === null) {
    process.stdout.write(USAGE);
    return;
  }
  const { host, port, dataFolder, rootToken, separate } = options;
  if (!(await isPortFree(port, host))) {
    throw new Error(
      `Port ${port} of ${host} is in use by another program. ` +
        `Stop that program or choose another port: npm run workerd -- --port ${port + 1}`,
    );
  }
  mkdirSync(dataFolder, { recursive: true });
  process.stdout.write("Building the bundle …\n");
  const bundle = await buildBundle(join(dataFolder, "build"));
  const workerd = await startWorkerd({
    bundle,
    host,
    port,
    dataFolder,
    variables: { ...settingsOf(process.env), ...(rootToken === "" ? {} : { CONCORD_ROOT_TOKEN: rootToken }) },
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
  await sayReady(workerd.url, options, stopping);
  const end = await workerd.ended;
  process.exitCode = end.wanted ? 0 : 1;
}

function placeOf({ id, peers, secret }: SeparateNode) {
  return { nodeId: id, peers: Object.fromEntries(peers), secret };
}

/** Five nodes without a leader are of no use; one node stays and waits for the others. */
async function sayReady(url: string, { separate, rootToken }: Options, stopping: AbortController): Promise<void> {
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
    if (!stopping.signal.aborted) process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    stopping.abort();
  }
}

await runCommand(main, { usage: USAGE, elsewhere: "choose another folder: npm run workerd -- --data DIR" });
