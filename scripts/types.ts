/** `npm run types`: writes worker-configuration.d.ts, the types of the Worker's environment and runtime. */
import { runStep, typesCommand } from "./steps.ts";

process.exitCode = (await runStep(typesCommand([]), { show: "always" })) ? 0 : 1;
