/** The reward of an interaction: a function of its clicks with finitely many values (section 2 of the wire format). */

/** A reward as a table. */
export interface Reward {
  /** Whole numbers, ascending, one for each value; value i is `numerators[i] / scale`. */
  readonly numerators: readonly number[];
  /** The common denominator. */
  readonly scale: number;
  /** Of each click pattern (bit i: a click at rank i + 1) the number of its value. */
  readonly index: readonly number[];
}

/** Names of rewards. */
export const REWARDS = ["MaxRR", "DCG", "nDCG", "MeanRR"];
/** Steps that rewards without a small common denominator are rounded to: 1/10,000. */
const STEPS = 10_000;

const gcd = (a: number, b: number): number => (b ? gcd(b, a % b) : a);

/** The nearest whole number of a double below 2⁵²; halves to even. */
export function roundEven(x: number): number {
  const down = Math.floor(x);
  const rest = x - down;
  return rest < 0.5 || (rest === 0.5 && down % 2 === 0) ? down : down + 1;
}

const gain = (rank: number) => 1 / Math.log2(1 + rank);
const sum = (numbers: number[]) => numbers.reduce((a, b) => a + b, 0);

/** The numerator of a pattern with clicks at `ranks`, ascending, at least one; rule 2.2 and 2.3. */
function numerator(name: string, ranks: number[], common: number): number {
  if (name === "MaxRR") return common / ranks[0];
  if (name === "MeanRR") {
    // Both are whole numbers, whose quotient is a half exactly where the product is one: doubles decide rightly.
    return roundEven((sum(ranks.map((r) => common / r)) * STEPS) / (common * ranks.length));
  }
  const dcg = sum(ranks.map(gain));
  return roundEven((name === "DCG" ? dcg : dcg / sum(ranks.map((_, j) => gain(j + 1)))) * STEPS);
}

/**
 * The table of a reward.
 *
 * @param name One of REWARDS.
 * @param depth Ranks that are looked at, in 1 .. 10.
 * @param values Number of values to round to; null: it is not rounded.
 */
export function rewardOf(name: string, depth: number, values: number | null): Reward {
  let common = 1;
  for (let rank = 2; rank <= depth; rank++) common = (common * rank) / gcd(common, rank);
  const table: number[] = [0];
  for (let pattern = 1; pattern < 1 << depth; pattern++) {
    const ranks = [];
    for (let i = 0; i < depth; i++) if ((pattern >> i) & 1) ranks.push(i + 1);
    table.push(numerator(name, ranks, common));
  }
  const scale = name === "MaxRR" ? common : STEPS;
  const numerators = [...new Set(table)].sort((a, b) => a - b);
  const number = new Map(numerators.map((value, i) => [value, i]));
  const index = table.map((value) => number.get(value)!);
  if (values === null) return { numerators, scale, index };
  // Coarser, in double precision and in this order (rule 2.5).
  const largest = numerators[numerators.length - 1];
  const most = largest / scale;
  const nearest = numerators.map((a) => Math.floor((a / scale / most) * (values - 1) + 0.5));
  const c = gcd(largest, (values - 1) * scale);
  return {
    numerators: Array.from({ length: values }, (_, i) => i * (largest / c)),
    scale: ((values - 1) * scale) / c,
    index: index.map((i) => nearest[i]),
  };
}
