/** Goal: a command line for five nodes means what it says, or is refused with what would be right. Method: command lines. */
import { expect, test } from "vitest";
import { UsageError } from "../../scripts/local-cluster/command-line.ts";
import { crossings, requestOf, VerbError } from "../../scripts/local-cluster/verbs.ts";

const read = (line: string, isOneWay = false) => {
  const [verb, ...rest] = line.split(" ");
  return requestOf(verb === "" ? undefined : verb, rest, isOneWay);
};

test("verbs, nodes and groups are read", () => {
  expect(read("status")).toEqual({ verb: "status" });
  expect(read("kill 3 1")).toEqual({ verb: "kill", nodes: [3, 1] });
  expect(read("partition 1,2/3,4,5")).toEqual({
    verb: "partition",
    groups: [
      [1, 2],
      [3, 4, 5],
    ],
    isOneWay: false,
  });
  expect(read("partition 1/2", true)).toEqual({ verb: "partition", groups: [[1], [2]], isOneWay: true });
});

test.each([
  ["", "which verb"],
  ["explode", 'no verb "explode"'],
  ["kill", "which node"],
  ["pause 6", "no node 6; nodes are 1, 2, 3, 4, 5"],
  ["wipe 1.0", "no node 1.0"],
  ["heal 3", 'takes no "3"'],
  ["partition", "groups of nodes"],
  ["partition 1,2", "two groups"],
  ["partition 1/2 3", "groups of nodes"],
  ["partition 1,/2", "no node "],
])("%j is refused: %s", (line, text) => {
  expect(() => read(line)).toThrow(UsageError);
  expect(() => read(line)).toThrow(text);
});

test("a node cannot be on two sides", () => {
  expect(() => read("partition 1,2/2,3")).toThrow(VerbError);
  expect(() => read("partition 1,2/2,3")).toThrow("node 2 is named twice");
});

test("links cross between groups in both directions, and those of nodes in no group stay", () => {
  expect(crossings([[1], [2, 3]])).toEqual([
    [1, 2],
    [1, 3],
    [2, 1],
    [3, 1],
  ]);
  expect(crossings([[1], [2], [3]]).length).toBe(6);
});
