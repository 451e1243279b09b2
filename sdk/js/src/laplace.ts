/**
 * Discrete Laplace noise, exactly: Canonne, Kamath and Steinke, NeurIPS 2020, Algorithms 1 and 2 (rule 5.9).
 */

import { fraction } from "./exact.js";
import type { Words } from "./words.js";

/** A random whole number in 0 .. n − 1, each equally likely. */
function drawBelow(n: bigint, words: Words): bigint {
  const bits = n.toString(2).length;
  for (;;) {
    let drawn = 0n;
    for (const word of words(Math.ceil(bits / 32))) drawn = (drawn << 32n) | BigInt(word);
    drawn = BigInt.asUintN(bits, drawn);
    if (drawn < n) return drawn;
  }
}

/** True with probability e^(−a/b), 0 ≤ a ≤ b. */
function chance(a: bigint, b: bigint, words: Words): boolean {
  let k = 1n;
  while (drawBelow(b * k, words) < a) k++;
  return k % 2n === 1n;
}

/** A whole number k with probability in proportion to e^(−|k|/scale); the scale is taken as the fraction it is. */
export function discreteLaplace(scale: number, words: Words): number {
  const [s, t] = fraction(scale);
  for (;;) {
    const rest = drawBelow(s, words);
    if (!chance(rest, s, words)) continue;
    let whole = 0n;
    while (chance(1n, 1n, words)) whole++;
    const size = (rest + s * whole) / t;
    const negative = drawBelow(2n, words);
    if (size || !negative) return Number(negative ? -size : size);
  }
}

/** The scale of the noise: largest/ε or, where the double is less than the exact quotient, the next larger double. */
export function laplaceScale(largest: number, epsilon: number): number {
  const scale = largest / epsilon;
  const [a, b] = fraction(scale);
  const [c, d] = fraction(epsilon);
  if (a * c >= BigInt(largest) * b * d) return scale;
  const bits = new BigUint64Array(new Float64Array([scale]).buffer);
  bits[0]++; // of a positive double, the next larger one
  return new Float64Array(bits.buffer)[0];
}

/** What is added to the two sums of a message, the largest numerator of whose reward is given. */
export function laplaceNoise(largest: number, epsilon: number, words: Words): number[] {
  const scale = laplaceScale(largest, epsilon);
  return [discreteLaplace(scale, words), discreteLaplace(scale, words)];
}
