/** Nodes log what tests do to them; the lines are kept and shown only when a test fails. */
import { afterEach, beforeEach, onTestFailed, vi } from "vitest";

export const lines: string[] = [];

export function quietConsole(): void {
  beforeEach(() => {
    lines.length = 0;
    for (const level of ["info", "warn", "error"] as const) {
      vi.spyOn(console, level).mockImplementation((line: unknown) => void lines.push(`${level} ${String(line)}`));
    }
    onTestFailed(() => console.log(lines.slice(-100).join("\n")));
  });
  afterEach(() => void vi.restoreAllMocks());
}
