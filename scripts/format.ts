/** `npm run format`: formats every file and applies the safe fixes of the linter. */
import { executable } from "./local-cluster/project.ts";
import { runStep } from "./steps.ts";

const step = { name: "format", program: executable("biome"), args: ["check", "--write", "."] };
process.exitCode = (await runStep(step, { show: "always" })) ? 0 : 1;
