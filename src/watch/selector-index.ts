/**
 * Which items (watches) want a key: exact keys by map, prefixes by tree, ranges by interval list. The cost of a match
 * grows with the length of the key and the number of hits, not with the number of items (06 §3: cost ∝ matching watches).
 */
import type { Selector } from "../kv/command.ts";
import { PrefixTree } from "./prefix-tree.ts";
import { RangeList } from "./range-list.ts";

export class SelectorIndex<T> {
  readonly #keys = new Map<string, Set<T>>();
  readonly #prefixes = new PrefixTree<T>();
  readonly #ranges = new RangeList<T>();

  add(selector: Selector, item: T): void {
    if ("prefix" in selector) this.#prefixes.add(selector.prefix, item);
    else if ("range" in selector) this.#ranges.add(selector.range.start, selector.range.end ?? null, item);
    else {
      const items = this.#keys.get(selector.key);
      if (items === undefined) this.#keys.set(selector.key, new Set([item]));
      else items.add(item);
    }
  }

  remove(selector: Selector, item: T): void {
    if ("prefix" in selector) this.#prefixes.remove(selector.prefix, item);
    else if ("range" in selector) this.#ranges.remove(selector.range.start, item);
    else {
      const items = this.#keys.get(selector.key);
      if (items?.delete(item) && items.size === 0) this.#keys.delete(selector.key);
    }
  }

  match(key: string, visit: (item: T) => void): void {
    const items = this.#keys.get(key);
    if (items !== undefined) for (const item of items) visit(item);
    this.#prefixes.match(key, visit);
    this.#ranges.match(key, visit);
  }
}
