/**
 * A process that serves one node of the cluster and reaches the others by URL: its variables, and the headers by which such
 * processes know each other. The Worker reads them to let peers in, the node to call its peers (design 05, five processes).
 *
 * V1. Text that a variable holds is never part of an error: one of them is a secret.
 *
 * Must not: do anything but read.
 */

/** Names the sending node. Without it no peer route answers; the Worker removes it from what comes from outside. */
export const PEER_HEADER = "x-concord-peer";
/** The cluster secret, from one process to another. It ends in the Worker that receives it. */
export const SECRET_HEADER = "x-concord-secret";

/** All three or none; text, as in wrangler.toml. */
export interface SeparateVariables {
  /** The one node that this process serves. */
  readonly NODE_ID?: string;
  /** JSON: node id → base URL of its process. This node's own may be there too and means nothing. */
  readonly PEERS?: string;
  /** Known to all processes of the cluster and to nobody else. */
  readonly CLUSTER_SECRET?: string;
}

export interface SeparateNode {
  readonly id: number;
  /** Base URL of each other node, without a slash at its end. */
  readonly peers: ReadonlyMap<number, string>;
  readonly secret: string;
}

/** Long enough not to be guessed; what a header can carry. */
const SECRET = /^[\x21-\x7e]{16,512}$/;

/**
 * Null: all nodes live in one place and are reached by their names.
 * @throws RangeError naming the variable: a process with half of a configuration must not serve.
 */
export function separateNodeOf(variables: SeparateVariables, nodesCount: number): SeparateNode | null {
  const { NODE_ID = "", PEERS = "", CLUSTER_SECRET = "" } = variables;
  if (NODE_ID === "" && PEERS === "" && CLUSTER_SECRET === "") return null;
  const id = /^[1-9]$/.test(NODE_ID) ? Number(NODE_ID) : 0;
  if (id < 1 || id > nodesCount) throw new RangeError(`NODE_ID must be a number from 1 to ${nodesCount}`);
  if (!SECRET.test(CLUSTER_SECRET)) {
    throw new RangeError("CLUSTER_SECRET must be 16 to 512 printable ASCII characters without blanks");
  }
  return { id, peers: peersOf(PEERS, id, nodesCount), secret: CLUSTER_SECRET };
}

function peersOf(text: string, own: number, nodesCount: number): ReadonlyMap<number, string> {
  const urls = objectOf(text);
  const peers = new Map<number, string>();
  for (let id = 1; id <= nodesCount; id += 1) {
    if (id !== own) peers.set(id, baseUrlOf(id, urls[String(id)]));
  }
  const strangers = Object.keys(urls).filter((name) => name !== String(own) && !peers.has(Number(name)));
  if (strangers.length > 0) throw new RangeError(`PEERS names other nodes than 1 to ${nodesCount}`);
  return peers;
}

function objectOf(text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new RangeError("PEERS must be a JSON object of node ids and base URLs");
}

function baseUrlOf(id: number, text: unknown): string {
  const url = typeof text === "string" ? URL.parse(text) : null;
  const isPlain = url !== null && url.username === "" && url.password === "" && url.search === "" && url.hash === "";
  if (!isPlain || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw new RangeError(`PEERS must give node ${id} a URL of the form http://host:port`);
  }
  return url.href.replace(/\/$/, "");
}
