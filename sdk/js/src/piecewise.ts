/** The piecewise mechanism: one private number about a whole message, in whole numbers (rule 5.10). */

import { share } from "./exact.js";
import { below } from "./words.js";

/** The window of reports that a difference makes likely. */
export interface Window {
  /** ε of the report, in nats. */
  readonly epsilon: number;
  /** w, reports in the window; a power of two. */
  readonly inside: number;
  /** v, reports outside; a power of two. */
  readonly outside: number;
}

/** How many of the 2³² words mean "inside the window": the most for which ε is not exceeded. */
export function windowThreshold({ epsilon, inside, outside }: Window): number {
  return share(inside, outside, epsilon);
}

/**
 * The number to report.
 *
 * @param difference Sum of θ + σv less that of θ − σv, a whole number.
 * @param most L, the largest difference that is told, in 1 .. 2²⁵; what lies beyond is cut.
 * @param words Three random words, for this alone.
 * @returns A number below w + v.
 */
export function privatisedDifference(
  window: Window,
  difference: number,
  most: number,
  words: ArrayLike<number>,
): number {
  const { inside, outside } = window;
  const steps = (Math.min(Math.max(difference, -most), most) + most) * outside; // below 2³⁴: exact
  const rest = steps % (2 * most);
  let first = (steps - rest) / (2 * most);
  if (below(words[0], 2 * most) < rest) first++;
  if (words[1] < windowThreshold(window)) return first + below(words[2], inside);
  const other = below(words[2], outside);
  return other < first ? other : other + inside;
}
