/** Steps that the checking scripts share: run one tool, show what it said when it fails, and say how it went. */
import { spawn } from "node:child_process";
import { executable, ROOT } from "./local-cluster/project.ts";
import { toolEnvironment } from "./local-cluster/tool-environment.ts";

export interface Step {
  readonly name: string;
  readonly program: string;
  readonly args: readonly string[];
}

/**
 * Runs a step to its end. Answers whether it succeeded.
 * @param options.show `failure`: its output only when it failed; `always`: as it comes.
 */
export async function runStep(step: Step, options: { readonly show: "failure" | "always" }): Promise<boolean> {
  const startedMs = Date.now();
  const chunks: string[] = [];
  const code = await new Promise<number | null>((settle, fail) => {
    const child = spawn(step.program, step.args, {
      cwd: ROOT,
      env: toolEnvironment(),
      stdio: options.show === "always" ? "inherit" : ["ignore", "pipe", "pipe"],
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => chunks.push(text));
    }
    child.once("error", fail);
    child.once("close", settle);
  });
  if (options.show === "failure") {
    if (code !== 0) process.stdout.write(chunks.join(""));
    report(step.name, code === 0, startedMs);
  }
  return code === 0;
}

export function report(name: string, passed: boolean, startedMs: number, note = ""): void {
  const seconds = ((Date.now() - startedMs) / 1000).toFixed(1);
  process.stdout.write(`${passed ? "ok  " : "FAIL"} ${name} (${seconds} s)${note === "" ? "" : `: ${note}`}\n`);
}

/** `wrangler types`; variables are strings, not the literals of wrangler.toml, since deployments change them. */
export function typesCommand(args: readonly string[]): Step {
  return {
    name: "environment types are up to date (npm run types)",
    program: executable("wrangler"),
    args: ["types", "--strict-vars=false", ...args],
  };
}
