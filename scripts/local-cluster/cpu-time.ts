/** CPU time of a process group: unlike a latency, it says little about what else the machine does. */
import { readFileSync } from "node:fs";
import { groupMembers } from "../exclusive-lock.mjs";

/** Ticks per second in /proc; 100 on every Linux that Node supports. */
const TICKS_PER_S = 100;

/** User and system time of the group's living processes, in seconds; null where there is no /proc. */
export function groupCpuSeconds(groupId: number): number | null {
  if (process.platform !== "linux") return null;
  let ticks = 0;
  for (const pid of groupMembers(groupId)) {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // Fields are counted from behind the name, which may hold blanks (proc(5): 14 utime, 15 stime).
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks / TICKS_PER_S;
}
