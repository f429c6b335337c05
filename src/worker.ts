/** The entry point of the Worker: the edge in front, the nodes' class behind. */
import { createEdge, type EdgeEnvironment } from "./api/edge.ts";

export { ConcordNode } from "./node-object/durable-object.ts";

const edge = createEdge();

export default {
  fetch: (request: Request, environment: EdgeEnvironment): Promise<Response> => edge.fetch(request, environment),
};
