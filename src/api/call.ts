/**
 * An HTTP request as a call (caller.ts): who calls, how long, under which idempotency key, with which parameters; the
 * revision for the headers of the reply.
 */
import type { Context } from "hono";
import { ConcordError, type ErrorCode } from "../base/errors.ts";
import { type ApiContext, type Caller, createCaller } from "./caller.ts";
import { choiceOf, integerIn, integerOf, type Parameters, readParameters } from "./parameters.ts";

/** Set by whoever answers from the state machine, for the headers of the reply, be it a result or an error. */
export type ApiEnvironment = { Variables: { revision: number | undefined; etag: string | undefined } };
export type ApiCall = Context<ApiEnvironment>;

/** Set by the Worker, stripped from outside requests: nobody else speaks for a principal or opens internal routes. */
export const PRINCIPAL_HEADER = "x-concord-principal";
export const INTERNAL_HEADER = "x-concord-internal";
/** `{cluster}/{node}`: the object's own name, for runtimes that do not know it. */
export const OBJECT_HEADER = "x-concord-object";

export const WRITE_PARAMETERS = ["timeout_ms"] as const;
export const READ_PARAMETERS = ["consistency", "min_revision", "timeout_ms"] as const;

export function principalOf(context: ApiContext, call: ApiCall): string {
  const principal = call.req.header(PRINCIPAL_HEADER) ?? context.principal;
  if (principal === undefined || principal === "") {
    throw new ConcordError({ code: "unauthenticated", reason: "no_principal", detail: "The request names no caller." });
  }
  return principal;
}

export function parametersOf(call: ApiCall, code: ErrorCode, allowed: readonly string[]): Parameters {
  return readParameters(call.req.url, code, allowed);
}

/** Of a request that only reads: an idempotency key means nothing there. */
export function readerOf(context: ApiContext, call: ApiCall, parameters: Parameters): Caller {
  return callerOf(context, call, parameters, {});
}

export function writerOf(context: ApiContext, call: ApiCall, parameters: Parameters): Caller {
  const idempotencyKey = call.req.header("idempotency-key");
  const idempotencySince = idempotencySinceOf(call);
  return callerOf(context, call, parameters, { idempotencyKey, idempotencySince });
}

function callerOf(
  context: ApiContext,
  call: ApiCall,
  parameters: Parameters,
  idempotency: { readonly idempotencyKey?: string | undefined; readonly idempotencySince?: number | undefined },
): Caller {
  const wishes = {
    principal: principalOf(context, call),
    timeoutMs: integerOf(parameters, "timeout_ms"),
    consistency: choiceOf(parameters, "consistency", ["linearizable", "serializable"]),
    minRevision: integerOf(parameters, "min_revision"),
    noteRevision: (revision: number) => call.set("revision", revision),
    ...idempotency,
  };
  return createCaller(wishes, parameters.code);
}

function idempotencySinceOf(call: ApiCall): number | undefined {
  const since = call.req.header("idempotency-since");
  // What is no number is no revision either: the caller's check refuses it.
  return since === undefined ? undefined : (integerIn(since) ?? Number.NaN);
}
