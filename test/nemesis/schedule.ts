/**
 * What the nemesis does and when, from a seed alone. Pure: whom "the leader" means is found out when it is done.
 *
 * N1. Kinds come in shuffled rounds: each once before any comes again, so that a long run has all of them equally.
 * N2. No fault is held longer than the bound, and the next comes when a majority serves again: the load makes progress.
 */
import { createRandom, nextFloat, nextInteger, type Random } from "../../src/base/random.ts";

export const PROCESS_FAULTS = [
  "kill one",
  "kill two",
  "kill all",
  "pause one",
  "pause two",
  "pause three",
  "restart one",
] as const;
export const LINK_FAULTS = ["isolate", "split", "partial", "one way", "deaf"] as const;

export type FaultKind = (typeof PROCESS_FAULTS)[number] | (typeof LINK_FAULTS)[number] | "wipe";

export interface Fault {
  readonly kind: FaultKind;
  /** All nodes; the first of them are hit. */
  readonly order: readonly number[];
  /** The leader goes first, whoever that is. */
  readonly onLeader: boolean;
}

export interface Round {
  /** One, or one of processes and one of links at once. */
  readonly faults: readonly Fault[];
  readonly holdMs: number;
  /** Quiet between the recovery and the next one. */
  readonly restMs: number;
}

export interface ScheduleOptions {
  readonly seed: number;
  readonly nodes: readonly number[];
  readonly wipes: boolean;
}

const HOLD_MS = { min: 400, max: 3000 } as const;
/** Some faults outlast leases and patience. */
const LONG_HOLD_MS = { min: 4000, max: 7000 } as const;
const LONG_CHANCE = 0.1;
const REST_MS = { min: 200, max: 1500 } as const;
const PAIR_CHANCE = 0.2;
const LEADER_CHANCE = 0.5;
export const HOLD_MS_MAX = LONG_HOLD_MS.max;

export function* scheduleOf({ seed, nodes, wipes }: ScheduleOptions): Generator<Round, never, void> {
  const random = createRandom(seed);
  const all: readonly FaultKind[] = [...PROCESS_FAULTS, ...LINK_FAULTS, ...(wipes ? (["wipe"] as const) : [])];
  for (;;) {
    for (const kind of shuffled(all, random)) {
      const faults = [faultOf(kind, nodes, random)];
      const isPair = nextFloat(random) < PAIR_CHANCE;
      const other = pick(isLink(kind) ? PROCESS_FAULTS : LINK_FAULTS, random);
      if (isPair && kind !== "wipe") faults.push(faultOf(other, nodes, random));
      const hold = nextFloat(random) < LONG_CHANCE ? LONG_HOLD_MS : HOLD_MS;
      const holdMs = nextInteger(random, hold.min, hold.max);
      yield { faults, holdMs, restMs: nextInteger(random, REST_MS.min, REST_MS.max) };
    }
  }
}

export function isLink(kind: FaultKind): boolean {
  return (LINK_FAULTS as readonly FaultKind[]).includes(kind);
}

function faultOf(kind: FaultKind, nodes: readonly number[], random: Random): Fault {
  return { kind, order: shuffled(nodes, random), onLeader: nextFloat(random) < LEADER_CHANCE };
}

function pick<T>(list: readonly T[], random: Random): T {
  return list[nextInteger(random, 0, list.length - 1)]!;
}

export function shuffled<T>(list: readonly T[], random: Random): T[] {
  const left = [...list];
  const result: T[] = [];
  while (left.length > 0) result.push(...left.splice(nextInteger(random, 0, left.length - 1), 1));
  return result;
}
