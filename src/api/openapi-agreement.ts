/** The schemas of replies and the types of the wire say the same: checked by the compiler, gone at run time. */
import type { output, ZodType } from "zod";
import type { JsonValue } from "../base/json.ts";
import type { ClusterStatus } from "./backend.ts";
import type * as replies from "./openapi-replies.ts";
import type * as wire from "./wire.ts";
import type { WireRestored } from "./wire-backup.ts";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

/** Readonly taken off and intersections made flat, all the way down. */
type Plain<T> =
  Same<T, JsonValue> extends true
    ? T
    : T extends readonly (infer Item)[]
      ? Plain<Item>[]
      : T extends object
        ? { -readonly [Name in keyof T]: Plain<T[Name]> }
        : T;

/** `true`, or both sides for the compiler's message. */
type Agrees<Schema extends ZodType, Wire> =
  Same<Plain<output<Schema>>, Plain<Wire>> extends true ? true : [Plain<output<Schema>>, Plain<Wire>];

type Replies = typeof replies;
interface Agreement {
  record: Agrees<Replies["record"], wire.WireRecord>;
  listedRecord: Agrees<Replies["listedRecord"], wire.WireListedRecord>;
  getReply: Agrees<Replies["getReply"], wire.WireGetReply>;
  putReply: Agrees<Replies["putReply"], wire.WirePutReply>;
  deleteReply: Agrees<Replies["deleteReply"], wire.WireDeleteReply>;
  list: Agrees<Replies["list"], wire.WireList>;
  getManyReply: Agrees<Replies["getManyReply"], wire.WireGetManyReply>;
  putManyReply: Agrees<Replies["putManyReply"], wire.WirePutManyReply>;
  deleteManyReply: Agrees<Replies["deleteManyReply"], wire.WireDeleteManyReply>;
  operationResult: Agrees<Replies["operationResult"], wire.WireOperationResult>;
  txnResult: Agrees<Replies["txnResult"], wire.WireTxnResult>;
  problem: Agrees<Replies["problem"], wire.WireProblem>;
  txnResolution: Agrees<Replies["txnResolution"], wire.WireTxnResolution>;
  event: Agrees<Replies["event"], wire.WireEvent>;
  watchEvent: Agrees<Replies["watchEvent"], wire.WireWatchEvent>;
  history: Agrees<Replies["history"], wire.WireHistory>;
  changes: Agrees<Replies["changes"], wire.WireChanges>;
  compacted: Agrees<Replies["compacted"], wire.WireCompacted>;
  revisionReply: Agrees<Replies["revisionReply"], wire.WireRevision>;
  leaseGranted: Agrees<Replies["leaseGranted"], wire.WireLeaseGranted>;
  leaseKeptAlive: Agrees<Replies["leaseKeptAlive"], wire.WireLeaseKeptAlive>;
  lease: Agrees<Replies["lease"], wire.WireLease>;
  leaseList: Agrees<Replies["leaseList"], wire.WireLeaseList>;
  leaseRevoked: Agrees<Replies["leaseRevoked"], wire.WireLeaseRevoked>;
  watchFrame: Agrees<Replies["watchFrame"], wire.WireWatchFrame>;
  chunk: Agrees<Replies["chunk"], wire.WireChunk>;
  watchCreated: Agrees<Replies["watchCreated"], wire.WireWatchCreated>;
  watchRequest: Agrees<Replies["watchRequest"], wire.WireWatchRequest>;
  published: Agrees<Replies["published"], wire.WirePublished>;
  topicMessage: Agrees<Replies["topicMessage"], wire.WireTopicMessage>;
  cluster: Agrees<Replies["cluster"], wire.WireCluster>;
  clusterList: Agrees<Replies["clusterList"], wire.WireClusterList>;
  restored: Agrees<Replies["restored"], WireRestored>;
  clusterStatus: Agrees<Replies["clusterStatus"], ClusterStatus>;
}

/** Without an agreement this type cannot be written. */
type Held<T extends { [Name in keyof T]: true }> = T;
export type AgreedReplies = Held<Agreement>;
