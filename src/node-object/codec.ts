/**
 * Entries and peer envelopes as text: for rows of the log and for frames between nodes. Pure.
 *
 * K1. A block is one line of JSON and then raw text. The line holds the lengths, so payloads (JSON text themselves)
 *     are neither escaped nor parsed again.
 * K2. Decoding never throws and trusts nothing: a frame comes from the network, a row from a disk. What is malformed,
 *     cut short, too long or of another protocol version is refused with a reason.
 * K3. decode(encode(x)) equals x. Unknown properties are dropped, so a later version may add some.
 *
 * Must not: know who is asking (identity and incarnations are the runtime's business) or touch storage or sockets.
 */
import { unreachable } from "../base/assert.ts";
import { parseMembership, readMembership } from "../raft/membership.ts";
import type { AppendResult, Entry, Message, SnapshotPosition } from "../raft/types.ts";
import type { ForwardOutcome, Identity, Member, PeerBody, PeerEnvelope, SealedRow, SnapshotManifest } from "./ports.ts";

export const PROTOCOL_VERSION = 1;
/** Of the tables of a node's storage. 1: no base, no snapshots, no sums of the state. */
export const FORMAT_VERSION = 2;

/** Far above the largest append (one entry of `TXN_BYTES_MAX`); what is longer is not ours. */
export const FRAME_UNITS_MAX = 8 << 20;

export type Decoded =
  | { readonly ok: true; readonly envelope: PeerEnvelope }
  | { readonly ok: false; readonly reason: string };

/** Positions in this list are written to disk and to the network: append only. */
const ENTRY_KINDS = ["leader_start", "command", "membership"] as const satisfies readonly Entry["kind"][];

// --- entries ---------------------------------------------------------------------------------------------------------

export function encodeEntries(entries: readonly Entry[]): string {
  const heads: (readonly number[])[] = [];
  let payloads = "";
  for (const entry of entries) {
    const kind = ENTRY_KINDS.indexOf(entry.kind);
    heads.push([entry.index, entry.term, entry.timeMs, kind, entry.payload.length, entry.payloadBytes]);
    payloads += entry.payload;
  }
  return `${JSON.stringify(heads)}\n${payloads}`;
}

/** Null if `text` is not exactly what {@link encodeEntries} writes. */
export function decodeEntries(text: string): Entry[] | null {
  const block = splitBlock(text);
  if (block === null || !Array.isArray(block.head)) return null;
  const entries: Entry[] = [];
  let position = 0;
  for (const head of block.head) {
    const entry = entryOf(head, block.tail, position);
    if (entry === null) return null;
    position += entry.payload.length;
    entries.push(entry);
  }
  return position === block.tail.length ? entries : null;
}

function entryOf(head: unknown, tail: string, position: number): Entry | null {
  if (!Array.isArray(head) || head.length !== 6) return null;
  const [index, term, timeMs, kindNumber, units, payloadBytes] = head as unknown[];
  if (!isCounter(index) || !isCounter(term) || !isCounter(timeMs) || !isCounter(kindNumber)) return null;
  if (!isCounter(units) || !isCounter(payloadBytes)) return null;
  const kind = ENTRY_KINDS[kindNumber];
  // A UTF-16 unit takes one to three bytes; counting them again would cost a pass over every payload.
  if (kind === undefined || payloadBytes < units || payloadBytes > units * 3) return null;
  if (position + units > tail.length) return null;
  const payload = tail.slice(position, position + units);
  if (kind === "membership" && parseMembership(payload) === null) return null;
  return { index, term, timeMs, kind, payload, payloadBytes };
}

// --- envelopes -------------------------------------------------------------------------------------------------------

export function encodeFrame(envelope: PeerEnvelope): string {
  const { head, tail } = bodyBlock(envelope.body);
  const line = {
    protocol: envelope.protocol,
    clusterId: envelope.clusterId,
    from: envelope.from,
    fromIncarnation: envelope.fromIncarnation,
    to: envelope.to,
    toIncarnation: envelope.toIncarnation,
    body: head,
  };
  return `${JSON.stringify(line)}\n${tail}`;
}

/** The part of a body that goes into the JSON line, and the raw text behind it. */
function bodyBlock(body: PeerBody): { readonly head: unknown; readonly tail: string } {
  switch (body.kind) {
    case "hello":
      return { head: body, tail: "" };
    case "raft": {
      if (body.message.kind !== "append") return { head: body, tail: "" };
      const { entries, ...message } = body.message;
      return { head: { kind: "raft", message }, tail: entries.length === 0 ? "" : encodeEntries(entries) };
    }
    case "forward": {
      const calls = body.calls.map(({ id, payload, timeoutMs, isUrgent }) => [id, payload.length, timeoutMs, isUrgent]);
      return { head: { ...body, calls }, tail: body.calls.map(({ payload }) => payload).join("") };
    }
    case "topics": {
      const messages = body.messages.map(({ topic, payload }) => [topic, payload.length]);
      return { head: { ...body, messages }, tail: body.messages.map(({ payload }) => payload).join("") };
    }
    case "snapshot_chunk": {
      const { rows, ...chunk } = body.chunk;
      const heads = rows.map(([key, sealed]) => [key, sealed.length]);
      return { head: { ...body, chunk, rows: heads }, tail: rows.map(([, sealed]) => sealed).join("") };
    }
    case "snapshot_request":
    case "digest_request":
    case "digest_reply":
    case "diverged":
      return { head: body, tail: "" };
    case "forward_reply": {
      let tail = "";
      const replies = body.replies.map(({ id, outcome }) => {
        if (outcome.kind !== "outcome") return [id, 0, outcome];
        tail += outcome.outcome;
        return [id, outcome.outcome.length, { kind: "outcome" }];
      });
      return { head: { ...body, replies }, tail };
    }
    default:
      return unreachable(body);
  }
}

export function decodeFrame(text: string): Decoded {
  if (text.length > FRAME_UNITS_MAX) return refused(`frame of ${text.length} units`);
  const block = splitBlock(text);
  if (block === null || !isObject(block.head)) return refused("the first line is not a JSON object");
  const line = block.head;
  if (line.protocol !== PROTOCOL_VERSION) return refused(`protocol ${String(line.protocol)}`);
  if (line.clusterId !== null && !isName(line.clusterId)) return refused("clusterId");
  if (!isNode(line.from) || !isNode(line.to)) return refused("from or to");
  if (!isCounter(line.fromIncarnation)) return refused("fromIncarnation");
  if (line.toIncarnation !== null && !isCounter(line.toIncarnation)) return refused("toIncarnation");
  const body = bodyOf(line.body, block.tail);
  if (body === null) return refused("body");
  return {
    ok: true,
    envelope: {
      protocol: PROTOCOL_VERSION,
      clusterId: line.clusterId,
      from: line.from,
      fromIncarnation: line.fromIncarnation,
      to: line.to,
      toIncarnation: line.toIncarnation,
      body,
    },
  };
}

function refused(reason: string): Decoded {
  return { ok: false, reason };
}

function bodyOf(head: unknown, tail: string): PeerBody | null {
  if (!isObject(head)) return null;
  // Only these kinds carry text behind the line; on any other it is a sign of a mixed-up frame.
  const bare = tail === "";
  switch (head.kind) {
    case "raft": {
      const message = messageOf(head.message, tail);
      return message === null ? null : { kind: "raft", message };
    }
    case "hello": {
      const membership = membershipOf(head.membership);
      const { reply, question = 0 } = head; // earlier versions ask no question
      if (membership === null || typeof reply !== "boolean" || !isCounter(question) || !bare) return null;
      return { kind: "hello", membership, reply, question };
    }
    case "forward": {
      const calls = partsOf(head.calls, tail, ([id, , timeoutMs, isUrgent], payload) => {
        if (!isCounter(id) || !isCounter(timeoutMs) || typeof isUrgent !== "boolean") return null;
        return { id, payload, timeoutMs, isUrgent };
      });
      return calls === null || !isCounter(head.term) ? null : { kind: "forward", term: head.term, calls };
    }
    case "forward_reply": {
      const replies = partsOf(head.replies, tail, ([id, , outcomeHead], text) => {
        const outcome = forwardOutcomeOf(outcomeHead, text);
        return isCounter(id) && outcome !== null ? { id, outcome } : null;
      });
      return replies === null ? null : { kind: "forward_reply", replies };
    }
    case "snapshot_request": {
      const { index, term, after } = head;
      if (!isCounter(index) || !isCounter(term) || !(after === null || typeof after === "string") || !bare) return null;
      return { kind: "snapshot_request", index, term, after };
    }
    case "snapshot_chunk": {
      const manifest = manifestOf(head.manifest);
      const chunk = isObject(head.chunk) ? head.chunk : {};
      const { index, term, after, last } = chunk;
      const rows = partsOf(head.rows, tail, ([key], sealed): SealedRow | null =>
        typeof key === "string" ? [key, sealed] : null,
      );
      if (manifest === null || rows === null || !isCounter(index) || !isCounter(term)) return null;
      if (!(after === null || typeof after === "string") || typeof last !== "boolean") return null;
      return { kind: "snapshot_chunk", manifest, chunk: { index, term, after, rows, last } };
    }
    case "digest_request":
      if (!isCounter(head.index) || !isCounter(head.term) || !bare) return null;
      return { kind: "digest_request", term: head.term, index: head.index };
    case "digest_reply":
    case "diverged":
      if (!isCounter(head.index) || !isCounter(head.term) || !isName(head.digest) || !bare) return null;
      return { kind: head.kind, term: head.term, index: head.index, digest: head.digest };
    case "topics": {
      const messages = partsOf(head.messages, tail, ([topic], payload) => (isName(topic) ? { topic, payload } : null));
      return messages === null ? null : { kind: "topics", messages };
    }
    default:
      return null;
  }
}

/** Items whose second field is the length of their text, which stand one behind the other in `tail` and fill it. */
function partsOf<T>(
  heads: unknown,
  tail: string,
  read: (head: readonly unknown[], text: string) => T | null,
): T[] | null {
  if (!Array.isArray(heads)) return null;
  const parts: T[] = [];
  let position = 0;
  for (const head of heads as unknown[]) {
    const units: unknown = Array.isArray(head) ? head[1] : null;
    if (!Array.isArray(head) || !isCounter(units) || position + units > tail.length) return null;
    const part = read(head, tail.slice(position, position + units));
    if (part === null) return null;
    parts.push(part);
    position += units;
  }
  return position === tail.length ? parts : null;
}

function forwardOutcomeOf(head: unknown, tail: string): ForwardOutcome | null {
  if (!isObject(head)) return null;
  if (head.kind === "outcome") return { kind: "outcome", outcome: tail };
  if (tail !== "") return null;
  switch (head.kind) {
    case "not_leader":
      return head.leader === null || isNode(head.leader) ? { kind: "not_leader", leader: head.leader } : null;
    case "overloaded":
    case "unknown":
      return { kind: head.kind };
    default:
      return null;
  }
}

function messageOf(head: unknown, tail: string): Message | null {
  if (!isObject(head) || !isCounter(head.term)) return null;
  const term = head.term;
  if (head.kind === "append") return appendOf(head, term, tail);
  if (tail !== "") return null;
  switch (head.kind) {
    case "pre_vote":
    case "vote": {
      if (!isCounter(head.lastIndex) || !isCounter(head.lastTerm)) return null;
      const { kind, lastIndex, lastTerm, transfer = false } = head; // earlier versions know no transfer
      if (kind === "pre_vote") return { kind, term, lastIndex, lastTerm };
      return typeof transfer === "boolean" ? { kind, term, lastIndex, lastTerm, transfer } : null;
    }
    case "pre_vote_reply":
      return typeof head.granted === "boolean" ? { kind: "pre_vote_reply", term, granted: head.granted } : null;
    case "vote_reply":
      if (typeof head.granted !== "boolean" || !isCounter(head.wallMs)) return null;
      return { kind: "vote_reply", term, granted: head.granted, wallMs: head.wallMs };
    case "append_reply": {
      const result = appendResultOf(head.result);
      if (result === null || !isCounter(head.round) || !isCounter(head.wallMs)) return null;
      return { kind: "append_reply", term, result, round: head.round, wallMs: head.wallMs };
    }
    case "read_index":
      return isCounter(head.context) ? { kind: "read_index", term, context: head.context } : null;
    case "read_index_reply":
      if (!isCounter(head.context) || !(head.index === null || isCounter(head.index))) return null;
      if (!isCounter(head.timeMs)) return null;
      return { kind: "read_index_reply", term, context: head.context, index: head.index, timeMs: head.timeMs };
    case "quiesce":
      if (!isCounter(head.index) || !isCounter(head.commit) || !isCounter(head.timeMs)) return null;
      return { kind: "quiesce", term, index: head.index, commit: head.commit, timeMs: head.timeMs };
    case "wake":
    case "timeout_now":
      return { kind: head.kind, term };
    case "snapshot_offer": {
      const snapshot = snapshotPositionOf(head.snapshot);
      return snapshot === null || snapshot.term > term ? null : { kind: "snapshot_offer", term, snapshot };
    }
    default:
      return null;
  }
}

/** Reads the position of a snapshot from parsed JSON. */
export function snapshotPositionOf(value: unknown): SnapshotPosition | null {
  if (!isObject(value)) return null;
  const { index, term, timeMs } = value;
  const membership = readMembership(value.membership);
  if (!isCounter(index) || !isCounter(term) || !isCounter(timeMs) || membership === null) return null;
  return { index, term, timeMs, membership };
}

function manifestOf(value: unknown): SnapshotManifest | null {
  if (!isObject(value) || !isCounter(value.rowsCount) || !isCounter(value.hash)) return null;
  const position = snapshotPositionOf(value.position);
  return position === null ? null : { position, rowsCount: value.rowsCount, hash: value.hash };
}

function appendOf(head: JsonRecord, term: number, tail: string): Message | null {
  if (!isCounter(head.prevIndex) || !isCounter(head.prevTerm)) return null;
  if (!isCounter(head.commit) || !isCounter(head.round)) return null;
  const entries = tail === "" ? [] : decodeEntries(tail);
  if (entries === null || !isRun(entries, head.prevIndex, head.prevTerm, term)) return null;
  const { prevIndex, prevTerm, commit, round } = head;
  return { kind: "append", term, prevIndex, prevTerm, commit, round, entries };
}

/** Entries follow each other without a gap, and terms never fall nor pass the message's own (paper 5.3). */
export function isRun(entries: readonly Entry[], prevIndex: number, prevTerm: number, termMax: number): boolean {
  let index = prevIndex;
  let term = prevTerm;
  for (const entry of entries) {
    index += 1;
    if (entry.index !== index || entry.term < term || entry.term > termMax) return false;
    term = entry.term;
  }
  return true;
}

function appendResultOf(head: unknown): AppendResult | null {
  if (!isObject(head) || !isCounter(head.index)) return null;
  if (head.kind === "matched") return { kind: "matched", index: head.index };
  if (head.kind !== "conflict" || !isCounter(head.prevIndex) || !isCounter(head.term)) return null;
  return { kind: "conflict", prevIndex: head.prevIndex, index: head.index, term: head.term };
}

// --- identity --------------------------------------------------------------------------------------------------------

/** Reads an identity from parsed JSON (a meta row). */
export function identityOf(value: unknown): Identity | null {
  if (!isObject(value) || !isCounter(value.incarnation)) return null;
  const membership = membershipOf(value.membership);
  return membership === null ? null : { incarnation: value.incarnation, membership };
}

function membershipOf(value: unknown): Identity["membership"] | null {
  if (!isObject(value)) return null;
  if (value.kind === "empty") return { kind: "empty" };
  if (!isName(value.clusterId)) return null;
  if (value.kind === "lost") return { kind: "lost", clusterId: value.clusterId };
  if (value.kind !== "forming" && value.kind !== "formed") return null;
  if (!Array.isArray(value.members) || value.members.length > MEMBERS_MAX) return null;
  const members: Member[] = [];
  for (const member of value.members as unknown[]) {
    if (!isObject(member) || !isNode(member.id) || !isCounter(member.incarnation)) return null;
    members.push({ id: member.id, incarnation: member.incarnation });
  }
  return { kind: value.kind, clusterId: value.clusterId, members };
}

// --- parts -----------------------------------------------------------------------------------------------------------

const MEMBERS_MAX = 16;
const NAME_UNITS_MAX = 256;

interface JsonRecord {
  readonly [name: string]: unknown;
}

function splitBlock(text: string): { readonly head: unknown; readonly tail: string } | null {
  const end = text.indexOf("\n");
  if (end < 0) return null;
  const head = parseJson(text.slice(0, end));
  return head === undefined ? null : { head, tail: text.slice(end + 1) };
}

/** Undefined (which JSON cannot say) for text that is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    // JSON.parse signals malformed text by a SyntaxError; that is an answer here, not a fault.
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

export function isObject(value: unknown): value is JsonRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isCounter(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && !Object.is(value, -0);
}

export function isNode(value: unknown): value is number {
  return isCounter(value) && value >= 1;
}

function isName(value: unknown): value is string {
  return typeof value === "string" && value.length > 0 && value.length <= NAME_UNITS_MAX;
}
