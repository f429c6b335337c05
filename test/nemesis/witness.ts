/** Asks the nodes themselves, apart from the load: who serves, who leads, whether all hold the same. */
import type { ClusterStatus, NodeStatus } from "../../src/api/backend.ts";

export interface Witness {
  /** The leader according to most nodes; null if there is none. */
  leader(): Promise<number | null>;
  /** Nodes that have confirmed a read with a leader just now. */
  serving(): Promise<readonly number[]>;
  /** Whether each of these nodes is a member that counts. */
  areVoters(nodes: readonly number[]): Promise<boolean>;
  /** Null: all nodes have applied the same and their digests are equal. Else what is in the way. */
  difference(): Promise<string | null>;
}

const READ_MS = 2000;
const ASK_MS = 3000;

export function createWitness(urls: readonly string[]): Witness {
  const clusters = (): Promise<(ClusterStatus | null)[]> =>
    Promise.all(urls.map((url) => ask<ClusterStatus>(`${url}/v1/cluster`, ASK_MS)));
  const own = async (): Promise<(NodeStatus | null)[]> =>
    (await clusters()).map((status, at) => status?.nodes.find(({ id }) => id === at + 1) ?? null);
  return {
    async leader() {
      const seen = await own();
      const votes = (id: number): number => seen.filter((status) => status?.leader === id).length;
      return urls.map((_, at) => at + 1).find((id) => votes(id) > urls.length / 2) ?? null;
    },
    async serving() {
      const target = `/v1/revision?timeout_ms=${READ_MS}`;
      const answers = await Promise.all(urls.map((url) => ask(url + target, ASK_MS)));
      return answers.flatMap((answer, at) => (answer === null ? [] : [at + 1]));
    },
    async areVoters(nodes) {
      if (nodes.length === 0) return true;
      const seen = await own();
      return nodes.every((node) => seen[node - 1]?.state === "formed" && seen[node - 1]?.member === "voter");
    },
    async difference() {
      const seen = await clusters();
      for (const [at, status] of seen.entries()) {
        const node = at + 1;
        if (status === null) return `node ${node} does not answer`;
        const halted = status.nodes.find((one) => one.halted !== null);
        if (halted !== undefined) return `node ${halted.id} is halted: ${halted.halted}`;
        const away = status.nodes.find(({ state }) => state !== "formed");
        if (away !== undefined) return `node ${node} sees node ${away.id} as ${away.state}`;
        if (status.digests?.equal !== true) return `node ${node} sees digests ${JSON.stringify(status.digests)}`;
      }
      const states = seen.map((status, at) => status?.nodes.find(({ id }) => id === at + 1));
      const texts = states.map((state) => `${state?.digest} at ${state?.applied_index}`);
      return new Set(texts).size === 1 ? null : `digests are ${texts.join(", ")}`;
    },
  };
}

/** Null: no answer of success. */
async function ask<T>(url: string, timeoutMs: number): Promise<T | null> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    const text = await response.text();
    return response.ok ? (JSON.parse(text) as T) : null;
  } catch (error) {
    if (error instanceof SyntaxError) throw error;
    return null; // Not reached, broken off, or late: what a witness of faults is there to see.
  }
}
