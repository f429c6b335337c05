/**
 * Live watches by the revision that their client was told last, in buckets: moving one is constant work, and finding
 * those that were told long ago does not look at the others.
 */
import type { Watch } from "./watch.ts";

const BUCKET_REVISIONS = 128;

export class ToldRevisions {
  readonly #buckets = new Map<number, Set<Watch>>();

  add(watch: Watch): void {
    const number = Math.floor(watch.toldRevision / BUCKET_REVISIONS);
    const bucket = this.#buckets.get(number);
    if (bucket === undefined) this.#buckets.set(number, new Set([watch]));
    else bucket.add(watch);
  }

  remove(watch: Watch): void {
    const number = Math.floor(watch.toldRevision / BUCKET_REVISIONS);
    const bucket = this.#buckets.get(number);
    if (bucket?.delete(watch) && bucket.size === 0) this.#buckets.delete(number);
  }

  /** The client of a watch in here is told `revision`. */
  move(watch: Watch, revision: number): void {
    if (Math.floor(watch.toldRevision / BUCKET_REVISIONS) === Math.floor(revision / BUCKET_REVISIONS)) {
      watch.toldRevision = revision;
      return;
    }
    this.remove(watch);
    watch.toldRevision = revision;
    this.add(watch);
  }

  /** Watches that were told less than `revision`. */
  below(revision: number): Watch[] {
    const found: Watch[] = [];
    for (const [number, bucket] of this.#buckets) {
      if (number * BUCKET_REVISIONS >= revision) continue;
      for (const watch of bucket) if (watch.toldRevision < revision) found.push(watch);
    }
    return found;
  }
}
