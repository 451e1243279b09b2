/**
 * The quantile of the standard normal distribution, of 16-bit numbers, with the same bits on every machine.
 *
 * Algorithm AS 241 (Wichura, Applied Statistics 37, 1988), PPND16. It needs a logarithm, and the last bit of `Math.log`
 * is each engine's own; so the logarithm is computed here, with the four operations that IEEE 754 defines to the bit.
 */

const LN2_HIGH = 6.93147180369123816490e-1;
const LN2_LOW = 1.90821492927058770002e-10;

/** ln x of a double, not subnormal, to about one unit in the last place. */
function log(x: number): number {
  let k = 0;
  while (x < Math.SQRT1_2) {
    x *= 2;
    k--;
  }
  // ln x = 2 artanh s, with |s| below 0.172: fourteen terms reach the last bit.
  const s = (x - 1) / (x + 1);
  const z = s * s;
  let series = 0;
  for (let n = 29; n > 1; n -= 2) series = (series + 1 / n) * z;
  return k * LN2_HIGH + (2 * s + (2 * s * series + k * LN2_LOW));
}

/** A polynomial; coefficients from the highest power. */
function polynomial(x: number, coefficients: readonly number[]): number {
  let value = 0;
  for (const c of coefficients) value = value * x + c;
  return value;
}

// Numerator and denominator of the middle, of the tail and of the far tail.
const A = [
  2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
  1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.387132872796366608,
];
const B = [
  5.226495278852854561e3, 2.8729085735721942674e4, 3.930789580009271061e4, 2.1213794301586595867e4,
  5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1,
];
const C = [
  7.7454501427834140764e-4, 2.2723844989269184583e-2, 2.4178072517745061177e-1, 1.27045825245236838258,
  3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734,
];
const D = [
  1.05075007164441684324e-9, 5.475938084995344946e-4, 1.51986665636164571966e-2, 1.4810397642748007459e-1,
  6.8976733498510000455e-1, 1.6763848301838038494, 2.05319162663775882187, 1,
];

/** Φ⁻¹((h + 0.5) / 2¹⁶) in single precision, of a whole number h in 0 .. 65535; the lower half mirrors the upper. */
export function normal(h: number): number {
  if (h < 32768) return -normal(65535 - h);
  const q = (h + 0.5) / 65536 - 0.5;
  if (q <= 0.425) {
    const r = 0.180625 - q * q;
    return Math.fround((polynomial(r, A) * q) / polynomial(r, B));
  }
  // The far tail of the algorithm begins at r = 5; the last of these numbers has r = 3.43.
  const r = Math.sqrt(-log(0.5 - q)) - 1.6;
  return Math.fround(polynomial(r, C) / polynomial(r, D));
}
