"""Tiny federations of three silos with texts, setups of them, and the 16 features once more from plain counts."""

import functools
import math
from collections import Counter
from dataclasses import fields

import numpy as np

from fedrank.engine.simulator import run_setup
from fedrank.texts.config import Sketch, Texts
from fedrank.texts.data import generate
from fedrank.texts.data.corpus import corpus_of
from fedrank.texts.data.silos import federation_of
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.silo_sketch.setup.exchange_sketches import open_sealed
from fedrank.texts.silo_sketch.setup.rows import SiloTexts
from fedrank.texts.silo_sketch.setup.settings import OwnSketches
from fedrank.texts.silo_sketch.state import TEST, TRAIN, UNUSED, VALI
from fedrank.texts.sketch import SketchShape
from fedrank.texts.sketch.key import ALL_SILOS

SILOS = 3
#: Settings of sketches that :func:`setup_of` takes by name.
_SKETCH = ("estimate", "as_published")
#: Collisions in the majority of the rows do not happen in these.
WIDE, WIDE_STATISTICS = SketchShape(5, 2048), SketchShape(5, 16384)
NARROW, NARROW_STATISTICS = SketchShape(6, 64), SketchShape(1, 256)


def generate_federation(
    silos=4, seed=0, documents=150, queries=30, topics=12, words=3000, length=80, heterogeneity=0.5, quality=None
):
    """A generated federation whose silos differ in what they write about and in how well.

    Args:
        silos: Number of silos.
        seed: Seed of all random choices.
        documents: Number of documents of a silo.
        queries: Number of queries of a silo.
        topics: Number of topics of all silos together.
        words: Size of the vocabulary.
        length: Words of a body in the median.
        heterogeneity: 0: documents and queries lie at silos by chance; 1: documents of one main topic lie at one silo
            as far as there is room, and a query lies where most of its relevant documents do.
        quality: For each silo the share of topical words that its documents keep; by default 1 for all.
    """
    shown = np.ones(silos) if quality is None else np.asarray(quality, float)
    n_documents, n_queries = silos * documents, silos * queries
    rng = np.random.default_rng(seed)
    mixtures = rng.dirichlet(np.full(topics, generate._MIXED), n_documents)
    at = _placed(rng, mixtures.argmax(axis=1) % silos, silos, heterogeneity)
    made = ("generated", n_documents, n_queries, topics, words, length, shown[at], seed, mixtures)
    texts = generate._collection(rng, *made)
    pairs = texts.grades > 0
    held = np.zeros((n_queries, silos), np.int64)
    np.add.at(held, (texts.judged_queries[pairs], at[texts.judged_documents[pairs]]), 1)
    asked_at = _placed(rng, held.argmax(axis=1), silos, heterogeneity)
    return federation_of(
        corpus_of(texts),
        [np.flatnonzero(at == k) for k in range(silos)],
        [np.flatnonzero(asked_at == k) for k in range(silos)],
    )


def _placed(rng, home, silos, heterogeneity):
    """Silo of each thing: its home with a probability, as far as silos of equal size have room, else a random one."""
    n = len(home)
    room = np.bincount(np.arange(n) % silos, minlength=silos)
    at = np.full(n, -1, np.int64)
    for thing in rng.permutation(n):
        if rng.random() < heterogeneity and room[home[thing]]:
            at[thing] = home[thing]
            room[home[thing]] -= 1
    left = np.flatnonzero(at < 0)
    at[left] = rng.permutation(np.repeat(np.arange(silos), room))
    return at


@functools.cache
def small_federation(seed=3):
    """Three silos with 22 documents and 7 queries each."""
    return generate_federation(
        silos=SILOS, seed=seed, documents=22, queries=7, topics=3, words=500, length=16, heterogeneity=0.6
    )


@functools.cache
def small_texts(seed=3):
    """What each silo has; its first query belongs to no part, the others to each in turn."""
    parts = [UNUSED, TRAIN, VALI, TEST, TRAIN, TRAIN, TEST]
    return [SiloTexts(silo, np.array(parts, np.int8)) for silo in small_federation(seed).silos]


def setup_of(mode="plain", texts=None, **settings):
    """A setup for these texts; wide sketches without noise unless told otherwise."""
    texts = small_texts() if texts is None else texts
    narrow = mode != "plain"
    shape = settings.pop("shape", NARROW if narrow else WIDE)
    statistics = settings.pop("statistics", NARROW_STATISTICS if narrow else WIDE_STATISTICS)
    epsilon = settings.pop("epsilon", None if mode == "plain" else 8.0)
    sketch = Sketch(
        mode=mode,
        epsilon=epsilon,
        noise=settings.pop("mechanism", "laplace"),
        z=shape.z,
        w=shape.w,
        statistics_z=statistics.z,
        statistics_w=statistics.w,
        **{"estimate": "median"} | {name: settings.pop(name) for name in _SKETCH if name in settings},
    )
    return SketchSetup(
        silos=len(texts),
        texts=Texts(**{"scale": "federation", "depth": 6, "negatives": 3, "foreign": 5} | settings.pop("rows", {})),
        sketch=sketch,
        documents=settings.pop("documents", max(one.corpus.n_documents for one in texts) + 2),
        seed=1,
        **settings,
    )


def run(setup, texts=None, seed=0, **how):
    """Its state, parties and ledger."""
    texts = small_texts() if texts is None else texts
    return run_setup(setup, setup.parties(list(texts)), np.random.default_rng(seed), **how)


def published(setup, state, party):
    """What all silos published, as one of them opens it; arrays have a leading axis of silos."""
    sealed = state.replies["publish"][0].sealed
    found = [open_sealed(setup, party, OwnSketches, number, ALL_SILOS, one) for number, one in enumerate(sealed)]
    return OwnSketches(**{f.name: np.stack([getattr(one, f.name) for one in found]) for f in fields(OwnSketches)})


class Collection:
    """Documents of the whole federation as counted words, and the papers' 16 features of a query and one of them."""

    def __init__(self, whole):
        words = np.array(whole.vocabulary, object)
        dense = [counts.toarray() for counts in whole.counts]
        self.documents = [
            [Counter({words[t]: int(row[t]) for t in np.flatnonzero(row)}) for row in field] for field in dense
        ]
        self.queries = [[words[term] for term in query] for query in whole.queries]
        self.n = whole.n_documents
        self.frequency = [Counter(word for one in field for word in one) for field in self.documents]
        self.collection = [sum(field, Counter()) for field in self.documents]
        self.tokens = [sum(one.values()) for one in self.collection]

    def idf(self, word, field):
        return math.log(self.n / max(self.frequency[field][word], 1))

    def bm25(self, query, document, field):
        counts = self.documents[field][document]
        length, mean = sum(counts.values()), self.tokens[field] / self.n
        return sum(
            self.idf(word, field) * counts[word] * 2.2 / (counts[word] + 1.2 * (0.25 + 0.75 * length / mean))
            for word in query
        )

    def features(self, query, document):
        """In the order length, TF, IDF, TF-IDF, BM25, LMIR.ABS, LMIR.DIR, LMIR.JM of the body, then of the title."""
        out = []
        for field in (0, 1):
            counts = self.documents[field][document]
            length, unique = sum(counts.values()), len(counts)
            p = {word: (self.collection[field][word] or 0.5) / self.tokens[field] for word in query}
            tf = {word: counts[word] / length for word in query}
            out += [
                length,
                sum(tf[word] for word in query),
                sum(self.idf(word, field) for word in query),
                sum(tf[word] * self.idf(word, field) for word in query),
                self.bm25(query, document, field),
                sum(math.log(max(counts[word] - 0.7, 0) / length + 0.7 * unique / length * p[word]) for word in query),
                sum(math.log((counts[word] + 1000 * p[word]) / (length + 1000)) for word in query),
                sum(math.log(0.9 * tf[word] + 0.1 * p[word]) for word in query),
            ]
        return out

    def score(self, query, document):
        """BM25 of body and title together."""
        return self.bm25(query, document, 0) + self.bm25(query, document, 1)

    def best(self, query, among, depth):
        """The numbers, in ``among``, of the best documents by BM25 of both fields together."""
        scores = [self.score(query, one) for one in among]
        return sorted(range(len(among)), key=lambda place: (-scores[place], place))[:depth], scores


@functools.cache
def alone(number):
    """What a silo of :func:`small_federation` knows by itself: a silo chooses among its own documents with that."""
    return Collection(small_federation().silos[number])
