/** Goal: server-sent events are the same however the bytes are cut, and as the standard has them. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { EventStreamParser } from "../../src/client/event-stream.ts";

function parse(pieces: readonly string[]): string[] {
  const parser = new EventStreamParser();
  return pieces.flatMap((piece) => parser.push(piece));
}

test.each([
  ["an event", "data: a\n\n", ["a"]],
  ["fields that mean nothing here", "id: 3\nevent: x\nretry: 9\ndata: a\nnonsense\n\n", ["a"]],
  ["no blank behind the colon, and one of two", "data:a\n\ndata:  b\n\n", ["a", " b"]],
  ["several lines of data", "data: a\ndata\ndata: b\n\n", ["a\nb"]],
  ["comments", ":\n\n: hello\ndata: a\n\n", ["a"]],
  ["every end of a line", "data: a\r\n\r\ndata: b\r\rdata: c\n\n", ["a", "b", "c"]],
  ["an event that has not ended", "data: a\n", []],
  ["an event without data", "id: 1\n\n", []],
])("%s", (_what, text, events) => {
  expect(parse([text])).toEqual(events);
});

test("however the text is cut", () => {
  const line = fc.constantFrom("data: x", "data:é", ":", "id: 1", "");
  const end = fc.constantFrom("\n", "\r\n", "\r");
  fc.assert(
    fc.property(fc.array(fc.tuple(line, end)), fc.array(fc.nat({ max: 5 }), { minLength: 1 }), (lines, sizes) => {
      const text = `${lines.map((parts) => parts.join("")).join("")}\n\n`;
      const pieces: string[] = [];
      for (let at = 0, turn = 0; at < text.length; turn += 1) {
        const size = sizes[turn % sizes.length] ?? 1;
        pieces.push(text.slice(at, at + size));
        at += Math.max(size, turn % sizes.length === sizes.length - 1 ? 1 : 0);
        if (size === 0 && turn % sizes.length === sizes.length - 1) pieces.push(text.slice(at - 1, at));
      }
      expect(pieces.join("")).toBe(text);
      expect(parse(pieces)).toEqual(parse([text]));
    }),
  );
});
