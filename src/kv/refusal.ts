/**
 * How a command or query is refused from deep inside: a ConcordError that the entry point turns into an error outcome.
 * The text depends on the log only, because a refusal may be stored as an idempotency result (S12).
 */
import { ConcordError, type ErrorBody, type ErrorCode } from "../base/errors.ts";

export function refuse(code: ErrorCode, detail: string, extra?: Omit<ErrorBody, "code" | "detail">): never {
  throw new ConcordError({ code, detail, ...extra });
}
