/**
 * Items by prefix: a radix tree over byte strings. Finding every prefix of a key costs at most the length of the key.
 *
 * T1. Siblings begin with different characters; no label but the root's is empty.
 * T2. A node without items has at least two children, the root aside: the tree is as large as its prefixes are many.
 */

interface TreeNode<T> {
  label: string;
  children: Map<number, TreeNode<T>>;
  items: Set<T>;
}

export class PrefixTree<T> {
  readonly #root: TreeNode<T> = { label: "", children: new Map(), items: new Set() };

  add(prefix: string, item: T): void {
    let node = this.#root;
    let at = 0;
    while (at < prefix.length) {
      const child = node.children.get(prefix.charCodeAt(at));
      if (child === undefined) {
        const leaf: TreeNode<T> = { label: prefix.slice(at), children: new Map(), items: new Set() };
        node.children.set(prefix.charCodeAt(at), leaf);
        node = leaf;
        break;
      }
      const common = commonLength(child.label, prefix, at);
      if (common < child.label.length) splitNode(child, common);
      node = child;
      at += common;
    }
    node.items.add(item);
  }

  remove(prefix: string, item: T): void {
    const path: TreeNode<T>[] = [this.#root];
    let node = this.#root;
    let at = 0;
    while (at < prefix.length) {
      const child = node.children.get(prefix.charCodeAt(at));
      if (child === undefined || !prefix.startsWith(child.label, at)) return;
      path.push(child);
      at += child.label.length;
      node = child;
    }
    node.items.delete(item);
    const parent = path[path.length - 2];
    if (parent === undefined) return;
    if (node.items.size === 0 && node.children.size === 0) {
      parent.children.delete(node.label.charCodeAt(0));
      if (parent !== this.#root) joinOnlyChild(parent);
    } else joinOnlyChild(node);
  }

  /** Visits the items of every prefix of `key`, shortest first. */
  match(key: string, visit: (item: T) => void): void {
    let node: TreeNode<T> | undefined = this.#root;
    let at = 0;
    while (node !== undefined) {
      for (const item of node.items) visit(item);
      const child: TreeNode<T> | undefined = node.children.get(key.charCodeAt(at));
      if (child === undefined || !key.startsWith(child.label, at)) return;
      at += child.label.length;
      node = child;
    }
  }
}

function commonLength(label: string, prefix: string, from: number): number {
  const length = Math.min(label.length, prefix.length - from);
  let common = 0;
  while (common < length && label.charCodeAt(common) === prefix.charCodeAt(from + common)) common += 1;
  return common;
}

function splitNode<T>(node: TreeNode<T>, at: number): void {
  const tail: TreeNode<T> = { label: node.label.slice(at), children: node.children, items: node.items };
  node.label = node.label.slice(0, at);
  node.children = new Map([[tail.label.charCodeAt(0), tail]]);
  node.items = new Set();
}

function joinOnlyChild<T>(node: TreeNode<T>): void {
  if (node.items.size > 0 || node.children.size !== 1) return;
  for (const child of node.children.values()) {
    node.label += child.label;
    node.children = child.children;
    node.items = child.items;
  }
}
