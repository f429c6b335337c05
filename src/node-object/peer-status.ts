/**
 * Both ends of the routes by which nodes tell each other their status (`GET /v1/cluster`).
 * Answered from a node's own memory; asking wakes a node but never makes it campaign.
 */
import { PEER_HEADER } from "../api/separate-node.ts";
import type { NodeId } from "../raft/types.ts";
import { type NodeReport, nodeReportFrom, type StatusSource } from "./cluster-status.ts";
import { isObject, parseJson } from "./json-guards.ts";
import type { PeerPlatform } from "./peer-transport.ts";

/** How long one peer is waited for. */
const STATUS_TIMEOUT_MS = 1000;

/** What a node says of itself. */
export interface OwnStatus {
  report(): NodeReport;
  digestAt(index: number): string | null;
}

/** Answers `/peer/status` and `/peer/digest?index=`; null for any other path. */
export function answerStatus(url: URL, own: OwnStatus): Response | null {
  if (url.pathname === "/peer/status") {
    const { status, ...rest } = own.report();
    return Response.json({ ...status, ...rest });
  }
  if (url.pathname !== "/peer/digest") return null;
  const index = Number(url.searchParams.get("index") ?? "");
  return Response.json({ digest: Number.isSafeInteger(index) ? own.digestAt(index) : null });
}

export class PeerStatusSource implements StatusSource {
  readonly #self: NodeId;
  readonly #own: OwnStatus;
  readonly #stub: PeerPlatform["stub"];

  constructor(self: NodeId, own: OwnStatus, stub: PeerPlatform["stub"]) {
    this.#self = self;
    this.#own = own;
    this.#stub = stub;
  }

  async report(id: NodeId): Promise<NodeReport | null> {
    if (id === this.#self) return this.#own.report();
    const text = await this.#ask(id, "status");
    return text === null ? null : nodeReportFrom(text, id);
  }

  async digestAt(id: NodeId, index: number): Promise<string | null> {
    if (id === this.#self) return this.#own.digestAt(index);
    const answer = parseJson((await this.#ask(id, `digest?index=${index}`)) ?? "");
    return isObject(answer) && typeof answer.digest === "string" ? answer.digest : null;
  }

  async #ask(id: NodeId, path: string): Promise<string | null> {
    try {
      const response = await this.#stub(id).fetch(`http://node/peer/${path}`, {
        headers: { [PEER_HEADER]: String(this.#self) },
        signal: AbortSignal.timeout(STATUS_TIMEOUT_MS),
      });
      const text = await response.text();
      return response.ok ? text : null;
    } catch {
      // Timed out, reset or overloaded: shown as unreachable, which is all that can be said.
      return null;
    }
  }
}
