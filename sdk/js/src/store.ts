/** Where a device keeps what must last, and a store that does not last. */

import { type Ended, type Kept, nothing } from "./kept.js";

/** A place for what a device keeps. Several pages may share one. */
export interface Store {
  /** Whether it outlives the page. */
  readonly lasting: boolean;
  /**
   * One transaction: `step` gets what is kept, changes it or not, and waits for nothing. When the promise is fulfilled,
   * the change has been written; when it is rejected, nothing has changed, or nobody knows.
   *
   * @param ended An interaction that is put into `kept.ended` first, in a write that is finished even if the page goes
   *   before the step could run; a later step then finds it there.
   */
  change<T>(step: (kept: Kept) => T, ended?: Ended): Promise<T>;
  /** Ask the browser not to delete it by itself. */
  persist?(): void;
  /** Whether the browser promised that. */
  persisted?(): Promise<boolean>;
  /** The result of `act`, which one page at a time runs; undefined: another page is at it. Without it, all may. */
  alone?<T>(act: () => Promise<T>): Promise<T | undefined>;
  close(): void;
}

/** A store in memory: for tests, and where there is no other. */
export class MemoryStore implements Store {
  #kept = nothing();

  constructor(readonly lasting = false) {}

  async change<T>(step: (kept: Kept) => T, ended?: Ended): Promise<T> {
    const kept = structuredClone(this.#kept);
    if (ended) (kept.ended ??= []).push(ended);
    const result = step(kept);
    this.#kept = kept;
    return result;
  }

  close(): void {}
}
