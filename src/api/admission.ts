/** Admission: a command or query that breaks a limit is refused here, before anything is logged (design 01 §5, §6). */
import { utf8Length } from "../base/bytes.ts";
import { ConcordError } from "../base/errors.ts";
import { OPERATIONS_PER_BRANCH_MAX, TXN_BYTES_MAX } from "../base/limits.ts";
import type { Command, Query } from "../kv/command.ts";
import { validateCommand, validateQuery } from "../kv/validate.ts";
import { refusal } from "./problem.ts";

/**
 * `batch` is the caller's name of the list that became the txn's operations.
 * @throws ConcordError of the family `invalid_…` with the limit's reason.
 */
export function admitCommand(command: Command, batch?: "items" | "keys"): void {
  if (command.kind === "txn" && batch !== undefined) {
    admitBatch(command, batch);
    return;
  }
  const error = validateCommand(command);
  if (error !== null) throw new ConcordError(error);
}

export function admitQuery(query: Query): void {
  const error = validateQuery(query);
  if (error !== null) throw new ConcordError(error);
}

/**
 * A batch is one txn with more operations than a caller's txn may have: each operation is checked like any other, the
 * size is checked over all.
 */
function admitBatch(command: Extract<Command, { kind: "txn" }>, list: "items" | "keys"): void {
  const { success } = command;
  for (let start = 0; start < success.length; start += OPERATIONS_PER_BRANCH_MAX) {
    const part = success.slice(start, start + OPERATIONS_PER_BRANCH_MAX);
    const error = validateCommand({ ...command, success: part });
    if (error === null) continue;
    const detail = error.detail.replace(/^success\[(\d+)\]/, (_, index) => `${list}[${start + Number(index)}]`);
    throw new ConcordError({ ...error, detail });
  }
  const bytes = utf8Length(JSON.stringify(command));
  if (bytes <= TXN_BYTES_MAX) return;
  const detail = `The batch is ${bytes} bytes as a log entry; at most ${TXN_BYTES_MAX} are allowed. Send it in parts.`;
  throw refusal("invalid_txn", "txn_too_large", detail);
}
