/** From one node's gate to another node's queue. */
import { nextFloat } from "../../src/base/random.ts";
import type { PeerEnvelope } from "../../src/node-object/ports.ts";
import { push } from "./event-queue.ts";
import { hostOf, type Instance, type World } from "./host.ts";
import { routeMessage } from "./network.ts";

export function transmit(world: World, sender: Instance, envelope: PeerEnvelope): void {
  if (world.intercept?.(envelope, sender) === true) return;
  const { network, random, now, counts } = world;
  if (network.bulkDropRate > 0 && isBulk(envelope) && nextFloat(random) < network.bulkDropRate) {
    counts.add("drop");
    return;
  }
  const host = hostOf(world, envelope.to);
  for (const at of routeMessage(network, random, sender.host.id, envelope.to, now, counts)) {
    push(world.queue, { at, seq: 0, kind: "deliver", host, envelope, sender });
  }
}

function isBulk({ body }: PeerEnvelope): boolean {
  return body.kind === "raft" && body.message.kind === "append" && body.message.entries.length > 0;
}
