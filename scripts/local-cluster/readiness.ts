/**
 * Waiting for a started cluster: a linearizable read, which wakes the nodes, then `GET /v1/cluster`, which wakes nobody,
 * until it names a leader.
 */
import { setTimeout as sleep } from "node:timers/promises";

const ASK_EVERY_MS = 100;
const ASK_TIMEOUT_MS = 5000;
const READ_TIMEOUT_MS = 1000;

/** What the start scripts read of `GET /v1/cluster`. */
export interface ClusterView {
  readonly leader: number;
  readonly nodesCount: number;
}

export interface WaitOptions {
  /** Base URL without a slash at its end. */
  readonly url: string;
  readonly waitMsMax: number;
  readonly token: string | undefined;
  /** Ends the waiting with its reason. */
  readonly signal: AbortSignal;
  /** Called with what the cluster still lacks, whenever that changes. */
  readonly onState?: (state: string) => void;
}

/** Resolves once a leader is known. @throws Error when the time is over or the cluster refuses the question. */
export async function waitForLeader(options: WaitOptions): Promise<ClusterView> {
  const deadlineMs = Date.now() + options.waitMsMax;
  let last = "";
  for (;;) {
    const answer = await ask(options);
    if (typeof answer !== "string") return answer;
    if (answer !== last) options.onState?.(answer);
    last = answer;
    if (Date.now() > deadlineMs) {
      throw new Error(`no leader within ${Math.round(options.waitMsMax / 1000)} s; last state: ${answer}`);
    }
    await sleep(ASK_EVERY_MS, undefined, { signal: options.signal });
  }
}

/** The cluster, or in a few words why it is not ready. */
async function ask(options: WaitOptions): Promise<ClusterView | string> {
  const headers: Record<string, string> = {};
  if (options.token !== undefined) headers.authorization = `Bearer ${options.token}`;
  let response: Response;
  let text: string;
  try {
    const signal = AbortSignal.any([options.signal, AbortSignal.timeout(ASK_TIMEOUT_MS)]);
    const read = await fetch(`${options.url}/v1/revision?timeout_ms=${READ_TIMEOUT_MS}`, { headers, signal });
    await read.body?.cancel();
    response = await fetch(`${options.url}/v1/cluster`, { headers, signal });
    text = await response.text();
  } catch (error) {
    options.signal.throwIfAborted();
    return error instanceof Error && error.name === "TimeoutError" ? "no answer yet" : "starting";
  }
  if (response.status === 401 || response.status === 403) {
    throw new Error(`GET /v1/cluster is refused with status ${response.status}: ${text.slice(0, 400)}`);
  }
  if (!response.ok) return `status ${response.status} from the cluster`;
  return readView(text);
}

function readView(text: string): ClusterView | string {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return "an answer that is not JSON";
    throw error;
  }
  const { leader, nodes } = (body ?? {}) as { leader?: unknown; nodes?: unknown };
  if (typeof leader !== "number") return "electing a leader";
  return { leader, nodesCount: Array.isArray(nodes) ? nodes.length : 0 };
}
