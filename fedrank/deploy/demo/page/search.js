// A small index in the browser: which documents a query may mean, and the features by which they are ranked.

const STOP = new Set("a an and are as at be by for from if in into is it of on or that the this to which with".split(" "));
const K1 = 1.2;
const B = 0.75;
/** Documents that are ranked for a query. */
export const CANDIDATES = 30;
/** What the ranker sees of a query and a document, each in 0..1. */
export const FEATURES = [
  "match in the name",
  "match in the summary",
  "match in the text",
  "words found in the name",
  "words found in the summary",
  "words found anywhere",
  "name is just the query",
  "short name",
  "is a function",
  "short text",
];

/** The words of a text: lower case, camelCase split, common endings taken off, without stop words. */
export function wordsOf(text) {
  const split = text.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return (split.match(/[a-z]+|[0-9]+/g) ?? []).filter((word) => !STOP.has(word)).map(stem);
}

function stem(word) {
  for (const [end, least] of [["ing", 6], ["ies", 6], ["ed", 5], ["es", 5], ["s", 4]]) {
    if (word.length >= least && word.endsWith(end) && !word.endsWith("ss")) {
      return word.slice(0, -end.length) + (end === "ies" ? "y" : "");
    }
  }
  return word;
}

function counted(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts;
}

export class Index {
  /** @param documents Objects with name, kind, summary and body. */
  constructor(documents) {
    this.documents = documents;
    this.fields = ["name", "summary", "body"].map((field) => {
      const lists = documents.map((document) => wordsOf(document[field]));
      const mean = lists.reduce((sum, list) => sum + list.length, 0) / lists.length;
      return { lists, counts: lists.map(counted), mean };
    });
    this.holding = new Map(); // word → numbers of the documents that hold it anywhere
    documents.forEach((_, number) => {
      for (const word of new Set(this.fields.flatMap((field) => field.lists[number]))) {
        if (!this.holding.has(word)) this.holding.set(word, []);
        this.holding.get(word).push(number);
      }
    });
  }

  rarity(word) {
    return Math.log(this.documents.length / (this.holding.get(word)?.length ?? 1));
  }

  /** BM25 of one field. */
  bm25(words, field, number) {
    const { counts, lists, mean } = this.fields[field];
    const length = lists[number].length / mean;
    let sum = 0;
    for (const word of words) {
      const count = counts[number].get(word) ?? 0;
      sum += (this.rarity(word) * count * (K1 + 1)) / (count + K1 * (1 - B + B * length));
    }
    return sum;
  }

  /** Numbers of the documents that a query may mean, in the order of their names, with features and plain BM25. */
  candidates(query) {
    const words = [...new Set(wordsOf(query))].filter((word) => this.holding.has(word));
    const numbers = [...new Set(words.flatMap((word) => this.holding.get(word)))];
    const scored = numbers.map((number) => {
      const fields = [0, 1, 2].map((field) => this.bm25(words, field, number));
      return { number, fields, bm25: fields[0] + fields[1] + fields[2] };
    });
    const best = scored.sort((a, b) => b.bm25 - a.bm25 || a.number - b.number).slice(0, CANDIDATES);
    best.sort((a, b) => a.number - b.number);
    const most = [0, 1, 2].map((field) => Math.max(1e-9, ...best.map((one) => one.fields[field])));
    return best.map((one) => ({ ...one, features: this.features(words, one, most) }));
  }

  features(words, { number, fields }, most) {
    const share = (field) => words.filter((word) => this.fields[field].counts[number].has(word)).length / words.length;
    const parts = [0, 1, 2].map(share);
    const name = this.fields[0].lists[number];
    const just = name.length > 0 && name.every((word) => words.includes(word)) && parts[0] === 1;
    const long = this.fields[1].lists[number].length + this.fields[2].lists[number].length;
    return [
      fields[0] / most[0],
      fields[1] / most[1],
      fields[2] / most[2],
      parts[0],
      parts[1],
      Math.max(...parts),
      just ? 1 : 0,
      1 / Math.max(1, name.length),
      this.documents[number].kind === "function" ? 1 : 0,
      1 / Math.log2(2 + long),
    ];
  }
}
