"""Generated documents and questions to attack."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32, Integer
from scipy.sparse import csr_array

from fedrank.core.errors import ConfigError
from fedrank.texts.insider import QUANTILE
from fedrank.texts.sketch import Hashes, SketchShape, encode, hash_terms

#: Occurrences in a generated document.
TOKENS = 300

#: Generated documents.
_DOCUMENTS = 200

#: Exponent of the generated words' frequencies.
_ZIPF = 1.07


class World(NamedTuple):
    """Generated documents and their sketches.

    Attributes:
        shape: Rows and cells of the sketches.
        terms: The vocabulary.
        hashes: Hashes of the vocabulary.
        counts: Occurrences, int32 [documents, terms].
        sketches: Sketches without noise.
        frequencies: Probability of each term in a document.
    """

    shape: SketchShape
    terms: tuple[str, ...]
    hashes: Hashes
    counts: csr_array
    sketches: Int32[np.ndarray, "documents z w"]
    frequencies: Float64[np.ndarray, " terms"]


class Questions(NamedTuple):
    """Questions about documents, one for each trial, and their answers without noise.

    Attributes:
        terms: Number of the term.
        documents: Number of the document.
        own: Whether a position carries the term's own cell.
        rows: The cells asked for.
        cells: Their values in the document.
        change: Change of these values by one more occurrence of the term.
    """

    terms: Integer[np.ndarray, " trials"]
    documents: Integer[np.ndarray, " trials"]
    own: Bool[np.ndarray, "trials z"]
    rows: Int32[np.ndarray, "trials z"]
    cells: Int32[np.ndarray, "trials z"]
    change: Int32[np.ndarray, "trials z"]


def make_world(shape: SketchShape, vocabulary: int, seed: int) -> World:
    """200 documents of 300 words from a Zipf vocabulary (exponent 1.07), and their sketches.

    Raises:
        ConfigError: The vocabulary has fewer than 2 words.
    """
    if vocabulary < 2:
        raise ConfigError(f"vocabulary must have at least 2 words, got {vocabulary}.")
    rng = np.random.default_rng((seed, 0))
    frequencies = np.arange(1, vocabulary + 1) ** -_ZIPF
    frequencies /= frequencies.sum()
    tokens = rng.choice(vocabulary, _DOCUMENTS * TOKENS, p=frequencies)
    at = (np.ones(tokens.size, np.int32), (np.repeat(np.arange(_DOCUMENTS), TOKENS), tokens))
    counts = csr_array(at, shape=(_DOCUMENTS, vocabulary))
    counts.sum_duplicates()
    terms = tuple(f"word{number}" for number in range(vocabulary))
    hashes = hash_terms(terms, shape, rng.bytes(32))
    return World(shape, terms, hashes, counts, encode(counts, hashes, shape), frequencies)


def ask(world: World, z1: int, trials: int, rng: np.random.Generator, inside: bool = False) -> Questions:
    """Questions with z₁ own positions and a different word in every other (equation 4 of the ICDE version).

    Args:
        world: Documents and hashes.
        z1: Number of own positions; z for a querier who hides nothing and learns most.
        trials: Number of questions.
        rng: Generator.
        inside: Whether to ask about terms of the document; otherwise about words by their frequency in documents.
    """
    z = world.shape.z
    documents = rng.integers(len(world.sketches), size=trials)
    terms = rng.choice(len(world.terms), trials, p=world.frequencies)
    if inside:
        start, end = world.counts.indptr[documents], world.counts.indptr[documents + 1]
        terms = world.counts.indices[rng.integers(start, end)]
    own = rng.random((trials, z)).argsort(axis=1) < z1
    decoys = rng.integers(len(world.terms), size=(trials, z))
    rows = np.where(own, world.hashes.rows[terms], world.hashes.rows[decoys, np.arange(z)])
    change = np.where(rows == world.hashes.rows[terms], world.hashes.signs[terms], 0)
    return Questions(terms, documents, own, rows, world.sketches[documents[:, None], np.arange(z), rows], change)


def share_interval(share: float, trials: int) -> tuple[float, float]:
    """Wilson's 99 % interval of a probability from a share of trials."""
    spread = QUANTILE**2 / trials
    middle = (share + spread / 2) / (1 + spread)
    half = QUANTILE * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
