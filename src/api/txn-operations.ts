/** Transactions, and what became of a write under an idempotency key (design 01 §2), for every surface. */
import type { Operation, Txn } from "../kv/command.ts";
import { type ApiContext, type Caller, checkedIdempotencyKey, execute, query } from "./caller.ts";
import { decodeTxn } from "./decode.ts";
import { encodeResolution, encodeTxnResult } from "./encode.ts";
import { refusal } from "./problem.ts";
import type { ParsedTxn } from "./schema.ts";
import type { WireTxnResolution, WireTxnResult } from "./wire.ts";

export async function runTransaction(context: ApiContext, caller: Caller, parsed: ParsedTxn): Promise<WireTxnResult> {
  const txn = decodeTxn(parsed);
  // A txn that cannot write needs no log entry, unless its result is to be kept under a key.
  if (isReadOnly(txn) && caller.idempotency === null) {
    const { result } = await query(context, caller, { kind: "txn", ...txn });
    return encodeTxnResult(result, result.succeeded ? txn.success : txn.failure);
  }
  if (caller.consistency === "serializable" || caller.minRevision !== null) {
    const detail = "consistency and min_revision are for txns that only read; one that writes is always linearizable.";
    throw refusal("invalid_txn", "consistency", detail);
  }
  const { result } = await execute(context, caller, { kind: "txn", ...txn });
  return encodeTxnResult(result, result.succeeded ? txn.success : txn.failure);
}

function isReadOnly(txn: Txn): boolean {
  const reads = (operation: Operation) => operation.type === "get";
  return txn.success.every(reads) && txn.failure.every(reads);
}

/** Decides what was in the leader's log before it, and changes nothing. */
const EMPTY_TXN = { kind: "txn", compare: [], success: [], failure: [] } as const;

/**
 * Resolves an unknown outcome; always linearizable, for a stale "unknown" would be a wrong answer. An entry that is in
 * the leader's log can still commit after a read, so "unknown" is said only behind an entry of our own (S27).
 */
export async function resolveTransaction(
  context: ApiContext,
  caller: Caller,
  request: { readonly key: string },
): Promise<WireTxnResolution> {
  const key = checkedIdempotencyKey(request.key);
  const { timeoutMs, principal } = caller;
  const options = { consistency: "linearizable", timeoutMs } as const;
  const asked = { kind: "txn_result", scope: principal, key } as const;
  let found = await query(context, caller, asked, options);
  if (found.result.status === "unknown") {
    await context.backend.execute(EMPTY_TXN, null, options);
    found = await query(context, caller, asked, options);
  }
  return encodeResolution(found.result, found.revision);
}
