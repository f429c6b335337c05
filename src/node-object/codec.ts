/**
 * What nodes say to each other as text: one frame, or in an old version several. Pure.
 *
 * K1. A frame is a block (entry-text.ts): payloads are neither escaped nor parsed again.
 * K2. Decoding never throws and trusts nothing: what is malformed, cut short, too long or of another protocol version is
 *     refused with a reason.
 * K3. decode(encode(x)) equals x. Unknown properties are dropped, so a later version may add some.
 *
 * Must not: know who is asking (identity and incarnations are the runtime's business) or touch storage or sockets.
 */
import { unreachable } from "../base/assert.ts";
import { readMembership } from "../raft/membership.ts";
import type { AppendResult, Message, SnapshotPosition } from "../raft/types.ts";
import { decodeEntries, encodeEntries, isRun, splitBlock } from "./entry-text.ts";
import { isCounter, isNode, isObject, type JsonRecord } from "./json-guards.ts";
import type { ForwardOutcome, Identity, Member, PeerBody, PeerEnvelope, SealedRow, SnapshotManifest } from "./ports.ts";
import { neededVersion, PROTOCOL_MAX, PROTOCOL_MIN } from "./versions.ts";

/** Far above the largest append (one entry of `TXN_BYTES_MAX`); what is longer is not ours. */
export const FRAME_UNITS_MAX = 8 << 20;

export type Decoded =
  | { readonly ok: true; readonly envelope: PeerEnvelope }
  | { readonly ok: false; readonly reason: string };

// --- envelopes -------------------------------------------------------------------------------------------------------

/** The frames that say this: one, or in a version that says one thing at a time as many as it has parts. */
export function encodeFrames(envelope: PeerEnvelope): string[] {
  const blocks = envelope.protocol === 1 ? blocksOfVersion1(envelope.body) : [bodyBlock(envelope.body)];
  return blocks.map((block) => frameText(envelope, block));
}

function frameText(envelope: PeerEnvelope, { head, tail }: Block): string {
  const line = {
    protocol: envelope.protocol,
    speaks: envelope.speaks,
    clusterId: envelope.clusterId,
    from: envelope.from,
    fromIncarnation: envelope.fromIncarnation,
    to: envelope.to,
    toIncarnation: envelope.toIncarnation,
    body: head,
  };
  return `${JSON.stringify(line)}\n${tail}`;
}

interface Block {
  readonly head: unknown;
  readonly tail: string;
}

function blocksOfVersion1(body: PeerBody): Block[] {
  switch (body.kind) {
    case "forward":
      return body.calls.map(({ id, payload, timeoutMs }) => {
        return { head: { kind: body.kind, id, term: body.term, timeoutMs }, tail: payload };
      });
    case "forward_reply":
      return body.replies.map(({ id, outcome }) => {
        if (outcome.kind !== "outcome") return { head: { kind: body.kind, id, outcome }, tail: "" };
        return { head: { kind: body.kind, id, outcome: { kind: "outcome" } }, tail: outcome.outcome };
      });
    case "topics":
      return body.messages.map(({ topic, payload }) => ({ head: { kind: "topic", topic }, tail: payload }));
    default:
      return [bodyBlock(body)];
  }
}

/** The part of a body that goes into the JSON line, and the raw text behind it. */
function bodyBlock(body: PeerBody): Block {
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
  const { protocol, speaks = protocol } = line; // the first version did not say what it speaks
  if (!isCounter(protocol) || protocol < PROTOCOL_MIN || protocol > PROTOCOL_MAX || !isCounter(speaks)) {
    return refused(`protocol ${String(protocol)}, speaks ${String(speaks)}`);
  }
  if (line.clusterId !== null && !isName(line.clusterId)) return refused("clusterId");
  if (!isNode(line.from) || !isNode(line.to)) return refused("from or to");
  if (!isCounter(line.fromIncarnation)) return refused("fromIncarnation");
  if (line.toIncarnation !== null && !isCounter(line.toIncarnation)) return refused("toIncarnation");
  const body = protocol === 1 ? bodyOfVersion1(line.body, block.tail) : bodyOf(line.body, block.tail);
  if (body === null) return refused("body");
  return {
    ok: true,
    envelope: {
      protocol,
      speaks,
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

function bodyOfVersion1(head: unknown, tail: string): PeerBody | null {
  if (!isObject(head)) return null;
  switch (head.kind) {
    case "forward": {
      const { id, term, timeoutMs } = head;
      if (!isCounter(id) || !isCounter(term) || !isCounter(timeoutMs)) return null;
      return { kind: "forward", term, calls: [{ id, payload: tail, timeoutMs, isUrgent: false }] };
    }
    case "forward_reply": {
      const outcome = forwardOutcomeOf(head.outcome, tail);
      return isCounter(head.id) && outcome !== null
        ? { kind: "forward_reply", replies: [{ id: head.id, outcome }] }
        : null;
    }
    case "topic":
      return isName(head.topic) ? { kind: "topics", messages: [{ topic: head.topic, payload: tail }] } : null;
    default: {
      const body = bodyOf(head, tail);
      return body === null || neededVersion(body) > 1 ? null : body;
    }
  }
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
      const { index, term, after, chunks } = head;
      if (!isCounter(index) || !isCounter(term) || !isCounter(chunks) || !bare) return null;
      if (!(after === null || typeof after === "string")) return null;
      return { kind: "snapshot_request", index, term, after, chunks };
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

function isName(value: unknown): value is string {
  return typeof value === "string" && value.length > 0 && value.length <= NAME_UNITS_MAX;
}
