/** Doubles as what they are, a whole number times a power of two, in integers without a bound. */

/** Bits behind the point of a fixed-point number: more than 60 decimal digits. */
const POINT = 256n;

/** A positive double as a quotient of whole numbers, the lower one a power of two. */
export function fraction(x: number): [bigint, bigint] {
  let down = 1n;
  while (x % 1) {
    x *= 2; // exact
    down *= 2n;
  }
  return [BigInt(x), down];
}

/**
 * ⌊2³² · w e^ε / (w e^ε + v)⌋ in real numbers, of whole numbers w and v and a double ε in 0.001 .. 16.
 *
 * The exponential is a sum of its series, with 256 bits behind the point; what is cut off is below 2⁻²⁴⁰.
 */
export function share(w: number, v: number, epsilon: number): number {
  const [up, down] = fraction(epsilon);
  const x = (up << POINT) / down; // exact: the double has fewer bits
  let term = 1n << POINT;
  let power = 0n;
  for (let k = 1n; term; k++) {
    power += term;
    term = ((term * x) >> POINT) / k;
  }
  const odds = BigInt(w) * power;
  return Number((odds << 32n) / (odds + (BigInt(v) << POINT)));
}
