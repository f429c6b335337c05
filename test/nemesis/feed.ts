/** The whole feed of changes as one node has it. */
import { Concord } from "../../src/client/index.ts";
import { type FeedEvent, valueParts } from "./evidence.ts";

const PAGE_EVENTS = 1000;

export async function readFeed(url: string): Promise<FeedEvent[]> {
  const concord = Concord.connect({ url, transport: "http" });
  try {
    // First to learn how far it must go, then from the node's own state.
    await concord.currentRevision();
    const events: FeedEvent[] = [];
    const options = { limit: PAGE_EVENTS, consistency: "serializable" } as const;
    for await (const event of concord.sync.allChanges({ prefix: "" }, options)) {
      events.push({
        revision: event.revision,
        opIndex: event.op_index,
        kind: event.type,
        key: String(event.key),
        ...valueParts(event.value),
        createRevision: event.create_revision,
        version: event.version,
        lease: event.lease_id,
      });
    }
    return events;
  } finally {
    concord.close();
  }
}
