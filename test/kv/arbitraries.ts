/** Random commands over a small key space, so that they meet: the same keys, leases and idempotency keys again and again. */
import * as fc from "fast-check";
import type { Command, Compare, Idempotency, Operation, Selector, Txn } from "../../src/kv/command.ts";

const key = fc.constantFrom("a", "a/1", "a/2", "b", "b\u0000", "b\u0001", "\u00ff");
const json = fc.constantFrom(null, 0, 1, 2, "", "x", { n: 1 }, { n: 2, m: null }, [1]);
const value = fc.oneof(
  { weight: 5, arbitrary: json.map((data) => ({ json: data })) },
  { weight: 1, arbitrary: fc.constantFrom({ base64: "" }, { base64: "AQI=" }) },
);
const selector: fc.Arbitrary<Selector> = fc.oneof(
  key.map((name) => ({ key: name })),
  fc.constantFrom("", "a", "a/", "b").map((prefix) => ({ prefix })),
  fc
    .tuple(key, key)
    .filter(([start, end]) => start < end)
    .map(([start, end]) => ({ range: { start, end } })),
  key.map((start) => ({ range: { start } })),
);
const equality = fc.constantFrom("==" as const, "!=" as const);
const order = fc.constantFrom("==" as const, "!=" as const, ">" as const, ">=" as const, "<" as const, "<=" as const);
const leaseId = fc.integer({ min: 1, max: 6 });

const compare: fc.Arbitrary<Compare> = fc.oneof(
  fc.record({ target: fc.constant("exists" as const), key, op: equality, value: fc.boolean() }),
  fc.record({ target: fc.constant("value" as const), key, op: equality, value: fc.option(value) }),
  fc.record({
    target: fc.constant("field" as const),
    key,
    path: fc.constantFrom<(string | number)[]>([], ["n"], ["m"], [0], ["n", "x"]),
    op: order,
    value: json,
  }),
  fc.record({
    target: fc.constantFrom("version" as const, "create_revision" as const, "mod_revision" as const),
    key,
    op: order,
    value: fc.integer({ min: 0, max: 12 }),
  }),
  fc.record({ target: fc.constant("lease" as const), key, op: equality, value: fc.option(leaseId) }),
  fc.record({ target: fc.constant("ttl" as const), key, op: order, value: fc.option(fc.integer({ min: 0, max: 30 })) }),
);

/** `{}` or `{ [name]: … }`: an option that is absent, not undefined. */
function optional<N extends string, T>(name: N, arbitrary: fc.Arbitrary<T>): fc.Arbitrary<{ [K in N]?: T }> {
  return fc.option(arbitrary).map((some) => (some === null ? {} : { [name]: some }) as { [K in N]?: T });
}

const ownership = fc.oneof(
  { weight: 4, arbitrary: fc.constant({}) },
  { weight: 2, arbitrary: fc.integer({ min: 1, max: 30 }).map((ttl) => ({ ttl })) },
  { weight: 2, arbitrary: leaseId.map((lease) => ({ lease })) },
  { weight: 1, arbitrary: fc.constant({ ignore_lease: true }) },
);
const content = fc.oneof(
  { weight: 6, arbitrary: value.map((given) => ({ value: given })) },
  { weight: 1, arbitrary: fc.constant({ ignore_value: true }) },
);
const putOperation: fc.Arbitrary<Operation> = fc
  .tuple(
    key,
    content,
    ownership,
    optional("prev_kv", fc.constant(true)),
    optional("content_type", fc.constant("text/x")),
    optional("metadata", fc.constantFrom({}, { m: 1 })),
    optional("due_at_ms", fc.integer({ min: 0, max: 9 })),
    optional("revision_suffix", fc.constantFrom(true, false, false)),
  )
  .map(([name, ...parts]) => Object.assign({ type: "put" as const, key: name }, ...parts) as Operation);

const getOperation: fc.Arbitrary<Operation> = fc
  .tuple(
    selector,
    fc.integer({ min: 1, max: 4 }),
    optional("revision", fc.integer({ min: 0, max: 8 })),
    optional("keys_only", fc.boolean()),
    optional("count_only", fc.constantFrom(true, false, false)),
    optional("order", fc.constantFrom("asc" as const, "desc" as const)),
  )
  .map(
    ([selected, limit, ...parts]) => Object.assign({ type: "get", selector: selected, limit }, ...parts) as Operation,
  );

export const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 6, arbitrary: putOperation },
  { weight: 3, arbitrary: getOperation },
  {
    weight: 2,
    arbitrary: fc
      .tuple(selector, optional("prev_kv", fc.boolean()))
      .map(([selected, more]) => ({ type: "delete" as const, selector: selected, ...more })),
  },
  {
    weight: 1,
    arbitrary: fc.record({ type: fc.constant("touch" as const), key, ttl: fc.integer({ min: 1, max: 30 }) }),
  },
);

export const txn: fc.Arbitrary<Txn> = fc.record({
  compare: fc.array(compare, { maxLength: 2 }),
  success: fc.array(operation, { maxLength: 4 }),
  failure: fc.array(operation, { maxLength: 3 }),
});

export const keepAlive = fc
  .array(
    fc.tuple(leaseId, optional("ttl_s", fc.integer({ min: 1, max: 60 }))).map(([id, more]) => ({ id, ...more })),
    { minLength: 1, maxLength: 4 },
  )
  .map((items) => ({ kind: "lease_keep_alive" as const, items }));

export const removal = fc
  .integer({ min: 1, max: 8 })
  .map((rows_max) => ({ kind: "compact_remove" as const, rows_max }));

export const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 8, arbitrary: txn.map((parts) => ({ kind: "txn" as const, ...parts })) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.integer({ min: 1, max: 60 }), optional("id", leaseId))
      .map(([ttl_s, more]) => ({ kind: "lease_grant" as const, ttl_s, ...more })),
  },
  { weight: 1, arbitrary: leaseId.map((id) => ({ kind: "lease_revoke" as const, id })) },
  { weight: 1, arbitrary: keepAlive },
  {
    weight: 1,
    arbitrary: fc
      .array(fc.record({ id: leaseId, expires_at_ms: fc.constantFrom(1_001_000, 1_002_000, 1_030_000) }), {
        minLength: 1,
        maxLength: 3,
      })
      .map((leases) => ({ kind: "lease_expire" as const, leases })),
  },
  {
    weight: 1,
    arbitrary: fc
      .integer({ min: 990_000, max: 1_100_000 })
      .map((floor_ms) => ({ kind: "lease_floor" as const, floor_ms })),
  },
  { weight: 1, arbitrary: removal },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 10 }).map((revision) => ({ kind: "compact" as const, revision })) },
);

export interface Step {
  readonly command: Command | null;
  readonly idempotency: Idempotency | null;
  readonly elapsedMs: number;
}

/** A null command is a `leader_start` entry. */
export const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.record({
    command: fc.option(command, { freq: 12 }),
    idempotency: fc.option(
      fc.record({
        scope: fc.constantFrom("s", "t"),
        key: fc.constantFrom("K", "L"),
        hash: fc.constantFrom("1", "2"),
        since: fc.integer({ min: 0, max: 3 }),
      }),
      { freq: 3 },
    ),
    elapsedMs: fc.constantFrom(0, 0, 1, 1500, 700_000),
  }),
  { maxLength: 25 },
);
