/** The kinds of faults, and how often each was injected: a kind that never happens proves nothing. */

export const FAULT_KINDS = [
  "drop",
  "delay",
  "duplicate",
  "reorder",
  "one_way_partition",
  "partial_partition",
  "full_partition",
  "crash",
  "crash_between_statements",
  "disk_error",
  "commit_failure",
  "wiped_disk",
  "pause",
  "clock_jump",
  "clock_drift",
  "eviction",
  "all_reset",
  "two_instances",
  "membership_change",
  "leader_transfer",
  "version_mix",
  "alarm_late",
  "alarm_repeated",
  "reply_lost",
  "quiescence",
  "snapshot_in_flight",
  "disk_corruption",
] as const;

export type FaultKind = (typeof FAULT_KINDS)[number];

export interface FaultCounts {
  readonly byKind: Map<FaultKind, number>;
  /** Those of them that struck while a snapshot was on its way to some node. */
  readonly inFlight: Map<FaultKind, number>;
  add(kind: FaultKind): void;
}

export function createFaultCounts(isSnapshotInFlight: () => boolean): FaultCounts {
  const byKind = new Map<FaultKind, number>();
  const inFlight = new Map<FaultKind, number>();
  return {
    byKind,
    inFlight,
    add(kind) {
      byKind.set(kind, (byKind.get(kind) ?? 0) + 1);
      if (isSnapshotInFlight()) inFlight.set(kind, (inFlight.get(kind) ?? 0) + 1);
    },
  };
}
