/** The public interface of `concord-edge/testing`. */
export {
  startTestCluster,
  type TestClientOptions,
  type TestCluster,
  type TestClusterOptions,
  type TestLogLine,
} from "./cluster.ts";
