/** A store in IndexedDB, which outlives the page. */

import { type Kept, nothing } from "./kept.js";
import type { Store } from "./store.js";

const TABLE = "device";
const KEY = "kept";
/** Milliseconds in which the browser has to answer; some never do. */
const LONGEST = 5_000;

/** A promise's result, or an error after a while; `stop` is called then. */
async function soon<T>(promise: Promise<T>, stop: () => void = () => {}): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      stop();
      reject(new DOMException("", "TimeoutError"));
    }, LONGEST);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/**
 * One record in a database of its own. What a step reads and writes is one transaction, and the browser lets one
 * transaction at a time write, also of several pages.
 */
export class IndexedDbStore implements Store {
  readonly lasting = true;
  #db: Promise<IDBDatabase>;

  /** @param name Of the database. */
  constructor(private readonly name = "fedrank-device") {
    this.#db = new Promise((resolve, reject) => {
      const request = indexedDB.open(name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(TABLE);
      request.onsuccess = () => {
        const db = request.result;
        db.onversionchange = () => db.close(); // a page that deletes the database must not wait for this one
        resolve(db);
      };
      request.onerror = () => reject(request.error);
      request.onblocked = () => reject(new Error("blocked"));
    });
    this.#db.catch(() => {}); // each change tells
  }

  async change<T>(step: (kept: Kept) => T): Promise<T> {
    const db = await soon(this.#db);
    // Strict: a message that leaves after this must be in the ledger even if the power fails now.
    const transaction = db.transaction(TABLE, "readwrite", { durability: "strict" });
    const written = new Promise<T>((resolve, reject) => {
      const table = transaction.objectStore(TABLE);
      const request = table.get(KEY);
      let result: T;
      let failure: unknown;
      request.onsuccess = () => {
        try {
          const kept: Kept = { ...nothing(), ...request.result };
          result = step(kept);
          table.put(kept, KEY);
        } catch (error) {
          failure = error;
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = () => reject(failure ?? transaction.error ?? new Error("aborted"));
    });
    return soon(written, () => {
      try {
        transaction.abort();
      } catch {
        // it is over: nobody knows how
      }
    });
  }

  async alone<T>(act: () => Promise<T>): Promise<T | undefined> {
    const { locks } = navigator;
    if (!locks) return act(); // of a page that is not from a secure origin
    return locks.request(this.name, { ifAvailable: true }, async (lock) => (lock ? act() : undefined));
  }

  close(): void {
    this.#db.then((db) => db.close()).catch(() => {});
  }
}
