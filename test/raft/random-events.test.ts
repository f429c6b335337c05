/**
 * Thousands of random events against clusters of three and five voters and two nodes that may join: faults
 * (`random-faults.ts`), changes of membership, handovers, cut logs and snapshots (`random-changes.ts`).
 * After each step the safety claims of `safety.ts` are checked, and every read that is answered must not be older than
 * what was committed when it was asked for. In the end everything works again: then one `wake` of any member must be
 * enough, also for a cluster that sleeps and of which any nodes have lost their memory. A failure names its seed and event.
 */
import { describe, expect, test } from "vitest";
import { createRandom, nextFloat } from "../../src/base/random.ts";
import { newestMembership } from "../../src/raft/log.ts";
import { isAsleep, isMember, leaderOf } from "../../src/raft/state.ts";
import type { NodeId, Output } from "../../src/raft/types.ts";
import { Cluster } from "./cluster.ts";
import { ELECTION_MS_MAX, HEARTBEAT_MS, logEntries, votersUpTo } from "./fixtures.ts";
import { CHANGES } from "./random-changes.ts";
import { FAULTS } from "./random-faults.ts";
import { act, COUNTS, type Counts, checkReads, noCounts, pick, type Run, type Weighted } from "./random-run.ts";

/** More seeds for a longer hunt: CONCORD_RAFT_SEEDS=5000. */
const SEEDS = Number(process.env.CONCORD_RAFT_SEEDS ?? 70);

/** Members by the last membership that was committed: it is in force wherever it matters. */
function membersOf({ cluster }: Run): NodeId[] {
  const membership = cluster.safety.memberships.at(-1)?.membership ?? votersUpTo(0);
  return [...membership.voters, ...membership.learners];
}

/** Once everything works again and somebody wants something, there is a leader, and all of `checkService`. */
function checkLiveness(run: Run): void {
  const { cluster, random } = run;
  cluster.heal();
  for (const { id, state } of cluster.nodes) {
    if (state === null) cluster.restart(id, { asleep: nextFloat(random) < 0.5 });
    else cluster.release(id);
  }
  // Wrong clocks would go on changing the leader (design 02 §3).
  for (const node of cluster.nodes) node.wallOffsetMs = 1_000_000 - node.nowMs;
  cluster.stabilize();
  checkService(run, 8 * ELECTION_MS_MAX);
  for (let night = 0; night < 3; night += 1) {
    sleep(run);
    for (const { id } of cluster.nodes) if (nextFloat(random) < 0.5) cluster.evict(id);
    checkService(run, 4 * ELECTION_MS_MAX);
  }
}

/** The whole cluster falls asleep, and for an hour nobody stirs. */
function sleep(run: Run): void {
  const { cluster } = run;
  cluster.pass(2 * HEARTBEAT_MS);
  expect(cluster.quiesce(cluster.leader() ?? 0)).toBe(true);
  cluster.stabilize();
  cluster.advance(3_600_000);
  for (const id of membersOf(run)) expect([id, cluster.node(id).wakeAtMs]).toEqual([id, Number.POSITIVE_INFINITY]);
}

/** One call at any member: there is one leader, one log, and a write and a read on every member succeed. */
function checkService(run: Run, electedMsMax: number): void {
  const { cluster } = run;
  cluster.wake(pick(run, informed(run)) ?? 0);
  cluster.stabilize();
  const leads = () => {
    const id = cluster.leader();
    return id !== null && !isAsleep(cluster.state(id));
  };
  cluster.passUntil(leads, electedMsMax);
  cluster.pass(4 * ELECTION_MS_MAX);
  const leader = cluster.leader();
  if (leader === null) throw new Error("no leader after everything was repaired");
  cluster.propose(leader, "last");
  cluster.pass(100);
  const lastIndex = cluster.state(leader).log.lastIndex;
  const members = membersOf(run);
  const begin = Math.max(...members.map((id) => cluster.state(id).log.base.index));
  const logOf = (id: NodeId) => JSON.stringify(logEntries(cluster.state(id)).filter(({ index }) => index > begin));
  for (const id of members) {
    expect(isMember(cluster.state(leader), id)).toBe(true);
    expect(cluster.state(id)).toMatchObject({ term: cluster.state(leader).term, commit: lastIndex });
    expect(logOf(id)).toBe(logOf(leader));
    run.nextContext += 1;
    run.floors.set(run.nextContext, lastIndex);
    const before = cluster.node(id).reads.length;
    cluster.read(id, run.nextContext);
    cluster.stabilize();
    expect(cluster.node(id).reads.length).toBe(before + 1);
  }
  checkReads(run);
}

/** Members that know who the members are: one that has not heard for long may call only nodes that have left. */
function informed(run: Run): NodeId[] {
  const { cluster } = run;
  const since = cluster.safety.memberships.at(-1)?.index ?? 0;
  const knows = (id: NodeId) =>
    isMember(cluster.state(id), id) && newestMembership(cluster.state(id).log).index >= since;
  return membersOf(run).filter(knows);
}

interface Options {
  readonly size: number;
  /** Nodes beyond the first voters. */
  readonly spare: number;
  readonly actions: Weighted;
  readonly events: number;
}

function play(options: Options & { readonly seed: number; readonly fence: boolean }): Counts {
  const { size, spare, seed, fence, events, actions } = options;
  const nodes = size + spare;
  const run: Run = {
    cluster: new Cluster({ size: nodes, voters: votersUpTo(size).voters, seed, fence }),
    random: createRandom(seed),
    size: nodes,
    floors: new Map(),
    readsSeen: new Array<number>(nodes).fill(0),
    counts: noCounts(),
    nextContext: 0,
    parked: [],
    offers: [],
  };
  count(run);
  let event = 0;
  try {
    for (; event < events; event += 1) act(run, actions);
    checkLiveness(run);
  } catch (error) {
    throw new Error(`size ${size}, seed ${seed}, event ${event}: ${String(error)}`, { cause: error });
  }
  run.counts.elections = run.cluster.safety.leaders.size;
  run.counts.commits = run.cluster.safety.committed.length;
  run.counts.changes = run.cluster.safety.memberships.length - 1;
  return run.counts;
}

function count({ cluster, counts, offers }: Run): void {
  const slept = new Set<NodeId>();
  const led = new Set<NodeId>();
  const write = ({ persist }: Output) => {
    if (persist === null) return;
    if (persist.truncateFrom !== null) counts.truncations += 1;
    if (persist.dropThrough !== null) counts.drops += 1;
    if (persist.install !== null) counts.installs += 1;
    if (persist.install?.keepsSuffix === true) counts.suffixes += 1;
  };
  cluster.onOutput = (output, id) => {
    write(output);
    if (output.snapshotOffer !== null) offers.push(output.snapshotOffer.snapshot);
    const transfer = output.sendLate.some(({ message }) => message.kind === "vote" && message.transfer);
    if (transfer) counts.transfers += 1;
    const state = cluster.state(id);
    if (led.has(id) && state.role.kind !== "leader" && !isMember(state, id)) counts.retirements += 1;
    if (state.role.kind === "leader") led.add(id);
    else led.delete(id);
    if (!isAsleep(state)) slept.delete(id);
    else if (leaderOf(state) !== null && !slept.has(id)) {
      slept.add(id);
      counts[state.role.kind === "leader" ? "sleeps" : "followed"] += 1;
    }
  };
}

function playSeeds(options: Options & { readonly seeds: number }): Counts {
  const sum = noCounts();
  for (let seed = 1; seed <= options.seeds; seed += 1) {
    const counts = play({ ...options, seed, fence: seed % 2 === 0 });
    for (const name of COUNTS) sum[name] += counts[name];
  }
  return sum;
}

describe("safety under random events (paper, figure 3), liveness afterwards", () => {
  test.each([
    { size: 3, seeds: SEEDS, events: 1500 },
    { size: 5, seeds: SEEDS, events: 1500 },
  ])("$size nodes, $seeds seeds of $events events", (options) => {
    const sum = playSeeds({ ...options, spare: 0, actions: FAULTS });
    // The runs are worth something only if all this happens in them.
    expect(sum.elections).toBeGreaterThan(4 * options.seeds);
    expect(sum.commits).toBeGreaterThan(50 * options.seeds);
    expect(sum.reads).toBeGreaterThan(12 * options.seeds);
    expect(sum.truncations).toBeGreaterThan(options.seeds);
    expect(sum.crashes).toBeGreaterThan(5 * options.seeds);
    expect(sum.sleeps).toBeGreaterThan(6 * options.seeds);
    expect(sum.followed).toBeGreaterThan(8 * options.seeds);
  });

  test.each([
    {
      size: 1,
      seeds: 2 * SEEDS,
      least: { changes: 3, retirements: 0.05, transfers: 0.3, installs: 1, suffixes: 0.02 },
    },
    { size: 3, seeds: 2 * SEEDS, least: { changes: 3, retirements: 0.3, transfers: 1, installs: 1, suffixes: 0.1 } },
    { size: 5, seeds: SEEDS, least: { changes: 3, retirements: 0.3, transfers: 1, installs: 1, suffixes: 0.1 } },
  ])("$size voters that come and go, with snapshots and handovers, $seeds seeds", ({ size, seeds, least }) => {
    const sum = playSeeds({ size, seeds, spare: 2, actions: [...FAULTS, ...CHANGES], events: 1500 });
    for (const name of ["changes", "retirements", "transfers", "installs", "suffixes"] as const) {
      expect(sum[name], name).toBeGreaterThan(least[name] * seeds);
    }
  });
});
