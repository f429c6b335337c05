/** Goal: messages of topics reach whoever listens, are lost by rule, and never hold up anything else. */
import { describe, expect, test } from "vitest";
import { collect, createSetting, settle, TRANSPORTS } from "./streaming.ts";

describe.each(TRANSPORTS)("a topic over %s", (transport) => {
  test("tells what is published while somebody listens", async () => {
    const { cluster, concord } = createSetting(transport);
    await concord.topics.publish("log/a b", "early");
    const subscription = concord.topics.subscribe<{ line: number }>("log/a b");
    await subscription.open();
    const taken = collect(subscription);
    const other = collect(concord.topics.subscribe("other"));
    await settle();
    await concord.topics.publish("log/a b", { line: 1 });
    cluster.publish("log/a b", { line: 2 });
    cluster.publish("other", [null]);
    await settle();
    expect(taken.items).toEqual([1, 2].map((line) => ({ topic: "log/a b", payload: { line }, dropped: 0 })));
    expect(other.items.map(({ payload }) => payload)).toEqual([[null]]);
    expect(subscription.dropped).toBe(0);
  });

  test("is subscribed to again after every disconnect, which is told", async () => {
    const { cluster, clock, concord } = createSetting(transport);
    const errors: string[] = [];
    const taken = collect(concord.topics.subscribe("t", { onInterrupted: ({ code }) => errors.push(code) }));
    await settle();
    for (let round = 1; round <= 3; round += 1) {
      cluster.publish("t", round);
      await settle();
      cluster.breakAll();
      await clock.advance(2_000);
    }
    expect(taken.items.map(({ payload }) => payload)).toEqual([1, 2, 3]);
    expect(errors).toEqual(["timeout", "timeout", "timeout"]);
    expect(cluster.subscribersOf("t")).toBe(1);
  });

  test("is left when its loop is, its signal says so, or the client is closed", async () => {
    const { cluster, concord } = createSetting(transport);
    const controller = new AbortController();
    const aborted = collect(concord.topics.subscribe("t", { signal: controller.signal }));
    const closed = collect(concord.topics.subscribe("t"));
    const left = (async () => {
      for await (const _ of concord.topics.subscribe("t")) break;
    })();
    await settle();
    cluster.publish("t", 1);
    await left;
    controller.abort();
    await settle();
    expect([aborted.outcome, closed.outcome]).toEqual(["done", "open"]);
    expect(cluster.subscribersOf("t")).toBe(1);
    concord.close();
    await settle();
    expect([closed.outcome, cluster.subscribersOf("t")]).toEqual(["done", 0]);
  });
});

describe("topics of a session", () => {
  test("share one subscription of the node, and end it with the last one", async () => {
    const { cluster, concord } = createSetting("session");
    const [first, second] = [concord.topics.subscribe("t"), concord.topics.subscribe("t")];
    const taken = [collect(first), collect(second)];
    await settle();
    expect(cluster.subscribersOf("t")).toBe(1);
    await first.close();
    cluster.publish("t", 1);
    await settle();
    expect(taken.map(({ items }) => items.length)).toEqual([0, 1]);
    await second.close();
    await settle();
    expect(cluster.subscribersOf("t")).toBe(0);
  });

  test("drop what a slow subscriber does not take, count it, and slow nobody else", async () => {
    const { cluster, concord } = createSetting("session");
    const slow = concord.topics.subscribe<string>("t");
    await slow.open();
    const quick = collect(concord.topics.subscribe("t"));
    await settle();
    for (let count = 0; count < 100; count += 1) {
      cluster.publish("t", `${count}`.padEnd(10_000, "."));
      await settle();
    }
    expect(quick.items.length).toBe(100);
    let kept = 0;
    for (let last = ""; !last.startsWith("end"); kept += 1) {
      if (kept === 10) cluster.publish("t", "end");
      const { value } = await slow.next();
      last = value?.payload ?? "end";
    }
    expect(kept).toBeLessThan(30);
    expect(slow.dropped).toBe(100 - (kept - 1));
  });

  test("are acknowledged by the quarter of what the node lets stand, whoever takes them", async () => {
    const { cluster, concord } = createSetting("session");
    const subscription = concord.topics.subscribe("t");
    await subscription.open();
    for (let count = 0; count < 20; count += 1) cluster.publish("t", ".".repeat(10_000));
    await settle();
    const acknowledged = (cluster.socketsOpened[0]?.sent ?? []).filter((text) => text.includes('"topic.ack"'));
    expect(acknowledged.map((text) => JSON.parse(text).params)).toEqual([{ seq: 7 }, { seq: 14 }]);
  });
});

test.each([".", ".."])("the topic %j has no path over HTTP, and says so", async (topic) => {
  const { concord } = createSetting("events");
  await expect(concord.topics.publish(topic, 1)).rejects.toMatchObject({ body: { reason: "topic_in_path" } });
  await expect(concord.topics.subscribe(topic).open()).rejects.toMatchObject({ body: { reason: "topic_in_path" } });
});

test("a message whose fate is unknown is not told again", async () => {
  const { cluster, concord } = createSetting("session");
  await concord.currentRevision();
  cluster.answer = () => "break";
  await expect(concord.topics.publish("t", 1)).rejects.toMatchObject({ code: "timeout" });
  expect(cluster.requests).toEqual([]);
});
