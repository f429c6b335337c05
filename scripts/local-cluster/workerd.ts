/**
 * One plain `workerd` process that serves the Worker with all its nodes, or with one of them whose peers are processes of
 * their own. Faster than `wrangler dev`, which adds a proxy of its own to each request, and made of nothing but the runtime.
 *
 * D1. The data folder is locked while the process runs (X3 in exclusive-lock.mjs: also beyond our own death).
 * D2. CONCORD_LOOPBACK_DEV is set only where the address is a loopback one.
 */
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { unstable_readConfig } from "wrangler";
import { acquireLock } from "../exclusive-lock.mjs";
import type { Bundle } from "./bundle.ts";
import { HOST, isLoopback } from "./ports.ts";
import { executable, ROOT } from "./project.ts";
import { startTied, type TiedEnd } from "./tied-process.ts";
import { toolEnvironment } from "./tool-environment.ts";
import { workerdConfig } from "./workerd-config.ts";

export interface WorkerdOptions {
  readonly bundle: Bundle;
  /** Address of this machine to listen on, an IPv6 one in brackets. Default 127.0.0.1. */
  readonly host?: string;
  readonly port: number;
  /** Absolute path; made if absent. Holds the configuration, the bundle in use, the lock and the objects' storage. */
  readonly dataFolder: string;
  /** Variables beside or instead of those of wrangler.toml. */
  readonly variables?: Readonly<Record<string, string>>;
  /** The one node that the process serves. Absent: all of them. */
  readonly separate?: SeparatePlace;
  /** Keeps sleeping objects in memory. Default false: as it is in production. */
  readonly isPinned?: boolean;
  readonly onLine: (line: string, stream: "stdout" | "stderr") => void;
}

/** What the variables NODE_ID, PEERS and CLUSTER_SECRET say (src/api/separate-node.ts). */
export interface SeparatePlace {
  readonly nodeId: number;
  /** Base URLs by node id. */
  readonly peers: Readonly<Record<string, string>>;
  readonly secret: string;
}

export interface WorkerdProcess {
  readonly url: string;
  /** Process group of workerd and its keeper, for tests that break things. */
  readonly groupId: number;
  readonly ended: Promise<TiedEnd>;
  /** Ends the process and frees the data folder. */
  stop(): Promise<void>;
  /** SIGKILL, as a crash would; the data folder stays as it is and is freed. */
  crash(): Promise<void>;
  /** SIGSTOP: the process stands still, its sockets stay open. */
  pause(): void;
  resume(): void;
}

/** Binding of the nodes to the network of their peers (src/node-object/peer-urls.ts). */
const PEER_BINDING = "PEER_NETWORK";

/** Starts workerd; whether it answers yet is for the caller to find out (`waitForLeader`). @throws LockHeldError */
export async function startWorkerd(options: WorkerdOptions): Promise<WorkerdProcess> {
  const storageFolder = join(options.dataFolder, "storage");
  mkdirSync(storageFolder, { recursive: true });
  const lock = await acquireLock(join(options.dataFolder, "concord.lock"), {
    purpose: `workerd on port ${options.port}`,
  });
  try {
    copyFileSync(options.bundle.modulePath, join(options.dataFolder, "worker.js"));
    const configPath = join(options.dataFolder, "workerd.capnp");
    // Variables may be secret; the mode counts only for a file that is made, so an old one goes first.
    rmSync(configPath, { force: true });
    writeFileSync(configPath, workerdConfig({ ...projectConfig(options), storageFolder }), { mode: 0o600 });
    const tied = startTied({
      program: executable("workerd"),
      args: ["serve", configPath],
      cwd: ROOT,
      env: toolEnvironment({ TZ: "UTC" }),
      onLine: options.onLine,
    });
    lock.setGroup(tied.groupId);
    const end = async (how: () => Promise<void> | void): Promise<void> => {
      await how();
      await tied.ended;
      lock.release();
    };
    return {
      url: `http://${options.host ?? HOST}:${options.port}`,
      groupId: tied.groupId,
      ended: tied.ended,
      stop: () => end(() => tied.stop()),
      crash: () => end(() => tied.kill()),
      pause: () => tied.pause(),
      resume: () => tied.resume(),
    };
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** What wrangler.toml says, so that both ways of running the Worker agree. */
function projectConfig(options: WorkerdOptions) {
  const config = unstable_readConfig({ config: join(ROOT, "wrangler.toml") });
  const [object] = config.durable_objects.bindings;
  if (object === undefined) throw new Error("wrangler.toml binds no Durable Object");
  const { compatibility_date: compatibilityDate } = config;
  if (compatibilityDate === undefined) throw new Error("wrangler.toml has no compatibility_date");
  const { host = HOST, separate } = options;
  return {
    host,
    port: options.port,
    module: "worker.js",
    compatibilityDate,
    compatibilityFlags: config.compatibility_flags,
    variables: {
      ...textVariables(config.vars),
      ...(isLoopback(host) ? { CONCORD_LOOPBACK_DEV: "1" } : {}),
      ...(separate === undefined ? {} : variablesOf(separate)),
      ...options.variables,
    },
    objectBinding: object.name,
    objectClass: object.class_name,
    ...(separate === undefined ? {} : { peerBinding: PEER_BINDING }),
    isPinned: options.isPinned === true,
  };
}

function variablesOf({ nodeId, peers, secret }: SeparatePlace): Record<string, string> {
  return { NODE_ID: String(nodeId), PEERS: JSON.stringify(peers), CLUSTER_SECRET: secret };
}

function textVariables(variables: Readonly<Record<string, unknown>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(variables).map(([name, value]) => {
      if (typeof value !== "string") throw new Error(`the variable ${name} of wrangler.toml is not text`);
      return [name, value];
    }),
  );
}
