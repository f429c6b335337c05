/**
 * `npm run workerd -- [--port N] [--data DIR]`: the five nodes in one plain `workerd` process, from a
 * freshly built bundle, until a signal ends it. Takes the root token, if there is to be one, from CONCORD_ROOT_TOKEN.
 */
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { buildBundle } from "./bundle.ts";
import { HOST, isPortFree } from "./ports.ts";
import { ROOT } from "./project.ts";
import { waitForLeader } from "./readiness.ts";
import { startWorkerd } from "./workerd.ts";

const PORT_DEFAULT = 8788;
const LEADER_WAIT_MS_MAX = 30_000;

const { values } = parseArgs({ options: { port: { type: "string" }, data: { type: "string" } } });
const port = values.port === undefined ? PORT_DEFAULT : Number(values.port);
if (!Number.isInteger(port) || port < 1 || port > 65_535) throw new Error("--port wants a number from 1 to 65535");
if (!(await isPortFree(port))) throw new Error(`port ${port} of ${HOST} is in use by another program`);
// npm itself moves to the project's root.
const userFolder = process.env.INIT_CWD ?? process.cwd();
const dataFolder = resolve(userFolder, values.data ?? join(ROOT, ".concord", "workerd"));
mkdirSync(dataFolder, { recursive: true });

process.stdout.write("Building the bundle …\n");
const bundle = await buildBundle(join(dataFolder, "build"));
const rootToken = process.env.CONCORD_ROOT_TOKEN ?? "";
const workerd = await startWorkerd({
  bundle,
  port,
  dataFolder,
  variables: rootToken === "" ? {} : { CONCORD_ROOT_TOKEN: rootToken },
  onLine: (line, stream) => process[stream].write(`${line}\n`),
});
const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => stopping.abort());
// Set-up started this process and is its parent; without it nobody would pass on a signal.
process.once("disconnect", () => stopping.abort());
process.channel?.unref();
stopping.signal.addEventListener("abort", () => void workerd.stop());
void workerd.ended.then(() => stopping.abort());
try {
  const view = await waitForLeader({
    url: workerd.url,
    waitMsMax: LEADER_WAIT_MS_MAX,
    token: rootToken === "" ? undefined : rootToken,
    signal: stopping.signal,
  });
  process.stdout.write(`Ready: ${workerd.url}/v1 — node ${view.leader} leads ${view.nodesCount} nodes.\n`);
} catch (error) {
  if (!stopping.signal.aborted) process.stderr.write(`${String(error)}\n`);
  stopping.abort();
}
const end = await workerd.ended;
process.exitCode = end.wanted ? 0 : 1;
