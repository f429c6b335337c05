/**
 * The examples in the documents: fenced blocks of shell commands and of TypeScript, and what they are said to print.
 *
 * In `sh` blocks that begin with curl, a comment line that looks like output (`# {…}`, `# data: …`, `# ETag: …`) is what the
 * commands above it print; three blanks end it. In `ts` blocks, a comment behind `console.log(…);` is. `…` stands for anything.
 */

export interface ShellStep {
  readonly commands: string;
  readonly expected: readonly string[];
}

export interface Program {
  /** One module: all blocks in order, the imports first. */
  readonly text: string;
  readonly expected: readonly string[];
  readonly blocksCount: number;
}

const OUTPUT = /^# ?((?:[{["]|data:|id:|etag:|HTTP\/).*)$/i;
/** Blocks that need more than a cluster; the test of the package has them. */
const OF_PACKAGE = /from "concord-edge\/(?:worker|testing)"/;

export function shellSteps(markdown: string): ShellStep[] {
  return blocks(markdown, "sh")
    .filter((text) => text.startsWith("curl"))
    .flatMap(stepsOf);
}

function stepsOf(block: string): ShellStep[] {
  const steps: { commands: string[]; expected: string[] }[] = [];
  for (const line of block.split("\n")) {
    const output = OUTPUT.exec(line)?.[1]?.split(/ {3}/)[0];
    const last = steps.at(-1);
    if (output !== undefined) last?.expected.push(output);
    else if (last === undefined || last.expected.length > 0) steps.push({ commands: [line], expected: [] });
    else last.commands.push(line);
  }
  return steps.map(({ commands, expected }) => ({ commands: commands.join("\n"), expected }));
}

/** @param clientModule what the blocks import their client from, as a path. */
export function programOf(markdown: string, clientModule: string): Program {
  const own = blocks(markdown, "ts").filter((text) => !OF_PACKAGE.test(text));
  const imports = new Set<string>();
  const bodies = own.map((text) => {
    const lines = text.split("\n");
    for (const line of lines.filter(isImport)) {
      const ofClient = line.replace(
        /"(?:\.\/src\/client\/index\.ts|concord-edge\/client)"/,
        JSON.stringify(clientModule),
      );
      const adminModule = clientModule.replace(/index\.ts$/, "admin.ts");
      imports.add(ofClient.replace('"concord-edge/admin"', JSON.stringify(adminModule)));
    }
    const body = lines.filter((line) => !isImport(line)).join("\n");
    // The block that connects shares its client with the others; what else they name is their own.
    return body.includes("Concord.connect(") ? body : `{\n${body}\n}`;
  });
  const expected = own.flatMap((text) =>
    [...text.matchAll(/console\.log\(.*\);? \/\/ (.+)$/gm)].map(([, output = ""]) => output),
  );
  return { text: `${[...imports, ...bodies].join("\n")}\nexport {};\n`, expected, blocksCount: own.length };
}

function isImport(line: string): boolean {
  return line.startsWith("import ");
}

function blocks(markdown: string, language: string): string[] {
  const fence = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, "gms");
  return [...markdown.matchAll(fence)].map(([, text = ""]) => text.trimEnd());
}

/** Null if `printed` holds every expected line, in order; else the first that is missing. */
export function missingLine(printed: string, expected: readonly string[]): string | null {
  let rest = printed;
  for (const line of expected) {
    const pattern = line.split("…").map(RegExp.escape).join("[\\s\\S]*?");
    const found = new RegExp(pattern, /^[\w-]+:/.test(line) ? "i" : "").exec(rest);
    if (found === null) return line;
    rest = rest.slice(found.index + found[0].length);
  }
  return null;
}
