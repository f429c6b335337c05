/**
 * A program that wants to lead, for tests that pause and kill it: `contender <lock|election> <url> <name> <id>`.
 * While it leads it adds to one record through its guard, again and again, and says each thing that happens as a line of
 * JSON. After it lost the lead it tries one more guarded write, and then wants to lead again.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Concord, ConcordError, type Held } from "../../../src/client/index.ts";

const TTL_S = 2;
const WRITE_EVERY_MS = 50;

const [kind = "", url = "", name = "", id = ""] = process.argv.slice(2);
if (id === "") throw new Error("contender <lock|election> <url> <name> <id>");

function say(event: string, fields: Record<string, unknown> = {}): void {
  process.stdout.write(`${JSON.stringify({ event, id, pid: process.pid, atMs: Date.now(), ...fields })}\n`);
}

const concord = Concord.connect({ url });

async function lead(): Promise<Held> {
  if (kind === "lock") return await concord.lock(`${name}/lock`, { ttl_s: TTL_S });
  return await concord.election(`${name}/election`).campaign({ id }, { ttl_s: TTL_S });
}

async function write(held: Held): Promise<boolean> {
  try {
    const { revision } = await held.put(`${name}/state`, { id, fence: held.fencingRevision });
    say("wrote", { revision, fence: held.fencingRevision });
    return true;
  } catch (error) {
    if (!(error instanceof ConcordError)) throw error;
    say("refused", { fence: held.fencingRevision, code: error.code, reason: error.body.reason ?? null });
    return error.retry !== "no";
  }
}

say("started");
for (;;) {
  const held = await lead();
  let losses = 0;
  void held.lost.then(({ reason }) => {
    losses += 1;
    say("lost", { fence: held.fencingRevision, reason, losses });
  });
  say("leads", { fence: held.fencingRevision });
  while (await write(held)) await sleep(WRITE_EVERY_MS);
}
