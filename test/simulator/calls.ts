/** A client's request to one node: sent, answered, lost or given up, in any order; the first of these counts. */
import { nextFloat } from "../../src/base/random.ts";
import type { CommandResult, Outcome, Proposal, Query } from "../../src/kv/command.ts";
import { wasTaintedSince } from "./corruption.ts";
import { isTainted } from "./damage.ts";
import type { ReadAnswer } from "./history.ts";
import { type Call, hostOf, type World } from "./host.ts";
import { scheduleAct, sendCall } from "./world.ts";

/** `refused`: the node never saw it. `unknown`: the connection broke, or the client gave up. */
export type WriteEnd = Outcome<CommandResult> | "refused" | "unknown";

export function callWrite(
  world: World,
  node: number,
  options: { readonly label: string; readonly proposal: Proposal; readonly timeoutMs: number },
  done: (end: WriteEnd) => void,
): void {
  const { label, proposal, timeoutMs } = options;
  const sentAt = world.now;
  const end = once((answer: WriteEnd) => {
    done(typeof answer !== "string" && wasTaintedSince(world, sentAt) ? "unknown" : answer);
  });
  const call: Call = {
    label,
    answered: false,
    reads: false,
    run(runtime, answer) {
      runtime.execute({ proposal, timeoutMs, respond: (outcome) => answer(() => end(outcome)) });
    },
    lost: (kind) => later(world, () => end(kind === "refused" ? "refused" : "unknown")),
  };
  sendCall(world, node, call, clientDelay(world));
  scheduleAct(world, world.now + timeoutMs * PATIENCE, "client timeout", () => end("unknown"));
}

export function callRead(
  world: World,
  node: number,
  options: {
    readonly label: string;
    readonly query: Query;
    /** Null: linearizable. Else from the node's own state, once that has reached this revision. */
    readonly minRevision: number | null;
    readonly timeoutMs: number;
  },
  done: (answer: ReadAnswer | null) => void,
): void {
  const { label, query, minRevision, timeoutMs } = options;
  const end = once(done);
  const call: Call = {
    label,
    answered: false,
    reads: true,
    run(runtime, answer, turn) {
      const respond = (error: unknown): void => {
        if (error !== null || isTainted(hostOf(world, node).disk)) {
          answer(() => end(null));
          return;
        }
        // As after an await: when the turn that opened the barrier has done its work, before anything else runs.
        turn.defer(() => {
          const outcome = runtime.query(query);
          const appliedIndex = turn.appliedIndex();
          answer(() => end({ outcome, appliedIndex }));
        });
      };
      if (minRevision === null) runtime.barrier({ timeoutMs, respond });
      else runtime.waitRevision({ revision: minRevision, timeoutMs, respond });
    },
    lost: () => later(world, () => end(null)),
  };
  sendCall(world, node, call, clientDelay(world));
  scheduleAct(world, world.now + timeoutMs * PATIENCE, "client timeout", () => end(null));
}

/** Says something to the subscribers of a topic; nobody answers. */
export function callTopic(world: World, node: number, topic: string, payload: string, done: () => void): void {
  world.published.add(`${topic} ${payload}`);
  const end = once(done);
  const call: Call = {
    label: `topic ${topic}`,
    answered: false,
    reads: true,
    run(runtime, answer) {
      runtime.publishTopic(topic, payload);
      answer(end);
    },
    lost: () => later(world, end),
  };
  sendCall(world, node, call, clientDelay(world));
  scheduleAct(world, world.now + TOPIC_TIMEOUT_MS, "client timeout", end);
}

const TOPIC_TIMEOUT_MS = 1000;
/** A client waits longer than it asks the node to. */
const PATIENCE = 1.5;

function once<T extends readonly unknown[]>(run: (...values: T) => void): (...values: T) => void {
  let ended = false;
  return (...values) => {
    if (ended) return;
    ended = true;
    run(...values);
  };
}

function later(world: World, run: () => void): void {
  scheduleAct(world, world.now + clientDelay(world), "connection lost", run);
}

function clientDelay(world: World): number {
  const { clientDelayMsMin, clientDelayMsMax } = world.timing;
  return clientDelayMsMin + nextFloat(world.random) * (clientDelayMsMax - clientDelayMsMin);
}
