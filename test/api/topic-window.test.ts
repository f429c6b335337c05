import { describe, expect, test } from "vitest";
import { TopicWindow } from "../../src/api/topic-window.ts";

/** A message that weighs close to `kib` KiB. */
function message(kib: number) {
  return { topic: "t", payload: JSON.stringify("x".repeat(kib * 1024 - 80)) };
}

describe("the window of topics", () => {
  test("counts messages from 1 and gives the payload as it is", () => {
    const window = new TopicWindow();
    expect(window.admit({ topic: 'a"b', payload: '{"x":[1]}' })).toEqual({
      seq: 1,
      text: '{"topic":"a\\"b","payload":{"x":[1]},"seq":1,"dropped":0}',
    });
    expect(window.admit(message(1))?.seq).toBe(2);
  });

  test("drops what is over 256 KiB, and says how many in the next message", () => {
    const window = new TopicWindow();
    for (let n = 1; n <= 4; n += 1) expect(window.admit(message(63))?.seq).toBe(n);
    for (let n = 0; n < 3; n += 1) expect(window.admit(message(63))).toBeNull();
    window.acknowledge(2);
    const next = window.admit(message(1));
    expect(next?.seq).toBe(5);
    expect(next?.text).toContain('"dropped":3}');
    expect(window.admit(message(1))?.text).toContain('"dropped":0}');
  });

  test("acknowledging more than was sent frees all, less than before frees nothing", () => {
    const window = new TopicWindow();
    for (let n = 0; n < 4; n += 1) window.admit(message(63));
    window.acknowledge(-1);
    window.acknowledge(Number.NaN);
    expect(window.admit(message(63))).toBeNull();
    window.acknowledge(1000);
    for (let n = 0; n < 4; n += 1) expect(window.admit(message(63))).not.toBeNull();
  });

  test("goes on from what was saved, which stays small", () => {
    const window = new TopicWindow();
    for (let n = 0; n < 1000; n += 1) window.admit({ topic: "t", payload: "1" });
    for (let n = 0; n < 4; n += 1) window.admit(message(63));
    const saved = window.save();
    expect(saved.length).toBeLessThanOrEqual(2 + 2 * 16);
    const restored = new TopicWindow(saved);
    expect(restored.save()).toEqual(saved);
    expect(restored.admit(message(63))).toBeNull();
    restored.acknowledge(2000);
    expect(restored.admit(message(1))?.text).toMatch(/"dropped":[1-9]\d*}$/);
    expect(new TopicWindow().save()).toEqual([]);
  });
});
