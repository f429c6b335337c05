/**
 * Admission: is a command or query well-formed and within the limits (design 01 §5, §6)? Runs before anything is logged;
 * apply trusts what passed here. Pure: looks at the request alone, never at the state.
 *
 * Must not be called by apply: `AdmissionLimits` may be lowered by configuration, and a limit that differs between nodes
 * must not decide what an entry does (S12).
 */
import { unreachable } from "../base/assert.ts";
import { utf8Length } from "../base/bytes.ts";
import type { ErrorBody } from "../base/errors.ts";
import {
  COMPACT_REMOVE_ROWS_MAX,
  IDEMPOTENCY_KEY_BYTES_MAX,
  LEASE_EXPIRE_LEASES_MAX,
  LEASE_KEEP_ALIVES_MAX,
  RESTORE_REVISION_JUMP_MAX,
} from "../base/limits.ts";
import type { Command, Idempotency, KeepAlive, Proposal, Query, SeenLease, Txn } from "./command.ts";
import { isPosition } from "./position.ts";
import {
  type AdmissionLimits,
  checkCount,
  checkKey,
  checkLeaseId,
  checkMetadata,
  checkPageLimit,
  checkRevisionNumber,
  checkSelector,
  checkTtl,
  isCounter,
  type LimitOptions,
  lowered,
  problem,
} from "./validate-parts.ts";
import { checkCompare, checkOperation } from "./validate-txn.ts";

export { type AdmissionLimits, DEFAULT_LIMITS, type LimitOptions } from "./validate-parts.ts";

/**
 * The command, its idempotency key, and the size of the entry that they make.
 * @param payload the encoded proposal, if the caller has it; saves encoding it again.
 */
export function validateProposal(proposal: Proposal, options?: LimitOptions, payload?: string): ErrorBody | null {
  const limits = lowered(options);
  const found =
    (proposal.idempotency === undefined ? null : validateIdempotency(proposal.idempotency)) ??
    checkCommand(proposal.command, limits);
  return found ?? checkSize(payload ?? JSON.stringify(proposal), limits);
}

/** Null if the command may be logged; else what is wrong and what would be right. */
export function validateCommand(command: Command, options?: LimitOptions): ErrorBody | null {
  const limits = lowered(options);
  return checkCommand(command, limits) ?? checkSize(JSON.stringify(command), limits);
}

export function validateIdempotency(idempotency: Idempotency): ErrorBody | null {
  const { scope, key, hash, since } = idempotency;
  const bytes = utf8Length(key);
  if (bytes < 1 || bytes > IDEMPOTENCY_KEY_BYTES_MAX || !key.isWellFormed()) {
    return problem(
      "invalid_request",
      "idempotency_key_size",
      `An idempotency key is text of 1 to ${IDEMPOTENCY_KEY_BYTES_MAX} bytes; this one has ${bytes}.`,
    );
  }
  if (!scope.isWellFormed()) return problem("invalid_request", "idempotency_scope", "The scope is not valid text.");
  if (!/^[\x20-\x7e]{1,128}$/.test(hash)) {
    return problem("invalid_request", "idempotency_hash", "The request hash is 1 to 128 printable ASCII characters.");
  }
  if (since !== undefined && !isCounter(since)) {
    return problem("invalid_request", "idempotency_since", "idempotency_since is a revision: a whole number from 0.");
  }
  return null;
}

/** Null if the query may be evaluated. A revision of the future or below compaction is the state's answer, not ours. */
export function validateQuery(query: Query, options?: LimitOptions): ErrorBody | null {
  const limits = lowered(options);
  switch (query.kind) {
    case "get":
      return checkKey(query.key, "key", limits) ?? checkRevisionNumber(query.revision, "revision");
    case "get_many":
      return checkGetMany(query, limits);
    case "list":
      return (
        checkSelector(query.selector, "selector", limits) ??
        checkPageLimit(query.limit, "limit", limits) ??
        checkRevisionNumber(query.revision, "revision") ??
        (query.after === undefined ? null : checkKey(query.after, "after", limits))
      );
    case "history":
      return checkHistory(query, limits);
    case "txn":
      return checkTxn(query, limits) ?? checkReadOnly(query) ?? checkSize(JSON.stringify(query), limits);
    case "changes":
      return (
        checkSelector(query.selector, "selector", limits) ??
        checkPageLimit(query.limit, "limit", limits) ??
        (query.after === undefined ? null : checkPosition(query.after, "after"))
      );
    case "lease":
      return checkLeaseId(query.id, "id");
    case "lease_list":
      return (
        checkPageLimit(query.limit, "limit", limits) ??
        (query.after === undefined ? null : checkLeaseId(query.after, "after"))
      );
    case "due":
      return (
        checkTime(query.at_ms, "at_ms") ??
        checkPageLimit(query.limit, "limit", limits) ??
        (query.after === undefined
          ? null
          : (checkTime(query.after[0], "after[0]") ?? checkKey(query.after[1], "after[1]", limits)))
      );
    case "txn_result":
    case "revision":
      return null;
    default:
      return unreachable(query);
  }
}

function checkCommand(command: Command, limits: AdmissionLimits): ErrorBody | null {
  switch (command.kind) {
    case "txn":
      return checkTxn(command, limits);
    case "lease_grant":
      return (
        checkTtl(command.ttl_s, "ttl_s", "invalid_lease", limits) ??
        (command.metadata === undefined
          ? null
          : checkMetadata(command.metadata, "metadata", "invalid_lease", limits)) ??
        (command.id === undefined ? null : checkLeaseId(command.id, "id"))
      );
    case "lease_revoke":
      return checkLeaseId(command.id, "id");
    case "lease_keep_alive":
      return (
        checkListSize(command.items.length, LEASE_KEEP_ALIVES_MAX, "items") ??
        firstProblem(command.items, (item, position) => checkKeepAlive(item, `items[${position}]`, limits))
      );
    case "lease_expire":
      return (
        checkListSize(command.leases.length, LEASE_EXPIRE_LEASES_MAX, "leases") ??
        firstProblem(command.leases, checkSeenLease)
      );
    case "lease_floor":
      return checkTime(command.floor_ms, "floor_ms");
    case "compact":
      return checkRevisionNumber(command.revision, "revision");
    case "compact_remove":
      return checkRowsMax(command.rows_max);
    case "restore_begin":
    case "restore_rows":
      return null;
    case "restore_end":
      return checkJump(command.revision_jump);
    default:
      return unreachable(command);
  }
}

function checkKeepAlive(item: KeepAlive, at: string, limits: AdmissionLimits): ErrorBody | null {
  const found = checkLeaseId(item.id, `${at}.id`);
  if (found !== null || item.ttl_s === undefined) return found;
  return checkTtl(item.ttl_s, `${at}.ttl_s`, "invalid_lease", limits);
}

function checkSeenLease(lease: SeenLease, position: number): ErrorBody | null {
  const at = `leases[${position}]`;
  return checkLeaseId(lease.id, `${at}.id`) ?? checkTime(lease.expires_at_ms, `${at}.expires_at_ms`);
}

/** A command that does nothing is not worth a log entry. */
function checkListSize(count: number, countMax: number, at: string): ErrorBody | null {
  if (count === 0) return problem("invalid_lease", "no_leases", `${at}: at least one lease is named.`);
  if (count <= countMax) return null;
  return problem("invalid_lease", "too_many_leases", `${at}: ${count} leases; at most ${countMax} are allowed.`);
}

function checkTime(timeMs: unknown, at: string): ErrorBody | null {
  if (isCounter(timeMs)) return null;
  return problem("invalid_request", "invalid_time", `${at}: a whole number of milliseconds from 0 is expected.`);
}

function checkRowsMax(rows: unknown): ErrorBody | null {
  if (isCounter(rows) && rows >= 1 && rows <= COMPACT_REMOVE_ROWS_MAX) return null;
  const detail = `rows_max: a whole number from 1 to ${COMPACT_REMOVE_ROWS_MAX} is expected.`;
  return problem("invalid_request", "invalid_rows_max", detail);
}

function checkJump(jump: unknown): ErrorBody | null {
  if (isCounter(jump) && jump >= 1 && jump <= RESTORE_REVISION_JUMP_MAX) return null;
  const detail = `revision_jump: a whole number from 1 to ${RESTORE_REVISION_JUMP_MAX} is expected.`;
  return problem("invalid_request", "invalid_revision_jump", detail);
}

function checkPosition(after: readonly [number, number], at: string): ErrorBody | null {
  if (isPosition({ revision: after[0], opIndex: after[1] })) return null;
  return problem("invalid_request", "invalid_position", `${at}: there is no position (${after[0]}, ${after[1]}).`);
}

function checkTxn(txn: Txn, limits: AdmissionLimits): ErrorBody | null {
  return (
    checkCount(txn.compare.length, limits.comparesMax, "compares", "too_many_compares") ??
    checkCount(txn.success.length, limits.operationsPerBranchMax, "operations in success", "too_many_operations") ??
    checkCount(txn.failure.length, limits.operationsPerBranchMax, "operations in failure", "too_many_operations") ??
    firstProblem(txn.compare, (compare, position) => checkCompare(compare, `compare[${position}]`, limits)) ??
    firstProblem(txn.success, (operation, position) => checkOperation(operation, `success[${position}]`, limits)) ??
    firstProblem(txn.failure, (operation, position) => checkOperation(operation, `failure[${position}]`, limits))
  );
}

function checkReadOnly(txn: Txn): ErrorBody | null {
  const writes = [...txn.success, ...txn.failure].some((operation) => operation.type !== "get");
  return writes ? problem("invalid_txn", "write_in_read", "A txn that is evaluated as a read may only get.") : null;
}

function checkGetMany(query: Query & { readonly kind: "get_many" }, limits: AdmissionLimits): ErrorBody | null {
  if (query.keys.length > limits.batchKeysMax) {
    const detail = `${query.keys.length} keys; at most ${limits.batchKeysMax} are read at once.`;
    return problem("invalid_kv", "too_many_keys", detail);
  }
  return (
    firstProblem(query.keys, (key, position) => checkKey(key, `keys[${position}]`, limits)) ??
    checkRevisionNumber(query.revision, "revision")
  );
}

function checkHistory(query: Query & { readonly kind: "history" }, limits: AdmissionLimits): ErrorBody | null {
  const { key, from, to, limit, after } = query;
  const found =
    checkKey(key, "key", limits) ??
    checkRevisionNumber(from, "from") ??
    checkRevisionNumber(to, "to") ??
    checkPageLimit(limit, "limit", limits);
  if (found !== null) return found;
  if (from !== undefined && to !== undefined && from > to) {
    return problem("invalid_selector", "range_reversed", `from (${from}) lies behind to (${to}).`);
  }
  if (after === undefined) return null;
  return checkRevisionNumber(after[0], "after[0]") ?? checkRevisionNumber(after[1], "after[1]");
}

function checkSize(payload: string, limits: AdmissionLimits): ErrorBody | null {
  const bytes = utf8Length(payload);
  if (bytes <= limits.txnBytesMax) return null;
  const detail = `The request is ${bytes} bytes as a log entry; at most ${limits.txnBytesMax} are allowed.`;
  return problem("invalid_txn", "txn_too_large", detail);
}

function firstProblem<T>(
  items: readonly T[],
  check: (item: T, position: number) => ErrorBody | null,
): ErrorBody | null {
  for (const [position, item] of items.entries()) {
    const found = check(item, position);
    if (found !== null) return found;
  }
  return null;
}
