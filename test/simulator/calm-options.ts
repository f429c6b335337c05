/** A world in which nothing happens by itself: for tests of the world's own parts. */
import { LOG_KEEP_BYTES_DEFAULT } from "../../src/base/limits.ts";
import type { WorldOptions } from "./host.ts";

export const CALM: Omit<WorldOptions, "size" | "mutation"> = {
  seed: 1,
  heartbeatMs: 50,
  electionTimeoutMsMin: 300,
  electionTimeoutMsMax: 600,
  fence: true,
  quiesceAfterMs: Number.POSITIVE_INFINITY,
  quotaBytes: 2 ** 32,
  logKeepEntries: 10_000,
  logKeepBytes: LOG_KEEP_BYTES_DEFAULT,
  housekeepingMs: Number.POSITIVE_INFINITY,
  chunkBytesMax: 384 << 10,
  compaction: { keepRevisions: 0, keepMs: 0, historyBytesMax: 0 },
  hubLimits: {},
  freeze: false,
  traceLines: 10,
};
