/** What a node of a cluster starts with: its state as it is in storage, asleep (sleep.ts S1). */
import { assert } from "../base/assert.ts";
import { openMachine } from "../kv/machine.ts";
import { Overlay } from "../kv/overlay.ts";
import type { OrderedStore } from "../kv/store.ts";
import { createLog, type RaftLog } from "../raft/log.ts";
import { NO_MEMBERS } from "../raft/membership.ts";
import { createRaft } from "../raft/state.ts";
import { createHistoryView } from "../watch/history-view.ts";
import { createDigestCheck } from "./digest-check.ts";
import { NO_DUTIES } from "./leader-duties.ts";
import { foundingMembership, names } from "./members.ts";
import type { LoadedState, NodeStorage } from "./ports.ts";
import type { NodeState, Running } from "./runtime-state.ts";
import { PROBE_AFTER_MS_MAX } from "./sleep.ts";
import { openHub } from "./watching.ts";

export function openRunning(state: NodeState, clusterId: string, loaded: LoadedState): Running {
  const { config, ports } = state;
  const opened = openState(ports.storage);
  const { machine } = opened;
  assert(
    machine.appliedIndex <= loaded.lastIndex,
    `applied ${machine.appliedIndex} beyond the log's end ${loaded.lastIndex}`,
  );
  const raft = createRaft({
    config: {
      id: config.id,
      heartbeatMs: config.heartbeatMs,
      electionTimeoutMsMin: config.electionTimeoutMsMin,
      electionTimeoutMsMax: config.electionTimeoutMsMax,
      fence: config.fence,
      isSelf: (membership) => names(membership, config.id, state.identity.incarnation),
    },
    random: state.random,
    log: openLog(state, loaded),
    term: loaded.hardState.term,
    votedFor: loaded.hardState.votedFor,
    commit: machine.appliedIndex,
    nowMs: ports.clock.nowMs(),
    asleep: true,
  });
  return {
    clusterId,
    raft,
    wakeAtMs: Number.POSITIVE_INFINITY,
    commitIndex: raft.commit,
    ...opened,
    appendedBytes: Number.POSITIVE_INFINITY,
    snapshotWanted: false,
    served: null,
    backup: null,
    spool: null,
    intake: null,
    digestCheck: createDigestCheck(),
    houseAtMs: 0,
    seenLeader: null,
    seenTerm: raft.term,
    startTerm: raft.term,
    strangers: new Map(),
    changeAtMs: Number.NEGATIVE_INFINITY,
    heard: null,
    batches: [],
    taken: new Map(),
    replies: new Map(),
    duties: NO_DUTIES,
    hub: openHub(ports, machine.revision, state.core.hubLimits),
    isRenamed: false,
    pumpAtMs: 0,
    pumpedRevision: machine.revision,
    announcedLeader: undefined,
    leaderlessAtMs: Number.POSITIVE_INFINITY,
    activeAtMs: ports.clock.nowMs(),
    left: false,
    asleep: true,
    clockOffsetMs: 0,
    missed: loaded.sleep,
    probeAfterMs: PROBE_AFTER_MS_MAX, // it has slept for longer than the first pauses
    dueAtWallMs: Number.POSITIVE_INFINITY,
  };
}

/** What a node holds of its durable state; of another state after a snapshot was installed. */
export function openState(
  storage: NodeStorage,
): Pick<Running, "machine" | "buffer" | "flushAtMs" | "durableIndex" | "digests" | "view"> {
  const buffer = new Overlay(durableStore(storage));
  const machine = openMachine(buffer);
  return {
    machine,
    buffer,
    flushAtMs: Number.POSITIVE_INFINITY,
    durableIndex: machine.appliedIndex,
    digests: new Map([[machine.appliedIndex, machine.digest]]),
    view: createHistoryView(machine),
  };
}

/** The log begins with the members of the founding; a node that was taken in later hears of its first ones by the log. */
function openLog({ ports, identity }: NodeState, loaded: LoadedState): RaftLog {
  const { membership } = identity;
  const founding = membership.kind === "formed" ? foundingMembership(membership.members) : NO_MEMBERS;
  const read = ports.storage.readLog.bind(ports.storage);
  return createLog(read, {
    ...loaded,
    base: loaded.base ?? { index: 0, term: 0, timeMs: 0, membership: founding },
  });
}

/** The durable rows as an ordered store; rows change only by `flush`. */
function durableStore(storage: NodeStorage): OrderedStore {
  const refuse = (key: string) => assert(false, `row ${key} written past the buffer`);
  return { get: (key) => storage.get(key), scan: (range) => storage.scan(range), put: refuse, delete: refuse };
}
