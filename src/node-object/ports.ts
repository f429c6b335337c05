/**
 * The ports of the node runtime: all that it knows of the world (design 02 §2). Types only.
 * The Durable Object implements them over SQLite, sockets, timers and the alarm; the simulator implements them with a
 * seeded disk, network and clock. The runtime itself (`runtime.ts`) has no other I/O.
 *
 * P1. Everything is synchronous within a turn. A turn is one call into the runtime (one message, timer, request).
 * P2. All writes of one turn become durable together or not at all; what is sent after the first write of the turn
 *     leaves only once they are durable (the output gate), what is sent before leaves at once.
 * P3. If `write` throws, the runtime calls `abort` in the same turn and never touches its ports again.
 */
import type { CompactionPolicy } from "../kv/history-marks.ts";
import type { Change } from "../kv/overlay.ts";
import type { OrderedStore, Row, ScanRange } from "../kv/store.ts";
import type { Entry, HardState, Message, NodeId } from "../raft/types.ts";
import type { EncodeEvent } from "../watch/encoded-event.ts";
import type { Frame } from "../watch/frames.ts";
import type { SavedWatch, WatchOptions } from "../watch/hub.ts";

/** Who this storage belongs to. Written once when the storage is first used, then on each step of forming. */
export interface Identity {
  /** Random, made when the storage was empty: another incarnation is another member. */
  readonly incarnation: number;
  readonly membership:
    | { readonly kind: "empty" }
    /**
     * `members`: those with which the cluster began; all later changes are in the log. Of a node that was taken in later
     * they are not known, and empty.
     */
    /** All members have been asked, not all have adopted: no election yet. */
    | { readonly kind: "forming"; readonly clusterId: string; readonly members: readonly Member[] }
    | { readonly kind: "formed"; readonly clusterId: string; readonly members: readonly Member[] }
    /** Empty storage that has heard of a cluster: does not count and does not serve until re-admitted. */
    | { readonly kind: "lost"; readonly clusterId: string };
}

export interface Member {
  readonly id: NodeId;
  readonly incarnation: number;
}

/** Where a snapshot stands, and where a log begins: the last entry it covers, and the membership in force there. */
export interface SnapshotPosition {
  readonly index: number;
  readonly term: number;
  readonly timeMs: number;
  readonly membership: {
    readonly voters: readonly NodeId[];
    readonly learners: readonly NodeId[];
    readonly extra?: string;
  };
}

/** What a node finds when it starts. Null fields: the storage is new. */
export interface LoadedState {
  readonly identity: Identity | null;
  readonly hardState: HardState;
  /** The log begins behind it; null: at entry 1. */
  readonly base: SnapshotPosition | null;
  /** Of the last entry; of the base if there is none. */
  readonly lastIndex: number;
  readonly lastTerm: number;
  readonly lastTimeMs: number;
  /** The `membership` entries of the log, oldest first. */
  readonly memberships: readonly Entry[];
  /** Whom the leader that this node was left behind as it fell asleep (sleep.ts S3); null: nobody, or it led not. */
  readonly sleep: SleepNote | null;
  /** Set when an invariant was broken: the node serves nothing until repaired. */
  readonly halted: string | null;
}

/** What a sleeping leader must know again when its instance has gone. */
export interface SleepNote {
  readonly missed: readonly NodeId[];
  /** Pause before the next look for them. */
  readonly probeAfterMs: number;
  /** When work of the log is due, by the own wall clock; null: never. */
  readonly dueAtWallMs: number | null;
}

/** A snapshot takes the place of the state, and of the log up to its index or of the whole log. */
export interface Install {
  readonly snapshot: SnapshotPosition;
  /** True: the entries behind the snapshot's index stay. */
  readonly keepsSuffix: boolean;
}

/** Writes of one turn; the statements run in the order of the fields. */
export interface WriteBatch {
  /**
   * Gives up all that is there, whatever it is: the storage is as good as new and belongs to this identity. Nothing else
   * goes with it. Fast also for a large state.
   */
  readonly reset?: Identity;
  readonly identity?: Identity;
  readonly hardState?: HardState;
  readonly truncateFrom?: number;
  /** The staged snapshot, which is complete, becomes the state. Other rows do not go with it. */
  readonly install?: Install;
  readonly append?: readonly Entry[];
  /** Removes every entry with an index <= this one's; it becomes the base of the log. */
  readonly dropThrough?: SnapshotPosition;
  /** A row of its own, rewritten: makes a confirmation round stand behind a storage write. */
  readonly fence?: number;
  /** State rows; a null value deletes. */
  readonly state?: readonly (readonly [key: string, value: string | null])[];
  readonly sleep?: SleepNote | null;
  readonly halted?: string;
}

/** A row of the state as it is stored: its value behind its seal (state-seals.ts). */
export type SealedRow = readonly [key: string, sealed: string];

/** What a snapshot must turn out to be: `hash` is the set hash of its rows. */
export interface SnapshotManifest {
  readonly position: SnapshotPosition;
  readonly rowsCount: number;
  readonly hash: number;
}

export interface SnapshotChunk {
  /** Of the snapshot's position. */
  readonly index: number;
  readonly term: number;
  /** The rows follow this key; null: they are the first. */
  readonly after: string | null;
  /** In the order of their keys. May be empty although more follow: then ask again. */
  readonly rows: readonly SealedRow[];
  readonly last: boolean;
}

/** The durable state as it was at one moment, for others to fetch while writes go on. In memory: it ends with the instance. */
export interface SnapshotSource {
  /**
   * Pins the durable state, which the caller has flushed: it is that of `position`. Ends an earlier one. Null: the sums of
   * the state are not known yet (see `cleanUp`).
   */
  begin(position: SnapshotPosition): SnapshotManifest | null;
  /** The rows behind `after`, about `bytesMax` of them and at least one if there is one. Null: nothing is pinned. */
  read(after: string | null, bytesMax: number): SnapshotChunk | null;
  end(): void;
}

/** How far a snapshot from elsewhere has come. Durable with each turn. */
export interface StagingState {
  readonly manifest: SnapshotManifest;
  /** What follows this key comes next; null: the first rows. */
  readonly afterKey: string | null;
  readonly rowsCount: number;
  /** `damaged`: all rows have come, but they are not those of the manifest. */
  readonly status: "receiving" | "complete" | "damaged";
}

/** A snapshot on its way in, beside the state that it will replace (`WriteBatch.install`). */
export interface SnapshotStaging {
  /** Discards an earlier one. False: the place is still being emptied, begin again after `cleanUp`. */
  begin(manifest: SnapshotManifest): boolean;
  /** `stale`: not what comes next. `damaged`: a seal or the order of keys is wrong. Neither changes anything. */
  add(chunk: SnapshotChunk): "taken" | "stale" | "damaged";
  state(): StagingState | null;
  discard(): void;
}

/**
 * A place for the rows of a backup, apart from the state and from what replaces it. In memory: what is there ends with the
 * instance, whatever the disk still holds of it.
 */
export interface RowSpool extends Pick<OrderedStore, "get" | "scan"> {
  /** One bounded step towards an empty place. True: it is empty, and in use until `end`. */
  begin(): boolean;
  write(changes: readonly Change[]): void;
  end(): void;
}

/** Reads the whole state again and again in steps, and verifies it. In memory: a new instance begins from the start. */
export interface StateScrub {
  /**
   * Verifies the next rows, `rowsMax` at most, and tells what has been passed so far, as it is now. At the end of a pass
   * (`afterKey` null) the sums must be those that were kept all along. @throws CorruptionError
   */
  step(rowsMax: number): ScrubStep;
}

export interface ScrubStep {
  readonly afterKey: string | null;
  readonly rowsCount: number;
  readonly hash: number;
}

export interface NodeStorage {
  /** Verifies format version and checksums. @throws CorruptionError */
  load(): LoadedState;
  /** @throws whatever the disk throws; see P3. */
  write(batch: WriteBatch): void;
  /** Entries with from <= index <= to, at least one if there is one, then as many as fit `bytesMax`. */
  readLog(from: number, to: number, bytesMax: number): Entry[];
  /** The index from which on the entries of the log hold about `bytesMax`, or fewer. Looks at every row: not for each turn. */
  logIndexWithin(bytesMax: number): number;
  /** The durable state rows, including those written earlier in this turn. */
  get(key: string): string | undefined;
  scan(range: ScanRange): Row[];
  readonly snapshot: SnapshotSource;
  readonly staging: SnapshotStaging;
  readonly spool: RowSpool;
  readonly scrub: StateScrub;
  /**
   * The set hash: the sum of the seals of all state rows, modulo 2^53. Null: not known yet, in a database of an earlier
   * format.
   */
  readonly stateHash: number | null;
  /** One bounded step of what may be done at leisure: empties what was replaced or given up. True: there is more to do. */
  cleanUp(): boolean;
  /** Size of the database in bytes. */
  readonly bytes: number;
  /** Calls `done` in a later turn, when every write so far is durable. Never if the node dies before. */
  afterSync(done: () => void): void;
}

/** A row failed its checksum or has an unknown format: the node halts, naming the row. */
export class CorruptionError extends Error {
  override readonly name = "CorruptionError";
}

/** What nodes say to each other. */
export type PeerBody =
  | { readonly kind: "raft"; readonly message: Message }
  | {
      readonly kind: "hello";
      readonly membership: Identity["membership"];
      readonly reply: boolean;
      /** A reply has that of the hello which it answers, and so is known to be no older; 0 = none. */
      readonly question: number;
    }
  /**
   * A follower hands commands of its clients to the leader of `term`, in order. A leader takes an id once in its term and
   * refuses any other term, so a repeated or late message can never propose a command twice.
   */
  | { readonly kind: "forward"; readonly term: number; readonly calls: readonly ForwardedCall[] }
  | { readonly kind: "forward_reply"; readonly replies: readonly ForwardReply[] }
  /** The next rows of the snapshot at this index, behind `after` (null: the first); answered by whoever serves it. */
  | {
      readonly kind: "snapshot_request";
      readonly index: number;
      readonly term: number;
      readonly after: string | null;
      /** How many chunks, at most. */
      readonly chunks: number;
    }
  | { readonly kind: "snapshot_chunk"; readonly manifest: SnapshotManifest; readonly chunk: SnapshotChunk }
  /** What is your digest after this entry? Answered once it is applied, or never (digest-check.ts). */
  | { readonly kind: "digest_request"; readonly term: number; readonly index: number }
  | { readonly kind: "digest_reply"; readonly term: number; readonly index: number; readonly digest: string }
  /** The leader: a majority has this digest after that entry. */
  | { readonly kind: "diverged"; readonly term: number; readonly index: number; readonly digest: string }
  /** Messages of topics for the subscribers of the receiver. Lossy; wakes no consensus. `payload`: JSON text. */
  | { readonly kind: "topics"; readonly messages: readonly { readonly topic: string; readonly payload: string }[] };

export interface ForwardedCall {
  readonly id: number;
  readonly payload: string;
  /** What is left of its caller's patience. */
  readonly timeoutMs: number;
  /** Goes before those that are not (call-queue.ts). */
  readonly isUrgent: boolean;
}

export interface ForwardReply {
  readonly id: number;
  readonly outcome: ForwardOutcome;
}

/** `outcome`: the JSON text of the command's outcome. `not_leader`, `overloaded`: nothing was proposed. `unknown`: it may be. */
export type ForwardOutcome =
  | { readonly kind: "outcome"; readonly outcome: string }
  | { readonly kind: "not_leader"; readonly leader: NodeId | null }
  | { readonly kind: "overloaded" }
  | { readonly kind: "unknown" };

export interface PeerEnvelope {
  /** The version in which this is said, and the highest that the sender speaks (versions.ts). */
  readonly protocol: number;
  readonly speaks: number;
  /** Null until the sender knows a cluster. */
  readonly clusterId: string | null;
  readonly from: NodeId;
  readonly fromIncarnation: number;
  readonly to: NodeId;
  /** The receiver's incarnation as the sender knows it; null while forming. */
  readonly toIncarnation: number | null;
  readonly body: PeerBody;
}

export interface Transport {
  /** Best effort, never throws, never blocks; Raft repeats what is lost. */
  send(envelope: PeerEnvelope): void;
  /**
   * While the node rests it holds no stream that it opened itself, which would keep it resident, and opens none: what it
   * sends goes by single requests.
   */
  setResting(resting: boolean): void;
}

/** The sockets and streams of clients that watch this node. */
export interface Watchers {
  /** Makes the text of an event, which all watches share. */
  readonly encode: EncodeEvent;
  /**
   * Watches whose sockets outlived an earlier instance, with what `send` saved of them. Called once, before the node
   * applies anything.
   */
  restore(): readonly { readonly options: WatchOptions; readonly saved: SavedWatch }[];
  /**
   * Hands out the frames of one pump, in order. Positions are saved with the sockets in the same turn, so that a later
   * instance goes on behind what was sent. Must not throw.
   */
  send(frames: readonly Frame[], positionsOf: (connection: string) => readonly SavedWatch[]): void;
  /** Its client has taken nothing for too long: the connection ends, with all its watches. Must not throw. */
  drop(connection: string): void;
  /** All of them, as this node serves nobody any more. Must not throw. */
  dropAll(): void;
  /**
   * Clients know the cluster by another name from here on: those who keep a socket, and were told the old one when it was
   * opened, must come again. Must not throw.
   */
  renamed(): void;
  /** Must not throw. */
  topic(topic: string, payload: string): void;
}

export interface Clock {
  /** Milliseconds that only ever grow within one instance. */
  nowMs(): number;
  /** The wall clock, which may jump. */
  wallMs(): number;
}

export interface Wake {
  /**
   * One timer: a later call replaces an earlier one; Infinity: none. The runtime's `onTimer` is called at or after `atMs`
   * (monotonic).
   */
  setTimer(atMs: number): void;
  /**
   * One alarm, durable with this turn's writes: `onAlarm` is called at or after `atWallMs`, also on a new instance. Null:
   * none.
   */
  setAlarm(atWallMs: number | null): void;
}

export interface Ports {
  readonly storage: NodeStorage;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly wake: Wake;
  readonly watchers: Watchers;
  /** Ends this instance: nothing of the current turn takes effect, memory is lost, storage stays. */
  abort(reason: string): void;
  /** Ends this instance soon, once what it has answered is on its way. Another one starts when it is wanted. */
  restart(reason: string): void;
  /** Structured log line; never throws. */
  log(
    level: "info" | "warn" | "error",
    message: string,
    fields: Readonly<Record<string, string | number | boolean | null>>,
  ): void;
}

export interface NodeConfig {
  readonly id: NodeId;
  /** Every configured member, own id included: 1, 3, 5 or 7 of them. */
  readonly members: readonly NodeId[];
  readonly heartbeatMs: number;
  readonly electionTimeoutMsMin: number;
  readonly electionTimeoutMsMax: number;
  /** ReadIndex fence (design 02 §1). Off only where one process exclusively owns the data folder. */
  readonly fence: boolean;
  /** A leader that nobody has asked anything for so long lets the cluster sleep (design 02 §4). */
  readonly quiesceAfterMs: number;
  /** Growing writes are refused while the state is above this (design 01 §5). */
  readonly quotaBytes: number;
  readonly compaction: CompactionPolicy;
  /** Entries that the log keeps beyond what the slowest live member has, and bytes that it keeps at most. */
  readonly logKeepEntries: number;
  readonly logKeepBytes: number;
  /** Pause between two steps of housekeeping.ts; Infinity = never. */
  readonly housekeepingMs: number;
  /** The highest version that this node speaks (versions.ts): lower than it could only to behave as an older node does. */
  readonly protocolMax: number;
  /** Seed of the node's own randomness (election timeouts, incarnation). */
  readonly seed: number;
}
