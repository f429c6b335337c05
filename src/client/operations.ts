/**
 * The operations of the database by name, with what goes in and what comes out: the methods of the session, and `administer`,
 * which goes over HTTP alone. Both transports carry the others, so whoever calls knows nothing of paths, headers or sockets.
 * Types only; the names are the wire.
 */
import type { AdminOutcome, ClusterStatus } from "../api/backend.ts";
import type {
  WireBatch,
  WireChanges,
  WireCompacted,
  WireDeleteManyReply,
  WireGetManyReply,
  WireHistory,
  WireKey,
  WireLease,
  WireLeaseGrant,
  WireLeaseGranted,
  WireLeaseKeptAlive,
  WireLeaseList,
  WireLeaseRevoked,
  WireList,
  WirePutManyReply,
  WireRecord,
  WireRevision,
  WireSelector,
  WireTxn,
  WireTxnResolution,
  WireTxnResult,
} from "../api/wire.ts";
import type { JsonValue } from "../base/json.ts";

export interface Operations {
  "kv.get": {
    params: { readonly key: WireKey; readonly revision?: number | undefined };
    result: { readonly record: WireRecord | null; readonly revision: number };
  };
  "kv.list": {
    params: {
      readonly prefix?: WireKey | undefined;
      readonly start?: WireKey | undefined;
      readonly end?: WireKey | undefined;
      readonly limit?: number | undefined;
      readonly order?: "asc" | "desc" | undefined;
      readonly keys_only?: boolean | undefined;
      readonly count_only?: boolean | undefined;
      readonly revision?: number | undefined;
      readonly cursor?: string | undefined;
    };
    result: WireList;
  };
  "kv.batch": { params: WireBatch; result: WirePutManyReply | WireGetManyReply | WireDeleteManyReply };
  "kv.history": {
    params: {
      readonly key: string;
      readonly from?: number | undefined;
      readonly to?: number | undefined;
      readonly limit?: number | undefined;
      readonly cursor?: string | undefined;
    };
    result: WireHistory;
  };
  txn: { params: WireTxn; result: WireTxnResult };
  "txn.result": { params: { readonly key: string }; result: WireTxnResolution };
  changes: {
    params: WireSelector & { readonly after?: string | undefined; readonly limit?: number | undefined };
    result: WireChanges;
  };
  revision: { params: Record<string, never>; result: WireRevision };
  compact: { params: { readonly revision: number }; result: WireCompacted };
  cluster: { params: Record<string, never>; result: ClusterStatus };
  administer: { params: { readonly path: string; readonly body: object }; result: AdminOutcome };
  "lease.grant": { params: WireLeaseGrant; result: WireLeaseGranted };
  "lease.keepalive": {
    params: { readonly id: number; readonly ttl_s?: number | undefined };
    result: WireLeaseKeptAlive;
  };
  "lease.revoke": { params: { readonly id: number }; result: WireLeaseRevoked };
  "lease.info": { params: { readonly id: number }; result: WireLease };
  "lease.list": {
    params: {
      readonly limit?: number | undefined;
      readonly after?: number | undefined;
      readonly anonymous?: boolean | undefined;
    };
    result: WireLeaseList;
  };
  "topic.publish": { params: { readonly topic: string; readonly payload: JsonValue }; result: WireRevision };
}

export type Method = keyof Operations;
export type Params<M extends Method> = Operations[M]["params"];
export type Result<M extends Method> = Operations[M]["result"];
