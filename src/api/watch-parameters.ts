/**
 * What a watch is asked for by, in a query string or in the params of a session: one decoded form for both.
 */
import * as z from "zod";
import type { Selector } from "../kv/command.ts";
import { admitQuery } from "./admission.ts";
import type { ConnectionSubscription } from "./backend.ts";
import { type ApiContext, checkClusterId } from "./caller.ts";
import { decodeSelector, type SelectorFields } from "./decode.ts";
import { MESSAGE_BYTES_MAX_MAX, MESSAGE_BYTES_MAX_MIN } from "./limits.ts";
import { choiceOf, flagOf, integerOf, type Parameters, SELECTOR_PARAMETERS, selectorOf, textOf } from "./parameters.ts";
import { decodePosition } from "./position-text.ts";
import { refusal } from "./problem.ts";
import { selectorFields } from "./schema.ts";
import type { WireWatchParameters } from "./wire.ts";

export const WATCH_PARAMETERS = [
  ...SELECTOR_PARAMETERS,
  "from_revision",
  "after",
  "include_values",
  "prev_values",
  "filter",
  "cluster_id",
] as const;

const FILTERS = ["puts", "deletes"] as const;

export interface WatchFields extends SelectorFields {
  readonly from_revision?: number | undefined;
  readonly after?: string | undefined;
  readonly include_values?: boolean | undefined;
  readonly prev_values?: boolean | undefined;
  readonly filter?: "puts" | "deletes" | undefined;
  readonly cluster_id?: string | undefined;
}

/** Members of the params of `watch.create`, beside those that every method of a connection has. */
export const watchFields = {
  ...selectorFields,
  from_revision: z.number().optional(),
  after: z.string().optional(),
  include_values: z.boolean().optional(),
  prev_values: z.boolean().optional(),
  filter: z.enum(FILTERS).optional(),
};

/** @param lastEventId the header `Last-Event-ID`: where a reader that comes back goes on, whatever its URL says. */
export function watchOfQuery(parameters: Parameters, lastEventId?: string): WatchFields {
  const start =
    lastEventId === undefined
      ? { from_revision: integerOf(parameters, "from_revision"), after: textOf(parameters, "after") }
      : { after: lastEventId };
  return {
    ...selectorOf(parameters),
    ...start,
    include_values: parameters.values.has("include_values") ? flagOf(parameters, "include_values") : undefined,
    prev_values: flagOf(parameters, "prev_values"),
    filter: choiceOf(parameters, "filter", FILTERS),
    cluster_id: textOf(parameters, "cluster_id"),
  };
}

/** @throws ConcordError `invalid_request`, `invalid_selector`, `forbidden` or `cluster_changed`. */
export function decodeWatch(context: ApiContext, watchId: number, fields: WatchFields): ConnectionSubscription {
  const { from_revision, after } = fields;
  if (from_revision !== undefined && after !== undefined) {
    throw refusal("invalid_request", "ambiguous_start", "from_revision and after exclude each other.");
  }
  if (from_revision !== undefined && (!Number.isSafeInteger(from_revision) || from_revision < 1)) {
    throw refusal("invalid_request", "invalid_from_revision", "from_revision must be a whole number from 1.");
  }
  const selector = watchedSelector(fields);
  const afterPosition = after === undefined ? null : decodePosition(after, "The position to resume after");
  checkClusterId(context, fields.cluster_id);
  return {
    watchId,
    selector,
    includeValues: fields.include_values ?? true,
    prevValues: fields.prev_values ?? false,
    filter: fields.filter ?? null,
    fromRevision: from_revision ?? null,
    ...(afterPosition === null ? {} : { afterPosition }),
  };
}

function watchedSelector(fields: SelectorFields): Selector {
  const selector = decodeSelector(fields, "invalid_selector", "A watch");
  // The same keys and ranges as those of any read.
  admitQuery({ kind: "changes", selector, limit: 1 });
  return selector;
}

/** `max_message_bytes` of a socket; null = whatever a message needs. */
export function maxMessageBytesOf(parameters: Parameters): number | null {
  const bytes = integerOf(parameters, "max_message_bytes");
  if (bytes === undefined) return null;
  if (bytes >= MESSAGE_BYTES_MAX_MIN && bytes <= MESSAGE_BYTES_MAX_MAX) return bytes;
  const detail = `max_message_bytes must be ${MESSAGE_BYTES_MAX_MIN} to ${MESSAGE_BYTES_MAX_MAX}, is ${bytes}.`;
  throw refusal(parameters.code, "invalid_max_message_bytes", detail);
}

// The published type and the schema say the same: what a client may send is what the schema takes.
const schema = z.strictObject({ ...watchFields, cluster_id: z.string().optional() });
const agreement: WireWatchParameters extends z.input<typeof schema> ? true : WireWatchParameters = true;
void agreement;
