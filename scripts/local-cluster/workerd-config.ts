/**
 * The configuration text of one plain `workerd` process that serves the Worker: the same bundle, variables and
 * compatibility date as `wrangler.toml`, with the objects' storage in a folder. A pure function of its options.
 *
 * G1. The network of peers is private addresses only, and reached through a binding of its own: what the Worker calls
 *     otherwise never gets there.
 */

/**
 * Folder and identity of the objects of one class. Part of every object's id: another key is another, empty cluster.
 */
export const NODE_OBJECTS_KEY = "concord-edge-ConcordNode";

export interface WorkerdConfigOptions {
  readonly host: string;
  readonly port: number;
  /** Path of the bundle, relative to the configuration file. */
  readonly module: string;
  /** Absolute path of an existing folder. */
  readonly storageFolder: string;
  readonly compatibilityDate: string;
  readonly compatibilityFlags: readonly string[];
  readonly variables: Readonly<Record<string, string>>;
  readonly objectBinding: string;
  readonly objectClass: string;
  /** Name of the binding through which the peers' processes are reached. Absent: there are none. */
  readonly peerBinding?: string;
  /** Keeps objects in memory while they sleep. Default false. */
  readonly isPinned?: boolean;
}

export function workerdConfig(options: WorkerdConfigOptions): string {
  const bindings = Object.entries(options.variables).map(
    ([name, value]) => `    (name = ${quoted(name)}, text = ${quoted(value)}),`,
  );
  const services: string[] = [];
  if (options.peerBinding !== undefined) {
    bindings.push(`    (name = ${quoted(options.peerBinding)}, service = "peers"),`);
    services.push(`    (name = "peers", network = (allow = ["private"], tlsOptions = (trustBrowserCas = true))),`);
  }
  const pin = options.isPinned === true ? ", preventEviction = true" : "";
  return `using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "concord", worker = .concord),
    (name = "storage", disk = (path = ${quoted(options.storageFolder)}, writable = true)),
    # The Worker calls nobody outside; a request that tried to would fail here.
    (name = "internet", network = (allow = [])),
${services.join("\n")}
  ],
  sockets = [
    (name = "http", address = ${quoted(`${options.host}:${options.port}`)}, http = (), service = "concord"),
  ],
);

const concord :Workerd.Worker = (
  modules = [(name = "worker", esModule = embed ${quoted(options.module)})],
  compatibilityDate = ${quoted(options.compatibilityDate)},
  compatibilityFlags = [${options.compatibilityFlags.map(quoted).join(", ")}],
  durableObjectNamespaces = [
    (className = ${quoted(options.objectClass)}, uniqueKey = ${quoted(NODE_OBJECTS_KEY)}, enableSql = true${pin}),
  ],
  durableObjectStorage = (localDisk = "storage"),
  bindings = [
    (name = ${quoted(options.objectBinding)}, durableObjectNamespace = ${quoted(options.objectClass)}),
${bindings.join("\n")}
  ],
);
`;
}

/** A text literal of Cap'n Proto: JSON's escapes for quotes, backslashes and control characters are valid in it. */
function quoted(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused here
  if (/[\u0000-\u001f\u007f]/.test(text)) throw new Error(`control character in ${JSON.stringify(text)}`);
  return `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}
