/** Goal: a signal that many wait for has one listener, and everybody hears of it who still wants to. */
import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { linkedController, onAbort } from "../../src/client/signals.ts";
import { createSetting, errorOf, fetchNothing, settle, TRANSPORTS } from "./streaming.ts";

test("hundreds wait by one listener; those that have given up do not hear", () => {
  const controller = new AbortController();
  const { signal } = controller;
  const heard: number[] = [];
  const stops = Array.from({ length: 300 }, (_, at) => onAbort(signal, () => heard.push(at)));
  expect(getEventListeners(signal, "abort")).toHaveLength(1);
  for (const stop of stops.slice(1, 299)) stop();
  controller.abort();
  expect(heard).toEqual([0, 299]);
});

test("whoever gives up because another was told is not told", () => {
  const controller = new AbortController();
  const heard: string[] = [];
  onAbort(controller.signal, () => {
    heard.push("first");
    stop();
  });
  const stop = onAbort(controller.signal, () => heard.push("second"));
  controller.abort();
  expect(heard).toEqual(["first"]);
});

test("a controller ends with any of its signals, also with one that has ended before", () => {
  const [first, second] = [new AbortController(), new AbortController()];
  const linked = linkedController(first.signal, undefined, second.signal);
  const unlinked = linkedController(first.signal);
  unlinked.unlink();
  first.abort();
  expect([linked.signal.aborted, unlinked.signal.aborted]).toEqual([true, false]);
  expect(linkedController(second.signal, first.signal).signal.aborted).toBe(true);
});

test.each(TRANSPORTS)(
  "calls and watches under one signal listen to it once over %s, and all end by it",
  async (transport) => {
    const { concord } = createSetting(transport, {
      fetch: fetchNothing,
      ...(transport === "session"
        ? { webSocket: () => ({ addEventListener: () => {}, send: () => {}, close: () => {} }) }
        : {}),
    });
    const controller = new AbortController();
    const { signal } = controller;
    const calls = [
      ...Array.from({ length: 20 }, () => concord.kv.get("a", { signal })),
      ...Array.from({ length: 20 }, () => concord.kv.put("a", 1, { signal })),
    ].map(errorOf);
    const watches = Array.from({ length: 20 }, () => concord.sync.watch({ key: "a" }, { signal }).next());
    const topics = Array.from({ length: 20 }, () => concord.topics.subscribe("t", { signal }).next());
    await settle();
    expect(getEventListeners(signal, "abort")).toHaveLength(1);
    controller.abort();
    for (const { code } of await Promise.all(calls)) expect(["timeout", "overloaded"]).toContain(code);
    for (const { done } of await Promise.all([...watches, ...topics])) expect(done).toBe(true);
    concord.close();
  },
);
