/** The public interface of the client. */
export type { ClusterStatus, Consistency, MembershipStatus, NodeStatus } from "../api/backend.ts";
export type {
  WireBatch,
  WireBytes,
  WireChanges,
  WireCluster,
  WireClusterList,
  WireCommandResult,
  WireCompacted,
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
  WireWatchEvent,
} from "../api/wire.ts";
export { ConcordError, type ErrorBody, type ErrorCode, type Retry } from "../base/errors.ts";
export type { JsonObject, JsonValue } from "../base/json.ts";
export { Concord } from "./concord.ts";
export type { Election, Leader, Leadership } from "./election.ts";
export type { Feed } from "./feed.ts";
export type { FollowItem, FollowOptions } from "./follow.ts";
export type { GuardedTxn, Held } from "./guard.ts";
export type { ConditionalResult, HistoryPage, KvClient, PutOptions, PutResult } from "./kv.ts";
export type { LeaseClient, LeaseListOptions } from "./lease.ts";
export type { KeepOptions, LeaseKeeper, LeaseLost } from "./lease-keeper.ts";
export type { QueueOptions } from "./lease-queue.ts";
export type { Lock, LockOptions } from "./lock.ts";
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
export type { OpenSocket, SocketLike } from "./socket.ts";
export type { ChangesOptions, ChangesPage, SyncClient } from "./sync.ts";
export type { SubscribeOptions, Subscription, TopicClient, TopicMessage } from "./topics.ts";
export type { ChangeEvent, Input, Jsonable, JsonInput, Operation, Put, Txn, WatchEvent } from "./typed-value.ts";
export { bytes, bytesOf } from "./value.ts";
export type { Watch, WatchedRevision } from "./watch.ts";
export type { WatchOptions, WatchStatus } from "./watch-cursor.ts";
