/** What an app uses. */

export type { State, Synced } from "./conversation.js";
export type { Attest } from "./connection.js";
export { Device, type Options } from "./device.js";
export { ConfigError } from "./errors.js";
export { IndexedDbStore } from "./indexed_db.js";
export type { Ended, Kept, Message } from "./kept.js";
export type { LedgerRow, Offered, Privacy, Promised } from "./shown.js";
export { MemoryStore, type Store } from "./store.js";
export type { Terms } from "./terms.js";
export type { Ranking, Trial } from "./trial.js";
