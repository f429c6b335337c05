/**
 * The promises of the keeper under any network and any pauses (L1 to L5 of lease-keeper.ts). Method: random fates of
 * calls, random sleeps of the machine, and at every moment a comparison with the server, which shares the clock.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import { LeaseKeeper, type LeaseLost } from "../../src/client/lease-keeper.ts";
import { contextOf, type Fate, GOOD, LeaseServer, SILENT } from "./lease-server.ts";

const delay = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 50 }) },
  { weight: 2, arbitrary: fc.integer({ min: 0, max: 3_000 }) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 12_000 }) },
);
const fate: fc.Arbitrary<Fate> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ requestMs: delay, replyMs: delay }) },
  { weight: 1, arbitrary: fc.record({ requestMs: delay, replyMs: fc.constant(null) }) },
  { weight: 1, arbitrary: fc.record({ requestMs: fc.constant(null), replyMs: delay }) },
  {
    weight: 2,
    arbitrary: fc.record({
      requestMs: delay,
      replyMs: delay,
      refusal: fc.constantFrom("no_leader", "timeout", "forbidden"),
    }),
  },
);
const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constant("advance" as const), ms: fc.integer({ min: 1, max: 4_000 }) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("sleep" as const), ms: fc.integer({ min: 1, max: 20_000 }) }) },
);
const schedule = fc.record({
  ttlS: fc.integer({ min: 1, max: 12 }),
  fates: fc.array(fate, { maxLength: 30 }),
  /** Behind the fates above. */
  tail: fc.constantFrom(GOOD, SILENT),
  steps: fc.array(step, { minLength: 5, maxLength: 25 }),
  skewShare: fc.double({ min: 0, max: 0.999, noNaN: true }),
  chance: fc.double({ min: 0, max: 0.999, noNaN: true }),
});

test("a keeper that is not lost has a living lease; lost is told once, only when it may be true, and in time", async () => {
  const seen = { lost: 0, late: 0, kept: 0 };
  await fc.assert(
    fc.asyncProperty(schedule, async ({ ttlS, fates, tail, steps, skewShare, chance }) => {
      const server = new LeaseServer();
      const skewMs = Math.min(1_000, (ttlS * 1_000) / 3);
      const trustedMs = ttlS * 1_000 - skewMs;
      server.aheadMs = skewShare * skewMs;
      const { clock } = server;
      const startMs = clock.nowMs();
      const queue = [...fates];
      server.fateOf = () => queue.shift() ?? tail;
      const keeper = new LeaseKeeper(server, contextOf(server, { chance }), { ttl_s: ttlS });
      const told: { readonly lost: LeaseLost; readonly atMs: number }[] = [];
      let aborts = 0;
      let isReady = false;
      let sleptMs = 0;
      void keeper.lost.then((lost) => told.push({ lost, atMs: clock.nowMs() }));
      keeper.signal.addEventListener("abort", () => {
        aborts += 1;
      });
      keeper.ready.then(
        () => {
          isReady = true;
        },
        () => {},
      );
      const check = () => {
        // L1, asked at any moment: also when no timer could run since.
        if (isReady && !keeper.isLost) expect(server.isAlive(keeper.id)).toBe(true);
        for (const { lost } of told) if (lost.reason === "unknown_lease") expect(server.isAlive(lost.id)).toBe(false);
      };
      for (const { kind, ms } of steps) {
        if (kind === "sleep") {
          clock.leap(ms);
          sleptMs += ms;
          check();
        } else await clock.advance(ms, check);
      }
      await clock.advance(0, check);
      const [first] = told;
      expect([told.length, aborts]).toEqual(first === undefined ? [0, 0] : [1, 1]);
      if (first?.lost.reason === "time_over") {
        // Successes that came behind the loss do not count: it was told without them.
        const successes = server.sent.filter(({ succeededMs }) => succeededMs !== null && succeededMs <= first.atMs);
        const sinceMs = first.atMs - Math.max(...successes.map(({ sentMs }) => sentMs));
        expect(sinceMs).toBeGreaterThanOrEqual(trustedMs - 1e-6);
        if (sleptMs === 0) expect(sinceMs).toBeLessThanOrEqual(ttlS * 1_000);
      }
      if (first !== undefined) seen.lost += 1;
      else if (isReady) seen.kept += 1;
      if (clock.nowMs() - startMs > 60_000) seen.late += 1;

      // Closed while the network works, it leaves nothing (L5).
      server.fateOf = () => GOOD;
      let closeError: unknown = null;
      keeper.close().catch((error: unknown) => {
        closeError = error;
      });
      await clock.advance(60_000);
      expect([closeError, server.aliveCount, clock.timersCount]).toEqual([null, 0, 0]);
      expect(told.length).toBe(first === undefined ? 0 : 1);
    }),
    { numRuns: 1_000 },
  );
  // The schedules reach what they are for.
  expect(Math.min(seen.lost, seen.kept, seen.late)).toBeGreaterThan(50);
});

test("a network that answers within a sixth of the TTL never loses a lease", async () => {
  const quick = fc.record({
    ttlS: fc.integer({ min: 1, max: 30 }),
    shares: fc.array(fc.double({ min: 0, max: 0.999, noNaN: true }), { minLength: 1, maxLength: 20 }),
  });
  await fc.assert(
    fc.asyncProperty(quick, async ({ ttlS, shares }) => {
      const server = new LeaseServer();
      const { clock } = server;
      let calls = 0;
      server.fateOf = () => {
        const ms = ((shares[calls++ % shares.length] ?? 0) * ttlS * 1_000) / 12;
        return { requestMs: ms, replyMs: ms };
      };
      const keeper = new LeaseKeeper(server, contextOf(server), { ttl_s: ttlS });
      await clock.advance(ttlS * 5_000);
      expect(keeper.isLost).toBe(false);
      expect(server.sent.length).toBeLessThanOrEqual(16);
    }),
    { numRuns: 200 },
  );
});
