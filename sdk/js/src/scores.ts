/** Scores and orders of documents, by the model or by the model and a perturbation (rules 5.3 to 5.5). */

import type { Terms } from "./terms.js";

/** θ + σv for half 0, θ − σv for half 1, in single precision. */
export function perturbed(terms: Terms, weights: Float32Array, v: Float32Array, half: number): Float32Array {
  const step = Math.fround(half ? -terms.sigma : terms.sigma);
  return weights.map((theta, i) => theta + Math.fround(step * v[i]));
}

/** Of each document its score, in double precision; features are one vector a document. */
export function scores(terms: Terms, weights: Float32Array, features: readonly Float32Array[]): number[] {
  const { n_features: f, hidden } = terms;
  const dot = (x: Float32Array, at: number) => {
    let sum = 0;
    for (let i = 0; i < f; i++) sum += weights[at + i] * x[i];
    return sum;
  };
  return features.map((x) => {
    if (!hidden) return dot(x, 0);
    let score = 0;
    for (let k = 0; k < hidden; k++) {
      score += weights[hidden * (f + 1) + k] * Math.max(0, dot(x, k * f) + weights[hidden * f + k]);
    }
    return score;
  });
}

/** Documents by falling score; equal scores in the order of the data; what is not a number as the smallest score. */
export function ranked(terms: Terms, weights: Float32Array, features: readonly Float32Array[]): number[] {
  const keys = scores(terms, weights, features).map((score) => (Number.isNaN(score) ? -Infinity : score));
  return keys.map((_, i) => i).sort((a, b) => (keys[a] > keys[b] ? -1 : keys[a] < keys[b] ? 1 : a - b));
}

/**
 * Features as an app gives them, a vector of single-precision numbers a document; or, as text, what is wrong with them,
 * without their values.
 */
export function matrixOf(features: unknown, nFeatures: number | null): Float32Array[] | string {
  const wrong = "features must be an array of finite numbers for each document";
  if (!Array.isArray(features)) return wrong;
  const out: Float32Array[] = [];
  for (const row of features as unknown[]) {
    if (!Array.isArray(row) && !ArrayBuffer.isView(row)) return wrong;
    const given = row as unknown as ArrayLike<unknown>;
    if (nFeatures !== null && given.length !== nFeatures) {
      return `a document must have ${nFeatures} features, got ${given.length}`;
    }
    const x = new Float32Array(given.length);
    for (let i = 0; i < given.length; i++) {
      x[i] = typeof given[i] === "number" ? (given[i] as number) : NaN;
      if (!Number.isFinite(x[i])) return wrong; // also where single precision cannot hold it
    }
    out.push(x);
  }
  return out;
}
