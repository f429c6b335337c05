/**
 * `GET /v1/cluster/snapshot`, `POST /v1/cluster/restore`: a backup of the cluster as text, and a cluster from one (design 02
 * §5). Larger than memory: both bodies are streams, and neither side is ahead of the other.
 */
import type { Hono } from "hono";
import { RESTORE_REVISION_JUMP_MAX } from "../base/limits.ts";
import { ROOT_PRINCIPAL } from "./access.ts";
import type { BackupSource } from "./backend.ts";
import { BACKUP_CONTENT_TYPE, RESTORE_PATH, SNAPSHOT_PATH } from "./backup-paths.ts";
import { mediaType } from "./body.ts";
import { type ApiCall, type ApiEnvironment, parametersOf, principalOf, readerOf, WRITE_PARAMETERS } from "./call.ts";
import type { ApiContext } from "./caller.ts";
import { integerOf } from "./parameters.ts";
import { refusal } from "./problem.ts";
import { refuseHead } from "./stream-routes.ts";
import type { WireBackup, WireRestored } from "./wire-backup.ts";

export function mountBackup(app: Hono<ApiEnvironment>, context: ApiContext): void {
  app.use(SNAPSHOT_PATH, refuseHead);
  app.get(SNAPSHOT_PATH, (call) => getSnapshot(context, call));
  app.post(RESTORE_PATH, (call) => postRestore(context, call));
}

async function getSnapshot(context: ApiContext, call: ApiCall): Promise<Response> {
  checkRoot(context, call);
  const caller = readerOf(context, call, parametersOf(call, "invalid_request", WRITE_PARAMETERS));
  const source = await context.backend.openBackup({ timeoutMs: caller.timeoutMs });
  const { cluster_id, revision, index } = source.manifest;
  return new Response(textOf(source), {
    headers: {
      "content-type": BACKUP_CONTENT_TYPE,
      // Else a proxy may compress the stream, and hold it until it ends.
      "content-encoding": "identity",
      "content-disposition": `attachment; filename="${cluster_id}-${revision}.backup"`,
      "concord-backup-revision": String(revision),
      "concord-backup-index": String(index),
    },
  });
}

/** A piece is made when one is taken. A backup that is lost breaks the connection: its text has no last line. */
function textOf(source: BackupSource): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        try {
          let text = source.next();
          while (text === "") text = source.next();
          if (text === null) controller.close();
          else controller.enqueue(encoder.encode(text));
        } catch (error) {
          source.close();
          throw error;
        }
      },
      cancel: () => source.close(),
    },
    { highWaterMark: 0 },
  );
}

async function postRestore(context: ApiContext, call: ApiCall): Promise<Response> {
  checkRoot(context, call);
  const parameters = parametersOf(call, "invalid_request", ["revision_jump"]);
  const revisionJump = integerOf(parameters, "revision_jump") ?? null;
  if (revisionJump !== null && (revisionJump < 1 || revisionJump > RESTORE_REVISION_JUMP_MAX)) {
    const detail = `revision_jump must be 1 to ${RESTORE_REVISION_JUMP_MAX}, is ${revisionJump}.`;
    throw refusal("invalid_request", "invalid_revision_jump", detail);
  }
  const type = mediaType(call.req.raw.headers.get("content-type"));
  if (type !== null && type !== BACKUP_CONTENT_TYPE && type !== "application/octet-stream") {
    throw refusal("unsupported_media_type", "content_type", `Send the backup as ${BACKUP_CONTENT_TYPE}, not ${type}.`);
  }
  const text = call.req.raw.body ?? emptyStream();
  const { clusterId, revision, manifest } = await context.backend.restore(text, { revisionJump });
  const backup: WireBackup = {
    cluster_id: manifest.cluster_id,
    revision: manifest.revision,
    index: manifest.index,
    time_ms: manifest.time_ms,
  };
  const reply: WireRestored = { cluster_id: clusterId, revision, backup };
  return call.json(reply);
}

function emptyStream(): ReadableStream<Uint8Array> {
  return new ReadableStream({ start: (controller) => controller.close() });
}

/** What reads or replaces everything is not for principals of less. */
function checkRoot(context: ApiContext, call: ApiCall): void {
  if (principalOf(context, call) === ROOT_PRINCIPAL) return;
  throw refusal("not_admin", "root_token", "Backup and restore need the root token.");
}
