/** Backups of a cluster in the Workers runtime, and restores into one, as the holder of the root token sends them. */
import { PRINCIPAL_HEADER } from "../../src/api/call.ts";
import type { Reply, TestCluster } from "./cluster-harness.ts";

export const ROOT = { [PRINCIPAL_HEADER]: "root" };

/** Null-bodied replies and errors come as they are. */
export async function openSnapshot(cluster: TestCluster, node: number): Promise<Response> {
  return await cluster.stub(node).fetch("http://node/v1/cluster/snapshot", { headers: ROOT });
}

export async function backup(cluster: TestCluster, node: number): Promise<string> {
  const response = await openSnapshot(cluster, node);
  const text = await textOf(response);
  if (response.status !== 200) throw new Error(`${response.status}: ${text}`);
  return text;
}

/** The platform warns of `text()` where the media type is not one of text. */
export async function textOf(response: Response): Promise<string> {
  return new TextDecoder().decode(await response.arrayBuffer());
}

/** Sends the text in pieces. */
export function streamOf(text: string, pieceBytes = 50_000): ReadableStream<Uint8Array> {
  const bytes = new TextEncoder().encode(text);
  let from = 0;
  return new ReadableStream<Uint8Array>({
    pull(controller) {
      if (from >= bytes.length) controller.close();
      else controller.enqueue(bytes.slice(from, from + pieceBytes));
      from += pieceBytes;
    },
  });
}

export async function restore(
  cluster: TestCluster,
  node: number,
  text: string | ReadableStream<Uint8Array>,
  query = "",
): Promise<Reply> {
  const body = typeof text === "string" ? streamOf(text) : text;
  const response = await cluster.stub(node).fetch(`http://node/v1/cluster/restore${query}`, {
    method: "POST",
    headers: { ...ROOT, "content-type": "application/x-ndjson" },
    body,
  });
  const reply = await response.text();
  return { status: response.status, body: JSON.parse(reply), headers: response.headers };
}
