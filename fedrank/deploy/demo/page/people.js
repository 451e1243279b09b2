// Simulated visitors: each looks for one entry of the documentation and types a few words that it remembers of it.

import { wordsOf } from "./search.js";

/** Random numbers that repeat (mulberry32), for visitors and for the queries that measure the ranker. */
export function repeatable(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Entries whose number leaves this rest are searched for by nobody: queries about them measure the ranker. */
const MEASURED = 5;

/** The query of somebody who looks for an entry: a word or two of its name, one or two of its summary. */
function remembered(index, number, random) {
  const pick = (words) => words[Math.floor(random() * words.length)];
  const name = index.fields[0].lists[number];
  const summary = index.fields[1].lists[number].filter((word) => index.rarity(word) > 1.5);
  const words = [];
  if (random() < 0.7) words.push(pick(name));
  if (random() < 0.3) words.push(pick(name));
  if (summary.length) {
    words.push(pick(summary));
    if (random() < 0.5) words.push(pick(summary));
  }
  return words.filter(Boolean).join(" ");
}

/** Searches of simulated visitors, or of those that measure: the query, the candidates, the place of the right one. */
export function* searches(index, random, measuring) {
  while (true) {
    const number = Math.floor(random() * index.documents.length);
    if ((number % MEASURED === 0) !== measuring) continue;
    const query = remembered(index, number, random);
    const found = index.candidates(query);
    const right = found.findIndex((one) => one.number === number);
    if (found.length >= 5 && right >= 0) yield { query, found, right };
  }
}

/** Ranks that somebody clicks who reads from the top: what is sought nearly always, something else seldom. */
export function clicks(order, right, depth, random) {
  const clicked = [];
  for (let rank = 0; rank < Math.min(depth, order.length); rank++) {
    if (order[rank] === right) {
      if (random() < 0.95) clicked.push(rank);
      break;
    }
    if (random() < 0.04) clicked.push(rank);
    if (random() < 0.05) break;
  }
  return clicked;
}

/** Mean reciprocal rank, over searches, of what is sought; 0 where it is not among the first ten. */
export function quality(measured, order) {
  const values = measured.map((one) => {
    const rank = order(one).indexOf(one.right);
    return rank >= 0 && rank < 10 ? 1 / (rank + 1) : 0;
  });
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The words of a query that the index knows; for the page, to say which were searched. */
export const known = (index, query) => wordsOf(query).filter((word) => index.holding.has(word));
