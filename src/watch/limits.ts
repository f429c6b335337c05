/**
 * Limits of watches, with their units (design 01 §4, §5). A hub takes them as a record, so that a test can make them small.
 */
import { assert } from "../base/assert.ts";

export interface HubLimits {
  readonly watchesPerNodeMax: number;
  readonly watchesPerConnectionMax: number;
  /** A revision whose events are over this together is sent in parts; a single larger event travels alone. */
  readonly frameBytesMax: number;
  /** A frame of several revisions takes no further one beyond this: small enough to pipeline within the credit. */
  readonly frameBytesTarget: number;
  /** Bytes sent and not acknowledged. A watch that owes nothing may always get one frame, whatever its size. */
  readonly creditPerWatchBytes: number;
  readonly creditPerNodeBytes: number;
  /** A watch behind by this much, whose client is silent for `silenceMsMax`, is cancelled. */
  readonly behindEventsMax: number;
  readonly behindBytesMax: number;
  readonly silenceMsMax: number;
  /** A quiet watch is told its progress when it is this far back and this time has passed, at the next pump. */
  readonly progressRevisions: number;
  readonly progressMs: number;
  /** Work of one pump: rows of history looked at (a revision begun is finished), and bytes of frames made. */
  readonly pumpRowsMax: number;
  readonly pumpBytesMax: number;
  /** Rows of one watch's turn within a pump. */
  readonly sliceRowsMax: number;
  /** Watches at most this many revisions behind catch up together, in one walk of the log. */
  readonly nearRevisions: number;
  /** References to new events that wait for the pump of the same turn, over all watches. */
  readonly freshEventsMax: number;
}

export const HUB_LIMITS: HubLimits = {
  watchesPerNodeMax: 10_000,
  watchesPerConnectionMax: 100,
  frameBytesMax: 256 << 10,
  frameBytesTarget: 64 << 10,
  creditPerWatchBytes: 256 << 10,
  creditPerNodeBytes: 32 << 20,
  behindEventsMax: 1000,
  behindBytesMax: 4 << 20,
  silenceMsMax: 10_000,
  progressRevisions: 1000,
  progressMs: 10_000,
  pumpRowsMax: 2048,
  pumpBytesMax: 8 << 20,
  sliceRowsMax: 256,
  nearRevisions: 2048,
  freshEventsMax: 65_536,
};

/** Charged for every frame beside its events: names, ids, position. */
export const FRAME_OVERHEAD_BYTES = 128;
/** Entries that remember what a watch has not acknowledged; further frames join the last one. */
export const LEDGER_ENTRIES_MAX = 16;

export function checkLimits(limits: HubLimits): void {
  // Else a revision that fits a frame could never be sent whole once anything is unacknowledged.
  assert(limits.frameBytesMax <= limits.creditPerWatchBytes, "one frame fits the credit of a watch");
  assert(limits.frameBytesTarget <= limits.frameBytesMax, "the target lies within the frame");
  assert(limits.creditPerWatchBytes <= limits.creditPerNodeBytes, "the node's credit covers one watch");
}

checkLimits(HUB_LIMITS);
