/** Writes outside the mix, one at a time, through a node that is to be tested. They are part of the history like all others. */
import type { Command, Proposal } from "../../src/kv/command.ts";
import { callWrite } from "./calls.ts";
import { put, txn } from "./choices.ts";
import { beginWrite } from "./history.ts";
import { endRecord, meaningOf, newestRevision, SCOPE, type Workload } from "./workload.ts";

const PROBE_TIMEOUT_MS = 4000;

/** A write through one node: the proof of progress. Where there is no space it frees some. */
export function sendProbe(workload: Workload, node: number, done: (ok: boolean) => void): void {
  const full = workload.world.now < workload.fullUntil;
  const selector = { prefix: workload.listPrefix };
  const { command } = txn("own", (id) => ({
    success: full ? [{ type: "delete", selector }] : [put(workload.keys[0]!, id)],
  }));
  send(workload, node, command, done);
}

/** Everything up to now may go. The revision that was asked for, once that is done; null if it was not. */
export function sendCompaction(workload: Workload, node: number, done: (revision: number | null) => void): void {
  const revision = newestRevision(workload.world);
  send(
    workload,
    node,
    () => ({ kind: "compact", revision }),
    (ok) => done(ok ? revision : null),
  );
}

function send(workload: Workload, node: number, command: (id: number) => Command, done: (ok: boolean) => void): void {
  const { world, history } = workload;
  const id = history.nextId;
  history.nextId += 1;
  const idempotency = { scope: SCOPE, key: `op-${id}`, hash: `hash-${id}` };
  const proposal: Proposal = { format: 1, command: command(id), idempotency };
  const record = beginWrite(history, id, proposal, { step: world.steps, nowMs: world.now });
  callWrite(world, node, { label: `probe ${id} of node ${node}`, proposal, timeoutMs: PROBE_TIMEOUT_MS }, (end) => {
    const outcome = typeof end !== "string" && meaningOf(end) === "answered" ? end : null;
    if (typeof end !== "string" && !end.ok && end.error.code === "no_space") {
      workload.fullUntil = Number.POSITIVE_INFINITY;
    }
    endRecord(workload, record, outcome === null ? "unknown" : "answered", outcome);
    done(outcome?.ok === true);
  });
}
