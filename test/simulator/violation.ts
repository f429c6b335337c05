/** What the simulator throws when the system under test is wrong. The text names the rule and the values. */

export type Rule =
  | "one leader per term"
  | "one vote per term"
  | "vote is durable before it leaves"
  | "acknowledgement is durable before it leaves"
  | "log matching"
  | "log has no gap"
  | "committed prefix is stable"
  | "leader holds every committed entry"
  | "commit is backed by a majority"
  | "commit never falls"
  | "digests are equal"
  | "one cluster"
  | "revisions are dense"
  | "acknowledged write is committed"
  | "reply matches the log"
  | "no stale read"
  | "read sees one state"
  | "apply does what the model does"
  | "quota holds"
  | "lease lives as long as was promised"
  | "lease ends in time"
  | "keeper is told the truth"
  | "watcher sees every event once"
  | "watcher is told the truth"
  | "watcher catches up or is told why not"
  | "watch is restored as it was"
  | "topic message was published"
  | "a sleeping cluster is silent"
  | "a sleeping cluster wakes"
  | "nobody is left behind"
  | "lost node is admitted again"
  | "who has left disturbs nobody"
  | "removal ends"
  | "definite failure has no effect"
  | "real-time order"
  | "linearizable per key"
  | "one effect per idempotency key"
  | "answered exactly once"
  | "node never halts"
  | "corruption is found"
  | "rows are equal"
  | "no uncaught exception"
  | "progress after healing";

export class Violation extends Error {
  override readonly name = "Violation";
  readonly rule: Rule;

  constructor(rule: Rule, detail: string) {
    super(`${rule}: ${detail}`);
    this.rule = rule;
  }
}
