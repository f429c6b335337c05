import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { utf8Length } from "../../src/base/bytes.ts";
import { decodeFrame, encodeFrames, FRAME_UNITS_MAX, identityOf } from "../../src/node-object/codec.ts";
import { decodeEntries, encodeEntries } from "../../src/node-object/entry-text.ts";
import type { PeerEnvelope } from "../../src/node-object/ports.ts";
import { neededVersion } from "../../src/node-object/versions.ts";
import type { Entry, Message } from "../../src/raft/types.ts";
import { BODIES, counter, entryRun, envelope, envelopeOf, MESSAGES, membership, OUTCOMES } from "./arbitraries.ts";

function roundTrip(body: fc.Arbitrary<PeerEnvelope["body"]>): void {
  fc.assert(
    fc.property(envelopeOf(body), (sent) => {
      expect(decodeFrame(frameTextOf(sent))).toEqual({ ok: true, envelope: sent });
    }),
  );
}

describe("entries", () => {
  test("any run of entries survives encoding", () => {
    fc.assert(
      fc.property(
        fc.nat().chain((prevIndex) => entryRun(prevIndex, 1)),
        (entries) => {
          expect(decodeEntries(encodeEntries(entries))).toEqual(entries);
        },
      ),
    );
  });

  test("a block that was cut or lengthened anywhere is refused", () => {
    const block = encodeEntries([entry(1, 'a\n"{}'), entry(2, "é😀"), entry(3, "")]);
    for (let units = 0; units < block.length; units += 1)
      expect(decodeEntries(block.slice(0, units)), `cut at ${units}`).toBeNull();
    expect(decodeEntries(`${block}x`)).toBeNull();
  });

  test("heads that name impossible lengths or kinds are refused", () => {
    const good = [1, 1, 0, 1, 2, 2];
    expect(decodeEntries(`${JSON.stringify([good])}\nab`)).toHaveLength(1);
    const bad: unknown[][] = [
      [1, 1, 0, 1, 3, 3],
      [1, 1, 0, 1, 1, 1],
      [1, 1, 0, 3, 2, 2],
      [1, 1, 0, -1, 2, 2],
      [1, 1, 0, 1, 2, 1],
      [1, 1, 0, 1, 2, 7],
      [1.5, 1, 0, 1, 2, 2],
      [2 ** 53, 1, 0, 1, 2, 2],
      ["1", 1, 0, 1, 2, 2],
      [1, 1, 0, 1, 2],
      [1, 1, 0, 1, 2, 2, 0],
    ];
    for (const head of bad) expect(decodeEntries(`${JSON.stringify([head])}\nab`), JSON.stringify(head)).toBeNull();
    for (const line of ["", "null", "{}", "[1]", "[null]", "[[]]"]) expect(decodeEntries(`${line}\nab`)).toBeNull();
  });

  test("a membership that is not well-formed is refused", () => {
    const blockOf = (payload: string) => encodeEntries([{ ...entry(1, payload), kind: "membership" }]);
    expect(decodeEntries(blockOf('{"voters":[1,2,3],"learners":[4],"extra":"x"}'))).toHaveLength(1);
    const bad = [
      "",
      "{",
      "null",
      '{"voters":[1]}',
      '{"voters":[],"learners":[1]}',
      '{"voters":[2,1],"learners":[]}',
      '{"voters":[1,1],"learners":[]}',
      '{"voters":[1],"learners":[1]}',
      '{"voters":[0],"learners":[]}',
      '{"voters":["1"],"learners":[]}',
      '{"voters":[1,2,3,4,5,6,7,8],"learners":[]}',
      '{"voters":[1],"learners":[],"extra":1}',
    ];
    for (const payload of bad) expect(decodeEntries(blockOf(payload)), payload).toBeNull();
  });

  test("a block of no entries is its own encoding", () => {
    expect(decodeEntries(encodeEntries([]))).toEqual([]);
  });
});

describe("frames", () => {
  for (const [kind, message] of Object.entries(MESSAGES)) {
    test(`a ${kind} message survives encoding`, () => {
      roundTrip(message.map((one) => ({ kind: "raft", message: one })));
    });
  }
  for (const [kind, body] of Object.entries(BODIES)) {
    test(`a ${kind} body survives encoding`, () => roundTrip(body));
  }
  for (const [kind, outcome] of Object.entries(OUTCOMES)) {
    test(`a forward reply "${kind}" survives encoding`, () => {
      const replies = fc.array(fc.record({ id: counter, outcome }), { maxLength: 3 });
      roundTrip(fc.record({ kind: fc.constant("forward_reply" as const), replies }));
    });
  }

  test("payloads travel without being escaped", () => {
    const payload = '{"key":"a\\"b"}';
    const frame = frameTextOf(frameOf(append(0, 0, [entry(1, payload)])));
    expect(frame.endsWith(payload)).toBe(true);
  });

  test("decoding never throws, whatever arrives", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (frame) => {
        expect(decodeFrame(frame).ok).toBe(false);
      }),
    );
    fc.assert(
      fc.property(fc.jsonValue(), fc.string(), (line, tail) => {
        expect(decodeFrame(`${JSON.stringify(line)}\n${tail}`).ok).toBe(false);
      }),
    );
  });

  test("a good frame with one place changed is refused or is a well-formed frame still", () => {
    const places = fc.tuple(envelope, fc.nat(), fc.constantFrom("", "0", "9", '"', "}", "-", "null", "\n"));
    fc.assert(
      fc.property(places, ([sent, at, patch]) => {
        const frame = frameTextOf(sent);
        const position = at % frame.length;
        const decoded = decodeFrame(frame.slice(0, position) + patch + frame.slice(position + 1));
        if (decoded.ok) expect(decodeFrame(frameTextOf(decoded.envelope))).toEqual(decoded);
      }),
      { numRuns: 500 },
    );
  });

  test("another protocol version is refused with its number", () => {
    const frame = frameTextOf(frameOf(append(0, 0, []))).replace('"protocol":2', '"protocol":3');
    expect(decodeFrame(frame)).toEqual({ ok: false, reason: "protocol 3, speaks 2" });
  });

  test("a frame that is too long is refused before it is parsed", () => {
    expect(decodeFrame(`{}\n${"x".repeat(FRAME_UNITS_MAX)}`)).toMatchObject({ ok: false, reason: /^frame of/ });
  });

  test("unknown properties are dropped, so that a later version may add some", () => {
    const sent = frameOf(append(0, 0, []));
    const frame = frameTextOf(sent).replace('"round":0', '"round":0,"colour":"red"');
    expect(decodeFrame(frame)).toEqual({ ok: true, envelope: sent });
  });

  test("a vote request of a version that knows no transfer asks for none", () => {
    const frame = frameTextOf(frameOf({ kind: "vote", term: 2, lastIndex: 1, lastTerm: 1, transfer: false }));
    expect(frame).toContain(',"transfer":false');
    const decoded = decodeFrame(frame.replace(',"transfer":false', ""));
    expect(decoded).toEqual(decodeFrame(frame));
    expect(decodeFrame(frame.replace('"transfer":false', '"transfer":1')).ok).toBe(false);
  });

  test("a hello of a version that asks no question asks none", () => {
    const hello = { kind: "hello", membership: { kind: "empty" }, reply: true, question: 0 } as const;
    const frame = frameTextOf({ ...frameOf({ kind: "wake", term: 1 }), body: hello });
    const decoded = decodeFrame(frame.replace(',"question":0', ""));
    expect(decoded.ok && decoded.envelope.body).toEqual(hello);
    expect(decodeFrame(frame.replace('"question":0', '"question":-1')).ok).toBe(false);
  });

  test("an offer of a snapshot of a later term, or without a membership, is refused", () => {
    const snapshot = { index: 9, term: 3, timeMs: 5, membership: { voters: [1, 2, 3], learners: [] } };
    const offer = (term: number) => frameTextOf(frameOf({ kind: "snapshot_offer", term, snapshot }));
    expect(decodeFrame(offer(3)).ok).toBe(true);
    expect(decodeFrame(offer(2)).ok).toBe(false);
    expect(decodeFrame(offer(3).replace("[1,2,3]", "[]")).ok).toBe(false);
    expect(decodeFrame(offer(3).replace('"index":9', '"index":-9')).ok).toBe(false);
  });

  test("text behind a message that has none is refused", () => {
    for (const [kind, arbitrary] of Object.entries(MESSAGES)) {
      if (kind === "append") continue;
      const [message] = fc.sample(arbitrary, { numRuns: 1, seed: 1 });
      if (message !== undefined) expect(decodeFrame(`${frameTextOf(frameOf(message))}x`).ok, kind).toBe(false);
    }
  });

  test("an append whose entries do not follow its previous entry is refused (paper 5.3)", () => {
    const good = append(4, 1, [entry(5, "a"), entry(6, "b")]);
    expect(decodeFrame(frameTextOf(frameOf(good))).ok).toBe(true);
    const gap = append(4, 1, [entry(6, "a")]);
    const hole = append(4, 1, [entry(5, "a"), entry(7, "b")]);
    const fallingTerm = append(4, 2, [entry(5, "a")]);
    const laterTerm = append(4, 1, [{ ...entry(5, "a"), term: 9 }]);
    for (const bad of [gap, hole, fallingTerm, laterTerm])
      expect(decodeFrame(frameTextOf(frameOf(bad))).ok).toBe(false);
  });
});

describe("topics", () => {
  const bodyOf = (topic: unknown): string =>
    frameTextOf({
      ...frameOf(append(0, 0, [])),
      body: { kind: "topics", messages: [{ topic: "t", payload: "[1]" }] },
    }).replace('["t",', `[${JSON.stringify(topic)},`);

  test("a topic's payload travels without being escaped", () => {
    expect(bodyOf("a\nb").endsWith("\n[1]")).toBe(true);
    expect(decodeFrame(bodyOf("a\nb"))).toMatchObject({
      ok: true,
      envelope: { body: { messages: [{ topic: "a\nb", payload: "[1]" }] } },
    });
  });

  test("a topic without a name, or with one that is too long, is refused", () => {
    for (const topic of ["", "x".repeat(257), 1, null]) expect(decodeFrame(bodyOf(topic)).ok).toBe(false);
  });
});

describe("several payloads in one frame", () => {
  const forward = {
    kind: "forward",
    term: 3,
    calls: [
      { id: 1, payload: "[1]", timeoutMs: 5, isUrgent: false },
      { id: 2, payload: '"é"', timeoutMs: 6, isUrgent: true },
    ],
  } as const;
  const frame = frameTextOf({ ...frameOf(append(0, 0, [])), body: forward });

  test("stand one behind the other, unescaped", () => {
    expect(frame.endsWith('\n[1]"é"')).toBe(true);
    expect(decodeFrame(frame)).toMatchObject({ ok: true, envelope: { body: forward } });
  });

  test("must fill the text exactly", () => {
    for (const bad of [
      frame.slice(0, -1),
      `${frame}x`,
      frame.replace("[1,3,", "[1,2,"),
      frame.replace("[1,3,", "[1,-3,"),
    ]) {
      expect(decodeFrame(bad).ok).toBe(false);
    }
  });
});

describe("identity", () => {
  test("every membership survives JSON", () => {
    fc.assert(
      fc.property(fc.record({ incarnation: counter, membership }), (identity) => {
        expect(identityOf(JSON.parse(JSON.stringify(identity)))).toEqual(identity);
      }),
    );
  });

  test("what is no identity is null", () => {
    for (const value of [null, 1, [], {}, { incarnation: 1 }, { incarnation: -1, membership: { kind: "empty" } }]) {
      expect(identityOf(value)).toBeNull();
    }
    for (const bad of [
      { kind: "formed", clusterId: "c" },
      { kind: "formed", clusterId: "c", members: [{ id: 0, incarnation: 1 }] },
      { kind: "lost" },
      { kind: "other", clusterId: "c" },
    ]) {
      expect(identityOf({ incarnation: 1, membership: bad })).toBeNull();
    }
  });
});

function entry(index: number, payload: string): Entry {
  return { index, term: 1, timeMs: 1000 + index, kind: "command", payload, payloadBytes: utf8Length(payload) };
}

function append(prevIndex: number, prevTerm: number, entries: Entry[]): Message {
  return { kind: "append", term: 2, prevIndex, prevTerm, commit: 0, round: 0, entries };
}

function frameOf(message: Message): PeerEnvelope {
  const body = { kind: "raft", message } as const;
  return { protocol: 2, speaks: 2, clusterId: "c", from: 1, fromIncarnation: 11, to: 2, toIncarnation: 22, body };
}

/** Of what is said in one frame. */
function frameTextOf(envelope: PeerEnvelope): string {
  const [frame, ...more] = encodeFrames(envelope);
  if (frame === undefined || more.length > 0) throw new Error(`${more.length + 1} frames`);
  return frame;
}

describe("version 1", () => {
  const said = (body: PeerEnvelope["body"]) =>
    encodeFrames({ ...frameOf({ kind: "wake", term: 1 }), protocol: 1, speaks: 2, body });
  const bodiesOf = (frames: readonly string[]) =>
    frames.map((frame) => {
      const decoded = decodeFrame(frame);
      return decoded.ok ? decoded.envelope.body : decoded.reason;
    });

  test("says one call, one answer and one message at a time", () => {
    const call = { id: 1, payload: "[1]", timeoutMs: 5, isUrgent: false };
    const forward = { kind: "forward", term: 3, calls: [call, { ...call, id: 2 }] } as const;
    expect(said(forward).map((frame) => frame.split("\n")[1])).toEqual(["[1]", "[1]"]);
    expect(bodiesOf(said(forward))).toEqual(forward.calls.map((one) => ({ ...forward, calls: [one] })));
    const outcome = { kind: "outcome", outcome: "{}" } as const;
    const replies = [
      { id: 1, outcome },
      { id: 2, outcome: { kind: "overloaded" } },
    ] as const;
    expect(bodiesOf(said({ kind: "forward_reply", replies }))).toEqual(
      replies.map((one) => ({ kind: "forward_reply", replies: [one] })),
    );
    const messages = [
      { topic: "a", payload: "1" },
      { topic: "b", payload: "2" },
    ];
    expect(bodiesOf(said({ kind: "topics", messages }))).toEqual(
      messages.map((one) => ({ kind: "topics", messages: [one] })),
    );
  });

  test("is read as a node of that version writes it", () => {
    const line = { protocol: 1, clusterId: "c", from: 1, fromIncarnation: 11, to: 2, toIncarnation: 22 };
    const frame = (body: object, tail = "") => `${JSON.stringify({ ...line, body })}\n${tail}`;
    const decoded = decodeFrame(frame({ kind: "forward", id: 7, term: 3, timeoutMs: 5 }, "[1]"));
    const calls = [{ id: 7, payload: "[1]", timeoutMs: 5, isUrgent: false }];
    expect(decoded).toMatchObject({ ok: true, envelope: { protocol: 1, speaks: 1, body: { term: 3, calls } } });
    const hello = decodeFrame(frame({ kind: "hello", membership: { kind: "empty" }, reply: false }));
    expect(hello).toMatchObject({ ok: true, envelope: { body: { kind: "hello", question: 0 } } });
  });

  test("cannot say what came later", () => {
    const chunk = { index: 1, term: 1, after: null, rows: [], last: true };
    const position = { index: 1, term: 1, timeMs: 1, membership: { voters: [1], learners: [] } };
    const body = { kind: "snapshot_chunk", manifest: { position, rowsCount: 0, hash: 0 }, chunk } as const;
    expect(bodiesOf(said(body))).toEqual(["body"]);
    expect(neededVersion(body)).toBe(2);
    expect(neededVersion({ kind: "raft", message: { kind: "timeout_now", term: 1 } })).toBe(2);
    const payload = '{"voters":[1],"learners":[]}';
    const membership = append(0, 0, [{ ...entry(1, payload), kind: "membership" }]);
    expect(neededVersion({ kind: "raft", message: membership })).toBe(2);
    expect(neededVersion({ kind: "raft", message: append(0, 0, [entry(1, "a")]) })).toBe(1);
  });
});
