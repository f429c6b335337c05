/**
 * Closed-loop HTTP load: a fixed number of clients, each with one request under way on a connection that it keeps.
 * A reply that is not what the workload expects ends the run with an error: a fast wrong answer is not a result.
 */
import { Agent, request as httpRequest } from "node:http";

const REQUEST_TIMEOUT_MS = 20_000;

export interface Reply {
  readonly status: number;
  readonly body: string;
}

export interface Operation {
  readonly method: "GET" | "PUT";
  readonly path: string;
  readonly body?: string;
  /** @throws Error if the reply is wrong */
  readonly verify: (reply: Reply) => void;
}

export interface LoadOptions {
  /** Base URL of a server on this machine. */
  readonly url: string;
  readonly clientsCount: number;
  /** The run ends after this many operations or this much time, whichever comes first. */
  readonly operationsMax: number;
  readonly durationMsMax: number;
  /** The next operation of a client, 0 to clientsCount - 1. */
  readonly next: (client: number) => Operation;
}

export interface LoadResult {
  readonly clientsCount: number;
  readonly operationsCount: number;
  readonly durationMs: number;
  /** One per operation, ascending. */
  readonly latenciesMs: readonly number[];
}

/** @throws Error at the first request that fails or is answered wrongly */
export async function runLoad(options: LoadOptions): Promise<LoadResult> {
  const agent = new Agent({ keepAlive: true, maxSockets: options.clientsCount });
  const latenciesMs: number[] = [];
  const startedMs = performance.now();
  const deadlineMs = startedMs + options.durationMsMax;
  let begun = 0;
  let failed = false;
  const client = async (index: number): Promise<void> => {
    while (!failed && begun < options.operationsMax && performance.now() < deadlineMs) {
      begun += 1;
      const operation = options.next(index);
      const sentMs = performance.now();
      const reply = await send(options.url, agent, operation);
      latenciesMs.push(performance.now() - sentMs);
      operation.verify(reply);
    }
  };
  const guarded = async (index: number): Promise<void> => {
    try {
      await client(index);
    } catch (error) {
      failed = true;
      throw error;
    }
  };
  try {
    await Promise.all(Array.from({ length: options.clientsCount }, (_, index) => guarded(index)));
  } finally {
    agent.destroy();
  }
  const durationMs = performance.now() - startedMs;
  latenciesMs.sort((a, b) => a - b);
  return { clientsCount: options.clientsCount, operationsCount: latenciesMs.length, durationMs, latenciesMs };
}

function send(url: string, agent: Agent, operation: Operation): Promise<Reply> {
  return new Promise((settle, fail) => {
    const headers: Record<string, string | number> = {};
    if (operation.body !== undefined) {
      headers["content-type"] = "application/json";
      headers["content-length"] = Buffer.byteLength(operation.body);
    }
    const request = httpRequest(
      `${url}${operation.path}`,
      { method: operation.method, agent, headers, timeout: REQUEST_TIMEOUT_MS },
      (response) => {
        let body = "";
        response.setEncoding("utf8");
        response.on("data", (text: string) => {
          body += text;
        });
        response.once("error", fail);
        response.once("end", () => settle({ status: response.statusCode ?? 0, body }));
      },
    );
    request.once("timeout", () => {
      request.destroy(new Error(`no answer to ${operation.method} ${operation.path} in ${REQUEST_TIMEOUT_MS} ms`));
    });
    request.once("error", fail);
    request.end(operation.body);
  });
}

/** The latency that a share of the operations did not exceed (nearest rank). */
export function percentile(ascending: readonly number[], share: number): number {
  const rank = Math.max(1, Math.ceil(share * ascending.length));
  const value = ascending[rank - 1];
  if (value === undefined) throw new Error("no latencies to take a percentile of");
  return value;
}
