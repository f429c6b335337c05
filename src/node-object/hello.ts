/**
 * Who is a member: nodes greet each other until the cluster is formed, or until one knows that its storage is lost (design
 * 02 §2, Identity). The rules are in forming.ts; here they are asked, and what they answer is written down.
 */
import { nextInteger } from "../base/random.ts";
import { advanceForming, hearHello, type Membership } from "./forming.ts";
import type { PeerEnvelope } from "./ports.ts";
import type { NodeState } from "./runtime-state.ts";

/** Pause between two rounds of hello, in heartbeats: while forming, and once the storage is known to be lost. */
const HELLO_HEARTBEATS = 4;
const HELLO_HEARTBEATS_LOST = 100;

export function onHello(
  state: NodeState,
  envelope: PeerEnvelope,
  hello: { readonly membership: Membership; readonly reply: boolean },
): void {
  const { from, fromIncarnation } = envelope;
  if (hello.reply) {
    // Only an answer to this very incarnation counts (forming F1).
    if (envelope.toIncarnation !== state.identity.incarnation) return;
    state.answers.set(from, { incarnation: fromIncarnation, membership: hello.membership });
  }
  if (state.halted === null) {
    const heard = { from, incarnation: fromIncarnation, membership: hello.membership };
    adopt(state, hearHello(state.identity, state.config, heard));
    adopt(
      state,
      advanceForming(state.identity, state.config, state.answers, () => newClusterId(state)),
    );
  }
  if (!hello.reply) sendHello(state, from, true, fromIncarnation);
}

function adopt(state: NodeState, membership: Membership): void {
  if (membership === state.identity.membership) return;
  state.identity = { incarnation: state.identity.incarnation, membership };
  state.ports.storage.write({ identity: state.identity });
  state.ports.log("info", "membership", {
    kind: membership.kind,
    cluster: membership.kind === "empty" ? null : membership.clusterId,
  });
  state.helloAtMs = membership.kind === "formed" ? Number.POSITIVE_INFINITY : state.ports.clock.nowMs();
}

function sendHello(state: NodeState, to: number, reply: boolean, toIncarnation: number | null): void {
  const { membership, incarnation } = state.identity;
  const clusterId = membership.kind === "empty" ? null : membership.clusterId;
  state.ports.transport.send({
    protocol: 1,
    clusterId,
    from: state.config.id,
    fromIncarnation: incarnation,
    to,
    toIncarnation,
    body: { kind: "hello", membership, reply },
  });
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
  for (const id of state.config.members) if (id !== state.config.id) sendHello(state, id, false, null);
  adopt(
    state,
    advanceForming(state.identity, state.config, state.answers, () => newClusterId(state)),
  );
}
