/**
 * `npm run cluster -- VERB`: five nodes in five `workerd` processes on this machine, and what can happen to them.
 * Reads the command line; `start` is in cluster-start.ts, every other verb goes to the process that `start` is.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { askCluster, findCluster, waitForEnd } from "./cluster-control.ts";
import { statusText } from "./cluster-status.ts";
import { folderOf, parsed, portOf, runCommand, UsageError } from "./command-line.ts";
import { ROOT } from "./project.ts";
import { type ControlRequest, NODE_IDS, requestOf, VerbError } from "./verbs.ts";

const BASE_PORT_DEFAULT = 8800;

const USAGE = `Usage: npm run cluster -- VERB [--data DIR]

  start [--base-port N] [--pin] [--no-proxy] [--verbose]
                       run five nodes on ports N+1 to N+5 of 127.0.0.1 (default ${BASE_PORT_DEFAULT}) until Ctrl-C
                       --pin keeps sleeping nodes in memory; --no-proxy connects nodes directly: faster, no partitions
  status               what each process does and what its node says
  kill N...            SIGKILL, all of them at once
  pause N, resume N    SIGSTOP, SIGCONT
  restart N            start a node that is down, or end and start it
  wipe N               SIGKILL, delete its storage, start it
  partition 1,2/3,4,5  cut the links between the groups, in addition to earlier cuts; --one-way: only what the first
                       group sends to the others
  heal                 join all links again
  stop                 end all processes; the data stays

  --data DIR           data folder of the cluster (default .concord/cluster)
`;

async function main(args: readonly string[]): Promise<void> {
  const { values, positionals } = parse(args);
  const [verb, ...rest] = positionals;
  if (values.help === true) {
    process.stdout.write(USAGE);
    return;
  }
  const folder = folderOf(values.data, join(ROOT, ".concord", "cluster"));
  const rootToken = process.env.CONCORD_ROOT_TOKEN ?? "";
  if (verb === "start") {
    if (rest.length > 0) throw new UsageError(`start takes no ${JSON.stringify(rest[0])}`);
    // What builds and configures takes seconds to load; the other verbs need nothing of it.
    const { runCluster } = await import("./cluster-start.ts");
    await runCluster({
      folder,
      basePort: portOf(values["base-port"], "--base-port", {
        byDefault: BASE_PORT_DEFAULT,
        max: 65_535 - NODE_IDS.length,
      }),
      isPinned: values.pin === true,
      hasLinks: values["no-proxy"] !== true,
      isVerbose: values.verbose === true,
      rootToken,
    });
    return;
  }
  const request = requestOf(verb, rest, values["one-way"] === true);
  const handle = findCluster(folder);
  if (handle === null) throw new VerbError(`No cluster runs on ${folder}. Start one: npm run cluster -- start`);
  const reply = await askCluster(handle, request);
  if (reply.error !== null) throw new VerbError(reply.error);
  if (request.verb === "stop") await waitForEnd(handle);
  if (request.verb === "status") process.stdout.write(await statusText(handle, reply, rootToken));
  else process.stdout.write(`${doneText(request)}\n`);
}

function parse(args: readonly string[]) {
  return parsed(() =>
    parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        data: { type: "string" },
        "base-port": { type: "string" },
        pin: { type: "boolean" },
        "no-proxy": { type: "boolean" },
        "one-way": { type: "boolean" },
        verbose: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    }),
  );
}

function doneText(request: ControlRequest): string {
  switch (request.verb) {
    case "kill":
      return `Killed: ${request.nodes.join(", ")}`;
    case "pause":
      return `Paused: ${request.nodes.join(", ")}`;
    case "resume":
      return `Resumed: ${request.nodes.join(", ")}`;
    case "restart":
      return `Restarted: ${request.nodes.join(", ")}`;
    case "wipe":
      return `Wiped and started: ${request.nodes.join(", ")}`;
    case "partition":
      return `Cut: ${request.groups.map((group) => group.join(",")).join(request.isOneWay ? " to " : " and ")}`;
    case "heal":
      return "Healed.";
    default:
      return "Stopped; the data is kept.";
  }
}

await runCommand(() => main(process.argv.slice(2)), {
  usage: USAGE,
  elsewhere: "choose another folder with --data.",
});
