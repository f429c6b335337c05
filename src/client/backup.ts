/**
 * Backups of a cluster, and clusters from backups: streams of any size, over HTTP. For administrators: an application has no
 * use for them, so they stand apart from the client.
 *
 * B1. Nothing is held but what is on its way: a reader that waits holds the node back, a node that waits the reader.
 * B2. What is cut off anywhere is told as an error of the stream, never as its end.
 */
import type { WireRestored } from "../api/wire-backup.ts";
import { ConcordError } from "../base/errors.ts";
import { checkMembers, fault } from "./check.ts";
import { errorOfResponse, requestHeaders } from "./http-transport.ts";
import { type ConnectOptions, resolveOptions } from "./options.ts";
import { broken } from "./transport.ts";

export interface BackupOptions {
  /** Ends what is under way. */
  readonly signal?: AbortSignal;
}

export interface Backup {
  /** Lines of JSON. Only a text that was read to its end is a backup. */
  readonly text: ReadableStream<Uint8Array>;
  /** The revision that it is of: everything acknowledged before the call is in it. */
  readonly revision: number;
  /** The node that it is of. */
  readonly node: number;
  readonly clusterId: string;
}

export interface RestoreOptions extends BackupOptions {
  /**
   * How far the revision jumps: further than the cluster of the backup can have come after it. Default 1 000 000.
   */
  readonly revisionJump?: number;
}

export type Restored = WireRestored;

const BACKUP_TYPE = "application/x-ndjson";

/**
 * Opens a backup of the cluster that `connect` names, with the root token in it.
 *
 * ```ts
 * const { text, revision } = await openBackup({ url, token });
 * await text.pipeTo(Writable.toWeb(createWriteStream(`${revision}.backup`)));
 * ```
 * A reader that takes nothing for 60 s loses it: the stream then ends in an error.
 *
 * @throws ConcordError `overloaded` (reasons `backup_running`, `snapshot_served`: this node cannot now, ask again), and
 *   whatever keeps a linearizable read from being answered.
 */
export async function openBackup(connect: ConnectOptions, options: BackupOptions = {}): Promise<Backup> {
  checkMembers(options, "signal");
  const response = await send(connect, "GET", "/v1/cluster/snapshot", options);
  const { headers, body } = response;
  const revision = Number(headers.get("concord-backup-revision") ?? "-1");
  const clusterId = headers.get("concord-cluster");
  if (body === null || revision < 0 || clusterId === null) {
    throw fault("invalid_request", "no_backup", "Something on the way answered without a backup.");
  }
  const text = body.pipeThrough(untilLastLine());
  return { text, revision, node: Number(headers.get("concord-node")), clusterId };
}

/**
 * Makes the empty cluster that `connect` names serve a backup. Nothing changes before all of it was verified; while its rows
 * are on their way the cluster serves nothing else. It takes as long as it takes.
 *
 * An error without a definite answer (`timeout`) may have left the cluster in the middle: call again with the same backup.
 *
 * @throws ConcordError `invalid_request` (the backup is damaged, cut off, foreign or of a newer version),
 *   `precondition_failed` (reason `cluster_not_empty`), `overloaded`, `timeout`.
 */
export async function restoreBackup(
  connect: ConnectOptions,
  text: ReadableStream<Uint8Array> | Blob | string,
  options: RestoreOptions = {},
): Promise<Restored> {
  checkMembers(options, "signal revisionJump");
  const { revisionJump } = options;
  const query = revisionJump === undefined ? "" : `?revision_jump=${revisionJump}`;
  const response = await send(connect, "POST", `/v1/cluster/restore${query}`, options, text);
  return (await response.json()) as Restored;
}

async function send(
  connect: ConnectOptions,
  method: "GET" | "POST",
  target: string,
  { signal }: BackupOptions,
  body?: ReadableStream<Uint8Array> | Blob | string,
): Promise<Response> {
  const resolved = resolveOptions(connect);
  const headers = requestHeaders(resolved, method === "GET" ? BACKUP_TYPE : "application/json");
  if (method === "POST") headers.set("content-type", BACKUP_TYPE);
  // `duplex`: what is sent as it comes must say so, by the standard.
  const upload = body === undefined ? {} : { body, duplex: "half" as const };
  const init = { method, headers, ...upload, ...(signal === undefined ? {} : { signal }) };
  const response = await answerTo(() => resolved.fetch(new Request(resolved.base + target, init)));
  if (!response.ok) throw await errorOfResponse(response);
  return response;
}

async function answerTo(fetching: () => Response | Promise<Response>): Promise<Response> {
  try {
    return await fetching();
  } catch (cause) {
    throw broken(cause).error ?? cause;
  }
}

const LAST_LINE = /^\{"end":[^\n]*\n$/;
/** No last line is longer. */
const TAIL_BYTES = 256;

/** Passes everything on, and fails where it ends without the last line of a backup (B2). */
function untilLastLine(): TransformStream<Uint8Array, Uint8Array> {
  let tail = new Uint8Array(0);
  return new TransformStream({
    transform(chunk, controller) {
      const ends = chunk.slice(-TAIL_BYTES);
      const kept = tail.slice(ends.length - TAIL_BYTES);
      tail = new Uint8Array(kept.length + ends.length);
      tail.set(kept);
      tail.set(ends, kept.length);
      controller.enqueue(chunk);
    },
    flush() {
      const text = new TextDecoder().decode(tail);
      const line = text.slice(text.lastIndexOf("\n", text.length - 2) + 1);
      if (LAST_LINE.test(line)) return;
      throw new ConcordError({ code: "timeout", reason: "connection", detail: "The backup broke off; begin it anew." });
    },
  });
}
