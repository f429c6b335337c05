/**
 * The judges of a run are judged: a small history that is right passes, and each way to falsify it is refused by the rule
 * that is there for it.
 */
import { expect, test } from "vitest";
import type { Rule } from "../simulator/violation.ts";
import { type CheckCounts, checkEvidence, REGISTER_PREFIX } from "./checks.ts";
import { type Evidence, eventText } from "./evidence.ts";
import { checkRegisters } from "./register-check.ts";
import { answered, type Draft, gone, history, KEY, LEASE_KEY, OTHER, put, REPEATED, read } from "./sample-history.ts";
import { timelineOf } from "./timeline.ts";

function check(falsify: (draft: Draft) => void = () => {}): CheckCounts {
  const draft = history();
  falsify(draft);
  return checkEvidence(draft as Evidence);
}

const inFeeds = ({ feeds }: Draft, falsify: (feed: Draft["feeds"][number]) => void): void => {
  for (const feed of feeds) falsify(feed);
};

test("a history in which all is right passes, and its checks have looked at all of it", () => {
  expect(check()).toEqual({
    revisions: 8,
    writes: 10,
    reads: 3,
    registers: { keys: 1, operations: 6, undecided: 0 },
    watchedEvents: 18,
    leases: { leases: 1, ended: 1, earliestMs: -50 },
  });
});

const FALSIFIED: readonly (readonly [claim: string, rule: Rule, falsify: (draft: Draft) => void])[] = [
  // Writes.
  [
    "an acknowledged write that is nowhere",
    "acknowledged write is committed",
    ({ writes }) => {
      writes.push(answered("z", 90, 9) as Draft["writes"][number]);
    },
  ],
  [
    "an acknowledged write whose place another has",
    "acknowledged write is committed",
    (draft) => {
      draft.writes.push(answered("z", 79, 8) as Draft["writes"][number]);
    },
  ],
  [
    "an acknowledged delete that did not delete",
    "reply matches the log",
    ({ writes }) => {
      writes[3]!.end = { kind: "answered", succeeded: true, hadEffect: false, revisions: [3] };
      writes[3]!.callMs = 31;
    },
  ],
  [
    "two effects of one idempotency key",
    "one effect per idempotency key",
    (draft) => {
      inFeeds(draft, (feed) => feed.push(put(9, `${REPEATED}r/${"9".padStart(16, "0")}`, "r")));
    },
  ],
  [
    "two answers under one idempotency key",
    "one effect per idempotency key",
    ({ writes }) => {
      writes[4]!.end = { kind: "answered", succeeded: true, hadEffect: true, revisions: [5, 6] };
    },
  ],
  [
    "two effects of one write of unknown outcome",
    "one effect per idempotency key",
    (draft) => {
      inFeeds(draft, (feed) => feed.push(put(9, KEY, "u", { createRevision: 8, version: 2 })));
    },
  ],
  [
    "a delete that nobody has asked for",
    "one effect per idempotency key",
    (draft) => {
      inFeeds(draft, (feed) => feed.push(gone(9, KEY, { createRevision: 8, version: 2 })));
    },
  ],
  [
    "an effect of a refused write",
    "definite failure has no effect",
    (draft) => {
      inFeeds(draft, (feed) => feed.push(put(9, OTHER, "x")));
    },
  ],
  [
    "a value that nobody has written",
    "definite failure has no effect",
    (draft) => {
      inFeeds(draft, (feed) => feed.push(put(9, OTHER, "?")));
    },
  ],
  [
    "a compare that held, answered as failed",
    "reply matches the log",
    ({ writes }) => {
      writes[6]!.compares = [{ key: KEY, op: null, modRevision: 0 }];
    },
  ],
  [
    "a compare that failed, answered as held",
    "reply matches the log",
    ({ writes }) => {
      writes[1]!.compares = [{ key: KEY, op: null, modRevision: 0 }];
    },
  ],
  [
    "a write that stands before one that was answered before it began",
    "real-time order",
    ({ writes }) => {
      writes[1]!.callMs = 35;
      writes[1]!.endMs = 36;
    },
  ],
  [
    "a revision that could not exist yet",
    "acknowledged write is committed",
    ({ writes }) => {
      writes[6]!.end = { kind: "answered", succeeded: false, hadEffect: false, revisions: [8] };
    },
  ],
  // Reads.
  [
    "a stale linearizable read",
    "no stale read",
    ({ reads }) => {
      reads[0]!.found[0] = { key: KEY, op: "a", modRevision: 1, amount: null };
    },
  ],
  [
    "a serializable read of before what its client had seen",
    "no stale read",
    ({ reads }) => {
      reads[1]!.seen = 2;
    },
  ],
  [
    "a serializable read of no revision that ever was",
    "read sees one state",
    ({ reads }) => {
      reads[1]!.found[0] = { key: KEY, op: "b", modRevision: 2, amount: null };
    },
  ],
  [
    "a read of the future",
    "acknowledged write is committed",
    ({ reads }) => {
      Object.assign(reads[2]!, { revision: 9, callMs: 200, endMs: 201 });
    },
  ],
  [
    "a read of two states",
    "read sees one state",
    ({ reads }) => {
      reads[2]!.found[0]!.amount = 50;
    },
  ],
  [
    "a client that goes back in time",
    "no stale read",
    ({ clients }) => {
      clients[0]!.revisions = [1, 8, 2];
    },
  ],
  // The feed.
  [
    "a revision that is missing",
    "revisions are dense",
    (draft) => {
      inFeeds(draft, (feed) => feed.splice(3, 1));
    },
  ],
  [
    "a version that does not follow",
    "revisions are dense",
    (draft) => {
      inFeeds(draft, (feed) => {
        feed[1]!.version = 3;
      });
    },
  ],
  [
    "two nodes that tell different stories",
    "digests are equal",
    ({ feeds }) => {
      feeds[1]![1]!.op = "a";
    },
  ],
  // Watchers.
  [
    "an event that never came",
    "watcher sees every event once",
    ({ watchers }) => {
      watchers[0]!.texts.splice(2, 1);
    },
  ],
  [
    "an event that came twice",
    "watcher sees every event once",
    ({ watchers }) => {
      watchers[0]!.texts.splice(2, 0, watchers[0]!.texts[2]!);
    },
  ],
  [
    "events in another order",
    "watcher sees every event once",
    ({ watchers }) => {
      watchers[0]!.texts.reverse();
    },
  ],
  [
    "an event of other content",
    "watcher sees every event once",
    ({ watchers }) => {
      watchers[0]!.texts[0] = eventText(put(1, KEY, "b"));
    },
  ],
  [
    "a revision in two pieces",
    "watcher sees every event once",
    ({ watchers }) => {
      watchers[1]!.groups = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    },
  ],
  [
    "a watcher that stands still",
    "watcher catches up or is told why not",
    ({ watchers }) => {
      watchers[0]!.texts.splice(5);
      watchers[0]!.reached = 5;
    },
  ],
  [
    "a watch that was ended",
    "watcher is told the truth",
    ({ watchers }) => {
      watchers[0]!.failure = "compacted";
    },
  ],
  // Leases.
  [
    "a lease that ends early, as a watcher sees",
    "lease lives as long as was promised",
    ({ watchers, leases }) => {
      watchers[1]!.leaseEnds.set(LEASE_KEY, 1690);
      leases[0]!.lost = null;
    },
  ],
  [
    "a lease that ends early, as a call is told",
    "lease lives as long as was promised",
    ({ leases }) => {
      leases[0]!.ends.push({ atMs: 1690, how: "told to a put" });
    },
  ],
  [
    "a lease that ended and was given back later",
    "lease lives as long as was promised",
    ({ leases }) => {
      leases[0]!.ends.push({ atMs: 1690, how: "told to a put" });
      leases[0]!.revokedMs = 1700;
    },
  ],
  [
    "a loss by time while a keep-alive vouches for the lease",
    "keeper is told the truth",
    ({ leases }) => {
      leases[0]!.lost = { atMs: 1900, reason: "time_over" };
    },
  ],
  [
    "a loss of a lease that is still there",
    "keeper is told the truth",
    (draft) => {
      inFeeds(draft, (feed) => {
        feed[7] = put(7, OTHER, "u");
        feed.splice(8, 1);
      });
      draft.writes[8]!.changes = [{ key: OTHER, kind: "put" }];
      for (const { texts, leaseEnds, groups } of draft.watchers) {
        texts.splice(7, 2, eventText(put(7, OTHER, "u")));
        leaseEnds.clear();
        if (groups !== null) groups.pop();
      }
      draft.leases[0]!.lost = { atMs: 2100, reason: "unknown_lease" };
    },
  ],
  [
    "a keeper that is not told of the end",
    "keeper is told the truth",
    ({ leases }) => {
      Object.assign(leases[0]!, { lost: null, isKept: true, revokedMs: 3000 });
    },
  ],
  [
    "a key that outlives its lease",
    "reply matches the log",
    (draft) => {
      draft.leases[0]!.keys.push(KEY);
    },
  ],
];

test.for(FALSIFIED)("the checks refuse %s", ([, rule, falsify]) => {
  expect(() => check(falsify)).toThrow(`${rule}: `);
});

test("the search for an order refuses a stale read by itself", () => {
  const draft = history();
  draft.reads.push(read(45, 46, null, true, [{ key: KEY, op: "b", modRevision: 2 }]) as Draft["reads"][number]);
  const timeline = timelineOf(draft.feeds as Evidence["feeds"]);
  expect(() => checkRegisters(timeline, draft as Evidence, REGISTER_PREFIX)).toThrow("linearizable per key: ");
});
