/** The public interface of the client. */
export type { ClusterStatus, Consistency, NodeStatus } from "../api/backend.ts";
export type {
  WireBatch,
  WireBytes,
  WireCluster,
  WireClusterList,
  WireCommandResult,
  WireCompare,
  WireDeleteManyReply,
  WireDeleteReply,
  WireEvent,
  WireGetManyReply,
  WireGetOptions,
  WireHistory,
  WireKey,
  WireLease,
  WireLeaseGrant,
  WireLeaseGranted,
  WireLeaseRevoked,
  WireList,
  WireListedRecord,
  WireOperation,
  WireOperationResult,
  WireProblem,
  WirePut,
  WirePutManyReply,
  WirePutOptions,
  WirePutReply,
  WireRange,
  WireRecord,
  WireRevision,
  WireSelector,
  WireTxn,
  WireTxnResolution,
  WireTxnResult,
  WireValue,
} from "../api/wire.ts";
export { ConcordError, type ErrorBody, type ErrorCode, type Retry } from "../base/errors.ts";
export type { JsonObject, JsonValue } from "../base/json.ts";
export { Concord } from "./concord.ts";
export type { ConditionalResult, KvClient, PutOptions, PutResult } from "./kv.ts";
export type { LeaseClient } from "./lease.ts";
export type {
  CallOptions,
  ClientClock,
  ConnectOptions,
  Fetch,
  GetOptions,
  HistoryOptions,
  ListOptions,
  ListSelector,
  ReadOptions,
  WriteOptions,
} from "./options.ts";
export { bytes, bytesOf } from "./value.ts";
