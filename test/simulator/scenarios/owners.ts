/** Leases in the stories: granting, renewing, and waiting for what a sleeping cluster does. */

import type { Operation } from "../../../src/kv/command.ts";
import type { NodeId } from "../../../src/raft/types.ts";
import { evictHost } from "../world.ts";
import type { Stage } from "./stage.ts";
import type { WriteAnswer } from "./vocabulary.ts";

/** Grants a lease through `node` and attaches `keys` to it; its id. */
export function grant(stage: Stage, node: NodeId, ttlS: number, keys: readonly string[]): number {
  const granted = stage.written(node, { kind: "lease_grant", ttl_s: ttlS });
  if (!granted.ok || granted.result.kind !== "lease_grant") throw new Error(`no lease: ${JSON.stringify(granted)}`);
  const { id } = granted.result;
  attach(stage, node, id, keys);
  return id;
}

export function attach(stage: Stage, node: NodeId, lease: number, keys: readonly string[]): void {
  if (keys.length === 0) return;
  const success = keys.map((key): Operation => ({ type: "put", key, value: { json: 1 }, lease }));
  const attached = stage.written(node, { kind: "txn", compare: [], success, failure: [] });
  if (!attached.ok) throw new Error(`not attached: ${JSON.stringify(attached)}`);
}

export function keepAlive(stage: Stage, node: NodeId, id: number): string {
  return renewal(stage.written(node, { kind: "lease_keep_alive", items: [{ id }] }));
}

/** `alive`, `gone`, or the code of the error. */
export function renewal(answer: WriteAnswer): string {
  if (!answer.ok) return answer.error.code;
  if (answer.result.kind !== "lease_keep_alive") throw new Error(`not a renewal: ${JSON.stringify(answer)}`);
  return answer.result.items.some((item) => "not_found" in item) ? "gone" : "alive";
}

/** How many of `keys` are there, by the committed log. */
export function alive(stage: Stage, keys: readonly string[]): number {
  const { latest } = stage.world.safety;
  return keys.filter((key) => latest.get(key)?.type === "put").length;
}

/** Virtual time until none of `keys` is left. */
export function untilGone(stage: Stage, keys: readonly string[], msMax = 60_000): number {
  return stage.until(`the end of ${keys.join()}`, () => alive(stage, keys) === 0, msMax);
}

/** Nobody asks for anything until every node sleeps. */
export function untilAsleep(stage: Stage, msMax = 10_000): void {
  stage.until("sleep", () => stage.world.sleep.cluster, msMax);
}

/** The platform takes idle objects out of memory; what they hold on disk and their sockets stay. */
export function evict(stage: Stage, ...ids: readonly NodeId[]): void {
  for (const id of ids) if (!evictHost(stage.world, stage.host(id))) throw new Error(`node ${id} is not idle`);
}
