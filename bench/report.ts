/** What the benchmark found, as data and as a Markdown table. */
import { type LoadResult, percentile } from "./http-load.ts";

export interface Row {
  readonly target: string;
  readonly operation: "put" | "get";
  readonly clients: number;
  readonly operations: number;
  readonly ops_per_s: number;
  readonly p50_ms: number;
  readonly p90_ms: number;
  readonly p99_ms: number;
  readonly max_ms: number;
  /** CPU seconds of the server per 1000 operations; null if the system does not tell. */
  readonly cpu_s_per_1000: number | null;
}

export interface Report {
  readonly machine: { readonly cpus: number; readonly cpu: string; readonly node: string; readonly workerd: string };
  readonly rows: readonly Row[];
}

export function rowOf(target: string, operation: "put" | "get", result: LoadResult, cpuSeconds: number | null): Row {
  const at = (share: number): number => rounded(percentile(result.latenciesMs, share));
  return {
    target,
    operation,
    clients: result.clientsCount,
    operations: result.operationsCount,
    ops_per_s: Math.round((result.operationsCount / result.durationMs) * 1000),
    p50_ms: at(0.5),
    p90_ms: at(0.9),
    p99_ms: at(0.99),
    max_ms: at(1),
    cpu_s_per_1000: cpuSeconds === null ? null : rounded((cpuSeconds / result.operationsCount) * 1000),
  };
}

export function markdownOf(report: Report): string {
  const lines = report.rows.map((row) => {
    const latencies = [row.p50_ms, row.p90_ms, row.p99_ms, row.max_ms].map((ms) => ms.toFixed(2)).join(" | ");
    const cpu = row.cpu_s_per_1000?.toFixed(2) ?? "–";
    return `| ${row.target} | ${row.operation} | ${row.clients} | ${row.ops_per_s} | ${latencies} | ${cpu} |`;
  });
  const { machine } = report;
  return `| server | operation | clients | ops/s | p50 ms | p90 ms | p99 ms | max ms | CPU s per 1000 |
|---|---|---:|---:|---:|---:|---:|---:|---:|
${lines.join("\n")}

Five nodes in one process, durable writes, linearizable reads, HTTP over loopback with kept connections.
${machine.cpus} CPUs (${machine.cpu}), Node ${machine.node}, workerd ${machine.workerd}; clients and server share the machine.
`;
}

function rounded(ms: number): number {
  return Math.round(ms * 100) / 100;
}
