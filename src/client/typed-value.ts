/**
 * Values as types see them: what may go in, and what a caller believes to come out. Types only.
 *
 * An `interface` is no {@link JsonValue}, for it has no index signature, although its data may be JSON. What goes in is
 * therefore looked at member by member ({@link Input}), or, deep inside a txn, at its surface ({@link JsonInput}). What
 * types do not see is refused before anything is sent (check.ts). What comes out is as the caller names it, unchecked.
 */
import type { WireEvent, WireOperation, WirePut, WireTxn, WireWatchEvent } from "../api/wire.ts";
import type { JsonValue } from "../base/json.ts";

/** `T` if it is JSON data: no functions, symbols, bigints or objects of classes, and undefined only as a member. */
export type Jsonable<T> = T extends JsonValue
  ? T
  : T extends bigint | symbol | undefined | ((...args: never) => unknown)
    ? never
    : T extends readonly unknown[]
      ? { readonly [Index in keyof T]: Jsonable<T[Index]> }
      : T extends object
        ? { readonly [Name in keyof T]: Jsonable<T[Name]> | Extract<T[Name], undefined> }
        : never;

/** A value that goes in; also of an interface type. */
export type Input<T> = JsonValue | (T & Jsonable<T>);

/** An object that is neither a function nor of one of the platform's classes; what is inside is not looked at. */
type PlainObject = object & {
  readonly [Symbol.hasInstance]?: never;
  readonly [Symbol.toPrimitive]?: never;
  readonly [Symbol.toStringTag]?: never;
};

/** A value of any type that may be JSON data. */
export type JsonInput = JsonValue | PlainObject;

/** As `WirePut`, with a value of any type that may be JSON data. */
export type Put = Omit<WirePut, "value"> & { readonly value?: JsonInput };

export type Operation = Exclude<WireOperation, { readonly type: "put" }> | ({ readonly type: "put" } & Put);

/** As `WireTxn`, with values of any type that may be JSON data. */
export interface Txn extends Pick<WireTxn, "compare"> {
  readonly success?: readonly Operation[];
  readonly failure?: readonly Operation[];
}

/** A change of a record whose value is a `T`; null for a delete. */
export type ChangeEvent<T = JsonValue> = Omit<WireEvent, "value"> & { readonly value: T | null };

/** As `WireWatchEvent`, of records whose values are a `T`. */
export type WatchEvent<T = JsonValue> = Omit<WireWatchEvent, "value" | "prev_value"> & {
  readonly value?: T | null;
  readonly prev_value?: T | null;
};
