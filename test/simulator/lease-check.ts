/**
 * Leases against the clock on the wall, which no node knows. The model (model-leases.ts) says what each command does; here
 * is whether the times in the log mean what they promise to the people who hold leases.
 *
 * L1. Whoever was told that its lease is granted or renewed holds it for the TTL from when it asked, less the skew that is
 *     allowed (design 02 §3) and what the clocks of this seed drift. The clocks of some nodes may be wrong by any amount, as
 *     long as they are too few to choose the time of a term.
 * L2. When the cluster is whole, a lease ends within a second of its time, a grace per change of leader, and two seconds
 *     per node that had to wait for one before it.
 */
import { WALL_EPOCH_MS } from "./clock.ts";
import type { History, WriteRecord } from "./history.ts";
import type { World } from "./host.ts";
import type { Profile } from "./profile.ts";
import type { Committed } from "./safety.ts";
import { Violation } from "./violation.ts";

/** What the design allows between two clocks (`MAX_SKEW_MS`). */
const SKEW_MS_MAX = 1000;
const PAUSE_MS_MAX = 1500;

/** How many wrong clocks cannot be the median of a majority's votes, wherever they are wrong to. */
export function harmlessClocks(size: number): number {
  return Math.floor(Math.floor(size / 2) / 2);
}

export function wrongClocks(world: World): number {
  return world.hosts.filter(({ wallSkewMs, wallJumps }) => wallSkewMs !== 0 || wallJumps > 0).length;
}

export function clocksAreHarmless(world: World): boolean {
  return wrongClocks(world) <= harmlessClocks(world.hosts.length);
}

/** The promises that were checked: none checked proves nothing. */
export function checkPromises(world: World, profile: Profile, history: History): number {
  if (!clocksAreHarmless(world)) return 0;
  const { committed } = world.safety;
  const byOperation = new Map(history.writes.map((record) => [record.id, record]));
  const renewed = new Map<number, { readonly at: Committed; readonly ttlS: number; readonly by: WriteRecord | null }>();
  const termStarts = new Map<number, number>();
  let checked = 0;
  for (const one of committed) {
    if (!termStarts.has(one.entry.term)) termStarts.set(one.entry.term, one.writtenAtMs);
    const { outcome } = one;
    if (outcome === null || !outcome.ok || outcome.replayed === true) continue;
    const { result } = outcome;
    const by = byOperation.get(operationOf(one.entry.payload)) ?? null;
    if (result.kind === "lease_grant") renewed.set(result.id, { at: one, ttlS: result.ttl_s, by });
    if (result.kind === "lease_keep_alive") {
      for (const item of result.items)
        if (!("not_found" in item)) renewed.set(item.id, { at: one, ttlS: item.ttl_s, by });
    }
    if (result.kind !== "lease_expire") continue;
    for (const id of result.expired) {
      const last = renewed.get(id);
      if (last?.by?.status !== "answered") continue;
      checked += 1;
      const { at, ttlS, by: promise } = last;
      const allowed = allowedMs(
        profile,
        at.writtenAtMs - (termStarts.get(at.entry.term) ?? 0),
        one.writtenAtMs - at.writtenAtMs,
      );
      const until = promise.sentMs + ttlS * 1000;
      if (one.writtenAtMs >= until - allowed) continue;
      const detail = `lease ${id}, promised to write ${promise.id} until ${until.toFixed(0)}, ended at ${one.writtenAtMs.toFixed(0)} by entry ${one.entry.index}; ${allowed.toFixed(0)} ms are allowed`;
      throw new Violation("lease lives as long as was promised", detail);
    }
  }
  return checked;
}

function allowedMs(profile: Profile, inTermMs: number, heldMs: number): number {
  // A leader that slept between its votes and its first entry begins its time that much too early.
  const late = profile.kinds.includes("pause") ? PAUSE_MS_MAX + profile.electionTimeoutMsMax : 0;
  if (!profile.kinds.includes("clock_drift")) return SKEW_MS_MAX + late;
  return SKEW_MS_MAX + late + 0.3 * inTermMs + 0.4 * heldMs;
}

/** As in history-check.ts; of keep-alives by their key. */
function operationOf(payload: string): number {
  if (payload === "") return 0;
  const { command, idempotency } = JSON.parse(payload);
  return command.kind === "lease_grant" ? Number(command.metadata?.op) : Number(idempotency?.key.slice(3) ?? 0);
}

/** Messages to and fro, and slow writes, of those who end a lease. */
const SLACK_MS = 400;

/** By when a lease that is due at `dueAt` must have ended, if nothing goes wrong from now on. */
export function endsBy(world: World, dueAt: number): number {
  return Math.max(world.now, dueAt) + 1000 + world.options.electionTimeoutMsMax + SLACK_MS;
}

/** The same when the leader is replaced meanwhile: graces, elections, and every other node waits for those before it. */
export function endsByAfterChanges(world: World, dueAt: number): number {
  const { electionTimeoutMsMax, size } = world.options;
  return endsBy(world, dueAt) + 2 * 3 * electionTimeoutMsMax + 2000 * (size - 1);
}

/** What log time is at virtual time 0, if the log goes by the true clock. */
export const LOG_EPOCH_MS = WALL_EPOCH_MS;
