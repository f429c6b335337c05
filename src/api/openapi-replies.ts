/**
 * The JSON that the routes answer, as schemas for the OpenAPI document. Documentation alone: no route runs them.
 *
 * R1. Each says the same as its type of the wire; the compiler checks it (openapi-agreement.ts).
 * R2. A schema with an `id` becomes a component of the document under that name.
 */
import * as z from "zod";
import { ERROR_CODES, type ErrorCode } from "../base/errors.ts";
import { json, key, metadata } from "./schema.ts";

const count = z.int().nonnegative();
const revision = count.describe("The cluster's revision that the answer belongs to.");
const timeMs = count;
const dropped = z
  .boolean()
  .exactOptional()
  .describe("True: a replay of a result that was kept without values, because it was over 32 KiB.");

const recordFields = {
  key,
  create_revision: count,
  mod_revision: count.describe("Revision of the last write; the ETag."),
  version: count.describe("Writes since the creation; 1 for a new record."),
  lease_id: count.nullable(),
  expires_at_ms: timeMs.nullable().describe("Of a record with a ttl; for one under a lease ask the lease."),
  content_type: z.string().nullable(),
  metadata,
};

export const record = z.object({ ...recordFields, value: json }).meta({ id: "Record" });
export const listedRecord = z
  .object({ ...recordFields, value: json.exactOptional() })
  .meta({ id: "ListedRecord", description: "A record; without `value` under keys_only." });
export const getReply = z
  .object({ record: record.nullable().describe("Null: there is none."), revision })
  .meta({ id: "GetReply" });
const previous = record.nullable().exactOptional().describe("Only with prev_kv: the record before, or null.");

export const putReply = z
  .object({
    revision,
    prev_kv: previous,
    key: key.exactOptional().describe("Only with revision_suffix: the full key."),
    values_dropped: dropped,
  })
  .meta({ id: "PutReply" });

export const deleteReply = z
  .object({
    revision,
    deleted: count.describe("0 when the key was absent."),
    prev_kv: previous,
    values_dropped: dropped,
  })
  .meta({ id: "DeleteReply" });

export const list = z
  .object({
    records: z.array(listedRecord),
    count: count.describe("Records of this page; with count_only all matches."),
    cursor: z.string().nullable().describe("Opaque; null on the last page."),
    revision: count.describe("The revision of the first page, which every later page is read at."),
  })
  .meta({ id: "List" });

export const getManyReply = z
  .object({ revision, records: z.array(record.nullable()).describe("One per key, in order; null: absent.") })
  .meta({ id: "GetManyReply" });
export const putManyReply = z
  .object({ revision, responses: z.array(z.object({ key, prev_kv: previous })), values_dropped: dropped })
  .meta({ id: "PutManyReply" });
export const deleteManyReply = z
  .object({
    revision,
    deleted: count,
    responses: z.array(z.object({ deleted: count, prev_kv: previous })),
    values_dropped: dropped,
  })
  .meta({ id: "DeleteManyReply" });

export const operationResult = z
  .union([
    z.object({ type: z.literal("get"), kvs: z.array(listedRecord), count, more: z.boolean() }),
    z.object({ type: z.literal("put"), key, prev_kv: previous }),
    z.object({ type: z.literal("delete"), deleted: count, prev_kvs: z.array(record).exactOptional() }),
    z.object({ type: z.literal("touch"), expires_at_ms: timeMs }),
    z.object({ type: z.literal("touch"), not_found: z.literal(true) }),
  ])
  .meta({ id: "OperationResult" });

const txnFields = {
  succeeded: z.boolean().describe("Which branch ran: true = `success`."),
  revision,
  responses: z.array(operationResult).describe("One per operation of the branch that ran."),
  values_dropped: dropped,
};
export const txnResult = z.object(txnFields).meta({ id: "TxnResult" });

const codes = Object.keys(ERROR_CODES) as [ErrorCode, ...ErrorCode[]];
export const problem = z
  .object({
    type: z.string().describe("`urn:concord:problem:` and the code."),
    title: z.string(),
    status: z.int(),
    detail: z.string().describe("For people; may change."),
    code: z.enum(codes),
    reason: z.string().exactOptional().describe("The rule that was broken."),
    retry: z
      .enum(["no", "yes", "same-request"])
      .describe(
        "`no`: do not repeat it as it is. `yes`: nothing was done, repeat it freely. `same-request`: the outcome is unknown, repeat the same request under its idempotency key.",
      ),
    leader: z.int().exactOptional(),
    revision: count.exactOptional(),
    compact_revision: count.exactOptional(),
  })
  .meta({ id: "Problem", description: "An error (RFC 9457). Programs read `code`, `reason` and `retry`." });

const keptAliveItem = z.union([
  z.object({ id: count, ttl_s: count, expires_at_ms: timeMs }),
  z.object({ id: count, not_found: z.literal(true) }),
]);
const commandResult = z
  .union([
    z.object({ kind: z.literal("txn"), ...txnFields }),
    z.object({ kind: z.literal("lease_grant"), id: count, ttl_s: count, expires_at_ms: timeMs }),
    z.object({ kind: z.literal("lease_revoke"), deleted: count }),
    z.object({ kind: z.literal("lease_keep_alive"), items: z.array(keptAliveItem) }),
    z.object({ kind: z.literal("compact"), compact_revision: count }),
  ])
  .meta({ id: "CommandResult" });
const floor = count.describe("Writes that began at or below this revision may have run and been forgotten.");
export const txnResolution = z
  .union([
    z.object({
      status: z.literal("known"),
      idem_floor: floor,
      revision,
      outcome: z.union([
        z.object({ ok: z.literal(true), revision: count, result: commandResult }),
        z.object({ ok: z.literal(false), revision: count, error: problem }),
      ]),
    }),
    z.object({ status: z.literal("unknown"), idem_floor: floor, revision }),
  ])
  .meta({ id: "TxnResolution" });

const eventFields = { revision: count, op_index: count, type: z.enum(["put", "delete"]), ...recordFields };
export const event = z
  .object({ ...eventFields, value: json })
  .meta({ id: "Event", description: "A change of one key; a delete has `value` null." });
export const watchEvent = z
  .object({
    ...eventFields,
    value: json.exactOptional().describe("Left out with include_values=false."),
    prev_value: json.exactOptional().describe("Only with prev_values: the value before; null: there was no record."),
  })
  .meta({ id: "WatchEvent" });

export const history = z
  .object({ events: z.array(event), cursor: z.string().nullable(), revision })
  .meta({ id: "History" });
export const changes = z
  .object({
    events: z.array(event),
    next: z.string().describe("A position: to be given as `after` for the next page."),
    whole: z.boolean().describe("False: the page ends inside the revision of `next`."),
    has_more: z.boolean().describe("False: nothing was left when this page was read."),
    revision,
  })
  .meta({ id: "Changes" });
export const compacted = z
  .object({ compact_revision: count.describe("What needs less than this revision is gone."), revision })
  .meta({ id: "Compacted" });
export const revisionReply = z.object({ revision }).meta({ id: "Revision" });

const grantFields = { id: count, ttl_s: count, expires_at_ms: timeMs, revision };
export const leaseGranted = z.object(grantFields).meta({ id: "LeaseGranted" });
export const leaseKeptAlive = z.object(grantFields).meta({ id: "LeaseKeptAlive" });
const listedLeaseFields = {
  id: count,
  ttl_s: count,
  expires_at_ms: timeMs,
  remaining_ms: z.int(),
  metadata,
  keys_count: count,
  anonymous: z.literal(true).exactOptional().describe("Only of the lease behind a record's ttl."),
};
export const lease = z
  .object({ ...listedLeaseFields, keys: z.array(key).describe("Cut where it would be over a reply."), revision })
  .meta({ id: "Lease" });
export const leaseList = z
  .object({
    leases: z.array(z.object(listedLeaseFields).meta({ id: "ListedLease" })),
    next: count.nullable().describe("To be given as `after`; null on the last page."),
    revision,
  })
  .meta({ id: "LeaseList" });
export const leaseRevoked = z
  .object({ deleted: count.describe("Keys that were deleted with the lease."), revision })
  .meta({ id: "LeaseRevoked" });

const position = z.string().describe("Opaque: to be acknowledged, or to be resumed after.");
export const watchFrame = z
  .union([
    z.object({
      kind: z.literal("events"),
      events: z.array(watchEvent),
      complete: z.boolean().describe("False: a part of one revision, which goes on in the next frame."),
      position,
    }),
    z.object({ kind: z.literal("ready"), revision: count, position }).meta({
      description: "Everything up to `revision` has been sent; what comes now is live. Once per watch.",
    }),
    z
      .object({ kind: z.literal("progress"), revision: count, position })
      .meta({ description: "Everything up to `revision` has been sent." }),
    z
      .object({ kind: z.literal("compacted"), compact_revision: count })
      .meta({ description: "Last frame: events that the watch needs are compacted." }),
    z
      .object({ kind: z.literal("slow_consumer"), position })
      .meta({ description: "Last frame: far behind and silent for 10 s. Resume after `position`." }),
    z.object({ kind: z.literal("resync"), revision: count }).meta({
      description: "Last frame: the node's history begins behind the watch. List, then watch from `revision`.",
    }),
    z.object({ kind: z.literal("cluster_changed") }).meta({ description: "Last frame: another history." }),
    z
      .object({ kind: z.literal("leader_changed"), leader: count.nullable() })
      .meta({ description: "Of the connection, whose watches go on." }),
  ])
  .meta({ id: "WatchFrame" });
export const chunk = z.object({ kind: z.literal("chunk"), index: count, last: z.boolean(), data: z.string() }).meta({
  id: "Chunk",
  description: "A message over max_message_bytes, in parts: all `data`, joined, is the message.",
});
export const watchCreated = z
  .object({ watch_id: count, position, revision, cluster_id: z.string() })
  .meta({ id: "WatchCreated" });
export const watchRequest = z
  .union([
    z.strictObject({ ack: z.string() }).meta({ description: "Everything up to the position was taken." }),
    z.strictObject({ progress: z.literal(true) }).meta({ description: "Asks for a `progress` frame." }),
  ])
  .meta({ id: "WatchRequest", description: "What a client may send over the socket of a watch." });

export const published = z.object({ topic: z.string(), revision }).meta({ id: "Published" });
export const topicMessage = z
  .object({
    topic: z.string(),
    payload: json,
    seq: count.describe("Counts the messages of this connection; to be acknowledged."),
    dropped: count.describe("Messages lost since the one before, because the connection was behind."),
  })
  .meta({ id: "TopicMessage" });
export const topicRequest = z
  .strictObject({ ack: count })
  .meta({ id: "TopicRequest", description: "What a client may send over the socket of a topic: the last `seq`." });

const clusterFields = {
  name: z.string(),
  jurisdiction: z.string().nullable(),
  placement: z.array(z.string()).describe("One location hint per node, or none."),
};
export const cluster = z.object(clusterFields).meta({ id: "Cluster" });
export const createdCluster = z.object({ ...clusterFields, url: z.string() }).meta({ id: "CreatedCluster" });
export const clusterList = z
  .object({ clusters: z.array(cluster), next: z.string().nullable().describe("To be given as `after`.") })
  .meta({ id: "ClusterList" });

const nodeStatus = z
  .object({
    id: count,
    state: z.enum(["empty", "forming", "formed", "lost", "halted", "unreachable"]),
    role: z.enum(["leader", "follower", "candidate", "pre_candidate"]).nullable(),
    member: z
      .enum(["voter", "learner"])
      .nullable()
      .describe("By its own log. A node that lost its storage is none, then a learner, then a voter."),
    term: count,
    leader: count.nullable(),
    first_index: count.describe("The first entry that its log still holds."),
    last_index: count,
    commit_index: count,
    applied_index: count,
    revision: count,
    digest: z.string().describe("Of the state after `digest_index`: equal on all nodes for equal indexes."),
    digest_index: count,
    set_hash: count
      .nullable()
      .describe("Over all durable rows, those after `set_hash_index`: equal on all nodes for equal indexes."),
    set_hash_index: count,
    incarnation: count,
    storage_bytes: count,
    quiescent: z.boolean().describe("Sleeps until it is wanted."),
    halted: z.string().nullable(),
    snapshot_out: z
      .object({ index: count, rows_total: count })
      .nullable()
      .describe("Held ready for members which need entries that are gone from its log."),
    snapshot_in: z
      .object({ index: count, rows: count, rows_total: count })
      .nullable()
      .describe("Taken in, so far `rows`."),
    format: count.describe("Version of its storage."),
    protocol: count.describe("Version of what it says to other nodes."),
    colo: z.string().nullable().describe("Where it runs; null where the platform does not say."),
    last_contact_ms: count.nullable().describe("How long ago the leader heard it; null if no leader says so."),
  })
  .meta({ id: "NodeStatus" });
const membershipFields = { index: count, committed: z.boolean(), voters: z.array(count), learners: z.array(count) };
const membership = z
  .object({
    node: count.describe("Whose log says so: the leader's, or without one that of the node that knows most."),
    ...membershipFields,
  })
  .meta({ id: "Membership" });
export const adminOutcome = z
  .object({
    outcome: z
      .enum(["done", "unchanged", "under_way"])
      .describe("`done`: committed, or in force. `unchanged`: it was so. `under_way`: begun; look for its end."),
    detail: z.string().describe("One or two sentences for a person."),
    leader: count.nullable(),
    membership: z.object(membershipFields).nullable().describe("As the node has it that did it."),
  })
  .meta({ id: "AdminOutcome" });
export const clusterStatus = z
  .object({
    cluster_id: z.string().nullable(),
    name: z.string(),
    leader: count.nullable(),
    revision: count,
    membership: membership.nullable(),
    nodes: z.array(nodeStatus),
    digests: z
      .object({ index: count, equal: z.boolean() })
      .nullable()
      .describe("Whether all reachable nodes have the same state after `index`."),
  })
  .meta({ id: "ClusterStatus" });

const backup = z.object({
  cluster_id: z.string(),
  revision: count,
  index: count.describe("Of the last log entry in it."),
  time_ms: timeMs.describe("The log's time at that entry."),
});
export const restored = z
  .object({
    cluster_id: z.string().describe("New: what clients know of the cluster of the backup counts no more."),
    revision: count.describe("Everything up to it is compacted."),
    backup,
  })
  .meta({ id: "Restored" });
