/** The Worker in front of nodes that stand on the real state machine; each cluster has five nodes and one state. */
import { createApi } from "../../src/api/app.ts";
import { createEdge, type EdgeEnvironment } from "../../src/api/edge.ts";
import type { NodeNamespace, NodeStub } from "../../src/api/node-directory.ts";
import { type Answer, answerOf } from "./harness.ts";
import { MachineBackend } from "./machine-backend.ts";

/** Fails a request at a node before (`refuse`) or after (`lose`) the node has carried it out. */
export type Fault = { readonly kind: "refuse" | "lose" | "silence"; readonly error?: unknown };

export class FakeNodes implements NodeNamespace {
  /** `{cluster}/{node}` in the order in which they were asked. */
  readonly asked: string[] = [];
  readonly requests: Request[] = [];
  readonly hints: (string | undefined)[] = [];
  readonly faults = new Map<string, Fault>();
  readonly backends = new Map<string, MachineBackend>();
  stubs = 0;

  idFromName(name: string): object {
    return { name };
  }

  get(id: object, options?: { locationHint?: string }): NodeStub {
    this.stubs += 1;
    this.hints.push(options?.locationHint);
    const name = String(Reflect.get(id, "name"));
    return { fetch: (request) => this.#answer(name, request) };
  }

  backend(cluster: string): MachineBackend {
    const backend = this.backends.get(cluster) ?? new MachineBackend();
    this.backends.set(cluster, backend);
    return backend;
  }

  async #answer(name: string, request: Request): Promise<Response> {
    this.asked.push(name);
    this.requests.push(request);
    const fault = this.faults.get(name);
    if (fault?.kind === "silence") return await new Promise(() => {});
    if (fault?.kind === "refuse") throw fault.error ?? new Error("Network connection lost.");
    const [cluster = "", node = ""] = name.split("/");
    const backend = this.backend(cluster);
    backend.node = Number(node);
    const response = await createApi(backend, { internal: true, log: () => {} }).fetch(request);
    if (fault?.kind === "lose") throw fault.error ?? new Error("Network connection lost.");
    return response;
  }
}

export interface Setting {
  readonly nodes: FakeNodes;
  send(method: string, target: string, options?: SendOptions): Promise<Answer>;
}

export interface SendOptions {
  readonly headers?: Record<string, string>;
  readonly body?: unknown;
}

/** Loopback development unless told otherwise; the first node asked is node 1. */
export function createSetting(
  environment: Partial<EdgeEnvironment> = { CONCORD_LOOPBACK_DEV: "1" },
  random = 0,
): Setting {
  const nodes = new FakeNodes();
  const edge = createEdge({ random: () => random });
  return {
    nodes,
    send: async (method, target, { headers = {}, body } = {}) => {
      const url = target.startsWith("http") ? target : `http://127.0.0.1:8787${target}`;
      const init: RequestInit = { method, headers: body === undefined ? headers : { ...JSON_TYPE, ...headers } };
      if (body !== undefined) init.body = body instanceof Uint8Array ? new Uint8Array(body) : JSON.stringify(body);
      return await answerOf(await edge.fetch(new Request(url, init), { NODES: nodes, ...environment }));
    },
  };
}

const JSON_TYPE = { "content-type": "application/json" };
