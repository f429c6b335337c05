/**
 * What happened last, for people, and a running hash of all that happened, for the determinism test. Records are kept
 * raw and turned into text only when a violation is reported.
 */
import type { PeerEnvelope } from "../../src/node-object/ports.ts";

interface TraceRecord {
  at: number;
  node: number;
  instance: number;
  what: string;
  envelope: PeerEnvelope | null;
  note: string;
}

export interface Trace {
  readonly kept: number;
  hash: number;
  count: number;
  readonly ring: TraceRecord[];
}

export function createTrace(kept: number): Trace {
  return { kept, hash: 0, count: 0, ring: [] };
}

export function traceEvent(
  trace: Trace,
  at: number,
  node: number,
  instance: number,
  what: string,
  envelope: PeerEnvelope | null,
  note: string,
): void {
  const slot = trace.count % trace.kept;
  trace.count += 1;
  const record = trace.ring[slot];
  if (record === undefined) trace.ring.push({ at, node, instance, what, envelope, note });
  else {
    record.at = at;
    record.node = node;
    record.instance = instance;
    record.what = what;
    record.envelope = envelope;
    record.note = note;
  }
  let hash = mix(trace.hash, Math.floor(at * 1000));
  hash = mix(hash, node * 64 + what.length + what.charCodeAt(0) * 512);
  if (envelope !== null) {
    hash = mix(hash, envelope.from);
    if (envelope.body.kind === "raft") hash = mix(hash, envelope.body.message.term + envelope.body.message.kind.length);
  }
  trace.hash = hash;
}

function mix(hash: number, value: number): number {
  return (Math.imul(hash ^ value, 0x9e3779b1) ^ (hash >>> 15)) >>> 0;
}

export function describeTrace(trace: Trace, lines: number): string {
  const text: string[] = [];
  const first = Math.max(0, trace.count - Math.min(lines, trace.kept));
  for (let count = first; count < trace.count; count += 1) {
    const record = trace.ring[count % trace.kept]!;
    const who = record.node === 0 ? "world" : `n${record.node}#${record.instance}`;
    const message = record.envelope === null ? "" : ` ${describeEnvelope(record.envelope)}`;
    text.push(
      `${record.at.toFixed(3).padStart(10)} ${who.padEnd(7)} ${record.what}${message} ${record.note}`.trimEnd(),
    );
  }
  return text.join("\n");
}

export function describeEnvelope(envelope: PeerEnvelope): string {
  const { body } = envelope;
  const route = `${envelope.from}→${envelope.to}`;
  if (body.kind !== "raft") {
    // Keys are byte strings: shown as they are they would print as anything.
    const text = JSON.stringify(body).replace(/[^\x20-\x7e]/g, "·");
    return `${route} ${text.length > 240 ? `${text.slice(0, 240)}…` : text}`;
  }
  const { message } = body;
  if (message.kind !== "append") return `${route} ${JSON.stringify(message)}`;
  const { entries, ...rest } = message;
  const last = entries[entries.length - 1];
  const span = last === undefined ? "none" : `${entries[0]!.index}..${last.index} of term ${last.term}`;
  return `${route} ${JSON.stringify(rest)} entries ${span}`;
}
