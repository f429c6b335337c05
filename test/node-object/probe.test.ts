import { test } from "vitest";
import { TestCluster } from "./cluster-harness.ts";

test("probe", async () => {
  const cluster = new TestCluster();
  let t = Date.now();
  const lap = (what: string, x?: unknown) => { console.log(what, Date.now() - t, x === undefined ? "" : JSON.stringify(x)); t = Date.now(); };
  lap("leader", await cluster.leader());
  let stop = false;
  const w = [0,1,2,3,4,5,6,7].map(async (writer) => {
    for (let n = 0; n < 20 && !stop; n++) {
      const node = 1 + Math.floor(Math.random() * 5);
      const r = await cluster.put(node, `w/${writer}/${n}`, { n }, n % 2 ? {} : { "idempotency-key": `w/${writer}/${n}` }).catch((e) => ({ status: String(e) }));
      lap(`w ${writer} ${n} node ${node}`, r.status);
    }
  });
  const t9 = Date.now(); while (Date.now() - t9 < 3000) await scheduler.wait(1); console.log("waited"); await Promise.all(w);
}, 30000);
