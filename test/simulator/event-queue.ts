/**
 * The simulator's queue of things that will happen: a binary heap ordered by virtual time, then by order of insertion.
 * The second key is what makes a run repeatable: two events of one instant never depend on the shape of the heap.
 */

export interface Timed {
  /** Virtual milliseconds, fractions allowed. */
  at: number;
  /** Order of insertion; set by {@link push}. */
  seq: number;
}

export interface EventQueue<T extends Timed> {
  readonly heap: T[];
  nextSeq: number;
}

export function createQueue<T extends Timed>(): EventQueue<T> {
  return { heap: [], nextSeq: 1 };
}

export function push<T extends Timed>(queue: EventQueue<T>, event: T): void {
  event.seq = queue.nextSeq;
  queue.nextSeq += 1;
  const heap = queue.heap;
  let position = heap.length;
  heap.push(event);
  while (position > 0) {
    const above = (position - 1) >> 1;
    const parent = heap[above]!;
    if (!isBefore(event, parent)) break;
    heap[position] = parent;
    position = above;
  }
  heap[position] = event;
}

export function pop<T extends Timed>(queue: EventQueue<T>): T | undefined {
  const heap = queue.heap;
  const first = heap[0];
  const last = heap.pop();
  if (last === undefined || first === undefined || heap.length === 0) return first;
  let position = 0;
  for (;;) {
    let child = 2 * position + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1;
    if (!isBefore(heap[child]!, last)) break;
    heap[position] = heap[child]!;
    position = child;
  }
  heap[position] = last;
  return first;
}

export function peek<T extends Timed>(queue: EventQueue<T>): T | undefined {
  return queue.heap[0];
}

function isBefore(left: Timed, right: Timed): boolean {
  return left.at < right.at || (left.at === right.at && left.seq < right.seq);
}
