/** Deliberate bugs of membership (see mutants.ts): who is changed, who counts, and whom a node that has left may disturb. */
import type { NodeConfig, Ports } from "../../src/node-object/ports.ts";
import type { Runtime } from "../../src/node-object/runtime.ts";
import { peersOf } from "../../src/raft/state.ts";
import type { step } from "../../src/raft/step.ts";
import type { Event, Message } from "../../src/raft/types.ts";
import type { Mutant } from "./mutants.ts";
import { overridden } from "./overridden.ts";
import { STORMY } from "./profile.ts";

type Step = typeof step;

export const MEMBERSHIP_MUTANTS: readonly Mutant[] = [
  {
    name: "change two members at once",
    mutation: { step: changeRegardless },
    // A leader with one follower, cut off from those whom it lets go one after the other.
    profile: {
      ...STORMY,
      kinds: ["membership_change", "full_partition"],
      electionTimeoutMsMax: 600,
      size: 5,
      thinkMsMax: 20,
      clients: 10,
    },
  },
  {
    name: "a wiped node votes",
    mutation: { ports: answerAsBefore, runtime: hearAsBefore },
    // Who lags may lead by the vote of one that has forgotten everything.
    profile: { ...STORMY, kinds: ["wiped_disk", "delay", "one_way_partition"], slowRate: 0.1, slowMsMax: 100, size: 3 },
  },
  {
    name: "a removed node disturbs",
    mutation: { step: campaignRegardless },
    profile: { ...STORMY, kinds: ["membership_change", "full_partition", "crash"], size: 5 },
  },
];

// --- around the core -------------------------------------------------------------------------------------------------

/** The change before this one is taken to be committed. */
function changeRegardless(real: Step): Step {
  return (state, event, nowMs, wallMs) => {
    if (event.kind !== "change_membership") return real(state, event, nowMs, wallMs);
    const { log, commit } = state;
    const before = log.memberships;
    log.memberships = before.map(({ index, membership }) => ({ index: Math.min(index, commit), membership }));
    const output = real(state, event, nowMs, wallMs);
    log.memberships = [...before, ...log.memberships.slice(before.length)];
    return output;
  };
}

/** Nobody is asked before a campaign, and nobody protects the leader that it hears. */
function campaignRegardless(real: Step): Step {
  return (state, event, nowMs, wallMs) => {
    const vote = event.kind === "message" && event.message.kind === "vote" ? event.message : null;
    const heard: Event =
      event.kind === "message" && vote !== null ? { ...event, message: { ...vote, transfer: true } } : event;
    const output = real(state, heard, nowMs, wallMs);
    if (state.role.kind !== "pre_candidate") return output;
    const outputs = [output];
    for (const from of peersOf(state)) {
      if (state.role.kind !== "pre_candidate") break;
      const message: Message = { kind: "pre_vote_reply", term: state.term + 1, granted: true };
      outputs.push(real(state, { kind: "message", from, message }, nowMs, wallMs));
    }
    const last = outputs[outputs.length - 1]!;
    const sendLate = outputs.flatMap((one) => one.sendLate).filter(({ message }) => message.kind !== "pre_vote");
    return { ...last, sendLate };
  };
}

// --- around the node -------------------------------------------------------------------------------------------------

interface Memory {
  own: number | null;
  /** Under which the node is still spoken to. */
  before: number | null;
}

const MEMORIES = new WeakMap<NodeConfig, Memory>();

function memoryOf(config: NodeConfig): Memory {
  const memory = MEMORIES.get(config) ?? { own: null, before: null };
  MEMORIES.set(config, memory);
  return memory;
}

/** What a node says, it says under the incarnation that it had before it was wiped. */
function answerAsBefore(ports: Ports, config: NodeConfig): Ports {
  const memory = memoryOf(config);
  const send: Ports["transport"]["send"] = (envelope) => {
    memory.own = envelope.fromIncarnation;
    const { before } = memory;
    const asBefore = before !== null && envelope.body.kind === "raft";
    ports.transport.send(asBefore ? { ...envelope, fromIncarnation: before } : envelope);
  };
  return { ...ports, transport: overridden(ports.transport, { send }) };
}

function hearAsBefore(runtime: Runtime, config: NodeConfig): Runtime {
  const memory = memoryOf(config);
  return overridden(runtime, {
    onPeer(envelope) {
      const { own } = memory;
      if (envelope.body.kind !== "raft" || own === null || envelope.toIncarnation === null) {
        runtime.onPeer(envelope);
        return;
      }
      memory.before = envelope.toIncarnation === own ? null : envelope.toIncarnation;
      runtime.onPeer({ ...envelope, toIncarnation: own });
    },
  });
}
