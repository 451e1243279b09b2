"""Small text collections, and the 16 features once more, word by word as the papers have them."""

import math

import numpy as np

from fedrank.texts.data.collection import Texts
from fedrank.texts.data.corpus import Corpus, corpus_of

WORDS = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen")


def texts_of(bodies, titles, queries, judgements=(), name="small"):
    """A collection of these texts; judgements are (query, document, grade)."""
    judged = np.array(judgements, np.int32).reshape(-1, 3)
    return Texts(
        name=name,
        document_ids=tuple(f"d{number}" for number in range(len(bodies))),
        titles=tuple(titles),
        bodies=tuple(bodies),
        query_ids=tuple(f"q{number}" for number in range(len(queries))),
        queries=tuple(queries),
        judged_queries=judged[:, 0],
        judged_documents=judged[:, 1],
        grades=judged[:, 2],
    )


def drawn_texts(documents=12, seed=0):
    """Documents of words by lot, with an empty body, empty titles and queries of every awkward kind."""
    rng = np.random.default_rng(seed)
    bodies = [" ".join(rng.choice(WORDS, rng.integers(1, 15))) for _ in range(documents)]
    titles = [" ".join(rng.choice(WORDS[:6], rng.integers(0, 4))) for _ in range(documents)]
    bodies[1], titles[2] = "", ""
    queries = ["ant bee fox", "cat", "dog dog elk", "hen gnu", "yak ant", "yak", ""]
    return texts_of(bodies, titles, queries, [(0, 0, 1), (0, 5, 0), (1, 3, 2), (2, 1, 1), (0, 7, 2)])


def plain_corpus(texts: Texts) -> Corpus:
    """The words as they are: neither stemmed nor stopped."""
    return corpus_of(texts, stem=False, stopwords=False)


class PlainFeatures:
    """The 16 features from lists of words; ``documents`` are those of the whole federation."""

    def __init__(self, documents):
        self.documents = documents  # of each, the words of the body and those of the title

    def of(self, query, document, as_published=False):
        values = []
        for field in (0, 1):
            values += self._field(query, document[field], [one[field] for one in self.documents], as_published)
        return values

    def _field(self, query, words, everything, as_published):
        length, n = len(words), len(everything)
        tokens = sum(len(one) for one in everything)
        tf = idf = tf_idf = bm25 = absolute = dirichlet = jelinek = 0.0
        unique = 0.8 * length if as_published else len(set(words))
        for word in query:
            c = words.count(word)
            p = (sum(one.count(word) for one in everything) or 0.5) / max(tokens, 1)
            rarity = math.log(n / max(sum(word in one for one in everything), 1))
            share = c / length if length else 0.0
            tf, idf, tf_idf = tf + share, idf + rarity, tf_idf + share * rarity
            if c:
                x = share if as_published else c
                bm25 += rarity * x * (1.2 + 1) / (x + 1.2 * (1 - 0.75 + 0.75 * length / (tokens / n)))
            # Zhai & Lafferty (2004), Table I: the chance of a word in the document, and α_d · p of any other.
            if c:
                absolute += math.log(max(c - 0.7, 0) / length + 0.7 * unique / length * p)
                dirichlet += math.log((c + 1000 * p) / (length + 1000))
                jelinek += math.log((1 - 0.1) * share + 0.1 * p)
            else:
                absolute += math.log((0.7 * unique / length if length else self._empty(as_published)) * p)
                dirichlet += math.log(1000 / (length + 1000) * p)
                jelinek += math.log(0.1 * p)
        return [length, tf, idf, tf_idf, bm25, absolute, dirichlet, jelinek]

    def _empty(self, as_published):
        return 0.7 * 0.8 if as_published else 0.7
