/**
 * Nodes greet each other until the cluster is formed, and one that has lost its storage until it is a member again (design
 * 02 §2, Identity). The rules are in forming.ts; here they are asked, and what they answer is written down. What the
 * others do about a lost node is in readmission.ts.
 */
import { nextInteger } from "../base/random.ts";
import type { NodeId } from "../raft/types.ts";
import { advanceForming, hearHello, type Membership } from "./forming.ts";
import type { PeerBody, PeerEnvelope } from "./ports.ts";
import type { NodeState } from "./runtime-state.ts";
import { PROTOCOL_MIN } from "./versions.ts";

/** Pause between two rounds of hello, in heartbeats: while forming, and once the storage is known to be lost. */
const HELLO_HEARTBEATS = 4;
export const HELLO_HEARTBEATS_LOST = 100;

export function onHello(state: NodeState, envelope: PeerEnvelope, hello: Extract<PeerBody, { kind: "hello" }>): void {
  const { from, fromIncarnation } = envelope;
  if (hello.reply) {
    // Only an answer to this very incarnation counts (forming F1).
    if (envelope.toIncarnation !== state.identity.incarnation) return;
    state.answers.set(from, { incarnation: fromIncarnation, membership: hello.membership });
  }
  if (state.halted === null) {
    const heard = { from, incarnation: fromIncarnation, membership: hello.membership };
    adopt(state, hearHello(state.identity, state.config, heard));
    formIfReady(state);
  }
  const { question } = hello;
  if (!hello.reply) sendHello(state, from, { reply: true, toIncarnation: fromIncarnation, question });
}

/** The node is asked who it is; its answer repeats the question. */
export function ask(state: NodeState, to: NodeId, question: number): void {
  sendHello(state, to, { reply: false, toIncarnation: null, question });
}

export function adopt(state: NodeState, membership: Membership): void {
  if (membership === state.identity.membership) return;
  state.identity = { incarnation: state.identity.incarnation, membership };
  state.ports.storage.write({ identity: state.identity });
  state.ports.log("info", "membership", {
    kind: membership.kind,
    cluster: membership.kind === "empty" ? null : membership.clusterId,
  });
  state.helloAtMs = membership.kind === "formed" ? Number.POSITIVE_INFINITY : state.ports.clock.nowMs();
}

function sendHello(
  state: NodeState,
  to: NodeId,
  options: { readonly reply: boolean; readonly toIncarnation: number | null; readonly question: number },
): void {
  const { reply, toIncarnation, question } = options;
  const { membership, incarnation } = state.identity;
  const clusterId = membership.kind === "empty" ? null : membership.clusterId;
  state.ports.transport.send({
    // Everybody understands it, whatever version they speak.
    protocol: PROTOCOL_MIN,
    speaks: state.config.protocolMax,
    clusterId,
    from: state.config.id,
    fromIncarnation: incarnation,
    to,
    toIncarnation,
    body: { kind: "hello", membership, reply, question },
  });
}

function formIfReady(state: NodeState): void {
  const { identity, config, founders, answers } = state;
  adopt(
    state,
    advanceForming(identity, { id: config.id, founders }, answers, () => newClusterId(state)),
  );
}

function newClusterId(state: NodeState): string {
  let id = "";
  while (id.length < 24) id += nextInteger(state.random, 0, 15).toString(16);
  return id;
}

/** Asks around, when it is time to. */
export function sayHello(state: NodeState): void {
  const nowMs = state.ports.clock.nowMs();
  if (nowMs < state.helloAtMs) return;
  const heartbeats = state.identity.membership.kind === "lost" ? HELLO_HEARTBEATS_LOST : HELLO_HEARTBEATS;
  state.helloAtMs = nowMs + heartbeats * state.config.heartbeatMs;
  for (const id of state.config.members) if (id !== state.config.id) ask(state, id, 0);
  formIfReady(state);
}
