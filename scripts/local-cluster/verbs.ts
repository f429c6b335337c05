/**
 * The things that can happen to five nodes, as words: read from a command line, carried to the process that does them
 * (cluster-control.ts). Pure.
 */

import { UsageError } from "./command-line.ts";

export const NODE_IDS = [1, 2, 3, 4, 5] as const;

/** The nodes are not in a state in which that can be done, or there is no such node. */
export class VerbError extends Error {
  override readonly name = "VerbError";
}

export type ControlRequest =
  | { readonly verb: "status" | "heal" | "stop" }
  | { readonly verb: "kill" | "pause" | "resume" | "restart" | "wipe"; readonly nodes: readonly number[] }
  | {
      readonly verb: "partition";
      readonly groups: readonly (readonly number[])[];
      /** Only what the first group sends to the others is cut. */
      readonly isOneWay: boolean;
    };

/** @throws UsageError */
export function requestOf(verb: string | undefined, rest: readonly string[], isOneWay: boolean): ControlRequest {
  switch (verb) {
    case "status":
    case "heal":
    case "stop":
      if (rest.length > 0) throw new UsageError(`${verb} takes no ${JSON.stringify(rest[0])}`);
      return { verb };
    case "kill":
    case "pause":
    case "resume":
    case "restart":
    case "wipe":
      if (rest.length === 0) throw new UsageError(`${verb} which node?`);
      return { verb, nodes: rest.map(nodeOf) };
    case "partition":
      return { verb, groups: groupsOf(rest), isOneWay };
    default:
      throw new UsageError(verb === undefined ? "which verb?" : `there is no verb ${JSON.stringify(verb)}`);
  }
}

function nodeOf(text: string): number {
  const node = NODE_IDS.find((id) => String(id) === text);
  if (node === undefined) throw new UsageError(`there is no node ${text}; nodes are ${NODE_IDS.join(", ")}`);
  return node;
}

function groupsOf(rest: readonly string[]): number[][] {
  const [text, ...more] = rest;
  if (text === undefined || more.length > 0) throw new UsageError("partition wants groups of nodes, as in 1,2/3,4,5");
  const groups = text.split("/").map((group) => group.split(",").map(nodeOf));
  if (crossings(groups).length === 0) throw new UsageError("partition wants two groups at least, as in 1,2/3,4,5");
  return groups;
}

/** Ordered pairs of nodes of different groups. @throws VerbError for a node that is in two of them. */
export function crossings(groups: readonly (readonly number[])[]): [number, number][] {
  const groupOf = new Map<number, number>();
  for (const [position, group] of groups.entries()) {
    for (const id of group) {
      if (groupOf.has(id)) throw new VerbError(`node ${id} is named twice`);
      groupOf.set(id, position);
    }
  }
  const ids = [...groupOf.keys()];
  return ids.flatMap((from) =>
    ids.filter((to) => groupOf.get(to) !== groupOf.get(from)).map((to): [number, number] => [from, to]),
  );
}
