/** The judge of leases is judged: who was promised a lease until some moment must have it until then. */
import { describe, expect, test } from "vitest";
import { createRandom } from "../../src/base/random.ts";
import type { Command } from "../../src/kv/command.ts";
import { applyEntries, openMachine } from "../../src/kv/machine.ts";
import { MemoryStore } from "../../src/kv/memory-store.ts";
import { beginWrite, createHistory, endWrite } from "./history.ts";
import type { Host, World } from "./host.ts";
import { checkPromises, clocksAreHarmless, harmlessClocks } from "./lease-check.ts";
import { chooseProfile, type Profile } from "./profile.ts";
import type { Committed } from "./safety.ts";

const PROFILE: Profile = { ...chooseProfile(createRandom(1)), kinds: [], electionTimeoutMsMax: 600 };
const WHOLE: readonly Partial<Host>[] = Array.from({ length: 5 }, () => ({ wallSkewMs: 0, wallJumps: 0 }));

/** A log whose entries are written at given virtual times, under a clock that may be wrong. */
class Story {
  readonly history = createHistory();
  readonly committed: Committed[] = [];
  readonly #machine = openMachine(new MemoryStore());
  hosts = WHOLE;

  /** By a client if `sentMs` is given. */
  entry(command: Command, writtenAtMs: number, logMs: number, sentMs?: number): void {
    const id = this.committed.length + 1;
    const own = { ...command, ...(command.kind === "lease_grant" ? { metadata: { op: id } } : {}) };
    const idempotency = { scope: "root", key: `op-${id}`, hash: "h" };
    const proposal = sentMs === undefined ? { format: 1, command: own } : { format: 1, command: own, idempotency };
    const payload = JSON.stringify(proposal);
    const entry = { index: id, term: 1, timeMs: logMs, kind: "command", payload, payloadBytes: 0 } as const;
    const { outcome, events, digest } = applyEntries(this.#machine, [entry])[0]!;
    const { revision, logicalBytes } = this.#machine;
    const place = { declaredTerm: 1, atStep: id, writtenAtMs, revision, logicalBytes };
    this.committed.push({ entry, ...place, digest, outcome, events });
    if (sentMs === undefined) return;
    const record = beginWrite(this.history, id, proposal as never, { step: id, nowMs: sentMs });
    endWrite(this.history, record, "answered", outcome, id, revision);
  }

  check(profile: Partial<Profile> = {}): number {
    const world = { hosts: this.hosts, safety: { committed: this.committed } } as unknown as World;
    return checkPromises(world, { ...PROFILE, ...profile }, this.history);
  }
}

/** Granted for 5 s at 100 ms, ended at `endMs`: in time by the log, whatever the true clock says. */
function endedAt(endMs: number, renewedMs?: number): Story {
  const story = new Story();
  story.entry({ kind: "lease_grant", ttl_s: 5 }, 100, 100_000, 90);
  if (renewedMs !== undefined) {
    story.entry({ kind: "lease_keep_alive", items: [{ id: 1 }] }, renewedMs, 101_000, renewedMs);
  }
  const expires_at_ms = renewedMs === undefined ? 105_000 : 106_000;
  story.entry({ kind: "lease_expire", leases: [{ id: 1, expires_at_ms }] }, endMs, 120_000);
  return story;
}

describe("a lease", () => {
  test("may end when its time is over, or so much earlier as clocks may differ", () => {
    expect(endedAt(5100).check()).toBe(1);
    expect(endedAt(4100).check()).toBe(1);
  });

  test("may not end earlier", () => {
    expect(() => endedAt(4000).check()).toThrow("lives as long as was promised");
  });

  test("may not end before the time of its last renewal is over", () => {
    expect(endedAt(6000, 2000).check()).toBe(1);
    expect(() => endedAt(5100, 2000).check()).toThrow("lives as long as was promised");
  });

  test("may end earlier where clocks drift and nodes stand still, by as much as that explains", () => {
    expect(endedAt(2600).check({ kinds: ["clock_drift", "pause"] })).toBe(1);
    expect(() => endedAt(1000).check({ kinds: ["clock_drift", "pause"] })).toThrow("lives as long as was promised");
  });

  test("is not judged where so many clocks are wrong that they choose the time", () => {
    const story = endedAt(200);
    story.hosts = [{ wallSkewMs: 30_000, wallJumps: 1 }, { wallSkewMs: 0, wallJumps: 2 }, ...WHOLE.slice(2)];
    expect(story.check()).toBe(0);
    story.hosts = [{ wallSkewMs: 30_000, wallJumps: 1 }, ...WHOLE.slice(1)];
    expect(() => story.check()).toThrow("lives as long as was promised");
  });

  test("of an owner who was told nothing is not judged", () => {
    const story = endedAt(200);
    for (const record of story.history.writes) Object.assign(record, { status: "unknown" });
    expect(story.check()).toBe(0);
  });
});

test("one wrong clock of five or seven can choose no median of a majority, none of three or one is as harmless", () => {
  expect([1, 3, 5, 7].map(harmlessClocks)).toEqual([0, 0, 1, 1]);
  expect(clocksAreHarmless({ hosts: WHOLE } as unknown as World)).toBe(true);
});
