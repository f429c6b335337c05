/** Where things are: folders and executables of this project. */
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
export const DATA_FOLDER_DEFAULT = join(ROOT, ".concord", "data");

/** Path of an installed package's executable. */
export function executable(name: "biome" | "tsc" | "vitest" | "workerd" | "wrangler"): string {
  return join(ROOT, "node_modules", ".bin", name);
}
