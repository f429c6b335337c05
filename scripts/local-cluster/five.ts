/**
 * Five nodes in five `workerd` processes on this machine, each on a port and a data folder of its own, their peers reached by
 * URL: for `npm run cluster`, for the tests that break things, and for benchmarks.
 *
 * C1. The folder as a whole is locked, and that of each node (D1 in workerd.ts); what processes that are dead have left
 *     behind in it is ended before it is used again.
 * C2. A process is signalled by the group that was started here, never by name.
 * C3. What is asked of the nodes is carried out one after the other.
 */
import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { acquireLock, endLeftovers } from "../exclusive-lock.mjs";
import { type Bundle, buildBundle } from "./bundle.ts";
import { type LinkProxy, startLinkProxy } from "./link-proxy.ts";
import { freePortsFrom, HOST, isPortFree } from "./ports.ts";
import { crossings, NODE_IDS, VerbError } from "./verbs.ts";
import { startWorkerd, type WorkerdProcess } from "./workerd.ts";

const LIVE_WAIT_MS_MAX = 20_000;
const LIVE_POLL_MS = 25;
const LINES_KEPT = 5;

type Variables = Readonly<Record<string, string>>;

export interface FiveOptions {
  /** Absolute path; made if absent. Node n keeps its data in `node-n` below it. */
  readonly folder: string;
  /** Node n listens on this + n. Absent: ports that are free. */
  readonly basePort?: number;
  /** Variables beside or instead of those of wrangler.toml; a function is asked at each start of a node. */
  readonly variables?: Variables | ((node: number) => Variables);
  /** Whether links between nodes can be cut; each message then takes a way through this process. Default true. */
  readonly hasLinks?: boolean;
  /** Keeps sleeping objects in memory. Default false. */
  readonly isPinned?: boolean;
  /** Absent: built anew. */
  readonly bundle?: Bundle;
  readonly onLine?: (node: number, line: string, stream: "stdout" | "stderr") => void;
  /** A process has ended that nobody here has ended. */
  readonly onCrash?: (node: number) => void;
}

export type ProcessState = "running" | "paused" | "down";

export interface FiveCluster {
  /** Of nodes 1 to 5, in this order. */
  readonly urls: readonly string[];
  state(node: number): ProcessState;
  /** Process groups of the nodes that are not down, for measurements. */
  groupIds(): readonly number[];
  /** SIGKILL. The data stays. Several nodes are killed at once. */
  kill(...nodes: readonly number[]): Promise<void>;
  /** SIGSTOP: the process stands still, connections to it stay open. */
  pause(node: number): Promise<void>;
  resume(node: number): Promise<void>;
  /** Starts nodes that are down; ends one that is not in an orderly way first. */
  restart(...nodes: readonly number[]): Promise<void>;
  /** SIGKILL, its storage deleted, and started again. */
  wipe(node: number): Promise<void>;
  /** Cuts the links between nodes of different groups; those of nodes that are in no group stay. Adds to earlier cuts. */
  partition(groups: readonly (readonly number[])[]): Promise<void>;
  /** What `from` sends to `to` does not arrive. */
  oneWay(from: number, to: number): Promise<void>;
  heal(): Promise<void>;
  /** Cut directions as `from>to`. */
  cuts(): readonly string[];
  /** What nodes have sent to each other so far; null if they reach each other directly. */
  bytesBetweenNodes(): number | null;
  /** Ends all processes and frees the folder. */
  stop(): Promise<void>;
}

/** Resolves when all five processes answer. @throws LockHeldError, VerbError; nothing is left running then. */
export async function startFive(options: FiveOptions): Promise<FiveCluster> {
  mkdirSync(options.folder, { recursive: true });
  const lock = await acquireLock(join(options.folder, "concord.lock"), { purpose: "five nodes" });
  const ending: (() => Promise<void>)[] = [async () => lock.release()];
  try {
    const ports = await portsOf(options.basePort);
    const bundle = options.bundle ?? (await buildBundle(join(options.folder, "build")));
    const links = options.hasLinks === false ? null : await startLinkProxy(ports);
    if (links !== null) ending.push(() => links.close());
    const nodes = new Map<number, NodeProcess>();
    const secret = randomBytes(32).toString("hex");
    for (const [id, port] of ports) {
      const peers: Record<string, string> = {};
      for (const [peer, peerPort] of ports) {
        if (peer !== id) peers[peer] = `http://${HOST}:${links === null ? peerPort : links.portOf(id, peer)}`;
      }
      nodes.set(id, new NodeProcess({ id, port, bundle, separate: { nodeId: id, peers, secret }, options }));
    }
    ending.push(() => inParallel([...nodes.values()].map((node) => node.stop())));
    await inParallel([...nodes.values()].map((node) => node.start()));
    return control(nodes, links, ending);
  } catch (error) {
    await endAll(ending);
    throw error;
  }
}

/** Each is waited for, also after another has failed: what is still starting could not be ended. @throws the first failure */
async function inParallel(works: readonly Promise<void>[]): Promise<void> {
  const results = await Promise.allSettled(works);
  for (const result of results) if (result.status === "rejected") throw result.reason;
}

/** Last in, first out, each whatever became of the others. */
async function endAll(ending: (() => Promise<void>)[]): Promise<void> {
  const failures: unknown[] = [];
  for (const end of ending.splice(0).reverse()) await end().catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw new AggregateError(failures, "not everything could be ended");
}

async function portsOf(basePort: number | undefined): Promise<ReadonlyMap<number, number>> {
  const base = basePort ?? (await freePortsFrom(NODE_IDS.length)) - 1;
  return new Map(NODE_IDS.map((id) => [id, base + id]));
}

function control(
  nodes: ReadonlyMap<number, NodeProcess>,
  links: LinkProxy | null,
  ending: (() => Promise<void>)[],
): FiveCluster {
  let last: Promise<void> = Promise.resolve();
  /** C3. */
  const inTurn = (work: () => void | Promise<void>): Promise<void> => {
    const result = last.then(work);
    last = result.catch(() => {});
    return result;
  };
  const nodeOf = (id: number): NodeProcess => {
    const node = nodes.get(id);
    if (node === undefined) throw new VerbError(`there is no node ${id}; nodes are ${NODE_IDS.join(", ")}`);
    return node;
  };
  const linksOf = (): LinkProxy => {
    if (links === null) throw new VerbError("the nodes reach each other directly, so no link can be cut");
    return links;
  };
  return {
    urls: [...nodes.values()].map(({ url }) => url),
    state: (id) => nodeOf(id).state,
    groupIds: () => [...nodes.values()].flatMap((node) => node.groupId ?? []),
    kill: (...ids) => inTurn(() => inParallel(ids.map(nodeOf).map((node) => node.kill()))),
    pause: (id) => inTurn(() => nodeOf(id).pause()),
    resume: (id) => inTurn(() => nodeOf(id).resume()),
    restart: (...ids) => inTurn(() => inParallel(ids.map(nodeOf).map((node) => node.restart()))),
    wipe: (id) => inTurn(() => nodeOf(id).wipe()),
    partition: (groups) =>
      inTurn(() => {
        for (const [from, to] of crossings(groups)) linksOf().cut(nodeOf(from).id, nodeOf(to).id);
      }),
    oneWay: (from, to) => inTurn(() => linksOf().cut(nodeOf(from).id, nodeOf(to).id)),
    heal: () => inTurn(() => linksOf().heal()),
    cuts: () => links?.cuts() ?? [],
    bytesBetweenNodes: () => links?.bytesPassed() ?? null,
    stop: () => inTurn(() => endAll(ending)),
  };
}

interface NodeProcessOptions {
  readonly id: number;
  readonly port: number;
  readonly bundle: Bundle;
  readonly separate: { readonly nodeId: number; readonly peers: Record<string, string>; readonly secret: string };
  readonly options: FiveOptions;
}

/** The process of one node, in its comings and goings. */
class NodeProcess {
  readonly id: number;
  readonly url: string;
  readonly #parts: NodeProcessOptions;
  readonly #folder: string;
  #process: WorkerdProcess | null = null;
  #isPaused = false;

  constructor(parts: NodeProcessOptions) {
    this.id = parts.id;
    this.url = `http://${HOST}:${parts.port}`;
    this.#parts = parts;
    this.#folder = join(parts.options.folder, `node-${parts.id}`);
  }

  get state(): ProcessState {
    if (this.#process === null) return "down";
    return this.#isPaused ? "paused" : "running";
  }

  get groupId(): number | null {
    return this.#process?.groupId ?? null;
  }

  async start(): Promise<void> {
    const { id, port, bundle, separate, options } = this.#parts;
    await endLeftovers(join(this.#folder, "concord.lock"), this.#folder);
    if (!(await isPortFree(port))) throw new VerbError(`port ${port} of ${HOST} is in use by another program`);
    const lines: string[] = [];
    const variables = typeof options.variables === "function" ? options.variables(id) : options.variables;
    const workerd = await startWorkerd({
      bundle,
      port,
      dataFolder: this.#folder,
      separate,
      ...(variables === undefined ? {} : { variables }),
      isPinned: options.isPinned === true,
      onLine: (line, stream) => {
        lines.push(line);
        if (lines.length > LINES_KEPT) lines.shift();
        options.onLine?.(id, line, stream);
      },
    });
    this.#process = workerd;
    this.#isPaused = false;
    const ended = workerd.ended.then(async ({ wanted }) => {
      if (this.#process === workerd) this.#process = null;
      if (wanted) return;
      // Frees the folder.
      await workerd.crash();
      options.onCrash?.(id);
    });
    if (!(await answers(this.url, ended))) {
      await workerd.stop();
      throw new VerbError(`node ${id} does not start; it wrote:\n${lines.join("\n")}`);
    }
  }

  async stop(): Promise<void> {
    await this.#process?.stop();
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  async kill(): Promise<void> {
    await this.#alive().crash();
  }

  pause(): void {
    if (this.#isPaused) throw new VerbError(`node ${this.id} is paused already`);
    this.#alive().pause();
    this.#isPaused = true;
  }

  resume(): void {
    const process = this.#alive();
    if (!this.#isPaused) throw new VerbError(`node ${this.id} is not paused`);
    process.resume();
    this.#isPaused = false;
  }

  async wipe(): Promise<void> {
    await this.#process?.crash();
    rmSync(join(this.#folder, "storage"), { recursive: true, force: true });
    await this.start();
  }

  #alive(): WorkerdProcess {
    if (this.#process === null) throw new VerbError(`node ${this.id} is not running`);
    return this.#process;
  }
}

/** Whether the process at `url` answers before it ends, or the patience with it does. */
async function answers(url: string, ended: Promise<void>): Promise<boolean> {
  let isOver = false;
  const over = ended.finally(() => {
    isOver = true;
  });
  const deadlineMs = Date.now() + LIVE_WAIT_MS_MAX;
  while (!isOver && Date.now() < deadlineMs) {
    try {
      const response = await fetch(`${url}/livez`, { signal: AbortSignal.timeout(1000) });
      await response.body?.cancel();
      return true;
    } catch {
      // Not listening yet.
      await Promise.race([sleep(LIVE_POLL_MS), over]);
    }
  }
  return false;
}
