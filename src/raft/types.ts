/**
 * The vocabulary of the consensus core: entries, messages, events, output (design 02 §1). Types only.
 * Payloads are opaque text. Time comes in as `nowMs` (monotonic) and `wallMs`, goes out as `wakeAtMs`.
 */

/** A member of the cluster; small and positive. Never an agent. */
export type NodeId = number;

/** Who takes part. In force from the moment its entry is appended, committed or not (thesis 4.1). */
export interface Membership {
  readonly voters: readonly NodeId[];
  /** They get every entry, but neither vote nor count (thesis 4.2.1). */
  readonly learners: readonly NodeId[];
  /** What the caller keeps with it (the incarnations of the members); opaque here. */
  readonly extra?: string;
}

/** Where a snapshot stands, and where a log begins: the last entry it covers, and the membership in force there. */
export interface SnapshotPosition {
  readonly index: number;
  readonly term: number;
  /** That entry's time: a log that begins behind it must not go back in time. */
  readonly timeMs: number;
  readonly membership: Membership;
}

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
  | {
      readonly kind: "vote";
      readonly term: number;
      readonly lastIndex: number;
      readonly lastTerm: number;
      /** The leader itself has asked the sender to take over: do not protect that leader (thesis 4.2.3). */
      readonly transfer: boolean;
    }
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
  | { readonly kind: "wake"; readonly term: number }
  /** The entries that the receiver needs are gone here: let it fetch this snapshot (thesis 5). Repeated freely. */
  | { readonly kind: "snapshot_offer"; readonly term: number; readonly snapshot: SnapshotPosition }
  /** The leader hands its leadership over: campaign at once (thesis 3.10). */
  | { readonly kind: "timeout_now"; readonly term: number };

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
  | { readonly kind: "probe" }
  /** The leader shall change who takes part; answered by `proposed` or `refusal`. Ids in any order. */
  /** `repliedSinceMs`: by the monotonic clock; a majority of those who would vote must have replied since (default: lately). */
  | { readonly kind: "change_membership"; readonly membership: Membership; readonly repliedSinceMs?: number }
  /** The leader shall hand its leadership over to this voter; answered by `refusal` (null: it tries). */
  | { readonly kind: "transfer"; readonly to: NodeId }
  /**
   * Entries up to `index` are not needed here any more: the state that is durable covers them. A snapshot that is being
   * served below it is useless from then on.
   */
  | { readonly kind: "truncate_log"; readonly index: number }
  /**
   * The leader can serve this snapshot of its own applied state, and does so as long as anybody needs it
   * (`snapshotPeers`); null: the one it could serve is gone.
   */
  | { readonly kind: "snapshot_ready"; readonly snapshot: SnapshotPosition | null }
  /** A snapshot lies here complete and verified; taken in (`persist.install`) or refused (no `install`: discard it). */
  | { readonly kind: "snapshot_staged"; readonly snapshot: SnapshotPosition };

/** Why a request was not taken. Nothing was appended, nothing has begun. */
export type Refusal =
  | "not_leader"
  /** The leader is handing over; it goes on or another leads within an election timeout. */
  | "transferring"
  /** The term's first entry is not committed yet. */
  | "not_ready"
  /** An earlier change of membership is not committed yet. */
  | "change_pending"
  /** Not well-formed: nobody votes, too many members, an id twice. */
  | "invalid_membership"
  /** It is in force already. */
  | "unchanged"
  /** More than one voter would come or go at once. */
  | "several_voters"
  /** The new voter is no learner, or not close enough behind the leader. */
  | "not_caught_up"
  /** The leader does not reach a majority of what would be the voters. */
  | "quorum_unreachable"
  | "not_a_voter"
  | "already_leader";

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

/** A snapshot takes the place of the state and of the log up to its index, or of the whole log. */
export interface Install {
  readonly snapshot: SnapshotPosition;
  /** True: the entries behind the snapshot's index stay. */
  readonly keepsSuffix: boolean;
}

/** What must be durable. The caller hands `receipt` back in a `stored` event once it is. */
export interface Persist {
  readonly receipt: Receipt;
  readonly hardState: HardState | null;
  /** Remove every entry with an index >= this one, before appending. */
  readonly truncateFrom: number | null;
  /** Swap in the staged state together with its position, which becomes the log's base: one transaction (S53). */
  readonly install: Install | null;
  readonly append: readonly Entry[];
  /** Remove every entry with an index <= this one's and remember it as the log's base: one transaction. */
  readonly dropThrough: SnapshotPosition | null;
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
  /** For `propose` and `change_membership`: where the entries were appended; null when they were refused. */
  readonly proposed: { readonly firstIndex: number; readonly term: number } | null;
  /** For `propose`, `change_membership` and `transfer`: why not; null when the request was taken. */
  readonly refusal: Refusal | null;
  /** A member needs a snapshot and there is none that helps: make one, answer `snapshot_ready`. Repeated until then. */
  readonly snapshotWanted: boolean;
  /** Fetch this snapshot from `from`, then say `snapshot_staged`. Repeated; a newer one takes the place of an older one. */
  readonly snapshotOffer: { readonly from: NodeId; readonly snapshot: SnapshotPosition } | null;
  /** Call `step` with a tick no later than this (monotonic ms). Infinity: asleep, no tick needed. */
  readonly wakeAtMs: number;
}
