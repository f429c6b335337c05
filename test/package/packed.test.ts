/**
 * The package as its users get it: packed, unpacked into an empty project, and used there by Node, by TypeScript and by a
 * Worker.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import { build } from "esbuild";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { afterAll, beforeAll, expect, test } from "vitest";
import { executable, ROOT } from "../../scripts/local-cluster/project.ts";
import { type ConsumerProject, createConsumerProject, machinesNode, output, readManifest } from "./consumer-project.ts";
import { PROGRAM, SCRIPT, SCRIPT_SAW, WHOLE_WORKER, WORKER, wranglerToml } from "./consumer-sources.ts";

const MACHINES_NODE = await machinesNode();
const CLIENT_GZIP_BYTES_MAX = 20_000;

let project: ConsumerProject;

beforeAll(async () => {
  project = await createConsumerProject();
}, 60_000);

afterAll(() => project.remove());

test("the tarball holds what the entries need and nothing else", () => {
  const { files, packageFolder } = project;
  const others = files.filter((path) => !path.startsWith("dist/"));
  const documents = ["docs/api.md", "docs/architecture.md", "docs/operations.md"];
  expect(others).toEqual(["LICENSE", "README.md", ...documents, "package.json"]);
  expect(files.filter((path) => !/\.(js|d\.ts)$/.test(path))).toEqual(others);
  for (const target of Object.values(readManifest(packageFolder).exports)) {
    const paths = typeof target === "string" ? [target] : Object.values(target);
    for (const path of paths) expect(existsSync(join(packageFolder, path)), path).toBe(true);
  }
});

test("declarations cite nothing that the package does not hold", () => {
  const { files, packageFolder } = project;
  const declarations = files.filter((path) => path.endsWith(".d.ts"));
  expect(declarations.length).toBeGreaterThan(10);
  const cited = declarations.flatMap((path) => {
    const text = readFileSync(join(packageFolder, path), "utf8");
    // The types of the Workers runtime are Cloudflare's.
    const own = path.endsWith("worker-configuration.d.ts") ? "" : text;
    const documents = [...own.matchAll(/docs\/[\w/.-]+\.md/g)].filter(([name]) => !files.includes(name));
    return [...own.matchAll(/\bdesign \d|\bS\d\d\b/g), ...documents].map(([text]) => `${path}: ${text}`);
  });
  expect(cited).toEqual([]);
});

test("each entry names its types first and one ES module", () => {
  const { exports } = readManifest(project.packageFolder);
  expect(Object.keys(exports)).toEqual(["./client", "./admin", "./worker", "./testing", "./package.json"]);
  for (const entry of ["./client", "./admin", "./worker", "./testing"]) {
    expect(Object.keys(exports[entry] ?? {})).toEqual(["types", "default"]);
  }
});

test.for([
  ["the Node that runs the tests", process.execPath],
  ["the Node of this machine", MACHINES_NODE],
] as const)("%s runs a script that uses client and testing", async ([, program], { skip }) => {
  if (program === null) return skip("it is the same one, or older than 20");
  project.write("script.mjs", SCRIPT);
  expect(JSON.parse(await output(program, ["script.mjs"], project.folder))).toEqual(SCRIPT_SAW);
});

test("the examples of the README are what they say", async () => {
  const [worker = "", own = "", ...others] = examples(readFileSync(join(project.packageFolder, "README.md"), "utf8"));
  expect([worker.includes("createEdge"), own.includes("startTestCluster"), others]).toEqual([true, true, []]);
  project.write("readme.test.mjs", own);
  expect(await output(process.execPath, ["readme.test.mjs"], project.folder)).toContain("pass 1");
  project.write("src/readme-worker.ts", worker);
});

/** The blocks of TypeScript that import the package. */
function examples(markdown: string): string[] {
  const blocks = [...markdown.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, text = ""]) => text);
  return blocks.filter((text) => text.includes('from "concord-edge/'));
}

const RESOLUTIONS = [
  { module: "esnext", moduleResolution: "bundler", lib: ["esnext", "dom"], types: [] },
  { module: "nodenext", moduleResolution: "nodenext", lib: ["esnext"], types: ["node"] },
];

test.for(RESOLUTIONS)("a program compiles: $moduleResolution, types $types", async (resolution) => {
  project.write("program.ts", PROGRAM);
  await compile(["program.ts"], resolution);
});

test("Workers compile with the types of the Workers runtime", async () => {
  project.write("src/worker.ts", WORKER);
  project.write("src/whole-worker.ts", WHOLE_WORKER);
  const environment = "worker-configuration.d.ts";
  project.write(environment, readFileSync(join(ROOT, environment), "utf8"));
  const options = { module: "esnext", moduleResolution: "bundler", lib: ["esnext"], types: [] };
  await compile(["src/worker.ts", "src/whole-worker.ts", "src/readme-worker.ts", environment], options);
});

async function compile(files: readonly string[], options: object): Promise<void> {
  const compilerOptions = {
    ...{ target: "esnext", strict: true, skipLibCheck: false, noEmit: true, exactOptionalPropertyTypes: true },
    ...{ noUncheckedIndexedAccess: true, verbatimModuleSyntax: true },
    ...{ typeRoots: [join(ROOT, "node_modules", "@types")] },
    ...options,
  };
  project.write("tsconfig.json", JSON.stringify({ compilerOptions, files }));
  await output(executable("tsc"), ["-p", "."], project.folder);
}

test("wrangler bundles a Worker that serves a cluster", async () => {
  project.write("src/worker.ts", WORKER);
  project.write("wrangler.toml", wranglerToml("src/worker.ts"));
  await output(executable("wrangler"), ["deploy", "--dry-run", "--outdir", "bundle"], project.folder);
  expect(readFileSync(join(project.folder, "bundle", "worker.js"), "utf8")).toContain("ConcordNode");
}, 60_000);

test("the client brings no package, no Node module, and less than 20 KB", async () => {
  const { metafile, outputFiles } = await build({
    stdin: { contents: 'export * from "concord-edge/client";', resolveDir: project.folder },
    ...{ bundle: true, write: false, minify: true, metafile: true, format: "esm", platform: "browser" },
  });
  const foreign = Object.keys(metafile.inputs).filter((path) => !/(?:^<stdin>|concord-edge\/dist\/.*\.js)$/.test(path));
  expect(foreign).toEqual([]);
  expect(gzipSync(outputFiles[0]?.contents ?? "").byteLength).toBeLessThan(CLIENT_GZIP_BYTES_MAX);
});

test("publint finds nothing", async () => {
  const tarball = readFileSync(project.tarball);
  const { messages, pkg } = await publint({ pack: { tarball: new Uint8Array(tarball).buffer } });
  expect(messages.map((message) => formatMessage(message, pkg, { color: false }))).toEqual([]);
});

test("attw finds nothing wrong with the types of an ES module", async () => {
  const analysis = await checkPackage(createPackageFromTarballData(readFileSync(project.tarball)), {
    excludeEntrypoints: ["./package.json"],
  });
  if (analysis.types === false) throw new Error("the package has no types");
  // Before `exports` there was only CommonJS, and `require` of this package is what Node itself makes of it.
  const isEsm = (kind: string) => kind !== "node10" && kind !== "node16-cjs";
  const problems = analysis.problems.filter(
    (problem) => !("resolutionKind" in problem) || isEsm(problem.resolutionKind),
  );
  expect(problems).toEqual([]);
});
