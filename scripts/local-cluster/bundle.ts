/** The Worker as it would be deployed: one ES module, built by `wrangler deploy --dry-run`. Works offline. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { executable, ROOT } from "./project.ts";
import { toolEnvironment } from "./tool-environment.ts";

/** Design 00: the runtime code of the Worker stays small. */
export const BUNDLE_GZIP_BYTES_MAX = 500 * 1024;

export interface Bundle {
  /** Absolute path of the module. */
  readonly modulePath: string;
  readonly bytes: number;
  readonly gzipBytes: number;
}

/** Builds into `folder`, which must be absolute. @throws Error with wrangler's output */
export async function buildBundle(folder: string): Promise<Bundle> {
  const child = spawn(
    executable("wrangler"),
    ["deploy", "--dry-run", "--outdir", folder, "--config", "wrangler.toml"],
    {
      cwd: ROOT,
      env: toolEnvironment(),
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  const chunks: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => chunks.push(text));
  }
  const [code] = (await once(child, "close")) as [number | null];
  if (code !== 0) throw new Error(`wrangler deploy --dry-run failed:\n${chunks.join("")}`);
  const modules = readdirSync(folder).filter((name) => name.endsWith(".js"));
  const [name, ...others] = modules;
  if (name === undefined || others.length > 0) {
    throw new Error(`the bundle should be one module, but ${folder} holds ${modules.join(", ") || "none"}`);
  }
  const modulePath = join(folder, name);
  const source = readFileSync(modulePath);
  return { modulePath, bytes: source.byteLength, gzipBytes: gzipSync(source).byteLength };
}
