"""A made-up ranking problem of the size and look of MQ2007, for machines without data.

It is no model of web search, and no number measured on it says anything about a real set. It is made so that
the same things are hard:

* the features of a query run from 0 to 1, come in correlated groups, many are 0 on most documents, and some
  are 0 everywhere;
* most documents are not relevant, and some queries have no relevant document at all;
* a document's relevance is partly linear in hidden properties, partly not (an interaction, a preferred
  middle), partly chance. The features show the hidden properties blurred. A linear ranker gains much, a
  better one a little more, and none gets everything right.
"""

from __future__ import annotations

import math

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.ranking.data.normalise import normalise
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.data.splits import Splits

_HIDDEN = 8
# Shares of documents with a label of at least 1, and how many of the documents with a label reach the next
# one.
_RELEVANT, _NEXT = 0.26, 0.23
# Of MQ2008's 46 features six are 0 throughout; its queries have up to 121 documents, MQ2007's 41 on average.
_DEAD = 6 / 46
_SHORTEST, _TYPICAL, _LONGEST = 5, 38, 147


def generate_queries(
    seed: int = 0,
    n_queries: int = 1692,
    n_features: int = 46,
    grades: int = 3,
    noise: float = 0.7,
) -> Splits:
    """Generated queries, three fifths to train, one to validate, one to test.

    Args:
        seed: Seed of everything, the hidden truth included (NumPy's PCG64).
        n_queries: Queries of all parts together, at least 5; MQ2007 has 1,692.
        n_features: Features, at least 1.
        grades: Number of labels, 0 .. grades − 1, at least 2. A quarter of the documents is relevant, and a
            quarter of those with one grade reach the next.
        noise: Standard deviation of the chance in a document's relevance, where that of the rest is 1; at
            least 0.

    Returns:
        Splits with ``generated=True`` and features in [0, 1]. The same arguments give the same labels and
        features.

    Raises:
        ConfigError: A number is out of range.
    """
    for what, value, least in (("n_queries", n_queries, 5), ("n_features", n_features, 1), ("grades", grades, 2)):
        if value < least:
            raise ConfigError(f"{what} of a generated set must be at least {least}, got {value}.")
    if not 0 <= noise < math.inf:
        raise ConfigError(f"noise of a generated set must be a finite number of at least 0, got {noise}.")
    rng = np.random.Generator(np.random.PCG64(seed))
    lengths = np.clip(np.rint(rng.lognormal(math.log(_TYPICAL), 0.4, n_queries)), _SHORTEST, _LONGEST).astype(np.int64)
    hidden = rng.standard_normal((lengths.sum(), _HIDDEN))
    everything = QuerySet(
        _features(hidden, n_features, rng),
        _labels(hidden, lengths, grades, noise, rng),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.arange(1, n_queries + 1).astype(np.str_),
        generated=True,
    )
    everything = normalise(everything, "query-minmax")
    cuts = n_queries * 3 // 5, n_queries * 4 // 5
    parts = np.split(np.arange(n_queries), cuts)
    train, vali, test = (
        QuerySet(part.features, part.labels, part.offsets, part.qids, f"generated/{name}", generated=True)
        for part, name in zip(map(everything.select, parts), ("train", "vali", "test"), strict=True)
    )
    note = (
        f"Generated data, not a real collection: {n_queries} queries, {n_features} features, {grades} grades, "
        f"noise {noise:g}, seed {seed}."
    )
    return Splits(train, vali, test, "generated", generated=True, notes=(note,))


def _labels(hidden: np.ndarray, lengths: np.ndarray, grades: int, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Labels from a truth that is not linear: int64 [documents]."""
    direction = rng.uniform(0.5, 1.0, _HIDDEN - 1) * rng.choice([1.0, 1.0, 1.0, -1.0], _HIDDEN - 1)
    linear = hidden[:, 1:] @ (direction / np.linalg.norm(direction))
    together = hidden[:, 1] * hidden[:, 2]
    middle = math.sqrt(2) - np.abs(hidden[:, 0]) * math.sqrt(2)
    truth = 0.75 * linear + 0.4 * together + 0.4 * middle
    chance = noise * rng.standard_normal(len(truth))
    # Some queries have many good documents, others none.
    ease = np.repeat(1.2 * rng.standard_normal(len(lengths)), lengths)
    relevance = truth / truth.std() + chance + ease
    shares = _RELEVANT * _NEXT ** np.arange(grades - 1)
    return np.searchsorted(np.quantile(relevance, 1 - shares), relevance, side="left")


def _features(hidden: np.ndarray, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Features that show the hidden properties [documents, _HIDDEN] with noise: float64 [documents, f]."""
    # Each feature shows one property well and the others faintly, so that features of one property are
    # correlated.
    shows = 0.15 * rng.standard_normal((_HIDDEN, n_features))
    shows[np.arange(n_features) % _HIDDEN, np.arange(n_features)] += 1.0
    seen = hidden @ shows + 0.8 * rng.standard_normal((len(hidden), n_features))
    kind = rng.integers(3, size=n_features)
    # Even, as a similarity; long-tailed, as a count; 0 on most documents, as a match in a title.
    seen = np.where(kind == 1, np.exp(0.7 * seen), np.where(kind == 2, np.maximum(seen - 0.5, 0.0), seen))
    seen[:, rng.choice(n_features, int(n_features * _DEAD), replace=False)] = 0.0
    return seen
