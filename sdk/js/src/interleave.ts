/** Team drafting: one list made of two rankers' lists, so that the same clicks judge both (rule 5.12). */

/** Whose a document is: of θ − σv, of both, of θ + σv. */
export type Team = -1 | 0 | 1;

/** A list of two rankers. */
export interface Drafted {
  /** The documents, best first. */
  readonly order: number[];
  /** Whose each of the drafted documents is; those below are nobody's. */
  readonly team: Team[];
}

/**
 * One list of two, drafted down to a rank, and further down as the first ranker has what is left.
 *
 * @param first Documents of θ + σv, best first.
 * @param second Those of θ − σv: the same documents.
 * @param depth Ranks that are drafted.
 * @param toss 32 random bits: bit r says who goes first in the pair that starts at rank r + 1, 1 for θ + σv.
 */
export function draft(first: readonly number[], second: readonly number[], depth: number, toss: number): Drafted {
  const order: number[] = [];
  const team: Team[] = [];
  const taken = new Set<number>();
  const take = (document: number, owner: Team) => {
    if (order.length >= depth) return; // the second of a pair at the last rank
    taken.add(document);
    order.push(document);
    team.push(owner);
  };
  const best = (list: readonly number[]) => list.find((document) => !taken.has(document))!;
  while (order.length < Math.min(depth, first.length)) {
    const p = best(first);
    const m = best(second);
    if (p === m) take(p, 0);
    else if ((toss >>> order.length) & 1) {
      take(p, 1);
      take(m, -1);
    } else {
      take(m, -1);
      take(p, 1);
    }
  }
  return { order: [...order, ...first.filter((document) => !taken.has(document))], team };
}

/** The clicks as θ + σv and as θ − σv see them, from a pattern and whose each document is. */
export function credited(pattern: number, team: readonly Team[]): [number, number] {
  let plus = 0;
  let minus = 0;
  team.forEach((owner, rank) => {
    const click = pattern & (1 << rank);
    if (owner !== -1) plus |= click;
    if (owner !== 1) minus |= click;
  });
  return [plus, minus];
}
