/**
 * What the node takes for granted of the platform. Each test pins one fact that the code relies on without being able
 * to check it; if one fails after an upgrade, the design has to be looked at again, not the test.
 */
import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { describe, expect, test } from "vitest";
import { bareStub, upgrading } from "./bare-object.ts";
import { eventually } from "./eventually.ts";

type State = DurableObjectState;
type Stub = DurableObjectStub;

async function inStub<T>(stub: Stub, work: (state: State) => T | Promise<T>): Promise<T> {
  return await runInDurableObject(stub, (_, state) => work(state));
}

function rowsIn(state: State): string[] {
  state.storage.sql.exec("CREATE TABLE IF NOT EXISTS t (v TEXT PRIMARY KEY)");
  return state.storage.sql
    .exec<{ v: string }>("SELECT v FROM t ORDER BY v")
    .toArray()
    .map((row) => row.v);
}

function insert(state: State, value: string): void {
  state.storage.sql.exec("INSERT INTO t VALUES (?)", value);
}

/** Opens a socket into the object and records what comes out of it. */
async function listen(
  stub: Stub,
): Promise<{ readonly received: string[]; readonly closed: Promise<number>; readonly socket: WebSocket }> {
  const response = await runInDurableObject(upgrading(stub), (_, state) => {
    rowsIn(state);
    const pair = new WebSocketPair();
    state.acceptWebSocket(pair[1], ["listener"]);
    pair[1].serializeAttachment({ peer: 3 });
    return new Response(null, { status: 101, webSocket: pair[0] });
  });
  const socket = response.webSocket!;
  const received: string[] = [];
  socket.addEventListener("message", (event) => {
    received.push(String(event.data));
  });
  const closed = new Promise<number>((resolve) => {
    socket.addEventListener("close", (event) => resolve(event.code));
  });
  socket.accept();
  return { received, closed, socket };
}

function send(state: State, text: string): void {
  for (const socket of state.getWebSockets("listener")) socket.send(text);
}

function freshStub(stub: Stub): Stub {
  return bareStub(stub.name);
}

describe("commit and rollback", () => {
  test("an exception after a write does not roll the write back", async () => {
    const stub = bareStub();
    const failing = inStub(stub, (state) => {
      rowsIn(state);
      insert(state, "kept");
      throw new Error("after the write");
    });
    await expect(failing).rejects.toThrow("after the write");
    expect(await inStub(stub, rowsIn)).toEqual(["kept"]);
  });

  test("a throw inside transactionSync rolls back all of it and nothing before it", async () => {
    await inStub(bareStub(), (state) => {
      rowsIn(state);
      insert(state, "before");
      const work = () => {
        insert(state, "inside");
        throw new Error("inside");
      };
      expect(() => state.storage.transactionSync(work)).toThrow("inside");
      expect(rowsIn(state)).toEqual(["before"]);
    });
  });

  test("a send before a statement that throws arrives all the same: no send is undone by an exception", async () => {
    const stub = bareStub();
    const { received } = await listen(stub);
    const failing = inStub(stub, (state) => {
      send(state, "early");
      insert(state, "one");
      state.storage.sql.exec("INSERT INTO nowhere VALUES (1)");
    });
    await expect(failing).rejects.toThrow("nowhere");
    await eventually(() => received, ["early"]);
    expect(await inStub(stub, rowsIn)).toEqual(["one"]);
  });

  test("abort cancels the sends and the writes of its turn, and closes every socket", async () => {
    const stub = bareStub();
    const { received, closed } = await listen(stub);
    const aborting = inStub(stub, (state) => {
      send(state, "early");
      insert(state, "lost");
      send(state, "late");
      state.abort("test");
    });
    await expect(aborting).rejects.toThrow();
    expect(await closed).toBe(1006);
    expect(received).toEqual([]);
    expect(await inStub(freshStub(stub), rowsIn)).toEqual([]);
  });

  test("what sync() has confirmed survives an abort", async () => {
    const stub = bareStub();
    const aborting = inStub(stub, async (state) => {
      rowsIn(state);
      insert(state, "synced");
      await state.storage.sync();
      insert(state, "lost");
      state.abort("test");
    });
    await expect(aborting).rejects.toThrow();
    expect(await inStub(freshStub(stub), rowsIn)).toEqual(["synced"]);
  });

  test("sync() resolves in a later turn than the write, never in the same", async () => {
    const order = await inStub(bareStub(), async (state) => {
      const events: string[] = [];
      rowsIn(state);
      insert(state, "one");
      const synced = state.storage.sync().then(() => events.push("synced"));
      events.push("end of turn");
      await synced;
      return events;
    });
    expect(order).toEqual(["end of turn", "synced"]);
  });

  test("abort() ends the execution in place: nothing behind it runs, not even a finally", async () => {
    const stub = bareStub();
    const ran: string[] = [];
    const aborting = inStub(stub, (state) => {
      void Promise.resolve().then(() => ran.push("microtask"));
      try {
        ran.push("before");
        state.abort("test");
        ran.push("behind");
      } catch {
        ran.push("catch");
      } finally {
        ran.push("finally");
      }
    });
    await expect(aborting).rejects.toThrow();
    expect(ran).toEqual(["before"]);
  });

  test("an alarm set in a turn that aborts is not armed", async () => {
    const stub = bareStub();
    const aborting = inStub(stub, async (state) => {
      rowsIn(state);
      void state.storage.setAlarm(Date.now() + 3_600_000);
      state.abort("test");
    });
    await expect(aborting).rejects.toThrow();
    expect(await inStub(freshStub(stub), async (state) => await state.storage.getAlarm())).toBeNull();
  });

  test("an alarm survives an abort of a later turn and fires on a new instance", async () => {
    const stub = bareStub();
    await inStub(stub, (state) => state.storage.setAlarm(Date.now() + 3_600_000));
    await expect(inStub(stub, (state) => state.abort("test"))).rejects.toThrow();
    expect(await runDurableObjectAlarm(freshStub(stub))).toBe(true);
  });
});

describe("instances and sockets", () => {
  test("a stub that has seen its object reset fails for ever; a fresh one works at once", async () => {
    const stub = bareStub();
    await inStub(stub, () => undefined);
    await expect(inStub(stub, (state) => state.abort("test"))).rejects.toThrow();
    await expect(stub.fetch("http://node/")).rejects.toThrow();
    await expect(stub.fetch("http://node/")).rejects.toThrow();
    const response = await freshStub(stub).fetch("http://node/");
    expect(response.status).toBe(404);
    await response.body?.cancel();
  });

  test("a hibernatable socket survives eviction with its tag and attachment", async () => {
    const stub = bareStub();
    const { received } = await listen(stub);
    await evictDurableObject(stub);
    const found = await inStub(stub, (state) => {
      const sockets = state.getWebSockets("listener");
      send(state, "after eviction");
      return sockets.map((socket) => [socket.readyState, socket.deserializeAttachment() as unknown]);
    });
    expect(found).toEqual([[1, { peer: 3 }]]);
    await eventually(() => received, ["after eviction"]);
  });

  test("an object woken by a message on a hibernated socket knows its name", async () => {
    const stub = bareStub();
    const { socket } = await listen(stub);
    await evictDurableObject(stub);
    socket.send("wake up");
    await scheduler.wait(5);
    expect(await inStub(stub, (state) => state.id.name)).toBe(stub.name);
  });

  test("memory is lost with the instance, storage is not", async () => {
    const stub = bareStub();
    await inStub(stub, (state) => {
      rowsIn(state);
      insert(state, "kept");
      Object.assign(state, { memory: 1 });
    });
    await evictDurableObject(stub);
    const after = await inStub(stub, (state) => [rowsIn(state), "memory" in state]);
    expect(after).toEqual([["kept"], false]);
  });
});

describe("timers", () => {
  test("timers fire only when nothing in the process is runnable: a closed loop of calls starves them", async () => {
    // What stands on timers (heartbeats, elections) is safe as long as work comes from outside the process, or pauses.
    const stub = bareStub();
    await inStub(stub, () => undefined);
    let fired = 0;
    const interval = setInterval(() => {
      fired += 1;
    }, 1);
    const endMs = Date.now() + 200;
    let calls = 0;
    while (Date.now() < endMs) {
      await (await stub.fetch("http://node/")).body?.cancel();
      calls += 1;
    }
    const firedMeanwhile = fired;
    await scheduler.wait(5);
    clearInterval(interval);
    expect(calls).toBeGreaterThan(10);
    expect(firedMeanwhile).toBeLessThan(10);
    expect(fired).toBeGreaterThan(firedMeanwhile);
  });
});

describe("limits", () => {
  test("100 values can be bound, 101 cannot", async () => {
    await inStub(bareStub(), (state) => {
      const select = (count: number) => {
        const marks = Array.from({ length: count }, () => "?").join(",");
        return state.storage.sql
          .exec(`SELECT 1 WHERE 1 IN (${marks})`, ...Array.from({ length: count }, () => 1))
          .toArray();
      };
      expect(select(100)).toHaveLength(1);
      expect(() => select(101)).toThrow();
    });
  });

  test("integers up to 2^53 - 1 come back as they were", async () => {
    await inStub(bareStub(), (state) => {
      const [row] = state.storage.sql.exec("SELECT ? AS v", Number.MAX_SAFE_INTEGER).toArray();
      expect(row).toEqual({ v: Number.MAX_SAFE_INTEGER });
    });
  });
});
