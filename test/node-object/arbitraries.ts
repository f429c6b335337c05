/** Arbitrary entries and envelopes of every kind, for property tests. */
import fc from "fast-check";
import { utf8Length } from "../../src/base/bytes.ts";
import type { ForwardOutcome, Identity, PeerBody, PeerEnvelope } from "../../src/node-object/ports.ts";
import { membershipPayload } from "../../src/raft/membership.ts";
import type { AppendResult, Entry, Membership, Message } from "../../src/raft/types.ts";

export const counter = fc.oneof(fc.nat({ max: 20 }), fc.nat(), fc.maxSafeNat());
const nullable = <T>(values: fc.Arbitrary<T>): fc.Arbitrary<T | null> => fc.option(values, { nil: null });
const node = fc.integer({ min: 1, max: 7 });
/** Well-formed text of every plane, with line ends, quotes and NUL. */
export const text = fc.string({
  unit: fc.oneof(
    fc.constantFrom("\n", '"', "\u0000", "{", "é", "€", "😀"),
    fc.string({ unit: "binary", minLength: 1, maxLength: 1 }),
  ),
  maxLength: 40,
});
const name = fc.string({ minLength: 1, maxLength: 20, unit: "grapheme" });

/** A valid membership of a cluster, with and without what the runtime keeps with it. */
export const raftMembership: fc.Arbitrary<Membership> = fc
  .record({
    voters: fc.uniqueArray(node, { minLength: 1, maxLength: 7 }),
    learners: fc.uniqueArray(node, { maxLength: 7 }),
    extra: fc.option(text, { nil: undefined }),
  })
  .map(({ voters, learners, extra }) => {
    const ascending = (ids: readonly number[]) => [...ids].sort((left, right) => left - right);
    const members = { voters: ascending(voters), learners: ascending(learners.filter((id) => !voters.includes(id))) };
    return extra === undefined ? members : { ...members, extra };
  });

/** A run of entries behind (prevIndex, prevTerm), with terms that never fall. */
export function entryRun(
  prevIndex: number,
  prevTerm: number,
  options: { readonly minLength?: number; readonly maxLength?: number } = {},
): fc.Arbitrary<Entry[]> {
  const part = fc.record({
    step: fc.nat({ max: 2 }),
    timeMs: counter,
    content: fc.oneof(
      fc.record({ kind: fc.constantFrom("leader_start" as const, "command" as const), payload: text }),
      raftMembership.map((one) => ({ kind: "membership" as const, payload: membershipPayload(one).payload })),
    ),
  });
  return fc.array(part, { minLength: options.minLength ?? 0, maxLength: options.maxLength ?? 8 }).map((parts) => {
    let term = prevTerm;
    return parts.map(({ step, timeMs, content }, position) => {
      term += step;
      const payloadBytes = utf8Length(content.payload);
      return { index: prevIndex + 1 + position, term, timeMs, ...content, payloadBytes };
    });
  });
}

const appendResult: fc.Arbitrary<AppendResult> = fc.oneof(
  fc.record({ kind: fc.constant("matched" as const), index: counter }),
  fc.record({ kind: fc.constant("conflict" as const), prevIndex: counter, index: counter, term: counter }),
);

const append: fc.Arbitrary<Message> = fc
  .record({ prevIndex: fc.nat(), prevTerm: fc.nat(), commit: counter, round: counter, above: fc.nat({ max: 3 }) })
  .chain(({ prevIndex, prevTerm, commit, round, above }) =>
    entryRun(prevIndex, prevTerm).map((entries) => {
      const term = (entries.at(-1)?.term ?? prevTerm) + above;
      return { kind: "append" as const, term, prevIndex, prevTerm, commit, round, entries };
    }),
  );

/** One arbitrary for each kind; the record's type makes a missing one a type error. */
export const MESSAGES: { readonly [Kind in Message["kind"]]: fc.Arbitrary<Message> } = {
  pre_vote: fc.record({ kind: fc.constant("pre_vote" as const), term: counter, lastIndex: counter, lastTerm: counter }),
  pre_vote_reply: fc.record({ kind: fc.constant("pre_vote_reply" as const), term: counter, granted: fc.boolean() }),
  vote: fc.record({
    kind: fc.constant("vote" as const),
    term: counter,
    lastIndex: counter,
    lastTerm: counter,
    transfer: fc.boolean(),
  }),
  vote_reply: fc.record({
    kind: fc.constant("vote_reply" as const),
    term: counter,
    granted: fc.boolean(),
    wallMs: counter,
  }),
  append,
  append_reply: fc.record({
    kind: fc.constant("append_reply" as const),
    term: counter,
    result: appendResult,
    round: counter,
    wallMs: counter,
  }),
  read_index: fc.record({ kind: fc.constant("read_index" as const), term: counter, context: counter }),
  read_index_reply: fc.record({
    kind: fc.constant("read_index_reply" as const),
    term: counter,
    context: counter,
    index: nullable(counter),
    timeMs: counter,
  }),
  quiesce: fc.record({
    kind: fc.constant("quiesce" as const),
    term: counter,
    index: counter,
    commit: counter,
    timeMs: counter,
  }),
  wake: fc.record({ kind: fc.constant("wake" as const), term: counter }),
  snapshot_offer: fc
    .record({ term: fc.nat(), above: fc.nat({ max: 3 }), index: counter, timeMs: counter, membership: raftMembership })
    .map(({ term, above, index, timeMs, membership: taken }) => {
      const snapshot = { index, term, timeMs, membership: taken };
      return { kind: "snapshot_offer" as const, term: term + above, snapshot };
    }),
  timeout_now: fc.record({ kind: fc.constant("timeout_now" as const), term: counter }),
};

const members = fc.array(fc.record({ id: node, incarnation: counter }), { maxLength: 7 });
export const membership: fc.Arbitrary<Identity["membership"]> = fc.oneof(
  fc.constant({ kind: "empty" as const }),
  fc.record({ kind: fc.constantFrom("forming" as const, "formed" as const), clusterId: name, members }),
  fc.record({ kind: fc.constant("lost" as const), clusterId: name }),
);

export const OUTCOMES: { readonly [Kind in ForwardOutcome["kind"]]: fc.Arbitrary<ForwardOutcome> } = {
  outcome: fc.record({ kind: fc.constant("outcome" as const), outcome: text }),
  not_leader: fc.record({ kind: fc.constant("not_leader" as const), leader: nullable(node) }),
  overloaded: fc.constant({ kind: "overloaded" as const }),
  unknown: fc.constant({ kind: "unknown" as const }),
};

const snapshotPosition = fc.record({ index: counter, term: counter, timeMs: counter, membership: raftMembership });

export const BODIES: { readonly [Kind in PeerBody["kind"]]: fc.Arbitrary<PeerBody> } = {
  raft: fc.record({ kind: fc.constant("raft" as const), message: fc.oneof(...Object.values(MESSAGES)) }),
  hello: fc.record({ kind: fc.constant("hello" as const), membership, reply: fc.boolean(), question: counter }),
  forward: fc.record({
    kind: fc.constant("forward" as const),
    term: counter,
    calls: fc.array(fc.record({ id: counter, payload: text, timeoutMs: counter, isUrgent: fc.boolean() }), {
      maxLength: 4,
    }),
  }),
  forward_reply: fc.record({
    kind: fc.constant("forward_reply" as const),
    replies: fc.array(fc.record({ id: counter, outcome: fc.oneof(...Object.values(OUTCOMES)) }), { maxLength: 4 }),
  }),
  snapshot_request: fc.record({
    kind: fc.constant("snapshot_request" as const),
    index: counter,
    term: counter,
    after: nullable(text),
    chunks: counter,
  }),
  snapshot_chunk: fc.record({
    kind: fc.constant("snapshot_chunk" as const),
    manifest: fc.record({ position: snapshotPosition, rowsCount: counter, hash: counter }),
    chunk: fc.record({
      index: counter,
      term: counter,
      after: nullable(text),
      rows: fc.array(fc.tuple(text, text), { maxLength: 4 }),
      last: fc.boolean(),
    }),
  }),
  digest_request: fc.record({ kind: fc.constant("digest_request" as const), term: counter, index: counter }),
  digest_reply: fc.record({
    kind: fc.constant("digest_reply" as const),
    term: counter,
    index: counter,
    digest: name,
  }),
  diverged: fc.record({ kind: fc.constant("diverged" as const), term: counter, index: counter, digest: name }),
  topics: fc.record({
    kind: fc.constant("topics" as const),
    messages: fc.array(fc.record({ topic: name, payload: text }), { maxLength: 4 }),
  }),
};

export function envelopeOf(body: fc.Arbitrary<PeerBody>): fc.Arbitrary<PeerEnvelope> {
  return fc.record({
    protocol: fc.constant(2),
    speaks: fc.integer({ min: 2, max: 5 }),
    clusterId: nullable(name),
    from: node,
    fromIncarnation: counter,
    to: node,
    toIncarnation: nullable(counter),
    body,
  });
}

export const envelope = envelopeOf(fc.oneof(...Object.values(BODIES)));
