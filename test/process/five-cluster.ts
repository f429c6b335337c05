/** Five nodes in five `workerd` processes for tests that break them, with requests to a node and what the nodes wrote. */
import { type FiveCluster, type FiveOptions, startFive } from "../../scripts/local-cluster/five.ts";
import { NODE_IDS } from "../../scripts/local-cluster/verbs.ts";
import type { NodeStatus } from "../../src/api/backend.ts";
import type { LogLine } from "./workerd-cluster.ts";

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** Parsed JSON; null for anything else. */
  readonly body: { readonly [name: string]: unknown } | null;
}

export interface FiveTest {
  readonly five: FiveCluster;
  /** Structured lines of the nodes, oldest first. */
  readonly log: readonly LogLine[];
  /** Everything that the processes wrote. */
  readonly output: readonly string[];
  /** A node's answer. @throws TypeError if its process does not answer */
  send(node: number, method: string, path: string, options?: SendOptions): Promise<Answer>;
  put(node: number, key: string, value: unknown, query?: string): Promise<Answer>;
  get(node: number, key: string, query?: string): Promise<Answer>;
  /** What the node says of itself; null while its process does not answer. */
  own(node: number): Promise<NodeStatus | null>;
  /** The node that leads according to a majority of the nodes, itself included; null if there is none. */
  leader(): Promise<number | null>;
  /** Resolves with the leader when all of these nodes have taken part under it and hold the same. */
  settled(nodes?: readonly number[]): Promise<number>;
}

export interface SendOptions {
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
  readonly timeoutMs?: number;
}

const SETTLE_MS_MAX = 20_000;

export async function startFiveTest(options: FiveOptions): Promise<FiveTest> {
  const log: LogLine[] = [];
  const output: string[] = [];
  const five = await startFive({
    ...options,
    onLine: (_node, line) => {
      output.push(line);
      if (!line.startsWith("{")) return;
      const { message, object } = JSON.parse(line) as Record<string, unknown>;
      if (typeof message === "string" && typeof object === "string") log.push({ atMs: Date.now(), message, object });
    },
  });

  const send: FiveTest["send"] = async (node, method, path, { body, headers = {}, timeoutMs = 15_000 } = {}) => {
    const response = await fetch(`${five.urls[node - 1]}${path}`, {
      method,
      headers: body === undefined ? headers : { "content-type": "application/json", ...headers },
      signal: AbortSignal.timeout(timeoutMs),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.includes("json") === true;
    return { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : null };
  };
  const own: FiveTest["own"] = async (node) => {
    if (five.state(node) !== "running") return null;
    const { body } = await send(node, "GET", "/v1/cluster");
    return (body?.nodes as NodeStatus[] | undefined)?.find(({ id }) => id === node) ?? null;
  };
  const leader: FiveTest["leader"] = async () => {
    const seen = await Promise.all(NODE_IDS.map(own));
    const leads = (id: number) => seen.find((status) => status?.id === id)?.role === "leader";
    const votes = (id: number) => seen.filter((status) => status?.leader === id).length;
    return NODE_IDS.find((id) => leads(id) && votes(id) > NODE_IDS.length / 2) ?? null;
  };
  const settled: FiveTest["settled"] = async (nodes = NODE_IDS) => {
    const deadlineMs = Date.now() + SETTLE_MS_MAX;
    for (;;) {
      // A linearizable read of each wakes it and has it catch up.
      const reads = await Promise.all(nodes.map((node) => send(node, "GET", "/v1/revision?timeout_ms=2000")));
      const seen = await Promise.all(nodes.map(own));
      const [first] = seen;
      const isEven = seen.every((one) => one?.leader === first?.leader && one?.digest === first?.digest);
      const leads = first?.leader ?? null;
      if (reads.every(({ status }) => status === 200) && isEven && leads !== null) return leads;
      if (Date.now() > deadlineMs) throw new Error(`nodes ${nodes.join()} are not settled: ${JSON.stringify(seen)}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };
  return {
    five,
    log,
    output,
    send,
    put: (node, key, value, query = "") =>
      send(node, "PUT", `/v1/kv?key=${encodeURIComponent(key)}${query}`, { body: value }),
    get: (node, key, query = "") => send(node, "GET", `/v1/kv?key=${encodeURIComponent(key)}${query}`),
    own,
    leader,
    settled,
  };
}
