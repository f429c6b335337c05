/** A node's name and configuration, read from the object's name and the environment variables. Pure. */

import { type SeparateVariables, separateNodeOf } from "../api/separate-node.ts";
import {
  COMPACTION_HISTORY_BYTES_DEFAULT,
  COMPACTION_KEEP_MS_DEFAULT,
  COMPACTION_KEEP_REVISIONS_DEFAULT,
  HOUSEKEEPING_MS_DEFAULT,
  LOG_KEEP_BYTES_DEFAULT,
  LOG_KEEP_ENTRIES_DEFAULT,
  QUIESCE_AFTER_MS_DEFAULT,
  QUOTA_BYTES_DEFAULT,
} from "../base/limits.ts";
import type { NodeId } from "../raft/types.ts";
import type { NodeConfig } from "./ports.ts";
import { PROTOCOL_MAX, PROTOCOL_MIN } from "./versions.ts";

/** The variables that a node reads; all text, as in wrangler.toml. */
export interface NodeVariables extends SeparateVariables {
  readonly NODE_COUNT?: string;
  readonly HEARTBEAT_MS?: string;
  readonly ELECTION_TIMEOUT_MS_MIN?: string;
  readonly ELECTION_TIMEOUT_MS_MAX?: string;
  readonly QUIESCE_AFTER_MS?: string;
  readonly QUOTA_BYTES?: string;
  readonly LOG_KEEP_ENTRIES?: string;
  readonly LOG_KEEP_BYTES?: string;
  readonly HOUSEKEEPING_MS?: string;
  readonly PROTOCOL_MAX?: string;
  /** 0 = no automatic compaction. */
  readonly COMPACTION_KEEP_REVISIONS?: string;
  readonly COMPACTION_KEEP_MS?: string;
  readonly COMPACTION_HISTORY_BYTES?: string;
}

export interface NodeName {
  readonly cluster: string;
  readonly id: NodeId;
}

const NODE_COUNTS = [1, 3, 5, 7];

/** The object's name is `{cluster}/{node id}`; the node id is plain decimal. */
export function objectName(name: NodeName): string {
  return `${name.cluster}/${name.id}`;
}

/** Null for a name that is none of ours: such an object has no node in it and answers nothing. */
export function parseObjectName(text: string | undefined, nodesCount: number): NodeName | null {
  const match = /^(.+)\/([1-9])$/.exec(text ?? "");
  const cluster = match?.[1];
  const id = Number(match?.[2] ?? "0");
  return cluster === undefined || id < 1 || id > nodesCount ? null : { cluster, id };
}

/** @throws RangeError naming the variable: a cluster with a wrong configuration must not start. */
export function nodesCountOf(variables: NodeVariables): number {
  const count = integerOf("NODE_COUNT", variables.NODE_COUNT, 5, 1, 7);
  if (!NODE_COUNTS.includes(count))
    throw new RangeError(`NODE_COUNT is ${count}, must be one of ${NODE_COUNTS.join(", ")}`);
  return count;
}

export function nodeConfigOf(variables: NodeVariables, id: NodeId, seed: number): NodeConfig {
  const heartbeatMs = integerOf("HEARTBEAT_MS", variables.HEARTBEAT_MS, 50, 1, 10_000);
  const electionTimeoutMsMin = integerOf("ELECTION_TIMEOUT_MS_MIN", variables.ELECTION_TIMEOUT_MS_MIN, 300, 2, 60_000);
  const electionTimeoutMsMax = integerOf("ELECTION_TIMEOUT_MS_MAX", variables.ELECTION_TIMEOUT_MS_MAX, 600, 2, 120_000);
  // A follower must hear more than one heartbeat per timeout, or a single late one starts an election.
  if (electionTimeoutMsMin < 2 * heartbeatMs) throw new RangeError("ELECTION_TIMEOUT_MS_MIN is below 2 x HEARTBEAT_MS");
  if (electionTimeoutMsMax <= electionTimeoutMsMin) {
    throw new RangeError("ELECTION_TIMEOUT_MS_MAX is not above ELECTION_TIMEOUT_MS_MIN");
  }
  const nodesCount = nodesCountOf(variables);
  const members = Array.from({ length: nodesCount }, (_, position) => position + 1);
  // The platform may replace an object without its knowledge, so every round stands behind a write (design 02 §1). A
  // process that serves one node is the only one on its data folder, which is locked: in it, an instance that has been
  // replaced has ended, so there is nothing to prove and a read costs no write.
  const fence = separateNodeOf(variables, nodesCount) === null;
  const timing = { heartbeatMs, electionTimeoutMsMin, electionTimeoutMsMax };
  return { id, members, ...timing, ...boundsOf(variables), fence, seed };
}

type Timing = "heartbeatMs" | "electionTimeoutMsMin" | "electionTimeoutMsMax";

function boundsOf(variables: NodeVariables): Omit<NodeConfig, "id" | "members" | "fence" | "seed" | Timing> {
  const { QUIESCE_AFTER_MS, QUOTA_BYTES, COMPACTION_KEEP_REVISIONS, COMPACTION_KEEP_MS } = variables;
  const { COMPACTION_HISTORY_BYTES } = variables;
  const most = Number.MAX_SAFE_INTEGER;
  return {
    quiesceAfterMs: integerOf("QUIESCE_AFTER_MS", QUIESCE_AFTER_MS, QUIESCE_AFTER_MS_DEFAULT, 1, 86_400_000),
    quotaBytes: integerOf("QUOTA_BYTES", QUOTA_BYTES, QUOTA_BYTES_DEFAULT, 1 << 20, most),
    logKeepEntries: integerOf("LOG_KEEP_ENTRIES", variables.LOG_KEEP_ENTRIES, LOG_KEEP_ENTRIES_DEFAULT, 10, 1_000_000),
    housekeepingMs: integerOf("HOUSEKEEPING_MS", variables.HOUSEKEEPING_MS, HOUSEKEEPING_MS_DEFAULT, 10, 3_600_000),
    protocolMax: integerOf("PROTOCOL_MAX", variables.PROTOCOL_MAX, PROTOCOL_MAX, PROTOCOL_MIN, PROTOCOL_MAX),
    logKeepBytes: integerOf("LOG_KEEP_BYTES", variables.LOG_KEEP_BYTES, LOG_KEEP_BYTES_DEFAULT, 4 << 20, most),
    compaction: {
      keepRevisions: integerOf(
        "COMPACTION_KEEP_REVISIONS",
        COMPACTION_KEEP_REVISIONS,
        COMPACTION_KEEP_REVISIONS_DEFAULT,
        0,
        most,
      ),
      keepMs: integerOf("COMPACTION_KEEP_MS", COMPACTION_KEEP_MS, COMPACTION_KEEP_MS_DEFAULT, 0, most),
      historyBytesMax: integerOf(
        "COMPACTION_HISTORY_BYTES",
        COMPACTION_HISTORY_BYTES,
        COMPACTION_HISTORY_BYTES_DEFAULT,
        0,
        most,
      ),
    },
  };
}

function integerOf(name: string, text: string | undefined, fallback: number, low: number, high: number): number {
  const value = text === undefined ? fallback : Number(text);
  if (!Number.isSafeInteger(value) || value < low || value > high) {
    throw new RangeError(`${name} is ${String(text)}, must be an integer from ${low} to ${high}`);
  }
  return value;
}
