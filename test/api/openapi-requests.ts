/** The examples of the OpenAPI document as requests, and the cluster that they are true of. */
import { OF_NODES } from "../../src/api/openapi-parameters.ts";
import type { Example, RouteRow } from "../../src/api/openapi-route.ts";
import type { Setting } from "./fake-nodes.ts";

export interface ExampleRequest {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  readonly headers: Record<string, string>;
  readonly body: Uint8Array<ArrayBuffer> | undefined;
}

export function requestOf(row: RouteRow, example: Example): ExampleRequest {
  const { mediaType = "application/json", body } = example;
  const headers: Record<string, string> = body === undefined ? {} : { "content-type": mediaType };
  const search = new URLSearchParams();
  let path = row.path;
  for (const [name, value] of Object.entries(example.parameters ?? {})) {
    const parameter = [...(row.parameters ?? []), ...OF_NODES].find((candidate) => candidate.name === name);
    if (parameter === undefined) throw new Error(`${row.id} ${example.name}: there is no parameter ${name}`);
    if (parameter.in === "query") search.set(name, value);
    else if (parameter.in === "header") headers[name] = value;
    else path = path.replace(`{${name}}`, encodeURIComponent(value));
  }
  const text = mediaType === "application/json" ? JSON.stringify(body) : (body as string);
  return {
    method: row.method,
    target: search.size === 0 ? path : `${path}?${search}`,
    headers,
    body: body === undefined ? undefined : new TextEncoder().encode(text),
  };
}

/** What the examples say of themselves (openapi-route.ts), written through the API. */
export async function prepare({ send }: Pick<Setting, "send">): Promise<void> {
  await send("PUT", "/v1/kv?key=/work/items/42/state", { body: { status: "pending" } });
  await send("POST", "/v1/leases", { body: { ttl_s: 30, metadata: { owner: "agent_7" } } });
  await send("POST", "/v1/txn", {
    headers: { "idempotency-key": "claim-agent_7" },
    body: { success: [{ type: "put", key: "/work/items/42/holder", value: "agent_7", lease: 1 }] },
  });
}
