import { expect, test } from "vitest";
import { encodeWatchEvent } from "../../src/api/encode.ts";
import type { ChangeEvent, KeyRecord } from "../../src/kv/command.ts";

const COMMON = {
  create_revision: 3,
  version: 2,
  lease_id: null,
  expires_at_ms: null,
  content_type: null,
  metadata: {},
};
const EVENT: ChangeEvent = {
  ...COMMON,
  revision: 7,
  op_index: 1,
  type: "put",
  key: "a\xc3\xa9",
  value: { json: { x: 1 } },
  mod_revision: 7,
};
const BEFORE: KeyRecord = { ...COMMON, key: EVENT.key, value: { base64: "AAE=" }, mod_revision: 3 };
const TOLD = { ...COMMON, revision: 7, op_index: 1, type: "put", key: "aé", mod_revision: 7 };

test.each<[string, string, object]>([
  ["an event", encodeWatchEvent(EVENT, undefined, true), { ...TOLD, value: { x: 1 } }],
  ["an event without its value", encodeWatchEvent(EVENT, undefined, false), TOLD],
  [
    "an event and the value before it",
    encodeWatchEvent(EVENT, BEFORE, true),
    { ...TOLD, value: { x: 1 }, prev_value: { encoding: "base64", data: "AAE=" } },
  ],
  [
    "the value before alone",
    encodeWatchEvent(EVENT, { ...BEFORE, value: { json: null } }, false),
    { ...TOLD, prev_value: null },
  ],
  ["that there was none before", encodeWatchEvent(EVENT, null, true), { ...TOLD, value: { x: 1 }, prev_value: null }],
  [
    "a delete",
    encodeWatchEvent({ ...EVENT, type: "delete", value: null }, undefined, true),
    { ...TOLD, type: "delete", value: null },
  ],
])("a watch is told %s", (_what, text, expected) => {
  expect(JSON.parse(text)).toEqual(expected);
});
