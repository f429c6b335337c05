/**
 * Running a txn (design 01 §2): all compares on the state before, then one branch in order, at one revision.
 * The caller owns all-or-nothing: it keeps the draft, or throws it away when this refuses.
 */
import type { Operation, Txn, TxnResult } from "./command.ts";
import { evaluateCompare } from "./compare.ts";
import { type Budget, runGet, runOperation } from "./operations.ts";
import { refuse } from "./refusal.ts";
import type { Draft, View } from "./state.ts";

export function runTxn(draft: Draft, txn: Txn): TxnResult {
  const succeeded = txn.compare.every((compare) => evaluateCompare(draft, compare));
  const budget: Budget = { replyBytes: 0, deletedKeys: 0 };
  const branch = succeeded ? txn.success : txn.failure;
  const responses = branch.map((operation) => runOperation(draft, operation, budget));
  const revision = draft.events.length > 0 ? draft.revision : draft.meta.revision;
  return { succeeded, revision, responses };
}

/** A txn that cannot write, evaluated beside the log. */
export function readTxn(view: View, txn: Txn): TxnResult {
  const succeeded = txn.compare.every((compare) => evaluateCompare(view, compare));
  const budget: Budget = { replyBytes: 0, deletedKeys: 0 };
  const branch = succeeded ? txn.success : txn.failure;
  const responses = branch.map((operation) => {
    if (operation.type !== "get") {
      refuse("invalid_txn", "A txn that is evaluated as a read may only get.", { reason: "write_in_read" });
    }
    return runGet(view, operation, budget);
  });
  return { succeeded, revision: view.meta.revision, responses };
}

/** True when neither branch can change anything: such a txn needs no log entry. */
export function isReadOnly(txn: Txn): boolean {
  const reads = (operation: Operation): boolean => operation.type === "get";
  return txn.success.every(reads) && txn.failure.every(reads);
}
