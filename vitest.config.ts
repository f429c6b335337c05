/**
 * Two projects: pure layers, simulator, scripts and processes on Node; the Durable Object inside the Workers runtime.
 */
import { cloudflareTest } from "@cloudflare/vitest-plugin";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    // Process and simulator tests are heavy; more workers than this only slow each other down on two cores.
    maxWorkers: 2,
    projects: [
      {
        test: {
          name: "node",
          environment: "node",
          include: ["test/**/*.test.ts"],
          exclude: ["test/node-object/**", "test/process/**", "test/docs/**"],
          testTimeout: 30_000,
        },
      },
      {
        test: {
          name: "process",
          environment: "node",
          include: ["test/process/**/*.test.ts", "test/docs/**/*.test.ts"],
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
      {
        plugins: [
          cloudflareTest({
            wrangler: { configPath: "./wrangler.toml" },
            miniflare: { bindings: { CONCORD_LOOPBACK_DEV: "1" }, cf: false },
          }),
        ],
        test: {
          name: "workers",
          include: ["test/node-object/**/*.test.ts"],
          testTimeout: 30_000,
        },
      },
    ],
  },
});
