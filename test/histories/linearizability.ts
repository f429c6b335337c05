/**
 * Is the history of one key linearizable? The search of Wing and Gong with the cache of Lowe: at each moment some
 * operation that began before every unfinished one ended may be the next; states and sets of finished operations that
 * were tried before are not tried again. Knows registers only: write, read, compare-and-set on unique values.
 *
 * An operation whose outcome is unknown may take effect at any time after its start, or never.
 */

/** `null` is absence. */
export type RegisterValue = string | null;

export interface RegisterOperation {
  readonly call: number;
  /** Infinity: the outcome is unknown. */
  readonly end: number;
  readonly action:
    | { readonly kind: "write"; readonly value: RegisterValue }
    | { readonly kind: "read"; readonly value: RegisterValue }
    | {
        readonly kind: "swap";
        readonly from: RegisterValue;
        readonly to: RegisterValue;
        readonly succeeded: boolean | null;
      };
}

/** Tries after which the search gives up: many operations of unknown outcome make it exponential. */
const TRIES_MAX = 5_000;

/** Null: the search gave up. */
export function isLinearizable(
  operations: readonly RegisterOperation[],
  initial: RegisterValue = null,
  triesMax = TRIES_MAX,
): boolean | null {
  const sorted = [...operations].sort((left, right) => left.call - right.call);
  const required = sorted.filter((operation) => operation.end !== Number.POSITIVE_INFINITY).length;
  const tried = new Set<string>();
  const done = new Uint8Array(sorted.length);
  const search = (state: RegisterValue, left: number): boolean => {
    if (left === 0) return true;
    const signature = `${state === null ? "" : `=${state}`}|${packed(done)}`;
    if (tried.has(signature) || tried.size >= triesMax) return false;
    tried.add(signature);
    // Only operations that began before the earliest end of an unfinished one can be next.
    let earliestEnd = Number.POSITIVE_INFINITY;
    for (let position = 0; position < sorted.length; position += 1) {
      if (done[position] === 0 && sorted[position]!.end < earliestEnd) earliestEnd = sorted[position]!.end;
    }
    // Those that must happen first: one of unknown outcome is tried where nothing else leads on.
    for (const optional of [false, true]) {
      for (let position = 0; position < sorted.length; position += 1) {
        const operation = sorted[position]!;
        if (operation.call > earliestEnd) break;
        if (done[position] === 1 || (operation.end === Number.POSITIVE_INFINITY) !== optional) continue;
        const next = stateAfter(operation, state);
        if (next === undefined) continue;
        done[position] = 1;
        if (search(next, optional ? left : left - 1)) return true;
        done[position] = 0;
      }
    }
    return false;
  };
  if (search(initial, required)) return true;
  return tried.size >= triesMax ? null : false;
}

/** The state that the operation leaves; undefined if its answer contradicts the state it finds. */
function stateAfter(operation: RegisterOperation, state: RegisterValue): RegisterValue | undefined {
  const { action } = operation;
  switch (action.kind) {
    case "write":
      return action.value;
    case "read":
      return action.value === state ? state : undefined;
    case "swap": {
      const matches = state === action.from;
      if (action.succeeded !== null && action.succeeded !== matches) return undefined;
      return matches ? action.to : state;
    }
  }
}

function packed(done: Uint8Array): string {
  let text = "";
  let chunk = 0;
  for (let position = 0; position < done.length; position += 1) {
    chunk = (chunk << 1) | done[position]!;
    if (position % 15 === 14) {
      text += String.fromCharCode(chunk);
      chunk = 0;
    }
  }
  return text + String.fromCharCode(chunk);
}
