/**
 * Goal: the client stays small, stands alone, and runs in Node 20, browsers and Workers.
 * Method: bundle it as an application would, then look at what is inside.
 */
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { beforeAll, expect, test } from "vitest";

const GZIP_BYTES_MAX = 20_000;
const ROOT = join(import.meta.dirname, "../..");

let text = "";
let inputs: string[] = [];

beforeAll(async () => {
  const result = await build({
    entryPoints: [join(ROOT, "src/client/index.ts")],
    absWorkingDir: ROOT,
    bundle: true,
    minify: true,
    format: "esm",
    platform: "browser",
    target: "es2022",
    write: false,
    metafile: true,
    logLevel: "silent",
  });
  text = result.outputFiles[0]?.text ?? "";
  inputs = Object.keys(result.metafile.inputs);
});

test(`is under ${GZIP_BYTES_MAX} bytes`, () => {
  expect(gzipSync(text, { level: 9 }).length).toBeLessThan(GZIP_BYTES_MAX);
});

test("holds nothing but itself: no package, no schema, no route, no module of Node", () => {
  const own = /^src\/(client\/[a-z-]+|base\/(bytes|errors|limits|assert|json)|api\/limits)\.ts$/;
  expect(inputs.filter((path) => !own.test(path))).toEqual([]);
  expect(text).not.toMatch(/\b(?:require|process|Buffer|__dirname)\b/);
});

// What came after Node 20: the types know it, so only this test sees it.
test.each([
  "withResolvers",
  "fromAsync",
  "AbortSignal.any",
  "Promise.try",
  "Iterator.from",
  "groupBy",
  ".difference(",
  ".intersection(",
  ".isSubsetOf(",
  ".symmetricDifference(",
  ".toBase64(",
  "fromBase64",
  "RegExp.escape",
  "Math.sumPrecise",
  ".flush()",
])("does not need %s, which Node 20 lacks", (name) => {
  expect(text).not.toContain(name);
});

test("is loaded without an effect, and without anything that only some platforms have", async () => {
  const url = `data:text/javascript;base64,${Buffer.from(text).toString("base64")}`;
  const { Concord } = (await import(/* @vite-ignore */ url)) as typeof import("../../src/client/index.ts");
  const { WebSocket } = globalThis;
  Reflect.deleteProperty(globalThis, "WebSocket");
  try {
    const fetch = () => Response.json({ revision: 3 }, { headers: { "concord-revision": "3" } });
    expect(await Concord.connect({ fetch }).currentRevision()).toBe(3);
  } finally {
    globalThis.WebSocket = WebSocket;
  }
});
