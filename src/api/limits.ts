/**
 * Limits of the HTTP surface alone, with their units; those that the state machine shares stand in `base/limits.ts`.
 * Imported by the client too, so: constants only.
 */
import { NESTING_MAX } from "../base/limits.ts";

/** How long a request waits for its answer unless it says `timeout_ms`. */
export const CALL_TIMEOUT_MS_DEFAULT = 5_000;
export const CALL_TIMEOUT_MS_MAX = 60_000;

/**
 * Depth of a request body as text. A value may be nested `NESTING_MAX` deep and stands at most four levels down in its
 * body (body, list, operation, value); anything deeper is refused before recursive code sees it.
 */
export const BODY_NESTING_MAX = NESTING_MAX + 4;

/** Clusters in one page of `GET /v1/clusters`. */
export const CLUSTERS_PAGE_MAX = 1000;
