/**
 * Deliberate bugs. A simulator that does not see these sees nothing: each must be caught within MUTANT_SEEDS_MAX seeds.
 * They are woven in from outside, around the core's `step`, the ports, the runtime or the configuration; production code
 * has no switch for any of them. The profile of a mutant bends the odds towards the faults that bring its bug to light;
 * the same seeds without the mutant are green, which the test checks as well.
 */
import { META_ROW } from "../../src/kv/rows.ts";
import type { Member, NodeConfig, PeerEnvelope, Ports } from "../../src/node-object/ports.ts";
import type { Runtime } from "../../src/node-object/runtime.ts";
import { truncateLog } from "../../src/raft/log.ts";
import type { RaftState } from "../../src/raft/state.ts";
import type { step } from "../../src/raft/step.ts";
import type { Envelope, Event, Message, Output, Persist } from "../../src/raft/types.ts";
import { DATABASE_MUTANTS } from "./database-mutants.ts";
import type { FaultKind } from "./fault-kinds.ts";
import type { Mutation } from "./host.ts";
import { MEMBERSHIP_MUTANTS } from "./membership-mutants.ts";
import { overridden } from "./overridden.ts";
import { type Profile, STORMY } from "./profile.ts";
import { STORAGE_MUTANTS } from "./storage-mutants.ts";

export const MUTANT_SEEDS_MAX = 300;

export interface Mutant {
  readonly name: string;
  readonly mutation: Mutation;
  readonly profile: Partial<Profile>;
}

type Step = typeof step;

const CRASHES: readonly FaultKind[] = ["crash", "all_reset", "crash_between_statements", "commit_failure"];
const CUTS: readonly FaultKind[] = ["full_partition", "one_way_partition", "partial_partition"];
/** Fewer faults and many clients: stale reads need a cluster that gets on while one node does not. */
const BUSY = { ...STORMY, faultEveryMs: 500, thinkMsMax: 20, clients: 10 } as const;
const SLOW_DISK = { syncMsMax: 8, slowSyncRate: 0.2, slowSyncMsMax: 100 } as const;

const CORE_MUTANTS: readonly Mutant[] = [
  {
    name: "vote twice in a term",
    mutation: {
      step: before((state, event) => {
        if (event.kind === "message" && event.message.kind === "vote" && event.message.term === state.term) {
          if (state.role.kind !== "leader" && state.votedFor !== state.config.id) state.votedFor = null;
        }
      }),
    },
    profile: { ...STORMY, kinds: ["crash", "pause", "delay", ...CUTS], slowRate: 0.1, slowMsMax: 100, size: 5 },
  },
  {
    name: "acknowledge before persisting",
    mutation: {
      step: after((_state, _event, output) => {
        const acknowledges = ({ message }: Envelope): boolean => message.kind === "append_reply";
        return {
          ...output,
          sendEarly: [...output.sendEarly, ...output.sendLate.filter(acknowledges)],
          sendLate: output.sendLate.filter((envelope) => !acknowledges(envelope)),
        };
      }),
    },
    profile: { ...STORMY, ...SLOW_DISK, kinds: CRASHES, size: 3 },
  },
  {
    name: "count the own entry before it is durable",
    mutation: {
      step: before((state) => {
        state.durableIndex = state.log.lastIndex;
      }),
    },
    profile: { ...STORMY, ...SLOW_DISK, kinds: [...CRASHES, ...CUTS], size: 3 },
  },
  {
    name: "commit an old-term entry by counting",
    mutation: { step: countOldTerms },
    profile: {
      ...STORMY,
      kinds: ["drop", "crash", "eviction", "full_partition"],
      dropRate: 0.02,
      bulkDropRate: 0.8,
      size: 3,
    },
  },
  {
    name: "serve a read without confirmation",
    mutation: { step: readWithoutRound },
    profile: { ...BUSY, kinds: CUTS, electionTimeoutMsMax: 600, size: 5 },
  },
  {
    name: "serve a read before the term's first commit",
    mutation: {
      step: before((state) => {
        if (state.role.kind === "leader") Object.assign(state.role, { startIndex: 0 });
      }),
    },
    profile: { ...STORMY, kinds: ["crash", "delay", ...CUTS], slowRate: 0.1, slowMsMax: 100, thinkMsMax: 20 },
  },
  {
    name: "truncate on a stale append",
    mutation: { step: after(truncateBehind) },
    profile: {
      ...STORMY,
      kinds: ["duplicate", "reorder", "delay"],
      duplicateRate: 0.2,
      reorderRate: 0.5,
      slowRate: 0.05,
    },
  },
  {
    name: "commit what the message did not verify",
    mutation: {
      step: after((state, event, output) => {
        if (event.kind !== "message" || event.message.kind !== "append" || event.message.term !== state.term)
          return output;
        state.commit = Math.max(state.commit, Math.min(event.message.commit, state.log.lastIndex));
        return { ...output, commitIndex: state.commit };
      }),
    },
    profile: { ...STORMY, kinds: ["crash", "drop", ...CUTS], dropRate: 0.1, thinkMsMax: 20 },
  },
  {
    name: "apply twice after a crash",
    mutation: { ports: positionLagsBehind },
    profile: { kinds: ["crash"] },
  },
  {
    name: "forget a vote on restart",
    mutation: {
      ports: (ports) => {
        let own = 0;
        const transport = overridden(ports.transport, {
          send: (envelope) => {
            own = envelope.from;
            ports.transport.send(envelope);
          },
        });
        const storage = overridden(ports.storage, {
          load: () => {
            const loaded = ports.storage.load();
            return { ...loaded, hardState: { ...loaded.hardState, votedFor: null } };
          },
          write: (batch) => {
            ports.storage.write(batch);
            // Two candidates of one term are rare; a restart right behind the vote for one makes them enough.
            const votedFor = batch.hardState?.votedFor ?? null;
            if (votedFor === null || votedFor === own) return;
            ports.storage.afterSync(() => ports.abort("restart behind a vote"));
          },
        });
        return { ...ports, storage, transport };
      },
    },
    profile: {
      ...STORMY,
      kinds: ["crash", "eviction", "drop"],
      dropRate: 0.1,
      networkMsMax: 40,
      electionTimeoutMsMax: 200,
      thinkMsMax: 200,
      clients: 3,
    },
  },
  {
    name: "count a reply of an earlier round",
    mutation: {
      step: (real) => (state, event, nowMs, wallMs) => {
        if (event.kind !== "message" || event.message.kind !== "append_reply") return real(state, event, nowMs, wallMs);
        const { role, term } = state;
        const round = role.kind === "leader" && event.message.term === term ? (role.reads.round?.id ?? 0) : 0;
        if (event.message.round >= round) return real(state, event, nowMs, wallMs);
        return real(state, { ...event, message: { ...event.message, round } }, nowMs, wallMs);
      },
    },
    // Replies that are late by more than an election, from a cluster that is otherwise quick, to a leader that lingers.
    profile: {
      ...STORMY,
      kinds: ["delay", "full_partition"],
      faultEveryMs: 700,
      electionTimeoutMsMax: 600,
      slowRate: 0.05,
      slowMsMax: 900,
      networkMsMax: 1,
      syncMsMax: 1,
      slowSyncRate: 0,
      clients: 30,
      thinkMsMax: 20,
      timeoutMs: 400,
      size: 3,
    },
  },
  {
    name: "lose an idempotency result on replay",
    mutation: {
      ports: (ports) => {
        const get = (key: string) => (key.startsWith("i") ? undefined : ports.storage.get(key));
        return { ...ports, storage: overridden(ports.storage, { get }) };
      },
    },
    profile: { kinds: ["crash", "reply_lost"] },
  },
  {
    name: "sort keys by UTF-16",
    mutation: { keyOf: (text) => text },
    profile: { kinds: [] },
  },
  {
    name: "go on after a failed own write",
    mutation: { ports: ignoreDiskErrors },
    profile: { ...STORMY, kinds: ["disk_error", "crash"], size: 3 },
  },
  {
    name: "count a confirmation without its fence",
    mutation: { config: (config) => ({ ...config, fence: false }) },
    // The older instances write their applied rows half a second later at the latest, and notice: elections are quick.
    profile: {
      ...BUSY,
      kinds: ["two_instances"],
      faultEveryMs: 300,
      thinkMsMax: 300,
      heartbeatMs: 20,
      electionTimeoutMsMin: 60,
      electionTimeoutMsMax: 100,
      size: 3,
      oldToOld: 1,
      newToOld: 0,
      readToOld: 0.5,
      writeToOld: 0,
    },
  },
  {
    name: "form from a majority of empty nodes",
    mutation: { runtime: answerForTheAbsent },
    profile: { kinds: ["wiped_disk"], amnesia: true, faultEveryMs: 80, size: 5 },
  },
  {
    name: "acknowledge to the client before the commit",
    mutation: { step: commitOnAppend },
    profile: { ...STORMY, kinds: ["crash", ...CUTS] },
  },
];

/** Nobody watches and nobody sleeps: the seed is about the core. */
const AWAKE: Partial<Profile> = { quiesceAfterMs: Number.POSITIVE_INFINITY, restEveryMs: null, watchers: 0 };
const OF_THE_CORE = [...CORE_MUTANTS, ...MEMBERSHIP_MUTANTS].map((mutant) => ({
  ...mutant,
  profile: { ...AWAKE, ...mutant.profile },
}));

export const MUTANTS: readonly Mutant[] = [...OF_THE_CORE, ...DATABASE_MUTANTS, ...STORAGE_MUTANTS];

// --- around the core -------------------------------------------------------------------------------------------------

function before(tamper: (state: RaftState, event: Event) => void): (real: Step) => Step {
  return (real) => (state, event, nowMs, wallMs) => {
    tamper(state, event);
    return real(state, event, nowMs, wallMs);
  };
}

function after(tamper: (state: RaftState, event: Event, output: Output) => Output): (real: Step) => Step {
  return (real) => (state, event, nowMs, wallMs) => tamper(state, event, real(state, event, nowMs, wallMs));
}

function majorityMatch(state: RaftState): number {
  if (state.role.kind !== "leader") return 0;
  const matches = [state.durableIndex, ...[...state.role.progress.values()].map(({ match }) => match)];
  matches.sort((left, right) => right - left);
  return matches[Math.floor(matches.length / 2)] ?? 0;
}

/** Figure 8 of the paper. One entry a message, so that an old entry can reach a majority before the new term's first. */
function countOldTerms(real: Step): Step {
  return (state, event, nowMs, wallMs) => {
    const output = real(state, event, nowMs, wallMs);
    state.commit = Math.max(state.commit, majorityMatch(state));
    const shortened = output.sendEarly.map((envelope) => {
      const { message } = envelope;
      if (message.kind !== "append" || message.entries.length < 2) return envelope;
      return { ...envelope, message: { ...message, entries: message.entries.slice(0, 1) } };
    });
    return { ...output, sendEarly: shortened, commitIndex: state.commit };
  };
}

/** What the leader has appended counts as committed once one follower has it. */
function commitOnAppend(real: Step): Step {
  return (state, event, nowMs, wallMs) => {
    const output = real(state, event, nowMs, wallMs);
    const { role } = state;
    if (role.kind !== "leader" || state.commit < role.startIndex) return output;
    for (const { match } of role.progress.values()) state.commit = Math.max(state.commit, match);
    return { ...output, commitIndex: state.commit };
  };
}

const NOTHING = {
  sendEarly: [],
  persist: null,
  proposed: null,
  refusal: null,
  snapshotWanted: false,
  snapshotOffer: null,
};

function readWithoutRound(real: Step): Step {
  return (state, event, nowMs, wallMs) => {
    const { role, commit, term } = state;
    const asks = event.kind === "read" || (event.kind === "message" && event.message.kind === "read_index");
    if (!asks || role.kind !== "leader" || commit < role.startIndex) return real(state, event, nowMs, wallMs);
    const sendLate: Envelope[] = [];
    const reads: { context: number; index: number }[] = [];
    if (event.kind === "read") reads.push({ context: event.context, index: commit });
    else if (event.kind === "message" && event.message.kind === "read_index") {
      const message: Message = {
        kind: "read_index_reply",
        term,
        context: event.message.context,
        index: commit,
        timeMs: 0,
      };
      sendLate.push({ from: state.config.id, to: event.from, message });
    }
    const wakeAtMs = role.heartbeatAtMs;
    return { ...NOTHING, sendLate, commitIndex: commit, reads, wakeAtMs };
  };
}

/** An append that matches ends the log where it ends, whatever came behind it before. */
function truncateBehind(state: RaftState, event: Event, output: Output): Output {
  if (event.kind !== "message" || event.message.kind !== "append") return output;
  const { message } = event;
  if (message.term !== state.term || state.role.kind === "leader" || message.entries.length === 0) return output;
  const matched = output.sendLate.some((envelope) => {
    return envelope.message.kind === "append_reply" && envelope.message.result.kind === "matched";
  });
  const end = Math.max(message.prevIndex + message.entries.length, state.commit);
  const wrote = output.persist !== null && output.persist.append.length > 0;
  if (!matched || wrote || end >= state.log.lastIndex) return output;
  truncateLog(state.log, end + 1);
  state.durableIndex = Math.min(state.durableIndex, end);
  const { lastIndex, lastTerm } = state.log;
  const receipt = { index: lastIndex, indexTerm: lastTerm, term: state.term, round: 0 };
  const nothing = { receipt, hardState: null, install: null, append: [], dropThrough: null, fence: 0 };
  const persist: Persist = { ...nothing, ...output.persist, truncateFrom: end + 1 };
  return { ...output, persist };
}

// --- around the ports ------------------------------------------------------------------------------------------------

/** Rows reach the disk one flush before the position that covers them: two writes that should be one. */
function positionLagsBehind(ports: Ports): Ports {
  let held: string | null = null;
  const write: Ports["storage"]["write"] = (batch) => {
    if (batch.state === undefined) return ports.storage.write(batch);
    const state = batch.state.map(([key, value]): readonly [string, string | null] => {
      if (key !== META_ROW) return [key, value];
      const late = held ?? ports.storage.get(META_ROW) ?? null;
      held = value;
      return [key, late];
    });
    ports.storage.write({ ...batch, state });
  };
  return { ...ports, storage: overridden(ports.storage, { write }) };
}

function ignoreDiskErrors(ports: Ports): Ports {
  const write: Ports["storage"]["write"] = (batch) => {
    try {
      ports.storage.write(batch);
    } catch (error) {
      // A dead process cannot ignore its death; everything else it can.
      if (error instanceof Error && error.name === "CrashSignal") throw error;
    }
  };
  return { ...ports, storage: overridden(ports.storage, { write }) };
}

// --- around the runtime ----------------------------------------------------------------------------------------------

/** When a majority has answered again and again, the silent ones are taken to be empty, and to agree with the others. */
function answerForTheAbsent(runtime: Runtime, config: NodeConfig): Runtime {
  const heard = new Set<number>([config.id]);
  const patience = 3 * config.members.length;
  let answers = 0;
  const forge = (template: PeerEnvelope, from: number, membership: Forged): void => {
    const body = { kind: "hello", membership, reply: true, question: 0 } as const;
    runtime.onPeer({ ...template, from, fromIncarnation: from, body });
  };
  return overridden(runtime, {
    onPeer(envelope) {
      const { body, from } = envelope;
      if (body.kind !== "hello" || !body.reply || body.membership.kind === "lost") {
        runtime.onPeer(envelope);
        return;
      }
      answers += 1;
      const assumes = answers > patience && heard.size > config.members.length / 2;
      if (!assumes) heard.add(from);
      if (heard.has(from)) runtime.onPeer(envelope);
      if (!assumes) return;
      for (const id of config.members) if (!heard.has(id)) forge(envelope, id, body.membership);
    },
  });
}

type Forged =
  | { readonly kind: "empty" }
  | { readonly kind: "forming" | "formed"; readonly clusterId: string; readonly members: readonly Member[] };
