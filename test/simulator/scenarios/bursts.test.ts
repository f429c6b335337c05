/** A burst of one client: its writes share commits wherever they arrive, and others keep what they hold (call-queue.ts, forwarding.ts). */
import { describe, expect, test } from "vitest";
import { runTurn } from "../turn.ts";
import { formed, type Stage } from "./stage.ts";
import { carriesEntries, codeOf, put } from "./vocabulary.ts";

describe("a burst of writes through a follower", () => {
  test("is handed over in few messages, and committed in few batches", () => {
    const stage = formed();
    const [leader, follower] = stage.cast();
    let messages = 0;
    let batches = 0;
    stage.rules = [
      ({ from, to, body }) => {
        if (body.kind === "forward") messages += 1;
        const isBatch = from === leader && to === follower && body.kind === "raft" && body.message.kind === "append";
        if (isBatch && body.message.entries.length > 0) batches += 1;
        return undefined;
      },
    ];
    const writes = Array.from({ length: 300 }, (_, number) => stage.write(follower, put(`k${number}`, number)));
    stage.run(100);
    expect(new Set(writes.map(codeOf))).toEqual(new Set(["ok"]));
    expect(messages).toBeLessThanOrEqual(8);
    expect(batches).toBeLessThanOrEqual(12);
  });

  test("goes on when the answers to its messages are lost", () => {
    const stage = formed();
    const [, follower] = stage.cast();
    stage.rules = [({ body }) => (body.kind === "forward_reply" ? "drop" : undefined)];
    const lost = [1, 2].map((number) => stage.write(follower, put(`lost${number}`, number), { timeoutMs: 5000 }));
    stage.run(20);
    const later = [1, 2, 3].map((number) => stage.write(follower, put(`k${number}`, number), { timeoutMs: 3000 }));
    stage.run(20);
    expect(later.map(codeOf)).toEqual([null, null, null]);
    stage.rules = [];
    stage.run(1000);
    expect(later.map(codeOf)).toEqual(["ok", "ok", "ok"]);
    expect(lost.map(codeOf)).toEqual([null, null]);
    stage.run(5000);
    expect(lost.map(codeOf)).toEqual(["timeout", "timeout"]);
    expect(stage.value(follower, "lost1")).toBe(1); // carried out once; nobody could say so
  });
});

test.each(["leader", "follower"])("a keep-alive goes before a burst that waits on the %s", (where) => {
  const stage = formed();
  const [leader, follower] = stage.cast();
  const node = where === "leader" ? leader : follower;
  const granted = stage.written(node, { kind: "lease_grant", ttl_s: 10 });
  if (!granted.ok || granted.result.kind !== "lease_grant") throw new Error("no lease");
  const writes = Array.from({ length: 5000 }, (_, number) => stage.write(node, put(`k${number}`, number)));
  const alive = stage.write(node, { kind: "lease_keep_alive", items: [{ id: granted.result.id }] });
  stage.until("the keep-alive is answered", () => codeOf(alive) !== null);
  expect(codeOf(alive)).toBe("ok");
  expect(writes.filter((write) => codeOf(write) !== null).length).toBeLessThan(4000);
  stage.until("the rest is answered", () => writes.every((write) => codeOf(write) !== null));
  expect(new Set(writes.map(codeOf))).toEqual(new Set(["ok"]));
});

test.each(["leader", "follower"])(
  "a queue on the %s whose head has waited for a second takes no more, at once",
  (where) => {
    const stage = formed();
    const [leader, follower] = stage.cast();
    const node = where === "leader" ? leader : follower;
    const granted = stage.written(node, { kind: "lease_grant", ttl_s: 60 });
    if (!granted.ok || granted.result.kind !== "lease_grant") throw new Error("no lease");
    // Heartbeats pass, so the leader stays; nothing is committed.
    stage.rules = [(envelope) => (carriesEntries(envelope) ? "drop" : undefined)];
    const early = [1, 2, 3, 4].map((number) => {
      stage.run(1);
      return stage.write(node, put(`k${number}`, number), { timeoutMs: 10_000 });
    });
    // A follower first hands over what no answer comes to; then it waits at the leader.
    stage.run(where === "leader" ? 900 : 500);
    const waiting = stage.write(node, put("waiting", 1), { timeoutMs: 10_000 });
    stage.run(where === "leader" ? 200 : 1500);
    const late = stage.write(node, put("late", 1), { timeoutMs: 10_000 });
    const alive = stage.write(
      node,
      { kind: "lease_keep_alive", items: [{ id: granted.result.id }] },
      { timeoutMs: 9000 },
    );
    stage.run(5);
    expect([codeOf(waiting), codeOf(late), codeOf(alive)]).toEqual([null, "overloaded", null]);
    stage.rules = [];
    stage.run(1000);
    expect([...early, waiting, alive].map(codeOf)).toEqual(["ok", "ok", "ok", "ok", "ok", "ok"]);
    expect(stage.value(node, "late")).toBeNull();
  },
);

function publish(stage: Stage, node: number, payload: string): void {
  const instance = stage.instance(node);
  stage.world.published.add(`t ${payload}`);
  runTurn(stage.world, instance, () => instance.runtime.publishTopic("t", payload));
}

describe("a flood of topic messages", () => {
  test("reaches the peers in bounded frames, and what is over is lost", () => {
    const stage = formed();
    const [publisher, other] = stage.cast();
    const frames: number[] = [];
    stage.rules = [
      ({ to, body }) => {
        if (body.kind === "topics" && to === other) frames.push(body.messages.length);
        return undefined;
      },
    ];
    publish(stage, publisher, "0");
    expect(frames).toEqual([1]); // at once: nothing was sent before
    for (let number = 1; number <= 1000; number += 1) publish(stage, publisher, String(number));
    stage.run(10);
    expect(frames).toEqual([1]);
    stage.run(15);
    expect(frames).toEqual([1, 200]);
    stage.run(200);
    expect(frames).toEqual([1, 200]);
  });

  test("of long messages is bounded by bytes", () => {
    const stage = formed();
    const [publisher, other] = stage.cast();
    let bytes = 0;
    stage.rules = [
      ({ to, body }) => {
        if (body.kind === "topics" && to === other) for (const { payload } of body.messages) bytes += payload.length;
        return undefined;
      },
    ];
    const payload = JSON.stringify("x".repeat(60_000));
    for (let number = 0; number < 50; number += 1) publish(stage, publisher, payload);
    stage.run(100);
    expect(bytes).toBeLessThanOrEqual(60_002 * 3); // one at once, two in the frame behind it
    expect(bytes).toBeGreaterThan(60_002);
  });
});
