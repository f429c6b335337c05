/** Admission: a command or query that breaks a limit is refused here, before anything is logged (design 01 §5, §6). */
import { utf8Length } from "../base/bytes.ts";
import { ConcordError } from "../base/errors.ts";
import { OPERATIONS_PER_BRANCH_MAX, TXN_BYTES_MAX } from "../base/limits.ts";
import type { Command, Query } from "../kv/command.ts";
import { validateCommand, validateQuery } from "../kv/validate.ts";
import { refusal } from "./problem.ts";

/**
 * What the caller wrote that became the operations of a txn: one record, or a list of that name; or the one lease of a
 * keep-alive. Absent: the caller wrote the command as it is.
 */
export type Sugar = "record" | "items" | "keys" | "lease";

/** @throws ConcordError of the family `invalid_…` with the limit's reason. */
export function admitCommand(command: Command, sugar?: Sugar): void {
  if (command.kind === "txn" && sugar !== undefined) {
    admitSugar(command, sugar);
    return;
  }
  const error = validateCommand(command);
  if (error === null) return;
  const detail = sugar === "lease" ? error.detail.replace(/^items\[0\]\./, "") : error.detail;
  throw new ConcordError({ ...error, detail });
}

export function admitQuery(query: Query): void {
  const error = validateQuery(query);
  if (error !== null) throw new ConcordError(error);
}

/**
 * A batch is one txn with more operations than a caller's txn may have: each operation is checked like any other, the
 * size is checked over all. Errors name what the caller wrote, not the txn that it became.
 */
function admitSugar(command: Extract<Command, { kind: "txn" }>, sugar: Sugar): void {
  const { success } = command;
  for (let start = 0; start < success.length; start += OPERATIONS_PER_BRANCH_MAX) {
    const part = success.slice(start, start + OPERATIONS_PER_BRANCH_MAX);
    const error = validateCommand({ ...command, success: part });
    if (error !== null) throw new ConcordError({ ...error, detail: renamed(error.detail, sugar, start) });
  }
  const bytes = utf8Length(JSON.stringify(command));
  if (bytes <= TXN_BYTES_MAX) return;
  const advice = sugar === "record" ? "" : " Send the batch in parts.";
  const detail = `The request is ${bytes} bytes as a log entry; at most ${TXN_BYTES_MAX} are allowed.${advice}`;
  throw refusal("invalid_txn", "txn_too_large", detail);
}

/** `success[7].key: …` becomes `key: …`, `items[7].key: …` or `keys[7]: …`. */
function renamed(detail: string, sugar: Sugar, start: number): string {
  const whole = /^success\[0\]: (.)(.*)$/.exec(detail);
  if (sugar === "record" && whole !== null) return `${(whole[1] ?? "").toUpperCase()}${whole[2] ?? ""}`;
  return detail.replace(/^success\[(\d+)\](\.key)?(?:\.|: )?/, (place: string, index: string, key = "") => {
    const end = place.endsWith(": ") ? ": " : place.endsWith(".") ? "." : "";
    if (sugar === "record") return key === "" ? "" : `key${end}`;
    const item = `${sugar}[${start + Number(index)}]`;
    return `${item}${sugar === "keys" ? "" : key}${end}`;
  });
}
