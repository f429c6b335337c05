/**
 * The environment in which wrangler and vitest run: offline, quiet, and with their settings, logs and caches in the project.
 */
import { delimiter, join } from "node:path";
import { ROOT } from "./project.ts";

/** This process's environment with the tools' network look-ups, prompts, banners and log files switched off. */
export function toolEnvironment(extra: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv {
  return {
    ...process.env,
    // The tools look for `node` there and need the pinned one.
    PATH: `${join(ROOT, "node_modules", ".bin")}${delimiter}${process.env.PATH ?? ""}`,
    CI: "1",
    CLOUDFLARE_CF_FETCH_ENABLED: "false",
    WRANGLER_SEND_METRICS: "false",
    WRANGLER_SEND_ERROR_REPORTS: "false",
    WRANGLER_HIDE_BANNER: "true",
    WRANGLER_WRITE_LOGS: "false",
    WRANGLER_NO_SKILLS_UPDATE_PROMPTS: "true",
    WRANGLER_LOG_PATH: join(ROOT, ".wrangler", "logs"),
    WRANGLER_CACHE_DIR: join(ROOT, ".wrangler", "cache"),
    // What wrangler would keep in the home folder: preferences, metrics, caches.
    XDG_CONFIG_HOME: join(ROOT, ".wrangler", "config"),
    XDG_CACHE_HOME: join(ROOT, ".wrangler", "cache"),
    WRANGLER_REGISTRY_PATH: join(ROOT, ".wrangler", "registry"),
    // Either one costs a local request half its time (docs/architecture.md).
    X_LOCAL_OBSERVABILITY: "false",
    X_LOCAL_EXPLORER: "false",
    ...extra,
  };
}
