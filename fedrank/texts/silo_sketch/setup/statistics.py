"""The federation's statistics: what each silo puts into the secure sum, and how words are looked up in it.

Section 3.3 of CS-F-LTR (Shi et al. 2021): a silo makes one virtual document in which a word stands as often as there
are documents that hold it, and sketches it; the sum of all silos' sketches answers any word's document frequency at
once. The collection's language model is had in the same way, from a sketch of all words. Sketches are linear, so that
the secure sum of sketches is the sketch of the sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrank.core.errors import DataError
from fedrank.texts.data.corpus import FIELDS, Corpus
from fedrank.texts.data.features import Statistics, statistics_of
from fedrank.texts.sketch import SketchShape, encode_totals, estimate, hash_terms
from fedrank.texts.sketch.noise import SketchNoise, statistics_noise

#: Numbers beside the sketches: documents, and occurrences of each field.
_COUNTS = 1 + len(FIELDS)
#: Occurrences of a word that a silo does not have, for what it expects of others.
_UNSEEN = 0.5
#: Largest number that a sum of so many silos may reach and still be read with its sign.
_LARGEST = 2**31 - 1


def statistics_length(shape: SketchShape) -> int:
    """Numbers in the vector: two sketches a field, and the counts."""
    return 2 * len(FIELDS) * shape.cells + _COUNTS


def statistics_change(shape: SketchShape) -> int:
    """By how much one occurrence of a word changes the vector, in L1: two sketches of a field, and its sum."""
    return 2 * shape.z + 1


def statistics_secret(secret: bytes) -> bytes:
    """What the statistics are hashed with: their cells say nothing about those of the documents' sketches."""
    return hashlib.blake2b(b"statistics", key=secret, digest_size=32).digest()


def statistics_vector(
    corpus: Corpus,
    shape: SketchShape,
    secret: bytes,
    noise: SketchNoise,
    rng: np.random.Generator | None,
    silos: int = 1,
) -> np.ndarray:
    """What a silo puts into the sum, with its noise on everything but the number of documents.

    Args:
        corpus: The silo's documents.
        shape: Of the statistics' sketches.
        secret: The silos' common secret.
        noise: The run's.
        rng: A simulation's generator; None for the operating system's randomness.
        silos: How many silos add theirs: the sum must fit, too.

    Returns:
        uint32 [:func:`statistics_length`], modulo 2³².

    Raises:
        DataError: A number is too large for the sum.
    """
    hashes = hash_terms(corpus.vocabulary, shape, statistics_secret(secret))
    parts = []
    for counts in corpus.counts:
        present = np.asarray((counts > 0).sum(axis=0)).reshape(-1)
        every = np.asarray(counts.sum(axis=0)).reshape(-1)
        parts += [encode_totals(totals, hashes, shape).reshape(-1) for totals in (present, every)]
    sums = corpus.lengths.sum(axis=0)
    noisy = np.concatenate([*parts, sums])
    noisy = noisy + statistics_noise(noise, noisy.shape, rng)
    vector = np.concatenate([noisy, [corpus.n_documents]]).astype(np.int64)
    if np.abs(vector).max() > _LARGEST // silos:
        raise DataError("the silo's statistics do not fit into 32 bits: too many words, or too much noise.")
    return (vector % 2**32).astype(np.uint32)


@dataclass(frozen=True, eq=False)
class FederatedStatistics:
    """The sum, as every silo gets it.

    Attributes:
        totals: int32 [:func:`statistics_length`].
        shape: Of its sketches.
        secret: The silos' common secret.
        own: The silo's own documents; with them, sums with noise are weighed against what they let expect. None: sums
            are taken as they are.
        deviation: Standard deviation of the noise in a cell of the sum; 0 where there is none.
    """

    totals: np.ndarray
    shape: SketchShape
    secret: bytes
    own: Corpus | None = None
    deviation: float = 0.0

    @property
    def documents(self) -> float:
        """N, documents of all silos."""
        return float(self.totals[-1])

    def __call__(self, words: Sequence[str]) -> Statistics:
        """Estimates for words; they may be below 0 (:mod:`fedrank.texts.data.features` mends that).

        Unbiased as they are; weighed against the silo's own they are nearer, and not unbiased.
        """
        hashes = hash_terms(words, self.shape, statistics_secret(self.secret))
        cells = self.totals[:-_COUNTS].reshape(len(FIELDS), 2, self.shape.z, self.shape.w)
        looked = cells[:, :, np.arange(self.shape.z), hashes.rows]  # [fields, 2, terms, z]
        values = estimate(looked, hashes.signs, self.shape.kind).astype(np.float64)
        if self.own is not None and self.deviation > 0:
            values = self._weighed(values, words)
        frequency, collection = values[:, 0].T, values[:, 1].T
        return Statistics(self.documents, frequency, collection, self.totals[-_COUNTS:-1].astype(np.float64))

    def _weighed(self, sums: np.ndarray, words: Sequence[str]) -> np.ndarray:
        """Noisy sums and what the silo's own documents let expect, by how sure each is: [fields, 2, terms].

        A silo knows its own part exactly. Of the others it expects as much a document as it has itself, with the
        spread of a count whose rate differs from silo to silo by as much as the rate itself.
        """
        assert self.own is not None
        own = _own_sums(self.own, words)
        others = np.maximum(self.documents - self.own.n_documents, 0.0) / max(self.own.n_documents, 1)
        expected = (own + _UNSEEN) * others
        spread = expected + expected**2
        weight = spread / (spread + self.deviation**2)
        return own + weight * (sums - own) + (1.0 - weight) * expected


def _own_sums(corpus: Corpus, words: Sequence[str]) -> np.ndarray:
    """Document frequencies and occurrences at one silo: float64 [fields, 2, terms]."""
    own = statistics_of((corpus,), words)
    return np.stack([own.document_frequency.T, own.collection.T], axis=1)
