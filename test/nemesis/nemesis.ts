/**
 * Does to five processes what the schedule says, undoes it, and waits until a majority serves. Whatever it has done is
 * undone when it ends.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { FiveCluster } from "../../scripts/local-cluster/five.ts";
import { NODE_IDS } from "../../scripts/local-cluster/verbs.ts";
import { Violation } from "../simulator/violation.ts";
import type { Fault, FaultKind, Round } from "./schedule.ts";
import type { Witness } from "./witness.ts";

/** Far above what it takes: two cores are shared with others. */
const RECOVERY_MS_MAX = 45_000;
const MAJORITY = 3;

export interface NemesisReport {
  readonly faults: Map<FaultKind, number>;
  rounds: number;
  /** From the end of the faults of a round until a majority served. */
  slowestRecovery: { readonly ms: number; readonly faults: string };
}

export interface NemesisOptions {
  readonly five: FiveCluster;
  readonly witness: Witness;
  readonly schedule: Iterator<Round, never, void>;
  readonly signal: AbortSignal;
  /** A line of what happens. */
  readonly onLine: (line: string) => void;
  /** How far the load has come, in a few words. */
  readonly progress: () => string;
  readonly report: NemesisReport;
}

export function createReport(): NemesisReport {
  return { faults: new Map(), rounds: 0, slowestRecovery: { ms: 0, faults: "none" } };
}

/** Until the signal. @throws Violation if a majority does not come back */
export async function runNemesis(options: NemesisOptions): Promise<void> {
  const { five, witness, signal, report, schedule } = options;
  while (!signal.aborted) {
    const round = schedule.next().value;
    const leader = await witness.leader();
    const acts = round.faults.map((fault) => actOf(five, fault, leader));
    const text = acts.map((act) => act.text).join(" + ");
    options.onLine(`${text}, for ${round.holdMs} ms; leader ${leader ?? "none"}`);
    for (const act of acts) await act.begin();
    await quiet(round.holdMs, signal);
    for (const { kind } of round.faults) report.faults.set(kind, (report.faults.get(kind) ?? 0) + 1);
    report.rounds += 1;
    for (const act of acts) await act.end();
    const wiped = acts.flatMap((act) => act.wiped);
    const ms = await recovered(witness, wiped);
    if (ms > report.slowestRecovery.ms) report.slowestRecovery = { ms, faults: text };
    options.onLine(`a majority serves after ${ms} ms; ${options.progress()}`);
    await quiet(round.restMs, signal);
  }
}

/** Undoes whatever is left: by a nemesis that was ended by an exception, too. */
export async function healAll(five: FiveCluster): Promise<void> {
  await five.heal();
  for (const node of NODE_IDS) if (five.state(node) === "paused") await five.resume(node);
  await five.restart(...NODE_IDS.filter((node) => five.state(node) === "down"));
}

interface Act {
  readonly text: string;
  /** Whose storage is gone. */
  readonly wiped: readonly number[];
  begin(): Promise<void>;
  end(): Promise<void>;
}

function actOf(five: FiveCluster, fault: Fault, leader: number | null): Act {
  const { kind, onLeader } = fault;
  const order =
    onLeader && leader !== null ? [leader, ...fault.order.filter((node) => node !== leader)] : [...fault.order];
  const [first = 0, second = 0, third = 0] = order;
  const cut = (text: string, begin: () => Promise<void>): Act => ({
    text: `${kind}: ${text}`,
    wiped: [],
    begin,
    end: () => five.heal(),
  });
  const kill = (...nodes: number[]): Act => ({
    text: `${kind}: ${nodes}`,
    wiped: [],
    begin: () => five.kill(...nodes),
    end: () => five.restart(...nodes),
  });
  const pause = (...nodes: number[]): Act => ({
    text: `${kind}: ${nodes}`,
    wiped: [],
    begin: () => each(nodes, (node) => five.pause(node)),
    end: () => each(nodes, (node) => five.resume(node)),
  });
  switch (kind) {
    case "kill one":
      return kill(first);
    case "kill two":
      return kill(first, second);
    case "kill all":
      return kill(...order);
    case "pause one":
      return pause(first);
    case "pause two":
      return pause(first, second);
    case "pause three":
      return pause(first, second, third);
    case "restart one":
      return {
        text: `${kind}: ${first}`,
        wiped: [],
        begin: () => five.restart(first),
        end: () => Promise.resolve(),
      };
    case "isolate":
      return cut(`${first}`, () => five.partition([[first], order.slice(1)]));
    case "split":
      return cut(`${first},${second}`, () => five.partition([[first, second], order.slice(2)]));
    case "partial":
      return cut(`${first}-${second}`, () => five.partition([[first], [second]]));
    case "one way":
      return cut(`${first} to ${second}`, () => five.oneWay(first, second));
    case "deaf":
      return cut(`${first}`, () => each(order.slice(1), (node) => five.oneWay(node, first)));
    case "wipe":
      return {
        text: `${kind}: ${first}`,
        wiped: [first],
        begin: () => five.wipe(first),
        end: () => Promise.resolve(),
      };
  }
}

async function each(nodes: readonly number[], work: (node: number) => Promise<void>): Promise<void> {
  for (const node of nodes) await work(node);
}

async function recovered(witness: Witness, wiped: readonly number[]): Promise<number> {
  const startedMs = performance.now();
  for (;;) {
    const serving = await witness.serving();
    // The next one may be wiped when this one counts again.
    const isWhole = wiped.every((node) => serving.includes(node)) && (await witness.areVoters(wiped));
    const ms = Math.round(performance.now() - startedMs);
    if (serving.length >= MAJORITY && isWhole) return ms;
    if (ms > RECOVERY_MS_MAX) {
      const why = (await witness.difference()) ?? "all nodes hold the same";
      const detail = `${ms} ms after the end of all faults only the nodes ${serving.join() || "none"} serve; wiped: ${wiped.join() || "none"}; ${why}`;
      throw new Violation("progress after healing", detail);
    }
    await sleep(20);
  }
}

async function quiet(delayMs: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await sleep(delayMs, undefined, { signal }).catch(() => {}); // The end of the run ends the waiting.
}
