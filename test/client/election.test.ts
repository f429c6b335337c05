/**
 * Elections: who leads, what others see of it, and that a leadership that is over writes nothing (design 01 §3, S38).
 * Method: processes that are paused, killed and cut off, over one real state machine and one driven clock.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Leader, Leadership } from "../../src/client/index.ts";
import { type Process, ProcessWorld } from "./process-world.ts";
import { TRANSPORTS, type TransportName } from "./streaming.ts";

const NAME = "/work/system/manager";
const TTL_S = 3;

function createSetting(count = 2, transport?: TransportName) {
  const world = new ProcessWorld(transport);
  const processes = Array.from({ length: count }, () => world.start());
  const [a, b] = processes as [Process, Process];
  return { world, a, b, processes };
}

const electionOf = ({ concord }: Process) => concord.election<string>(NAME);

describe("an election", () => {
  test("has one leader, whom everybody can read, and then the next", async () => {
    const { world, a, b } = createSetting();
    expect(await electionOf(a).leader()).toBeNull();
    const first = await electionOf(a).campaign("a");
    const next = electionOf(b).campaign("b");
    await world.settle();
    const leader = await electionOf(b).leader();
    expect(leader).toEqual({
      key: first.key,
      value: "a",
      fencingRevision: first.fencingRevision,
      revision: first.fencingRevision,
    });
    await first.resign();
    const second = await next;
    expect(await electionOf(a).leader()).toMatchObject({ value: "b", fencingRevision: second.fencingRevision });
    expect(second.fencingRevision).toBeGreaterThan(first.fencingRevision);
    await second.resign();
    expect(await electionOf(a).leader()).toBeNull();
  });

  test("lets the leader proclaim other values, under the same fence and lease, and nobody else", async () => {
    const { world, a, b } = createSetting();
    const first = await electionOf(a).campaign("a", { ttl_s: TTL_S });
    await first.proclaim("a2");
    expect(await electionOf(b).leader()).toMatchObject({ value: "a2", fencingRevision: first.fencingRevision });
    const next = electionOf(b).campaign("b");
    await world.advance(500);
    a.pause();
    await world.until(next);
    a.resume();
    await expect(first.proclaim("a3")).rejects.toMatchObject({ body: { reason: "lock_lost" } });
    expect(await electionOf(b).leader()).toMatchObject({ value: "b" });
  });

  test("gives up a candidacy by its signal", async () => {
    const { world, a, b } = createSetting();
    await electionOf(a).campaign("a");
    const controller = new AbortController();
    const candidacy = electionOf(b).campaign("b", { signal: controller.signal });
    await world.settle();
    controller.abort();
    await expect(world.until(candidacy)).rejects.toMatchObject({ code: "timeout", body: { reason: "aborted" } });
    expect((await world.keysUnder(NAME)).length).toBe(1);
  });
});

describe("an observer", () => {
  function observe(process: Process) {
    const controller = new AbortController();
    const seen: (string | null)[] = [];
    const watching = (async () => {
      for await (const leader of electionOf(process).observe({ signal: controller.signal })) {
        seen.push((leader as Leader<string> | null)?.value ?? null);
      }
    })();
    return { seen, controller, watching };
  }

  test("sees who leads, what is proclaimed, who is next, and when nobody leads", async () => {
    const { world, processes } = createSetting(3);
    const [a, b, c] = processes as [Process, Process, Process];
    const { seen, controller, watching } = observe(c);
    await world.settle();
    const first = await electionOf(a).campaign("a");
    await world.settle();
    const next = electionOf(b).campaign("b");
    await world.settle();
    await first.proclaim("a2");
    await first.proclaim("a3");
    await world.settle();
    await first.resign();
    await world.settle();
    await (await next).resign();
    await world.settle();
    expect(seen).toEqual([null, "a", "a2", "a3", "b", null]);
    controller.abort();
    await watching;
  });

  test("goes on behind an outage with whoever leads then", async () => {
    const { world, processes } = createSetting(3);
    const [a, b, c] = processes as [Process, Process, Process];
    const { seen, controller, watching } = observe(c);
    const first = await electionOf(a).campaign("a");
    await world.settle();
    c.link = "down";
    await first.resign();
    const second = await electionOf(a).campaign("a2");
    await second.resign();
    await electionOf(b).campaign("b");
    c.link = "up";
    await world.advance(10_000);
    expect(seen.filter((value) => value !== null)).toEqual(["a", "b"]);
    controller.abort();
    await watching;
  });

  test("that begins later sees the present leader first, and none twice", async () => {
    const { world, a, b } = createSetting();
    await electionOf(a).campaign("a");
    const { seen, controller, watching } = observe(b);
    await world.advance(5_000);
    expect(seen).toEqual(["a"]);
    controller.abort();
    await watching;
  });
});

/** Campaigns again and again, until it is closed. */
class Candidate {
  leadership: Leadership<string> | null = null;
  terms = 0;
  readonly process: Process;
  #isClosed = false;

  constructor(process: Process) {
    this.process = process;
    void this.#run();
  }

  close(): void {
    this.#isClosed = true;
    this.process.concord.close();
  }

  async #run(): Promise<void> {
    while (!this.#isClosed) {
      try {
        this.leadership = await electionOf(this.process).campaign("x", { ttl_s: TTL_S });
        this.terms += 1;
        await this.leadership.lost;
        await this.leadership.release();
      } catch {
        // The cluster could not be reached for longer than a call lasts: again.
      }
    }
  }
}

/** Those who believe that they lead, and those whom the cluster would let write. */
async function leadersOf(world: ProcessWorld, candidates: readonly Candidate[]) {
  const leaderships = candidates.flatMap(({ leadership }) => (leadership === null ? [] : [leadership]));
  const { records } = await world.observer.concord.kv.page({ prefix: `${NAME}/` }, { keys_only: true });
  const fences = new Set(records.map(({ create_revision }) => create_revision));
  return {
    believing: leaderships.filter((leadership) => !leadership.isLost),
    valid: leaderships.filter(({ fencingRevision }) => fences.has(fencingRevision)),
  };
}

describe.each(TRANSPORTS)("five candidates over %s", (transport) => {
  test("whose leader is killed 20 times: never two, and the next within TTL + 2 s", async () => {
    const { world, processes } = createSetting(5, transport);
    let candidates = processes.map((process) => new Candidate(process));
    const fences: number[] = [];
    for (let kills = 0; kills <= 20; kills += 1) {
      let leader: Leadership<string> | null = null;
      await world.advance((TTL_S + 2) * 1_000, async () => {
        const { believing, valid } = await leadersOf(world, candidates);
        expect(believing.length).toBeLessThanOrEqual(1);
        expect(valid.length).toBeLessThanOrEqual(1);
        leader ??= believing[0] ?? null;
      });
      const elected = candidates.find(({ leadership }) => leadership !== null && leadership === leader);
      if (elected?.leadership == null) throw new Error(`nobody leads behind kill ${kills}`);
      expect(elected.leadership.isLost).toBe(false);
      fences.push(elected.leadership.fencingRevision);
      elected.process.kill();
      candidates = [...candidates.filter((candidate) => candidate !== elected), new Candidate(world.start())];
    }
    expect(fences).toEqual([...fences].sort((one, other) => one - other));
    expect(new Set(fences).size).toBe(21);
  });

  const fault = fc.record({
    /** One of the three; null: the leader. */
    target: fc.constantFrom(null, null, 0, 1, 2),
    kind: fc.constantFrom("pause", "down", "silent", "slow", "heal", "heal"),
    forMs: fc.integer({ min: 1, max: 60 }).map((slices) => slices * 100),
  });

  test("under random pauses, cuts and delays: never two who believe, never two with a valid fence", async () => {
    let terms = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(fault, { minLength: 6, maxLength: 14 }), async (faults) => {
        const { world, processes } = createSetting(3, transport);
        const candidates = processes.map((process) => new Candidate(process));
        const look = async () => {
          const { believing, valid } = await leadersOf(world, candidates);
          expect(believing.length).toBeLessThanOrEqual(1);
          expect(valid.length).toBeLessThanOrEqual(1);
        };
        for (const { target, kind, forMs } of faults) {
          const leading = candidates.find(({ leadership }) => leadership?.isLost === false) ?? candidates[0];
          const { process } = (target === null ? leading : candidates[target]) as Candidate;
          process.resume();
          process.link = kind === "down" || kind === "silent" ? kind : "up";
          process.delayMs = kind === "slow" ? 300 : 0;
          if (kind === "pause") process.pause();
          await world.advance(forMs, look);
        }
        for (const process of processes) {
          process.resume();
          process.link = "up";
          process.delayMs = 0;
        }
        await world.advance(20_000, look);
        expect((await leadersOf(world, candidates)).believing.length).toBe(1);
        for (const candidate of candidates) {
          terms += candidate.terms;
          candidate.close();
        }
      }),
      { numRuns: 8 },
    );
    // Leaderships came and went: more of them than runs.
    expect(terms).toBeGreaterThan(8);
  }, 120_000);
});
