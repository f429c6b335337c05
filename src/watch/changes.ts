/** The pull side of sync is a query of the database (kv/changes.ts); who serves watches finds it here too. */
export { type ChangesPage, type ChangesRequest, readChanges } from "../kv/changes.ts";
