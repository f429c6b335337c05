/**
 * Protocol stories as text: blocks of commands, each followed by `----` and by what happened. Reading one shows the
 * protocol at work; running one proves that it still works so. `CONCORD_REWRITE=1` writes what happens into the file.
 *
 * Commands, one a line, `#` begins a comment:
 *   nodes 3 [voters=1,2] [fence] [log2=1,1,2] [term2=4]    campaign 1     elect 1 (stabilizes, tells no messages)
 *   propose 1 x          read 2 7               tick 1         advance 300 [2,3]
 *   deliver 1>2 [kind]   drop 1>2 [kind]     later 1>2 [kind] (kept aside)  return (hands over what was kept aside)
 *   stabilize   pass 50  skip 50 (tells nothing)  hold 1   release 1  crash 1     restart 1     cut 1-2     partition 1,2 3     heal      show
 *   quiesce 1   wake 1   probe 1  evict 1 (loses its memory in its sleep)
 *   change 1 voters=1,2 [learners=3]   transfer 1 2   truncate 1 [5]   snapshot 1 (can be served)   stage 3 (is fetched)
 * A message is shown when it arrives: `1>2 append t1 behind 0@t0: 1@t1, commit 0`; a node's change below it.
 */
import { isAsleep, membershipOf, type RaftState } from "../../src/raft/state.ts";
import type { Envelope, Membership, Message, NodeId, Output } from "../../src/raft/types.ts";
import { Cluster } from "./cluster.ts";
import { members } from "./fixtures.ts";

export interface Block {
  readonly commands: readonly string[];
  readonly expected: readonly string[];
}

export function parseTranscript(text: string): Block[] {
  return text
    .trim()
    .split(/\n\n+/)
    .map((block) => {
      const lines = block.split("\n");
      const rule = lines.indexOf("----");
      return rule < 0
        ? { commands: lines, expected: [] }
        : { commands: lines.slice(0, rule), expected: lines.slice(rule + 1) };
    });
}

export function formatTranscript(blocks: readonly Block[]): string {
  const texts = blocks.map(({ commands, expected }) => {
    const silent = expected.length === 0 && commands.every((line) => line.startsWith("#"));
    return [...commands, ...(silent ? [] : ["----"]), ...expected].join("\n");
  });
  return `${texts.join("\n\n")}\n`;
}

/** Runs the commands of all blocks on one cluster; returns the blocks with what happened. */
export function runTranscript(blocks: readonly Block[]): Block[] {
  const story: Story = { cluster: null, aside: [], shown: new Map(), usual: "", lines: [] };
  return blocks.map(({ commands }) => {
    story.lines = [];
    for (const line of commands) {
      const [command = "", ...words] = line.split("#", 1)[0]?.trim().split(/\s+/) ?? [];
      if (command !== "") run(story, command, words);
    }
    return { commands, expected: story.lines };
  });
}

interface Story {
  cluster: Cluster | null;
  aside: Envelope[];
  /** Last description of each node, so that only changes are shown. */
  readonly shown: Map<NodeId, string>;
  /** Everybody votes: the membership that goes without saying. */
  usual: string;
  lines: string[];
}

function run(story: Story, command: string, words: readonly string[]): void {
  if (command === "nodes") {
    begin(story, words);
    return;
  }
  const { cluster } = story;
  if (cluster === null) throw new Error("a story begins with `nodes`");
  const [first = "", second = ""] = words;
  const id = Number(first);
  switch (command) {
    case "campaign":
      cluster.campaign(id);
      break;
    case "elect":
      silently(story, () => cluster.elect(id));
      story.lines.push(`  ${nodeLine(story, cluster.state(id))}`);
      break;
    case "skip":
      silently(story, () => cluster.pass(Number(first)));
      break;
    case "propose":
      cluster.propose(id, ...words.slice(1));
      break;
    case "read":
      cluster.read(id, Number(second));
      break;
    case "quiesce":
      cluster.quiesce(id);
      break;
    case "wake":
      cluster.wake(id);
      break;
    case "probe":
      cluster.probe(id);
      break;
    case "evict":
      cluster.evict(id);
      break;
    case "change":
      cluster.change(id, membershipIn(words));
      break;
    case "transfer":
      cluster.transfer(id, Number(second));
      break;
    case "truncate":
      cluster.truncate(id, second === "" ? undefined : Number(second));
      break;
    case "snapshot":
      cluster.snapshot(id);
      break;
    case "stage":
      cluster.stage(id);
      break;
    case "tick":
      cluster.tick(id);
      break;
    case "advance":
      cluster.advance(Number(first), second === "" ? undefined : numbers(second));
      break;
    case "deliver":
      if (cluster.deliver(matcher(words)) === 0) story.lines.push("nothing to deliver");
      break;
    case "drop":
      for (const envelope of cluster.take(matcher(words))) story.lines.push(`lost: ${describe(envelope)}`);
      break;
    case "later":
      for (const envelope of cluster.take(matcher(words))) {
        story.aside.push(envelope);
        story.lines.push(`delayed: ${describe(envelope)}`);
      }
      break;
    case "return":
      for (const envelope of story.aside.splice(0)) cluster.hand(envelope);
      break;
    case "stabilize":
      cluster.stabilize();
      break;
    case "pass":
      cluster.pass(Number(first));
      break;
    case "hold":
      cluster.hold(id);
      break;
    case "release":
      cluster.release(id);
      break;
    case "crash":
      cluster.crash(id);
      story.shown.delete(id);
      break;
    case "restart":
      cluster.restart(id);
      break;
    case "cut": {
      const [left = 0, right = 0] = first.split("-").map(Number);
      cluster.cut(left, right);
      break;
    }
    case "partition":
      cluster.partition(...words.map(numbers));
      break;
    case "heal":
      cluster.heal();
      break;
    case "show":
      for (const { state } of cluster.nodes) if (state !== null) story.lines.push(nodeLine(story, state));
      break;
    default:
      throw new Error(`unknown command ${command}`);
  }
  showChanges(story);
}

/** Nothing of what happens meanwhile is told. */
function silently(story: Story, work: () => void): void {
  const { lines } = story;
  story.lines = [];
  work();
  showChanges(story);
  story.lines = lines;
}

function begin(story: Story, words: readonly string[]): void {
  const logs: Record<NodeId, readonly number[]> = {};
  const terms: Record<NodeId, number> = {};
  for (const word of words.slice(1)) {
    const [, name, id, value = ""] = /^(log|term)(\d)=([\d,]*)$/.exec(word) ?? [];
    if (name === "log") logs[Number(id)] = numbers(value);
    if (name === "term") terms[Number(id)] = Number(value);
  }
  const voters = words.some((word) => word.startsWith("voters=")) ? membershipIn(words) : {};
  const cluster = new Cluster({ size: Number(words[0]), fence: words.includes("fence"), logs, terms, ...voters });
  story.cluster = cluster;
  story.usual = membershipText(members(cluster.nodes.map((node) => node.id)));
  for (const { id, state } of cluster.nodes) if (state !== null) story.shown.set(id, nodeLine(story, state));
  cluster.onDelivery = (envelope) => {
    showChanges(story);
    story.lines.push(describe(envelope));
  };
  cluster.onOutput = (output, id) => {
    if (output.persist !== null && cluster.node(id).held) story.lines.push(`  ${id} waits for its disk`);
    for (const { context, index } of output.reads) story.lines.push(`  ${id} may serve read ${context} at ${index}`);
    const wanted = output.snapshotWanted && !cluster.node(id).snapshotWanted;
    story.lines.push(...decisions(output, wanted).map((text) => `  ${id} ${text}`));
  };
}

function decisions({ refusal, persist, snapshotOffer }: Output, wanted: boolean): string[] {
  const texts: string[] = [];
  if (refusal !== null) texts.push(`refuses: ${refusal}`);
  if (wanted) texts.push("wants a snapshot");
  if (snapshotOffer !== null)
    texts.push(`fetches snapshot ${at(snapshotOffer.snapshot.index, snapshotOffer.snapshot.term)}`);
  const install = persist?.install ?? null;
  if (install !== null) {
    const kept = install.keepsSuffix ? ", keeps what is behind it" : "";
    texts.push(`takes in snapshot ${at(install.snapshot.index, install.snapshot.term)}${kept}`);
  }
  const base = persist?.dropThrough ?? null;
  if (base !== null) texts.push(`drops its log through ${at(base.index, base.term)}`);
  return texts;
}

/** `voters=1,2,3 learners=4`. */
function membershipIn(words: readonly string[]): Membership {
  const idsOf = (name: string) =>
    numbers(words.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1) ?? "");
  return members(idsOf("voters"), idsOf("learners"));
}

function membershipText({ voters, learners }: Membership): string {
  return `voters ${voters.join() || "unknown"}${learners.length === 0 ? "" : `, learners ${learners.join()}`}`;
}

function showChanges(story: Story): void {
  for (const { id, state } of story.cluster?.nodes ?? []) {
    if (state === null) continue;
    const line = nodeLine(story, state);
    if (story.shown.get(id) !== line) story.lines.push(`  ${line}`);
    story.shown.set(id, line);
  }
}

function nodeLine({ usual }: Story, state: RaftState): string {
  const { config, term, log, commit, role } = state;
  const doing =
    role.kind === "follower" ? (role.leader === null ? "follows nobody" : `follows ${role.leader}`) : role.kind;
  const sleep = isAsleep(state) ? ", asleep" : "";
  const membership = membershipText(membershipOf(state));
  const who = membership === usual ? "" : `, ${membership}`;
  const where = `log ${at(log.lastIndex, log.lastTerm)}, commit ${commit}${who}`;
  return `${config.id}: ${doing.replace("_", "-")}, term ${term}, ${where}${sleep}`;
}

function describe({ from, to, message }: Envelope): string {
  return `${from}>${to} ${message.kind} t${message.term}${details(message)}`;
}

function details(message: Message): string {
  switch (message.kind) {
    case "pre_vote":
    case "vote":
      return ` with log ${at(message.lastIndex, message.lastTerm)}`;
    case "pre_vote_reply":
    case "vote_reply":
      return message.granted ? ": granted" : ": refused";
    case "append": {
      const { entries, prevIndex, prevTerm, commit, round } = message;
      const what = entries.length === 0 ? "nothing" : entries.map(({ index, term }) => at(index, term)).join(" ");
      return ` behind ${at(prevIndex, prevTerm)}: ${what}, commit ${commit}${roundText(round)}`;
    }
    case "append_reply": {
      const { result, round } = message;
      const what =
        result.kind === "matched"
          ? `matched ${result.index}`
          : `conflict at ${result.prevIndex}, try ${at(result.index, result.term)}`;
      return `: ${what}${roundText(round)}`;
    }
    case "read_index":
      return `: read ${message.context}`;
    case "read_index_reply":
      return `: read ${message.context} at ${message.index ?? "no index, not leading"}`;
    case "quiesce":
      return `: log ${message.index}, commit ${message.commit}`;
    case "snapshot_offer":
      return `: snapshot ${at(message.snapshot.index, message.snapshot.term)}`;
    case "wake":
    case "timeout_now":
      return "";
  }
}

function at(index: number, term: number): string {
  return `${index}@t${term}`;
}

function roundText(round: number): string {
  return round === 0 ? "" : `, round ${round}`;
}

function numbers(text: string): number[] {
  return text === "" ? [] : text.split(",").map(Number);
}

/** `1>2`, `*>2`, `1>*`, optionally with a kind of message. */
function matcher(words: readonly string[]): (envelope: Envelope) => boolean {
  const [pair = "*>*", kind] = words;
  const [from = "*", to = "*"] = pair.split(">");
  return (envelope) =>
    (from === "*" || envelope.from === Number(from)) &&
    (to === "*" || envelope.to === Number(to)) &&
    (kind === undefined || envelope.message.kind === kind);
}
