/** The place of one node: its disk and its alarm, which outlive the instances that run there one after the other. */
import type { NodeConfig, PeerEnvelope } from "../node-object/ports.ts";
import { MemoryDisk } from "./memory-disk.ts";
import { NodeInstance, type Surroundings } from "./node-instance.ts";

export interface TestNodeParts {
  /** Of the next instance: each has a seed of its own. */
  readonly nextConfig: () => NodeConfig;
  readonly surroundings: Surroundings;
  readonly onAbort: (reason: string) => void;
}

export class TestNode {
  readonly #parts: TestNodeParts;
  readonly #disk = new MemoryDisk();
  #instance: NodeInstance | null = null;
  #alarm: { readonly atWallMs: number; readonly cancel: () => void } | null = null;

  constructor(parts: TestNodeParts) {
    this.#parts = parts;
  }

  /** Null while it is down. */
  get instance(): NodeInstance | null {
    return this.#instance;
  }

  start(): void {
    if (this.#instance !== null) return;
    const { nextConfig, surroundings, onAbort } = this.#parts;
    const instance = new NodeInstance({
      config: nextConfig(),
      disk: this.#disk,
      surroundings,
      onAlarmSet: () => this.#armAlarm(),
      onAbort: (reason) => {
        if (this.#instance === instance) this.#instance = null;
        onAbort(reason);
      },
      onRestart: () => {
        this.kill();
        this.start();
      },
    });
    this.#instance = instance;
    this.#armAlarm();
  }

  /** Its memory is lost, its storage stays. */
  kill(): void {
    const instance = this.#instance;
    this.#instance = null;
    instance?.end("the node was killed");
  }

  /** A message from a peer, which is lost while the node is down. */
  receive(envelope: PeerEnvelope): void {
    this.#instance?.receive(envelope);
  }

  #armAlarm(): void {
    const { alarmAtWallMs } = this.#disk;
    if (this.#alarm?.atWallMs === alarmAtWallMs) return;
    this.#alarm?.cancel();
    this.#alarm = null;
    if (alarmAtWallMs === null) return;
    const { timeline, wallMs } = this.#parts.surroundings;
    const atMs = timeline.nowMs + Math.max(0, alarmAtWallMs - wallMs());
    this.#alarm = { atWallMs: alarmAtWallMs, cancel: timeline.at(atMs, () => this.#fireAlarm()) };
  }

  /** While the node is down the alarm stays on its disk, overdue. */
  #fireAlarm(): void {
    this.#alarm = null;
    this.#instance?.fireAlarm();
  }
}
