/** A follower hands its clients' writes to the leader: each of these messages is carried out at most once (waiters W2, W3). */
import { describe, expect, test } from "vitest";
import type { PeerEnvelope } from "../../../src/node-object/ports.ts";
import { ELECTION_MS_MAX, formed, type Rule, type Stage } from "./stage.ts";
import { codeOf, idempotency, put } from "./vocabulary.ts";

function isForward(envelope: PeerEnvelope): boolean {
  return envelope.body.kind === "forward";
}

const holdForwards: Rule = (envelope) => (isForward(envelope) ? "hold" : undefined);

/** The answers that `node` gives to forwards, while it gives them. */
function listen(stage: Stage, node: number): string[] {
  const answers: string[] = [];
  stage.rules.unshift(({ from, body }) => {
    if (from === node && body.kind === "forward_reply")
      answers.push(...body.replies.map(({ outcome }) => outcome.kind));
    return undefined;
  });
  return answers;
}

describe("a forwarded write", () => {
  test("whose first try may have been carried out is not refused for what a later one was told", () => {
    const stage = formed();
    const [leader, follower] = stage.cast();
    const ids: number[] = [];
    let header: PeerEnvelope | null = null;
    stage.rules = [
      (envelope) => {
        const { from, to, body } = envelope;
        if (from === leader && to === follower) header = envelope;
        // The first try comes, the others do not; no answer comes back.
        if (body.kind === "forward") return ids.push(...body.calls.map(({ id }) => id)) > 1 ? "drop" : undefined;
        return body.kind === "forward_reply" ? "drop" : undefined;
      },
    ];
    const write = stage.write(follower, put("k", 1), { idempotency: idempotency("K"), timeoutMs: 30_000 });
    stage.until("it is tried again", () => ids.length > 1);
    const full = { ok: false, revision: 0, error: { code: "no_space", detail: "full" } };
    const outcome = { kind: "outcome", outcome: JSON.stringify(full) } as const;
    const [, second = 0] = ids;
    const body = { kind: "forward_reply", replies: [{ id: second, outcome }] } as const;
    if (header === null) throw new Error("the leader has said nothing");
    stage.deliver({ ...(header as PeerEnvelope), body });
    stage.run(20);
    expect(codeOf(write)).toBe("timeout");
    expect(stage.value(leader, "k")).toBe(1);
  });

  test("that arrives three times is proposed once and answered once", () => {
    const stage = formed();
    const [leader, follower] = stage.cast();
    stage.rules = [holdForwards];
    const write = stage.write(follower, put("k", 1));
    const [forward] = stage.held;
    stage.rules = [];
    const answers = listen(stage, leader);
    stage.release();
    for (const pauseMs of [0, 10]) {
      stage.run(pauseMs);
      if (forward !== undefined) stage.deliver(forward.envelope);
    }
    stage.run(20);
    expect(codeOf(write)).toBe("ok");
    expect(answers).toEqual(["outcome"]);
    stage.settle();
    expect(stage.status(leader).revision).toBe(1);
  });

  test("without a key that arrives after the leader has restarted is answered `unknown` and never carried out", () => {
    const stage = formed();
    const [leader, follower] = stage.cast();
    stage.rules = [holdForwards];
    const write = stage.write(follower, put("k", 1), { timeoutMs: 5000 });
    stage.crash(leader);
    stage.start(leader);
    stage.rules = [];
    const answers = listen(stage, leader);
    stage.lead(leader);
    stage.release();
    stage.run(20);
    expect(answers).toEqual(["unknown"]);
    expect(codeOf(write)).toBe("timeout");
    expect(stage.value(follower, "k")).toBeNull();
  });

  test("without a key whose first copy was carried out before the leader restarted is not carried out again", () => {
    const stage = formed();
    const [leader, follower] = stage.cast();
    const copies: PeerEnvelope[] = [];
    stage.rules = [
      (envelope) => {
        if (isForward(envelope)) copies.push(envelope);
        return envelope.body.kind === "forward_reply" ? "drop" : undefined;
      },
    ];
    const write = stage.write(follower, put("k", 1), { timeoutMs: 4000 });
    stage.run(20);
    expect(stage.status(leader).revision).toBe(1);
    stage.crash(leader);
    stage.start(leader);
    stage.lead(leader);
    for (const copy of copies) stage.deliver(copy);
    stage.rules = [];
    stage.run(5000);
    expect(copies).toHaveLength(1); // the follower has not sent it again by itself
    expect(codeOf(write)).toBe("timeout");
    stage.settle();
    expect(stage.status(leader).revision).toBe(1);
  });

  test("with a key is sent to the next leader by the follower itself, and carried out once", () => {
    const stage = formed();
    const [leader, follower] = stage.cast();
    stage.rules = [({ body }) => (body.kind === "forward_reply" ? "drop" : undefined)];
    const write = stage.write(follower, put("k", 1), { idempotency: idempotency("K"), timeoutMs: 5000 });
    stage.run(20);
    expect(stage.status(leader).revision).toBe(1);
    stage.crash(leader);
    stage.rules = [];
    stage.until("it is answered", () => codeOf(write) !== null);
    expect(codeOf(write)).toBe("ok");
    stage.start(leader);
    stage.settle();
    expect(stage.status(leader).revision).toBe(1);
  });

  test("of an older term is refused as not proposed, and the follower hands it to the leader that there is now", () => {
    const stage = formed();
    const [leader, follower, next] = stage.cast();
    stage.rules = [holdForwards];
    const write = stage.write(follower, put("k", 1), { timeoutMs: 5000 });
    stage.rules = [];
    stage.lead(next);
    const answers = listen(stage, leader);
    stage.release();
    stage.until("it is answered", () => codeOf(write) !== null);
    expect(answers).toEqual(["not_leader"]);
    expect(codeOf(write)).toBe("ok");
    stage.settle();
    expect(stage.status(leader).revision).toBe(1);
  });

  test("to a leader that is cut off ends as unknown at its deadline, never as a definite failure", () => {
    const stage = formed();
    const [leader, follower, ...others] = stage.cast();
    // The leader takes it and can tell nobody.
    stage.cutOneWay([leader], [follower, ...others]);
    const plain = stage.write(follower, put("a", 1), { timeoutMs: 3 * ELECTION_MS_MAX });
    const keyed = stage.write(follower, put("b", 1), { idempotency: idempotency("B"), timeoutMs: 3 * ELECTION_MS_MAX });
    stage.run(20);
    expect(stage.instance(leader).raft?.log.lastIndex).toBeGreaterThan(stage.status(follower).last_index);
    stage.run(4 * ELECTION_MS_MAX);
    expect(codeOf(plain)).toBe("timeout");
    expect(codeOf(keyed)).toBe("ok"); // under its key it was given to the next leader
    stage.heal();
    stage.settle();
    expect(stage.status(leader).revision).toBe(1);
    expect(stage.value(leader, "b")).toBe(1);
  });

  test("that a leader took and never answered ends as unknown even if no leader can be found afterwards", () => {
    const stage = formed();
    const [leader, follower, ...others] = stage.cast();
    stage.rules = [({ body }) => (body.kind === "forward_reply" ? "drop" : undefined)];
    const options = { idempotency: idempotency("K"), timeoutMs: 5 * ELECTION_MS_MAX };
    const write = stage.write(follower, put("k", 1), options);
    stage.run(20);
    expect(stage.status(leader).revision).toBe(1); // carried out
    stage.crash(leader, ...others);
    stage.run(2 * ELECTION_MS_MAX);
    expect(stage.status(follower).leader).toBeNull();
    stage.run(4 * ELECTION_MS_MAX);
    expect(codeOf(write)).toBe("timeout");
  });

  test("whose client has given up is still carried out once, and a late reply answers nobody else's call", () => {
    const stage = formed();
    const [leader, follower] = stage.cast();
    stage.rules = [(envelope) => (envelope.body.kind === "forward_reply" ? "hold" : undefined)];
    const first = stage.write(follower, put("a", 1), { timeoutMs: 50 });
    stage.run(100);
    expect(codeOf(first)).toBe("timeout");
    const second = stage.write(follower, put("b", 2), { timeoutMs: 3000 });
    stage.run(20);
    const [late, own] = stage.held;
    stage.held = [];
    stage.rules = [];
    if (late === undefined || own === undefined) throw new Error("no replies");
    stage.deliver(late.envelope);
    stage.run(10);
    expect(codeOf(second)).toBeNull();
    stage.deliver(own.envelope);
    stage.run(10);
    expect(second.answer).toMatchObject({ ok: true, revision: 2 });
    expect(stage.value(leader, "a")).toBe(1);
  });
});
