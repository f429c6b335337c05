/**
 * The quota (design 01 §5): only what grows is refused, only when the state was above it, and the state stays near it.
 * Sizes are those of the checkers' own replay (safety.ts).
 */
import type { Command, Operation } from "../../src/kv/command.ts";
import type { WriteRecord } from "./history.ts";
import type { World } from "./host.ts";
import { Violation } from "./violation.ts";

/** What may be under way when the state crosses the quota: a few hundred bytes for each client and each retry. */
const OVERSHOOT_BYTES = 40_000;

export function checkNoSpace(world: World, record: WriteRecord): void {
  const { command } = record.proposal;
  if (!grows(command)) {
    throw new Violation("quota holds", `write ${record.id} (${command.kind}) does not grow and was refused`);
  }
  const { quotaBytes } = world.options;
  if (world.safety.committed.some(({ logicalBytes }) => logicalBytes > quotaBytes)) return;
  throw new Violation("quota holds", `write ${record.id} was refused, the state was never above ${quotaBytes}`);
}

export function checkQuota(world: World): void {
  const { quotaBytes } = world.options;
  for (const { entry, logicalBytes } of world.safety.committed) {
    if (logicalBytes <= quotaBytes + OVERSHOOT_BYTES) continue;
    throw new Violation("quota holds", `${logicalBytes} bytes after entry ${entry.index}, the quota is ${quotaBytes}`);
  }
}

function grows(command: Command): boolean {
  if (command.kind === "lease_grant") return true;
  const isGrowing = ({ type }: Operation): boolean => type === "put" || type === "touch";
  return command.kind === "txn" && [...command.success, ...command.failure].some(isGrowing);
}
