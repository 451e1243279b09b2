/** Random 32-bit words. */

/** Gives so many random words, each in 0 .. 2³² − 1. */
export type Words = (count: number) => Uint32Array;

/** Words of the browser's cryptographic generator, which is seeded by the operating system. */
export const osWords: Words = (count) => crypto.getRandomValues(new Uint32Array(count));

/** ⌊word · n / 2³²⌋ for a whole number n below 2⁵³; exact. */
export function below(word: number, n: number): number {
  return Number((BigInt(word) * BigInt(n)) >> 32n);
}

/** A number between 0 and a bound, for pauses: devices that were refused together must not come back together. */
export function pauseBelow(bound: number): number {
  return (osWords(1)[0] / 2 ** 32) * bound;
}
