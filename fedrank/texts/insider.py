"""The attack of another silo on the documents of a run: what it reads of them, and whether it finds a text there.

:func:`insider`: another owner has the secret of the hashes. For each word he compares the noisy cells with what they
would be with and without the word, weighed by how many of his own documents hold it; each cell is given to the
likeliest of the words that fall into it. :func:`is_there`: is a given text among an owner's documents? The likelihood
ratio of the text's cells, at the document where it is largest.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64, Integer, Shaped
from scipy.sparse import csr_array

from fedrank.texts.config import MODES
from fedrank.texts.data.silos import Federation
from fedrank.texts.report.files import InsiderReads
from fedrank.texts.served.documents import Document, Words
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.sketch import Hashes, encode, hash_terms
from fedrank.texts.sketch.noise import SketchNoise

#: Normal quantile of 99 % intervals.
QUANTILE = 2.5758


class Holdings(NamedTuple):
    """Owners' documents.

    Attributes:
        documents: All documents.
        words: Their words.
        vocabulary: Every word of a body, in order.
        counts: Occurrences in the bodies, int32 [documents, vocabulary].
        owner: Whose a document is.
    """

    documents: list[Document]
    words: list[Words]
    vocabulary: tuple[str, ...]
    counts: csr_array
    owner: Int64[np.ndarray, " documents"]

    def of(self, owner: int) -> Int64[np.ndarray, " documents"]:
        """Numbers of an owner's documents."""
        return np.flatnonzero(self.owner == owner)

    def word_presence(self, documents: np.ndarray) -> csr_array:
        """Presence of words in documents: 0 or 1."""
        part = self.counts[documents]
        return csr_array((np.ones_like(part.data), part.indices, part.indptr), shape=part.shape)

    def prior(self, documents: Int64[np.ndarray, " some"]) -> Float64[np.ndarray, " vocabulary"]:
        """The part of these documents that holds each word; below one document where none does."""
        held = np.asarray(self.word_presence(documents).sum(axis=0)).ravel()
        return np.maximum(held, 0.5) / (len(documents) + 1)


class Reading(NamedTuple):
    """Words read of some documents, one entry each.

    Attributes:
        share: The part of the different words that was read and that a guess did not name.
        precision: The part of what was read that is right; 1 where nothing was read.
    """

    share: Float64[np.ndarray, " documents"]
    precision: Float64[np.ndarray, " documents"]

    @classmethod
    def empty(cls) -> Reading:
        """Nothing, of no document."""
        return cls(np.zeros(0), np.zeros(0))

    def with_document(
        self,
        held: Holdings,
        document: int,
        read: Int64[np.ndarray, " words"],
        prior: Float64[np.ndarray, " vocabulary"],
    ) -> Reading:
        """With one more document.

        Args:
            held: All documents.
            document: Its number.
            read: Numbers of the words that the attacker names.
            prior: How likely each word is to him before he attacks: a word of a half or more is a guess.
        """
        true = held.counts.indices[held.counts.indptr[document] : held.counts.indptr[document + 1]]
        right = np.intersect1d(read, true)
        new = right[prior[right] < 0.5]
        share = len(new) / max(len(true), 1)
        precision = len(right) / len(read) if len(read) else 1.0
        return Reading(np.append(self.share, share), np.append(self.precision, precision))


def mean_interval(values: Float[np.ndarray, " trials"]) -> tuple[float, float]:
    """The normal 99 % interval of a mean; it may leave the range of the values."""
    mean, half = float(values.mean()), QUANTILE * float(values.std()) / math.sqrt(values.size)
    return mean - half, mean + half


def interval_of(reading: Reading) -> tuple[float, float]:
    """Ends of a 99 % interval of the mean part of a document that is read."""
    low, high = (float(np.clip(end, 0.0, 1.0)) for end in mean_interval(reading.share))
    return low, high


def interval_of_auc(area: float, trials: int) -> tuple[float, float]:
    """Ends of a 99 % interval of an area under the curve, by Hanley and McNeil (1982).

    Args:
        area: The area.
        trials: Number of texts; half of them are there.
    """
    half = trials / 2
    first, second = area / (2 - area), 2 * area * area / (1 + area)
    spread = area * (1 - area) + (half - 1) * (first + second - 2 * area * area)
    deviation = math.sqrt(max(spread, 0.0)) / half
    low, high = (float(np.clip(area + sign * QUANTILE * deviation, 0.0, 1.0)) for sign in (-1, 1))
    return low, high


def auc(inside: Float[np.ndarray, " n"], outside: Float[np.ndarray, " m"]) -> float:
    """Probability that evidence about a text that is present is larger; a tie counts a half.

    >>> auc(np.array([2.0, 1.0]), np.array([0.0, 1.0]))
    0.875
    """
    larger = (inside[:, None] > outside[None, :]).mean()
    return float(larger + 0.5 * (inside[:, None] == outside[None, :]).mean())


#: Counts of a word that are considered, and how much rarer each is than the one below.
_COUNTS, _RARER = 6, 0.35
#: Scale that an attacker takes where cells have no noise: other words still fall into them.
_UNNOISED = 0.2


class Shown(NamedTuple):
    """Protection of the documents of owners.

    Attributes:
        hashes: Hashes of the vocabulary.
        noise: Noise of the sketches that are published.
    """

    hashes: Hashes
    noise: SketchNoise

    @property
    def spread(self) -> float:
        """Scale of the noise in a cell, as the attacker takes it."""
        return self.noise.scale() or _UNNOISED


def insider(
    held: Holdings,
    clean: Integer[np.ndarray, "targets z w"],
    shown: Shown,
    targets: Integer[np.ndarray, " targets"],
    rng: np.random.Generator,
) -> Reading:
    """The owner 0 reads documents of others.

    Args:
        held: Whose documents are whose.
        clean: Sketches of the targets without noise.
        shown: How owners show them.
        targets: Documents to read.
        rng: Generator of the noise.
    """
    prior = held.prior(held.of(0))
    every = np.ones(len(prior), np.bool_)
    return read(held, shown.noise.publish(clean, rng), shown.hashes, every, shown.spread, prior, targets)


def read(
    held: Holdings,
    sketches: Shaped[np.ndarray, "targets z w"],
    hashes: Hashes,
    usable: Bool[np.ndarray, " vocabulary"],
    scale: float,
    prior: Float64[np.ndarray, " vocabulary"],
    targets: Integer[np.ndarray, " targets"],
) -> Reading:
    """Read the words of targets: those that are likelier there than not, one a cell.

    Args:
        held: Whose documents are whose.
        sketches: The targets' sketches.
        hashes: Cells and signs of the vocabulary.
        usable: Which words the attacker can look for.
        scale: Scale of the noise in a cell.
        prior: How likely each word is in a document.
        targets: Their numbers.
    """
    z, words = hashes.rows.shape[1], np.flatnonzero(usable)
    reading = Reading.empty()
    for place, target in enumerate(targets):
        odds = np.log(prior[words]) - np.log1p(-prior[words])
        own = [sketches[place, row, hashes.rows[words, row]] for row in range(z)]
        cells = np.stack(own, axis=1).astype(np.float64)
        signs = hashes.signs[words]
        # log Σ_c P(c) Π_a f(x_a − g_a c) / f(x_a), the noise's density f being Laplace's
        terms = [
            np.log(1 - _RARER) + (count - 1) * np.log(_RARER)
            + ((np.abs(cells) - np.abs(cells - signs * count)) / scale).sum(axis=1)
            for count in range(1, _COUNTS + 1)
        ]  # fmt: skip
        odds = odds + np.logaddexp.reduce(terms, axis=0)
        order = words[np.argsort(-odds, kind="stable")[: np.count_nonzero(odds > 0)]]
        taken, read = [set() for _ in range(z)], []  # type: ignore[var-annotated]
        for word in order.tolist():
            at = [int(cell) for cell in hashes.rows[word]]
            if all(cell in used for cell, used in zip(at, taken, strict=True)):
                continue  # likelier words explain its cells
            for cell, used in zip(at, taken, strict=True):
                used.add(cell)
            read.append(word)
        reading = reading.with_document(held, int(target), np.array(read, np.int64), prior)
    return reading


def is_there(
    held: Holdings,
    clean: Integer[np.ndarray, "documents z w"],
    shown: Shown,
    trials: int,
    rng: np.random.Generator,
) -> tuple[float, int]:
    """The area under the curve of a test whether texts are among the documents of owner 1, and the number of texts.

    Args:
        held: Whose documents are whose.
        clean: Sketches of all documents without noise.
        shown: How owners show them.
        trials: Number of texts; half of them are documents of owner 1, half of owner 0.
        rng: Generator of the noise, and of which texts.
    """
    theirs = held.of(1)
    inside = rng.permutation(theirs)[: trials // 2]
    outside = rng.permutation(held.of(0))[: trials // 2]
    published = shown.noise.publish(clean[theirs], rng).reshape(len(theirs), -1)
    values = []
    for text in (*inside, *outside):
        every = clean[text].ravel()
        at = np.flatnonzero(every)
        cells, own = published[:, at].astype(np.float64), every[at]
        ratio = ((np.abs(cells) - np.abs(cells - own)) / shown.spread).sum(axis=1)
        values.append(float(ratio.max()))
    return auc(np.array(values[: len(inside)]), np.array(values[len(inside) :])), len(values)


#: Documents that are read, texts that are looked for, and documents among which they are looked for, at most.
_TARGETS, _TEXTS, _AMONG = 50, 200, 400
#: Seed of the attack: which documents, and the noise of the sketches that are attacked.
_SEED = 0x5EE5


def insider_reads(setup: SketchSetup, federation: Federation) -> InsiderReads | None:
    """Attack bodies as the run shows them, with noise drawn once more; None without sketches or documents.

    Args:
        setup: The setup of the run.
        federation: Who has which documents.
    """
    whole, rng = federation.whole, np.random.default_rng(_SEED)
    owner = np.full(whole.n_documents, -1, np.int64)
    for number, documents in enumerate(federation.documents):
        owner[documents] = number
    held = Holdings([], [], tuple(whole.vocabulary), csr_array(whole.counts[0]), owner)
    theirs = held.of(1)
    targets = rng.permutation(theirs)[:_TARGETS]
    if setup.noise.mode not in MODES or not len(targets) or not len(held.of(0)) or not len(held.vocabulary):
        return None
    shown = Shown(hash_terms(held.vocabulary, setup.shape, rng.bytes(32)), setup.noise)
    clean = encode(held.counts[targets], shown.hashes, setup.shape)
    reading = insider(held, clean, shown, targets, rng)
    low, high = interval_of(reading)
    read = (float(reading.share.mean()), low, high, float(reading.precision.mean()), len(targets))
    # The first silo's own documents are the texts that are not there: as many of them as of the second's.
    mine = held.of(0)
    half = min(_TEXTS // 2, len(theirs), len(mine))
    part = np.concatenate([rng.permutation(theirs)[:_AMONG], rng.permutation(mine)[:half]])
    some = Holdings([], [], held.vocabulary, csr_array(held.counts[part]), owner[part])
    area, texts = is_there(some, encode(some.counts, shown.hashes, setup.shape), shown, 2 * half, rng)
    return InsiderReads(*read, area, *interval_of_auc(area, texts), texts)
