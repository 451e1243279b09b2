"""The federation's statistics: the vector that each silo puts into the secure sum, and how words are looked up in it.

Section 3.3 of CS-F-LTR (Shi et al. 2021): a silo makes one virtual document in which a word stands as often as there
are documents that hold it, and sketches it; the sum of all silos' sketches answers any word's document frequency at
once. The collection's language model is computed in the same way, from a sketch of all words. Sketches are linear, so
that the secure sum of sketches is the sketch of the sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int32, UInt32

from fedrank.core.errors import DataError
from fedrank.texts.data.corpus import FIELDS, Corpus
from fedrank.texts.data.features import Statistics, statistics_of
from fedrank.texts.sketch import SketchShape, encode_totals, estimate, hash_terms
from fedrank.texts.sketch.noise import SketchNoise, statistics_noise

#: Numbers beside the sketches: number of documents, and of words of each field.
_COUNTS = 1 + len(FIELDS)
#: Occurrences that a silo adds to its own when it estimates those at others, so that no word is impossible.
_UNSEEN = 0.5
#: Largest magnitude of a sum that 32 bits hold with its sign.
_LARGEST = 2**31 - 1


def statistics_length(shape: SketchShape) -> int:
    """Length of the vector: two sketches for each field, and the counts."""
    return 2 * len(FIELDS) * shape.cells + _COUNTS


def statistics_secret(secret: bytes) -> bytes:
    """Secret of the statistics' hashes, derived so that their cells say nothing about those of documents' sketches."""
    return hashlib.blake2b(b"statistics", key=secret, digest_size=32).digest()


def statistics_vector(
    corpus: Corpus,
    shape: SketchShape,
    secret: bytes,
    noise: SketchNoise,
    rng: np.random.Generator | None,
    silos: int = 1,
) -> UInt32[np.ndarray, " totals"]:
    """A silo's statistics with noise on everything but the number of documents, modulo 2³².

    Args:
        corpus: The silo's documents.
        shape: Rows and cells of the statistics' sketches.
        secret: The silos' common secret.
        noise: Mode and noise of the run.
        rng: A simulation's generator; None for the operating system's randomness.
        silos: Number of silos; the sum of their vectors must fit, too.

    Raises:
        DataError: A number is too large for the sum.
    """
    hashes = hash_terms(corpus.vocabulary, shape, statistics_secret(secret))
    parts = []
    for counts in corpus.counts:
        present = np.asarray((counts > 0).sum(axis=0)).reshape(-1)  # type: ignore[attr-defined] - scipy has no types
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
    """The summed statistics, in which a silo looks words up.

    Attributes:
        totals: The sum, of length :func:`statistics_length`.
        shape: Rows and cells of its sketches.
        secret: The silos' common secret.
        own: The silo's own documents; noisy sums are averaged with an estimate from them. None: sums are taken as they
            are.
        deviation: Standard deviation of the noise in a cell of the sum; 0 where there is none.
    """

    totals: Int32[np.ndarray, " totals"]
    shape: SketchShape
    secret: bytes
    own: Corpus | None = None
    deviation: float = 0.0

    @property
    def documents(self) -> float:
        """N, number of documents of all silos."""
        return float(self.totals[-1])

    def __call__(self, words: Sequence[str]) -> Statistics:
        """Estimated statistics of words; they may be below 0, which :mod:`fedrank.texts.data.features` corrects.

        Without the silo's own documents the estimates are unbiased; with them they have a smaller error and a bias.
        """
        hashes = hash_terms(words, self.shape, statistics_secret(self.secret))
        cells = self.totals[:-_COUNTS].reshape(len(FIELDS), 2, self.shape.z, self.shape.w)
        found = cells[:, :, np.arange(self.shape.z), hashes.rows]  # [fields, 2, terms, z]
        values = estimate(found, hashes.signs, self.shape.kind).astype(np.float64)
        if self.own is not None and self.deviation > 0:
            values = self._weighed(values, words)
        frequency, collection = values[:, 0].T, values[:, 1].T
        return Statistics(self.documents, frequency, collection, self.totals[-_COUNTS:-1].astype(np.float64))

    def _weighed(
        self, sums: Float64[np.ndarray, "fields 2 terms"], words: Sequence[str]
    ) -> Float64[np.ndarray, "fields 2 terms"]:
        """Noisy sums averaged with an estimate from the silo's own documents, weighted by inverse variance.

        A silo knows its own part exactly. For the others it expects its own rate per document, with the variance of a
        count whose rate differs from silo to silo by as much as the rate itself.
        """
        assert self.own is not None
        own = _own_sums(self.own, words)
        others = np.maximum(self.documents - self.own.n_documents, 0.0) / max(self.own.n_documents, 1)
        expected = (own + _UNSEEN) * others
        variance = expected + expected**2
        weight = variance / (variance + self.deviation**2)
        return own + weight * (sums - own) + (1.0 - weight) * expected


def _own_sums(corpus: Corpus, words: Sequence[str]) -> Float64[np.ndarray, "fields 2 terms"]:
    """Document frequencies and occurrences of words at one silo."""
    own = statistics_of((corpus,), words)
    return np.stack([own.document_frequency.T, own.collection.T], axis=1)
