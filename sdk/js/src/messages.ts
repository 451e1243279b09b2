/** Messages as bytes: the model that comes (section 4) and the report that goes (section 6). */

import { WireError } from "./errors.js";
import { discreteLaplace, laplaceScale } from "./laplace.js";
import { privatisedDifference } from "./piecewise.js";
import { largest, largestDifference, perHalf, rewardFor, sizeOf, type Terms } from "./terms.js";
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
  if (terms.mechanism !== "laplace") return [];
  const scale = laplaceScale(largest(terms), terms.epsilon!);
  return [discreteLaplace(scale, words), discreteLaplace(scale, words)];
}

/** A message that was made. */
export interface Report {
  readonly body: Uint8Array;
  /** Its numbers and what each of them is, for the person whose message it is. */
  readonly words: string;
}

/**
 * The message about complete sums.
 *
 * @param sums Of θ + σv and of θ − σv.
 * @param noise Of noiseOf, for this message alone.
 */
export function reportOf(terms: Terms, seed: number, sums: readonly number[], noise: readonly number[]): Report {
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
  const body = [(1 << 5) | kind];
  const append = (number: number, bytes: number) => {
    for (let i = 0; i < bytes; i++) body.push((number >> (8 * i)) & 255); // two's complement
  };
  append(seed, 4);
  for (const number of numbers) append(number, width);
  const about =
    kind === 5
      ? `${numbers}: private number, one of ${inside + outside}, about the difference of the two rankers`
      : `${numbers[0]} and ${numbers[1]}: privatised sums of rewards under θ + σv and θ − σv, in units of 1/${
          rewardFor(terms).scale
        }`;
  return { body: Uint8Array.from(body), words: `${seed}: seed of the perturbation that was tried; ${about}.` };
}
