/**
 * The one error class for faults of the world, with a closed set of codes (design 01 §6).
 * The code alone decides the HTTP status and whether a retry can help; nobody reads the text.
 */

/** `no`: do not repeat. `yes`: nothing was proposed, repeat freely. `same-request`: outcome unknown, repeat only the same request under its idempotency key. */
export type Retry = "no" | "yes" | "same-request";

interface CodeRule {
  readonly status: number;
  readonly retry: Retry;
}

export const ERROR_CODES = {
  invalid_request: { status: 400, retry: "no" },
  invalid_kv: { status: 400, retry: "no" },
  invalid_txn: { status: 400, retry: "no" },
  invalid_lease: { status: 400, retry: "no" },
  invalid_selector: { status: 400, retry: "no" },
  body_too_large: { status: 413, retry: "no" },
  unsupported_media_type: { status: 415, retry: "no" },
  method_not_allowed: { status: 405, retry: "no" },
  unauthenticated: { status: 401, retry: "no" },
  forbidden: { status: 403, retry: "no" },
  not_admin: { status: 403, retry: "no" },
  not_found: { status: 404, retry: "no" },
  unknown_cluster: { status: 404, retry: "no" },
  unknown_lease: { status: 404, retry: "no" },
  cluster_exists: { status: 409, retry: "no" },
  admin_refused: { status: 409, retry: "no" },
  lease_exists: { status: 409, retry: "no" },
  lease_limit_exceeded: { status: 409, retry: "no" },
  idempotency_conflict: { status: 409, retry: "no" },
  too_many_keys: { status: 422, retry: "no" },
  result_too_large: { status: 422, retry: "no" },
  idempotency_expired: { status: 409, retry: "no" },
  revision_in_future: { status: 400, retry: "no" },
  precondition_failed: { status: 412, retry: "no" },
  compacted: { status: 410, retry: "no" },
  cluster_changed: { status: 410, retry: "no" },
  behind: { status: 503, retry: "yes" },
  no_leader: { status: 503, retry: "yes" },
  overloaded: { status: 503, retry: "yes" },
  cluster_not_ready: { status: 503, retry: "yes" },
  node_halted: { status: 503, retry: "yes" },
  timeout: { status: 504, retry: "same-request" },
  no_space: { status: 507, retry: "no" },
  internal: { status: 500, retry: "same-request" },
} as const satisfies Record<string, CodeRule>;

export type ErrorCode = keyof typeof ERROR_CODES;

/** What an error says, as data: this is what crosses nodes, and what a problem document is made of. */
export interface ErrorBody {
  readonly code: ErrorCode;
  /** The rule that was broken, for example `too_many_compares`. */
  readonly reason?: string;
  /** One sentence: what is wrong and what would be right. */
  readonly detail: string;
  readonly leader?: number;
  readonly revision?: number;
  readonly compact_revision?: number;
}

export class ConcordError extends Error {
  override readonly name = "ConcordError";
  readonly body: ErrorBody;

  constructor(body: ErrorBody, options?: { readonly cause?: unknown }) {
    super(`${body.code}${body.reason === undefined ? "" : ` (${body.reason})`}: ${body.detail}`, options);
    this.body = body;
  }

  get code(): ErrorCode {
    return this.body.code;
  }

  /** The rule that was broken, or what is known beyond the code; null if there is nothing to add. */
  get reason(): string | null {
    return this.body.reason ?? null;
  }

  get retry(): Retry {
    return ERROR_CODES[this.body.code].retry;
  }

  get status(): number {
    return ERROR_CODES[this.body.code].status;
  }
}
