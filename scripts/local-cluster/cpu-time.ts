/** CPU time of a process group: unlike a latency, it says little about what else the machine does. */
import { readFileSync } from "node:fs";
import { groupMembers } from "../exclusive-lock.mjs";

/** Ticks per second in /proc; 100 on every Linux that Node supports. */
const TICKS_PER_S = 100;

/** User and system time of the group's living processes, in seconds; null where there is no /proc. */
export function groupCpuSeconds(groupId: number): number | null {
  const seconds = processCpuSeconds(groupId);
  return seconds === null ? null : [...seconds.values()].reduce((sum, one) => sum + one, 0);
}

/** The same of each process, by its id. */
export function processCpuSeconds(groupId: number): ReadonlyMap<number, number> | null {
  if (process.platform !== "linux") return null;
  const seconds = new Map<number, number>();
  for (const pid of groupMembers(groupId)) {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // Fields are counted from behind the name, which may hold blanks (proc(5): 14 utime, 15 stime).
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    seconds.set(pid, (Number(fields[11]) + Number(fields[12])) / TICKS_PER_S);
  }
  return seconds;
}
