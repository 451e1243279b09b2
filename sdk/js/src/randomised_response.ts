/** Randomised response in whole numbers: an interaction tells the truth or a lie (rule 5.8 of the wire format). */

import { below } from "./words.js";

const ALL = 2 ** 32;

/**
 * How many of the 2³² first words mean "tell the truth".
 *
 * @param p Probability of the truth, in 1/n .. 1.
 * @param n Number of values.
 */
export function threshold(p: number, n: number): number {
  if (p === 1) return ALL;
  const exact = p * ALL; // a power of two: no rounding
  const words = p * n >= 1 ? Math.floor(exact) : Math.min(Math.ceil(exact), Math.floor(ALL / n));
  return Math.min(Math.max(words, 1), ALL - 1);
}

/**
 * The number of the value that is told.
 *
 * @param index Number of the true value, in 0 .. n − 1.
 * @param words Two random words, for this alone.
 */
export function privatise(index: number, words: ArrayLike<number>, p: number, n: number): number {
  if (words[0] < threshold(p, n)) return index;
  const other = below(words[1], n - 1);
  return other < index ? other : other + 1; // all but the truth
}

/** ε of one value, in nats; infinite without protection. */
export function epsilonOf(p: number, n: number): number {
  if (p === 1) return Infinity;
  return p === 1 / n ? 0 : Math.log((p * (n - 1)) / (1 - p));
}
