/** `npm run build`: the package in `dist/`, as `npm pack` takes it. */
import { join } from "node:path";
import { buildPackage } from "./build-package.ts";
import { ROOT } from "./local-cluster/project.ts";
import { report } from "./steps.ts";

const startedMs = Date.now();
await buildPackage(join(ROOT, "dist"));
report("package in dist/", true, startedMs);
