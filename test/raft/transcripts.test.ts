/** Runs the protocol stories of `transcripts/` (see transcript.ts for their language). */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { formatTranscript, parseTranscript, runTranscript } from "./transcript.ts";

const FOLDER = join(import.meta.dirname, "transcripts");
const FILES = readdirSync(FOLDER).filter((name) => name.endsWith(".txt"));

describe("stories", () => {
  test.each(FILES)("%s happens as it is told", (name) => {
    const path = join(FOLDER, name);
    const text = readFileSync(path, "utf8");
    const happened = formatTranscript(runTranscript(parseTranscript(text)));
    if (process.env.CONCORD_REWRITE === "1") writeFileSync(path, happened);
    else expect(happened).toBe(text);
  });

  test("there are stories", () => {
    expect(FILES.length).toBeGreaterThan(5);
  });
});
