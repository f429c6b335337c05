import { describe, expect, test } from "vitest";
import { createRandom } from "../../src/base/random.ts";
import { createFaultCounts } from "./fault-kinds.ts";
import { createNetwork, cut, isCut, mend, mendAll, routeMessage } from "./network.ts";

function arrivals(network: ReturnType<typeof createNetwork>, count: number): number[] {
  const random = createRandom(1);
  const counts = createFaultCounts(() => false);
  return Array.from({ length: count }, (_, now) => routeMessage(network, random, 1, 2, now / 10, counts)).flat();
}

describe("the network", () => {
  test("keeps the order of one direction unless it reorders", () => {
    const network = createNetwork();
    network.delayMsMax = 50;
    const inOrder = arrivals(network, 200);
    expect(inOrder).toEqual([...inOrder].sort((left, right) => left - right));
    network.reorderRate = 1;
    const shuffled = arrivals(network, 200);
    expect(shuffled).not.toEqual([...shuffled].sort((left, right) => left - right));
  });

  test("loses everything in a direction that is cut, and nothing in the other", () => {
    const network = createNetwork();
    cut(network, 1, 2);
    expect(arrivals(network, 5)).toEqual([]);
    expect(isCut(network, 2, 1)).toBe(false);
  });

  test("heals overlapping cuts one by one", () => {
    const network = createNetwork();
    cut(network, 1, 2);
    cut(network, 1, 2);
    mend(network, 1, 2);
    expect(isCut(network, 1, 2)).toBe(true);
    mend(network, 1, 2);
    mend(network, 1, 2);
    expect(isCut(network, 1, 2)).toBe(false);
    cut(network, 1, 2);
    mendAll(network);
    expect(isCut(network, 1, 2)).toBe(false);
  });

  test("drops and duplicates at its rates", () => {
    const network = createNetwork();
    network.dropRate = 1;
    expect(arrivals(network, 5)).toEqual([]);
    network.dropRate = 0;
    network.duplicateRate = 1;
    expect(arrivals(network, 5)).toHaveLength(10);
  });
});
