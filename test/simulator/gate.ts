/** The output gate (ports P2): what leaves a node waits for what it may depend on. */
import type { Instance, Release } from "./host.ts";

/** Puts something that leaves the node where the output gate of this moment holds it. */
export function holdOrRelease(instance: Instance, release: Release): void {
  const { turn, inFlight } = instance;
  if (turn === null || turn.died !== null) return;
  if (turn.wrote) turn.behindOwn.push(release);
  else if (inFlight.length > 0) turn.behindEarlier.push(release);
  else turn.immediate.push(release);
}
