/** What the OpenAPI document says of backups. */
import { RESTORE_REVISION_JUMP_DEFAULT, RESTORE_REVISION_JUMP_MAX } from "../base/limits.ts";
import { BACKUP_CONTENT_TYPE, RESTORE_PATH, SNAPSHOT_PATH } from "./backup-paths.ts";
import { query, SHARED } from "./openapi-parameters.ts";
import * as replies from "./openapi-replies.ts";
import type { RouteRow } from "./openapi-route.ts";

/** Of a cluster in which nothing was ever written. */
const BACKUP = [
  '{"concord_backup":1,"state_format":2,"cluster_id":"old","index":1,"term":7,"revision":0,"compact_revision":0,"time_ms":1700000000000,"sum":"02edfe8e05e2fc"}',
  '{"chunk":1,"after":"02edfe8e05e2fc","rows":1,"data":["m","{\\"format\\":2,\\"index\\":1,\\"timeMs\\":1700000000000,\\"revision\\":0,\\"compactRevision\\":0,\\"digest\\":4942964738632014,\\"leaseCounter\\":0,\\"leasesCount\\":0,\\"idemHead\\":1,\\"idemNext\\":1,\\"idemBytes\\":0,\\"idemFloor\\":0,\\"logicalBytes\\":0,\\"leaseFloorMs\\":0,\\"removedRevision\\":0,\\"removedOpIndex\\":99999,\\"historyBytes\\":0,\\"markRevision\\":0,\\"markBytes\\":0}"],"sum":"0ca81a8e965e52"}',
  '{"end":2,"after":"0ca81a8e965e52","rows":1,"set_hash":"0a7be0b1b863f6","sum":"15fcbc1cb7b0c0"}',
  "",
].join("\n");

export const BACKUP_ROUTES: readonly RouteRow[] = [
  {
    method: "GET",
    path: SNAPSHOT_PATH,
    id: "getSnapshot",
    tag: "clusters",
    by: "node",
    summary: "A backup of the cluster",
    description:
      "The state of the answering node behind everything acknowledged so far, at one revision, while writes go on: lines of JSON, each with a checksum over all before it. Only with its last line, which begins with `end`, is it whole. Needs the root token. One at a time on each node; a reader that takes nothing for 60 s loses it.",
    parameters: [SHARED.timeout_ms],
    replies: [
      {
        status: 200,
        description: "The backup, as a stream.",
        content: { [BACKUP_CONTENT_TYPE]: null },
        headers: ["concord-backup-revision", "concord-backup-index"],
      },
    ],
    errors: ["node_halted"],
    examples: [{ name: "backup", summary: "All of it", status: 200, reply: '{"concord_backup":1,"state_format":2,' }],
  },
  {
    method: "POST",
    path: RESTORE_PATH,
    id: "restore",
    tag: "clusters",
    by: "node",
    summary: "Makes an empty cluster serve a backup",
    description:
      "Only where nothing was ever written. The whole text is verified before anything changes; while its rows are on their way into the cluster all else is answered `cluster_not_ready`, reason `restoring`. Interrupted, it stays so until a restore has come to its end. Afterwards the cluster has a new id, its revision has jumped and everything before is compacted, every lease has its full TTL, and results under idempotency keys are kept anew. Needs the root token. Takes as long as it takes.",
    parameters: [
      query(
        "revision_jump",
        {
          type: "integer",
          minimum: 1,
          maximum: RESTORE_REVISION_JUMP_MAX,
          default: RESTORE_REVISION_JUMP_DEFAULT,
        },
        "How far the revision jumps: further than the cluster of the backup can have come after it.",
      ),
    ],
    body: {
      required: true,
      isStream: true,
      description: "The text of a backup, of any size.",
      content: { [BACKUP_CONTENT_TYPE]: null, "application/octet-stream": null },
    },
    replies: [{ status: 200, description: "It serves the backup.", content: { "application/json": replies.restored } }],
    errors: ["precondition_failed", "node_halted"],
    examples: [
      {
        name: "restore",
        summary: "The smallest backup there is",
        parameters: { revision_jump: "1000000" },
        body: BACKUP,
        mediaType: BACKUP_CONTENT_TYPE,
        status: 200,
        reply: {
          cluster_id: "c-2",
          revision: 1_000_000,
          backup: { cluster_id: "old", revision: 0, index: 1, time_ms: 1_700_000_000_000 },
        },
      },
    ],
  },
];
