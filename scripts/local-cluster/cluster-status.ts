/** The table of `npm run cluster -- status`: what each process does, and what its node says of itself and of the others. */
import type { ClusterHandle, ControlReply } from "./cluster-control.ts";

/** Above what a node waits for peers that do not answer. */
const ASK_TIMEOUT_MS = 4000;

const HEADINGS = [
  ...["node", "process", "url", "state", "role", "term", "leader"],
  ...["commit", "applied", "revision", "asleep", "reaches"],
];

/** What is read of `GET /v1/cluster`. */
interface View {
  readonly nodes: readonly ViewOfNode[];
  readonly digests: { readonly index: number; readonly equal: boolean } | null;
}

interface ViewOfNode {
  readonly id: number;
  readonly state: string;
  readonly role: string | null;
  readonly member: string | null;
  readonly term: number;
  readonly leader: number | null;
  readonly commit_index: number;
  readonly applied_index: number;
  readonly revision: number;
  readonly quiescent: boolean;
}

export async function statusText(handle: ClusterHandle, reply: ControlReply, token: string): Promise<string> {
  const views = await Promise.all(
    handle.urls.map((url, position) => (reply.states[position] === "running" ? ask(url, token) : null)),
  );
  const rows = handle.urls.map((url, position) => {
    const id = position + 1;
    return [String(id), reply.states[position] ?? "", url, ...cellsOf(id, views[position] ?? null)];
  });
  const lines = tableOf([HEADINGS, ...rows]);
  if (reply.cuts.length > 0) lines.push("", `Cut: ${reply.cuts.join(" ")}`);
  const digests = views.map((view) => (typeof view === "object" ? (view?.digests ?? null) : null));
  const compared = digests.find((digest) => digest !== null);
  if (compared !== undefined && compared !== null) {
    const verdict = compared.equal ? "equal" : "DIFFERENT";
    lines.push("", `Digests of the nodes that answer: ${verdict} at index ${compared.index}`);
  }
  return `${lines.join("\n")}\n`;
}

/** Text: why there is no view. */
async function ask(url: string, token: string): Promise<View | string> {
  try {
    const headers: Record<string, string> = token === "" ? {} : { authorization: `Bearer ${token}` };
    const response = await fetch(`${url}/v1/cluster`, { headers, signal: AbortSignal.timeout(ASK_TIMEOUT_MS) });
    if (!response.ok) return `status ${response.status}`;
    return (await response.json()) as View;
  } catch (error) {
    return error instanceof Error && error.name === "TimeoutError" ? "no answer" : "not reached";
  }
}

function cellsOf(id: number, view: View | string | null): string[] {
  if (view === null || typeof view === "string") return [view ?? "-"];
  const own = view.nodes.find((node) => node.id === id);
  if (own === undefined) return ["-"];
  const reached = view.nodes.filter((node) => node.id !== id && node.state !== "unreachable").map((node) => node.id);
  return [
    own.state,
    own.member === "learner" ? "learner" : (own.role ?? "-"),
    String(own.term),
    own.leader === null ? "-" : String(own.leader),
    String(own.commit_index),
    String(own.applied_index),
    String(own.revision),
    own.quiescent ? "yes" : "no",
    reached.length === 0 ? "nobody" : reached.join(" "),
  ];
}

function tableOf(rows: readonly (readonly string[])[]): string[] {
  const widths = HEADINGS.map((_heading, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}
