/**
 * The vocabulary of the consensus core: entries, messages, events, output (design 02 §1). Types only.
 * Payloads are opaque text. Time comes in as `nowMs` (monotonic) and `wallMs`, goes out as `wakeAtMs`.
 */

/** A member of the cluster, 1..7. Never an agent. */
export type NodeId = number;

export interface Entry {
  readonly index: number;
  readonly term: number;
  /** The state machine's only clock: never lower than the previous entry's (design 02 §3). */
  readonly timeMs: number;
  readonly kind: "leader_start" | "command" | "membership";
  /** Opaque, but for `membership` (`membership.ts`). */
  readonly payload: string;
  /** UTF-8 length of `payload`, computed once. */
  readonly payloadBytes: number;
}

export interface HardState {
  readonly term: number;
  readonly votedFor: NodeId | null;
}

export type Message =
  | { readonly kind: "pre_vote"; readonly term: number; readonly lastIndex: number; readonly lastTerm: number }
  | { readonly kind: "pre_vote_reply"; readonly term: number; readonly granted: boolean }
  | { readonly kind: "vote"; readonly term: number; readonly lastIndex: number; readonly lastTerm: number }
  | { readonly kind: "vote_reply"; readonly term: number; readonly granted: boolean; readonly wallMs: number }
  | {
      readonly kind: "append";
      readonly term: number;
      readonly prevIndex: number;
      readonly prevTerm: number;
      readonly commit: number;
      /** The confirmation round that a reply to this message counts for; 0 = none (ReadIndex). */
      readonly round: number;
      /** Empty = heartbeat. */
      readonly entries: readonly Entry[];
    }
  | {
      readonly kind: "append_reply";
      readonly term: number;
      readonly result: AppendResult;
      readonly round: number;
      readonly wallMs: number;
    }
  | { readonly kind: "read_index"; readonly term: number; readonly context: number }
  /** `index` null: the receiver is not a leader that can serve; ask again. */
  | {
      readonly kind: "read_index_reply";
      readonly term: number;
      readonly context: number;
      readonly index: number | null;
      /** The leader's log time, so that a follower measures what is left of a lease by it; 0 without an index. */
      readonly timeMs: number;
    }
  /** The leader falls asleep: whoever holds the same log, committed to its end, stops its timer (design 02 §4). */
  | {
      readonly kind: "quiesce";
      readonly term: number;
      readonly index: number;
      readonly commit: number;
      /** The leader's log time at the moment of sending: a sleeper keeps the log's clock by it. */
      readonly timeMs: number;
    }
  /** Somebody has something to do: do not sleep, and if you lead, say so. */
  | { readonly kind: "wake"; readonly term: number };

export type AppendResult =
  | { readonly kind: "matched"; readonly index: number }
  /** The follower's entry at `prevIndex` differs or is missing: `index`/`term` say where to look next. */
  | { readonly kind: "conflict"; readonly prevIndex: number; readonly index: number; readonly term: number };

export interface Envelope {
  readonly from: NodeId;
  readonly to: NodeId;
  readonly message: Message;
}

export type Event =
  | { readonly kind: "tick" }
  | { readonly kind: "message"; readonly from: NodeId; readonly message: Message }
  | { readonly kind: "propose"; readonly payloads: readonly ProposalPayload[] }
  /**
   * Asks for a linearizable read; answered by `reads` with the same context, or never (then ask again). Answers are matched
   * by the context alone: none may be used twice, not even by a later instance of this node.
   */
  | { readonly kind: "read"; readonly context: number }
  /** The writes of an earlier output are durable. */
  | { readonly kind: "stored"; readonly receipt: Receipt }
  /** The cluster may sleep. A leader does it if nothing is left to do; else nothing happens, and one asks again. */
  | { readonly kind: "quiesce" }
  /** There is something to do here: end the own sleep, and find the leader if none is known. May be repeated freely. */
  | { readonly kind: "wake" }
  /** For a sleeping leader: look after the members that did not follow it into sleep. An answer wakes it. */
  | { readonly kind: "probe" };

/** What became durable: the log up to (index, indexTerm), and in `term` the fence of `round` (0 = none). */
export interface Receipt {
  readonly index: number;
  readonly indexTerm: number;
  readonly term: number;
  readonly round: number;
}

export interface ProposalPayload {
  readonly payload: string;
  readonly payloadBytes: number;
}

/** What must be durable. The caller hands `receipt` back in a `stored` event once it is. */
export interface Persist {
  readonly receipt: Receipt;
  readonly hardState: HardState | null;
  /** Remove every entry with an index >= this one, before appending. */
  readonly truncateFrom: number | null;
  readonly append: readonly Entry[];
  /** A confirmation round needs some storage write of this turn (fence); 0 = none. Any other write serves as well. */
  readonly fence: number;
}

/** Work for the caller, in the order in which the fields must be carried out. The order is the durability rule. */
export interface Output {
  /** Only a leader's appends of entries of its own, durable term: may leave before `persist`. */
  readonly sendEarly: readonly Envelope[];
  readonly persist: Persist | null;
  /** Everything else: leaves only when `persist` and that of every earlier output are durable (a repeated reply has none). */
  readonly sendLate: readonly Envelope[];
  /** Every entry up to this index is committed: apply what is not yet applied. */
  readonly commitIndex: number;
  readonly reads: readonly { readonly context: number; readonly index: number }[];
  /** For a propose event: where the proposals were appended, or null when this node does not lead. */
  readonly proposed: { readonly firstIndex: number; readonly term: number } | null;
  /** Call `step` with a tick no later than this (monotonic ms). Infinity: asleep, no tick needed. */
  readonly wakeAtMs: number;
}
