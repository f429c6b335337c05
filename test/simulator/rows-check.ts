/**
 * What lies on the disks in the end: the rows of every node are those of the replay, each one of them. A digest says what
 * entries have done here; a node that began with a snapshot may lack what no entry has touched since.
 */
import { META_ROW } from "../../src/kv/rows.ts";
import type { Host, World } from "./host.ts";
import { membersOf, statusText } from "./settling.ts";
import { Violation } from "./violation.ts";
import { runUntil } from "./world.ts";

/** Applied rows are on the disk by then, if nothing else is applied. */
const FLUSHED_MS = 700;
const LOOKS_MAX = 40;

export function requireEqualRows(world: World): void {
  const seen = new Set<Host>();
  for (let look = 0; look < LOOKS_MAX && seen.size < membersOf(world).length; look += 1) {
    runUntil(world, world.now + FLUSHED_MS);
    for (const host of membersOf(world)) {
      if (seen.has(host) || !isUpToDate(world, host)) continue;
      compareRows(world, host);
      seen.add(host);
    }
  }
  if (seen.size < membersOf(world).length)
    throw new Violation("rows are equal", `not every node has written all: ${statusText(world)}`);
}

function isUpToDate({ safety }: World, { disk }: Host): boolean {
  const meta = disk.rows.get(META_ROW);
  return meta !== undefined && JSON.parse(meta).index === safety.committed.length;
}

function compareRows({ safety }: World, { id, disk }: Host): void {
  const wanted = safety.replay.store.scan({ start: "", end: "\u{10ffff}", limit: Number.MAX_SAFE_INTEGER });
  const different = wanted.find(([key, value]) => disk.rows.get(key) !== value);
  if (different === undefined && wanted.length === disk.rows.size) return;
  const [key, value] = different ?? ["", "nothing else"];
  const detail = `node ${id}: ${JSON.stringify(key)} is ${disk.rows.get(key)}, not ${value}; ${disk.rows.size} rows of ${wanted.length}`;
  throw new Violation("rows are equal", detail);
}
