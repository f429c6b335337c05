/** Everything that is judged of a run, in the order of what explains most. Throws the first Violation. */
import type { Evidence } from "./evidence.ts";
import { checkLeases, type LeaseCount } from "./lease-check.ts";
import { checkReads } from "./read-check.ts";
import { checkRegisters, type RegisterCount } from "./register-check.ts";
import { knowledgeOf, type Timeline, timelineOf } from "./timeline.ts";
import { checkWatchers } from "./watch-check.ts";
import { checkWrites } from "./write-check.ts";

/** Keys that are written one at a time: each is a register. */
export const REGISTER_PREFIX = "/n/register/";

export interface CheckCounts {
  readonly revisions: number;
  readonly writes: number;
  readonly reads: number;
  readonly registers: RegisterCount;
  readonly watchedEvents: number;
  readonly leases: LeaseCount;
}

/** @throws Violation */
export function checkEvidence(evidence: Evidence): CheckCounts {
  const timeline: Timeline = timelineOf(evidence.feeds);
  const knowledge = knowledgeOf(timeline, evidence);
  return {
    revisions: timeline.newest,
    writes: checkWrites(timeline, evidence, knowledge),
    reads: checkReads(timeline, evidence, knowledge),
    registers: checkRegisters(timeline, evidence, REGISTER_PREFIX),
    watchedEvents: checkWatchers(timeline, evidence, timeline.newest),
    leases: checkLeases(timeline, evidence),
  };
}
