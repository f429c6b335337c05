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
    | { readonly kind: "swap"; readonly from: RegisterValue; readonly to: RegisterValue; readonly succeeded: boolean | null };
}

export function isLinearizable(operations: readonly RegisterOperation[], initial: RegisterValue = null): boolean {
  const sorted = [...operations].sort((left, right) => left.call - right.call);
  const required = sorted.filter((operation) => operation.end !== Number.POSITIVE_INFINITY).length;
  const tried = new Set<string>();
  const done = new Uint8Array(sorted.length);
  const search = (state: RegisterValue, left: number): boolean => {
    if (left === 0) return true;
    const signature = `${state === null ? "" : `=${state}`}|${packed(done)}`;
    if (tried.has(signature)) return false;
    tried.add(signature);
    // Only operations that began before the earliest end of an unfinished one can be next.
    let earliestEnd = Number.POSITIVE_INFINITY;
    for (let position = 0; position < sorted.length; position += 1) {
      if (done[position] === 0 && sorted[position]!.end < earliestEnd) earliestEnd = sorted[position]!.end;
    }
    for (let position = 0; position < sorted.length; position += 1) {
      const operation = sorted[position]!;
      if (operation.call > earliestEnd) break;
      if (done[position] === 1) continue;
      const isRequired = operation.end !== Number.POSITIVE_INFINITY;
      for (const next of outcomes(operation, state)) {
        done[position] = 1;
        if (search(next.state, isRequired ? left - 1 : left)) return true;
        done[position] = 0;
      }
    }
    return false;
  };
  return search(initial, required);
}

/** What the operation may do to `state`; none if its answer contradicts it. */
function outcomes(operation: RegisterOperation, state: RegisterValue): readonly { readonly state: RegisterValue }[] {
  const { action } = operation;
  switch (action.kind) {
    case "write":
      return [{ state: action.value }];
    case "read":
      return action.value === state ? [{ state }] : [];
    case "swap": {
      const matches = state === action.from;
      if (action.succeeded !== null && action.succeeded !== matches) return [];
      return [{ state: matches ? action.to : state }];
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
