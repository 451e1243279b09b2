"""What attacks on sketches are made on, and what they find: generated documents, questions, findings with intervals."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.texts.sketch import Hashes, SketchShape, encode, hash_terms

#: Occurrences in a generated document.
TOKENS = 300

#: Generated documents.
_DOCUMENTS = 200

#: Exponent of the generated words' frequencies.
_ZIPF = 1.07

#: Normal quantile of 99 % intervals.
_QUANTILE = 2.5758


@dataclass(frozen=True)
class Finding:
    """What one attack found.

    Attributes:
        attack: Its name.
        mode: The mode, and how it was asked where there are several ways.
        measure: What ``measured`` and ``promised`` are.
        measured: What the attacker gets, over ``trials`` trials.
        low: Lower end of its 99 % interval.
        high: Upper end.
        promised: What the mode promises, or what its noise is meant to cost him.
        broken: Whether the promise does not hold.
        trials: Trials.
        words: A sentence.
        control: Whether this is no mode that is offered, but what one would be without one of its parts.
    """

    attack: str
    mode: str
    measure: str
    measured: float
    low: float
    high: float
    promised: float
    broken: bool
    trials: int
    words: str
    control: bool = False

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class World(NamedTuple):
    """Generated documents and their sketches.

    Attributes:
        shape: Of the sketches.
        terms: The vocabulary.
        hashes: Of the vocabulary.
        counts: csr int32 [documents, terms].
        sketches: int32 [documents, z, w].
        chances: float64 [terms]: how often each term occurs.
    """

    shape: SketchShape
    terms: tuple[str, ...]
    hashes: Hashes
    counts: Any
    sketches: np.ndarray
    chances: np.ndarray


class Answers(NamedTuple):
    """What there is to ask about, one question a trial.

    Attributes:
        terms: int [trials]: the term.
        documents: int [trials]: the document.
        own: bool [trials, z]: positions that carry the term's own cells.
        rows: int32 [trials, z]: the cells asked for.
        cells: int32 [trials, z]: what they hold in the document.
        change: int32 [trials, z]: what one more occurrence of the term adds to them.
    """

    terms: np.ndarray
    documents: np.ndarray
    own: np.ndarray
    rows: np.ndarray
    cells: np.ndarray
    change: np.ndarray


def make_world(shape: SketchShape, vocabulary: int, seed: int) -> World:
    """200 documents of 300 words from a Zipf vocabulary (exponent 1.07), and their sketches.

    Raises:
        ConfigError: The vocabulary has fewer than 2 words.
    """
    from scipy.sparse import csr_array

    if vocabulary < 2:
        raise ConfigError(f"vocabulary must have at least 2 words, got {vocabulary}.")
    rng = np.random.default_rng((seed, 0))
    chances = np.arange(1, vocabulary + 1) ** -_ZIPF
    chances /= chances.sum()
    tokens = rng.choice(vocabulary, _DOCUMENTS * TOKENS, p=chances)
    at = (np.ones(tokens.size, np.int32), (np.repeat(np.arange(_DOCUMENTS), TOKENS), tokens))
    counts = csr_array(at, shape=(_DOCUMENTS, vocabulary))
    counts.sum_duplicates()
    terms = tuple(f"word{number}" for number in range(vocabulary))
    hashes = hash_terms(terms, shape, rng.bytes(32))
    return World(shape, terms, hashes, counts, encode(counts, hashes, shape), chances)


def ask(world: World, z1: int, trials: int, rng: np.random.Generator, inside: bool = False) -> Answers:
    """Questions with z₁ own positions and a word of its own in every other (equation 4 of the ICDE version).

    Args:
        world: Documents and hashes.
        z1: Own positions; z for a querier who hides nothing and so sees most.
        trials: Questions.
        rng: Generator.
        inside: Ask for terms that the document has; otherwise for words as frequent as they are in documents.
    """
    z = world.shape.z
    documents = rng.integers(len(world.sketches), size=trials)
    terms = rng.choice(len(world.terms), trials, p=world.chances)
    if inside:
        start, end = world.counts.indptr[documents], world.counts.indptr[documents + 1]
        terms = world.counts.indices[rng.integers(start, end)]
    own = rng.random((trials, z)).argsort(axis=1) < z1
    decoys = rng.integers(len(world.terms), size=(trials, z))
    rows = np.where(own, world.hashes.rows[terms], world.hashes.rows[decoys, np.arange(z)])
    change = np.where(rows == world.hashes.rows[terms], world.hashes.signs[terms], 0)
    return Answers(terms, documents, own, rows, world.sketches[documents[:, None], np.arange(z), rows], change)


def share_interval(share: float, trials: int) -> tuple[float, float]:
    """Wilson's 99 % interval of a probability from a share of trials."""
    spread = _QUANTILE**2 / trials
    middle = (share + spread / 2) / (1 + spread)
    half = _QUANTILE * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """The normal 99 % interval of a mean; it may leave the range of the values."""
    mean, half = float(values.mean()), _QUANTILE * float(values.std()) / math.sqrt(values.size)
    return mean - half, mean + half
