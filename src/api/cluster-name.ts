/** Names of clusters: they stand in paths and in the names of objects. */
export const DEFAULT_CLUSTER = "default";

export function isClusterName(name: string): boolean {
  return /^[a-z0-9-]{1,63}$/.test(name);
}
