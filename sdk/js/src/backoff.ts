/** How long to wait after a failure: uniformly below a bound that doubles (section 8 of the wire format). */

import { pauseBelow } from "./words.js";

/** Longest wait, in seconds. */
export const LONGEST_WAIT = 3600;

/** Time in seconds, by a clock that does not jump. */
export const monotonic = () => performance.now() / 1000;

/** The wait after failures in a row; a page that is loaded again continues to wait. */
export class Backoff {
  failures = 0;
  #until = -Infinity;

  /** @param kept Of an earlier `kept`; null at the beginning. */
  constructor(kept: readonly number[] | null = null) {
    if (!kept) return;
    const [failures, until, wait] = kept;
    this.failures = Math.min(Math.max(failures, 0), 64) || 0;
    const left = until - Date.now() / 1000;
    // Where the clock was set back in between, the rest cannot be longer than the whole, but for rounding.
    if (left > 0 && left <= Math.min(wait + 1, LONGEST_WAIT)) this.#until = monotonic() + left;
  }

  /** Count a failure; returns seconds to wait. `retryAfter`: seconds that the hub asked for, null: none. */
  later(retryAfter: number | null = null): number {
    this.failures = Math.min(this.failures + 1, 64);
    const wait = (retryAfter ?? 0) + pauseBelow(Math.min(LONGEST_WAIT, 2 ** this.failures));
    this.#until = monotonic() + Math.min(LONGEST_WAIT, wait);
    return this.left();
  }

  /** Remaining seconds to wait, at least 0. */
  left(): number {
    return Math.max(0, this.#until - monotonic());
  }

  /** What another page can continue from. */
  get kept(): number[] {
    const left = this.left();
    return [this.failures, Date.now() / 1000 + left, left];
  }
}
