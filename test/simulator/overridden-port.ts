/** How a deliberate bug takes the place of a part of a port or runtime. */

/** The same port with some members replaced; getters stay alive. */
export function overridden<T extends object>(port: T, replaced: Partial<T>): T {
  return Object.assign(Object.create(port) as T, replaced);
}
