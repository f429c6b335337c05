/**
 * The one error class for faults of the world, with a closed set of codes (design 01 §6).
 * The code alone decides the HTTP status and whether a retry can help; nobody reads the text.
 */

/** `no`: do not repeat. `yes`: nothing was proposed, repeat freely. `same-request`: outcome unknown, repeat only the same request under its idempotency key. */
export type Retry = "no" | "yes" | "same-request";

interface CodeRule {
  readonly status: number;
  readonly retry: Retry;
  readonly title: string;
}

export const ERROR_CODES = {
  invalid_request: { status: 400, retry: "no", title: "The request is not valid" },
  invalid_kv: { status: 400, retry: "no", title: "The key-value request is not valid" },
  invalid_txn: { status: 400, retry: "no", title: "The transaction is not valid" },
  invalid_lease: { status: 400, retry: "no", title: "The lease request is not valid" },
  invalid_selector: { status: 400, retry: "no", title: "The selector is not valid" },
  body_too_large: { status: 413, retry: "no", title: "The body is too large" },
  unsupported_media_type: { status: 415, retry: "no", title: "The media type is not supported" },
  method_not_allowed: { status: 405, retry: "no", title: "The method is not allowed here" },
  unauthenticated: { status: 401, retry: "no", title: "A valid token is required" },
  forbidden: { status: 403, retry: "no", title: "Not allowed" },
  not_admin: { status: 403, retry: "no", title: "An admin token is required" },
  not_found: { status: 404, retry: "no", title: "Not found" },
  unknown_cluster: { status: 404, retry: "no", title: "No cluster of that name" },
  unknown_lease: { status: 404, retry: "no", title: "No such lease" },
  cluster_exists: { status: 409, retry: "no", title: "A cluster of that name exists" },
  lease_exists: { status: 409, retry: "no", title: "A lease of that id exists" },
  lease_limit_exceeded: { status: 409, retry: "no", title: "A limit of leases is reached" },
  idempotency_conflict: { status: 409, retry: "no", title: "The idempotency key belongs to another request" },
  too_many_keys: { status: 422, retry: "no", title: "The operation touches too many keys" },
  result_too_large: { status: 422, retry: "no", title: "The result is too large" },
  idempotency_expired: { status: 409, retry: "no", title: "The outcome under that idempotency key is no longer known" },
  revision_in_future: { status: 400, retry: "no", title: "The revision does not exist yet" },
  precondition_failed: { status: 412, retry: "no", title: "The precondition failed" },
  compacted: { status: 410, retry: "no", title: "That revision has been compacted" },
  cluster_changed: { status: 410, retry: "no", title: "The request names another cluster" },
  behind: { status: 503, retry: "yes", title: "This node has not applied that revision yet" },
  no_leader: { status: 503, retry: "yes", title: "The cluster has no leader" },
  overloaded: { status: 503, retry: "yes", title: "The node is overloaded" },
  cluster_not_ready: { status: 503, retry: "yes", title: "The cluster is not formed" },
  node_halted: { status: 503, retry: "yes", title: "This node has halted" },
  timeout: { status: 504, retry: "same-request", title: "No answer in time; the outcome is unknown" },
  no_space: { status: 507, retry: "no", title: "The storage quota is used up" },
  internal: { status: 500, retry: "same-request", title: "Internal error" },
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
