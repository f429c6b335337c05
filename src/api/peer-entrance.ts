/**
 * Where the processes of other nodes come in (separate-node.ts): the one way from outside to a node's peer routes.
 *
 * P1. Without the cluster secret, or with another, a caller learns nothing: the path is answered like any that is no route.
 * P2. A peer reaches this process's own node alone, and of its request only what a node has to know goes on.
 * P3. Who has the secret is believed: that a cluster exists of which a peer speaks, and who it is.
 */
import { sameText } from "./access.ts";
import { OBJECT_HEADER } from "./call.ts";
import { isClusterName } from "./cluster-name.ts";
import type { NodeNamespace } from "./node-directory.ts";
import { PEER_HEADER, SECRET_HEADER, type SeparateNode } from "./separate-node.ts";

const PATHS: ReadonlySet<string> = new Set([
  "/peer/message",
  "/peer/stream",
  "/peer/status",
  "/peer/digest",
  "/peer/admin",
]);

/** Null: nobody who may come in this way. `path` and `search` as the node is to see them. */
export async function answerPeer(
  request: Request,
  { path, search }: { readonly path: string; readonly search: string },
  node: SeparateNode,
  namespace: NodeNamespace,
): Promise<Response | null> {
  const secret = request.headers.get(SECRET_HEADER);
  if (secret === null || !PATHS.has(path) || !(await sameText(node.secret, secret))) return null;
  const name = request.headers.get(OBJECT_HEADER) ?? "";
  const cluster = name.slice(0, name.lastIndexOf("/"));
  // Told apart from every other refusal: whoever set PEERS has mixed up two addresses.
  if (name !== `${cluster}/${node.id}` || !isClusterName(cluster)) return new Response(null, { status: 421 });
  const headers = new Headers({ [OBJECT_HEADER]: name, [PEER_HEADER]: request.headers.get(PEER_HEADER) ?? "" });
  const upgrade = request.headers.get("upgrade");
  if (upgrade !== null) headers.set("upgrade", upgrade);
  try {
    const { method } = request;
    const body = method === "POST" ? await request.arrayBuffer() : null;
    const stub = namespace.get(namespace.idFromName(name));
    return await stub.fetch(new Request(`http://node${path}${search}`, { method, headers, body }));
  } catch {
    // The peer went away within its request, or the node was reset by it. Frames may be lost; Raft repeats them.
    return new Response(null, { status: 503 });
  }
}
