/** Watches that wait for a revision which this node has not applied yet, by that revision. */
import type { Watch } from "./watch.ts";

export class FutureWatches {
  readonly #byRevision = new Map<number, Set<Watch>>();
  /** The highest revision up to which nobody waits any more. */
  #takenTo = -1;

  add(watch: Watch): void {
    const { revision } = watch.position;
    const watches = this.#byRevision.get(revision);
    if (watches === undefined) this.#byRevision.set(revision, new Set([watch]));
    else watches.add(watch);
  }

  remove(watch: Watch): void {
    const { revision } = watch.position;
    const watches = this.#byRevision.get(revision);
    if (watches?.delete(watch) && watches.size === 0) this.#byRevision.delete(revision);
  }

  /** Removes and returns those whose position is at or below `revision`. */
  take(revision: number): Watch[] {
    if (this.#byRevision.size === 0) {
      this.#takenTo = revision;
      return [];
    }
    const taken: Watch[] = [];
    // Revisions are dense but for the rare jump (a snapshot, a restore), which is not worth a search tree.
    const reached =
      revision === this.#takenTo + 1 ? [revision] : [...this.#byRevision.keys()].filter((at) => at <= revision);
    for (const at of reached) {
      taken.push(...(this.#byRevision.get(at) ?? []));
      this.#byRevision.delete(at);
    }
    this.#takenTo = revision;
    return taken;
  }
}
