/**
 * What hono-openapi's converters may use of zod. In the bundle it stands for `zod/v4/core` (`[alias]` in wrangler.toml),
 * which they load whole, every language of its messages included.
 */
export { toJSONSchema } from "zod";
