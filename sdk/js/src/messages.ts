/** Messages as bytes: the model that comes (section 4) and the report that goes (section 6). */

import { WireError } from "./errors.js";
import { laplaceNoise } from "./laplace.js";
import { privatisedDifference } from "./piecewise.js";
import { largest, largestDifference, perHalf, sizeOf, type Terms } from "./terms.js";
import type { Words } from "./words.js";

/** A model, and the number of its round. */
export interface Model {
  readonly round: number;
  readonly weights: Float32Array;
}

/** Bytes of a model message. */
export function modelBytes(terms: Terms): number {
  return 5 + 4 * sizeOf(terms);
}

/** @throws WireError Another length, version or kind, or a weight that is not finite. */
export function decodeModel(terms: Terms, bytes: Uint8Array): Model {
  if (bytes.length !== modelBytes(terms) || bytes[0] !== 0x21) throw new WireError("not a model of these terms");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const weights = new Float32Array(sizeOf(terms));
  for (let i = 0; i < weights.length; i++) {
    weights[i] = view.getFloat32(5 + 4 * i, true);
    if (!Number.isFinite(weights[i])) throw new WireError("not a model of these terms");
  }
  return { round: view.getUint32(1, true), weights };
}

/**
 * What hides the sums of a message, drawn once, in the moment in which the message is made.
 *
 * @returns Three words with the piecewise mechanism, what is added to each sum with Laplace noise, else nothing.
 */
export function noiseOf(terms: Terms, words: Words): number[] {
  if (terms.mechanism === "piecewise") return [...words(3)];
  return terms.mechanism === "laplace" ? laplaceNoise(largest(terms), terms.epsilon!, words) : [];
}

/**
 * The message about complete sums.
 *
 * @param seed Of a check, what names the model that the newest was compared with.
 * @param sums Of θ + σv and of θ − σv; of a check, of the newest model and of the best.
 * @param noise Of noiseOf, for this message alone.
 */
export function reportOf(
  terms: Terms,
  seed: number,
  sums: readonly number[],
  noise: readonly number[],
  check = false,
): Uint8Array {
  const { mechanism, epsilon, inside, outside } = terms;
  const privatised = () => {
    const window = { epsilon: epsilon!, inside, outside };
    return privatisedDifference(window, sums[0] - sums[1], largestDifference(terms), noise);
  };
  const [kind, width, numbers] =
    mechanism === "piecewise"
      ? [5, 1, [privatised()]]
      : mechanism === "laplace"
        ? [4, 4, sums.map((sum, half) => Math.min(Math.max(sum + noise[half], -(2 ** 31)), 2 ** 31 - 1))]
        : [2, perHalf(terms) * largest(terms) < 2 ** 16 ? 2 : 3, sums];
  const body = [(1 << 5) | (check ? (kind + 10) >> 1 : kind)]; // 6 in place of 2, 7 of 5
  const append = (number: number, bytes: number) => {
    for (let i = 0; i < bytes; i++) body.push((number >> (8 * i)) & 255); // two's complement
  };
  append(seed, 4);
  for (const number of numbers) append(number, width);
  return Uint8Array.from(body);
}
