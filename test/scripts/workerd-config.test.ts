/** Goal: a plain workerd process serves what wrangler.toml describes. Method: the configuration text. */
import { expect, test } from "vitest";
import {
  NODE_OBJECTS_KEY,
  type WorkerdConfigOptions,
  workerdConfig,
} from "../../scripts/local-cluster/workerd-config.ts";

const OPTIONS: WorkerdConfigOptions = {
  host: "127.0.0.1",
  port: 8788,
  module: "worker.js",
  storageFolder: "/data/storage",
  compatibilityDate: "2026-10-15",
  compatibilityFlags: [],
  variables: { NODE_COUNT: "5" },
  objectBinding: "NODES",
  objectClass: "ConcordNode",
};

test("the socket is bound to the given loopback address", () => {
  expect(workerdConfig(OPTIONS)).toContain('address = "127.0.0.1:8788"');
});

test("objects are stored in SQLite, in the given folder, under a key that never changes", () => {
  expect(NODE_OBJECTS_KEY).toBe("concord-edge-ConcordNode");
  expect(workerdConfig(OPTIONS)).toContain('uniqueKey = "concord-edge-ConcordNode", enableSql = true');
  expect(workerdConfig(OPTIONS)).toContain('disk = (path = "/data/storage", writable = true)');
});

test("the Worker reaches no network", () => {
  expect(workerdConfig(OPTIONS)).toContain("network = (allow = [])");
});

test("a process with peers reaches private addresses through one binding, and nothing else", () => {
  const text = workerdConfig({ ...OPTIONS, peerBinding: "PEER_NETWORK" });
  expect(text).toContain('(name = "PEER_NETWORK", service = "peers")');
  expect(text).toContain('(name = "peers", network = (allow = ["private"], tlsOptions = (trustBrowserCas = true)))');
  expect(text).toContain('(name = "internet", network = (allow = []))');
  expect(workerdConfig(OPTIONS)).not.toContain("peers");
});

test("objects may go from memory unless they are pinned", () => {
  expect(workerdConfig(OPTIONS)).not.toContain("preventEviction");
  expect(workerdConfig({ ...OPTIONS, isPinned: true })).toContain("enableSql = true, preventEviction = true");
});

test("quotes and backslashes in a value cannot end its literal", () => {
  const text = workerdConfig({ ...OPTIONS, variables: { A: 'x"\\), (name = "B' } });
  expect(text).toContain('(name = "A", text = "x\\"\\\\), (name = \\"B"),');
});

test("control characters are refused", () => {
  expect(() => workerdConfig({ ...OPTIONS, storageFolder: "/a\nb" })).toThrow("control character");
});
