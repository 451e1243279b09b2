/** The perturbation of a seed: steps 1 and 2 of "Randomness, down to the bit"; step 3 is in normal.ts. */

import { normal } from "./normal.js";

const ROTATIONS = [
  [13, 15, 26, 6],
  [17, 29, 16, 24],
];

/** Step 1: Threefry-2x32-20 with the key (0x66725F76, seed) and the counter (b, 0). */
function block(seed: number, b: number): [number, number] {
  const key = [0x66725f76, seed | 0, 0x66725f76 ^ seed ^ 0x1bd11bda];
  let x0 = (b + key[0]) | 0;
  let x1 = key[1];
  for (let i = 0; i < 5; i++) {
    for (const r of ROTATIONS[i % 2]) {
      x0 = (x0 + x1) | 0;
      x1 = ((x1 << r) | (x1 >>> (32 - r))) ^ x0;
    }
    x0 = (x0 + key[(i + 1) % 3]) | 0;
    x1 = (x1 + key[(i + 2) % 3] + i + 1) | 0;
  }
  return [x0, x1];
}

/** Step 2: the first `size` 16-bit numbers of a seed, four a block, low half first. */
export function halves(seed: number, size: number): Uint16Array {
  const out = new Uint16Array(size);
  for (let at = 0; at < size; at += 4) {
    const [x0, x1] = block(seed, at / 4);
    [x0, x0 >>> 16, x1, x1 >>> 16].forEach((half, i) => at + i < size && (out[at + i] = half));
  }
  return out;
}

/** The vector of a seed in 0 .. 2³² − 1, with `size` coordinates. */
export function perturbation(seed: number, size: number): Float32Array {
  return Float32Array.from(halves(seed, size), normal);
}
