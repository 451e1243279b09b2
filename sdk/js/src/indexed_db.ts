/** A store in IndexedDB, which outlives the page. */

import { type Ended, type Kept, type Life, nothing, spent } from "./kept.js";
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
 * One record in a database of its own, and a row for each interaction that is not in the record yet. What a step reads
 * and writes is one transaction, and the browser lets one transaction at a time write, also of several pages.
 */
export class IndexedDbStore implements Store {
  readonly lasting = true;
  #db: Promise<IDBDatabase> | null = null;

  /** @param name Of the database. */
  constructor(private readonly name = "fedrank-device") {}

  #open(): Promise<IDBDatabase> {
    return new Promise((resolve, reject) => {
      const request = indexedDB.open(this.name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(TABLE);
      request.onsuccess = () => {
        const db = request.result;
        // Whoever deletes the database must not wait for this page; the next change makes a new one.
        db.onversionchange = db.onclose = () => this.close();
        resolve(db);
      };
      request.onerror = () => reject(request.error);
    });
  }

  async change<T>(step: (kept: Kept) => T, ended?: Ended): Promise<T> {
    try {
      return await this.#change(step, ended);
    } catch (error) {
      this.close(); // the next change opens it anew
      throw error;
    }
  }

  async #change<T>(step: (kept: Kept) => T, ended?: Ended): Promise<T> {
    const db = await soon((this.#db ??= this.#open()));
    if (ended) {
      // The record cannot be written before it was read, and a page that goes runs no step any more: a row can.
      const first = db.transaction(TABLE, "readwrite");
      first.objectStore(TABLE).put(ended, Math.random());
      first.onabort = () => transaction.abort(); // with no space left the record does not change either
      first.commit();
    }
    // Strict: a message that leaves after this must be in the ledger even if the power fails now.
    const transaction = db.transaction(TABLE, "readwrite", { durability: "strict" });
    const written = new Promise<T>((resolve, reject) => {
      const table = transaction.objectStore(TABLE);
      const request = table.getAll();
      let result: T;
      let failure: unknown;
      request.onsuccess = () => {
        try {
          // Sorted by their keys: numbers of rows come before the record's text.
          const ended = request.result;
          const record = ended.at(-1)?.held ? null : ended.pop();
          const kept: Kept = { ...nothing(), ...(record ?? this.#life()), ended };
          result = step(kept);
          table.clear();
          table.put(kept, KEY);
          this.#keepLife({ erased: spent(kept), out: kept.out });
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

  persist(): void {
    navigator.storage?.persist?.().catch(() => {});
  }

  async persisted(): Promise<boolean> {
    return (await navigator.storage?.persisted?.()) ?? false;
  }

  /**
   * What is known of the life of a record that is gone. Pages have it in localStorage too, which some browsers keep
   * when they delete databases that are damaged or take too much space; workers have none.
   */
  #life(): Life | null {
    try {
      const [erased, out] = localStorage[this.name].split(" ");
      return { erased: erased >= 0 ? +erased : Infinity, out: out === "true" }; // what is no number counts as all
    } catch {
      return null;
    }
  }

  /** Before the record is written, as a sum that is too large does no harm. */
  #keepLife({ erased, out }: Life): void {
    try {
      if (erased || out || localStorage[this.name]) localStorage[this.name] = `${erased} ${out}`;
    } catch {
      // there is no localStorage
    }
  }

  close(): void {
    this.#db?.then((db) => db.close()).catch(() => {});
    this.#db = null;
  }
}
