"""The federation's statistics: the vector that each silo puts into the secure sum, and how words are looked up in it.

Section 3.3 of CS-F-LTR (Shi et al. 2021): a silo makes one virtual document in which a word stands as often as there
are documents that hold it, and sketches it; the sum of all silos' sketches answers any word's document frequency at
once. The collection's language model is computed in the same way, from a sketch of all words. Sketches are linear, so
that the secure sum of sketches is the sketch of the sum.

**Messages** of the setup are keys, masked sums, sketches and moments. No word of a document or query crosses. What
crosses of documents is a sketch that carries noise (:mod:`fedrank.texts.sketch.noise`); of queries, nothing. Sketches
cross sealed under keys of the silos' common secret (:mod:`fedrank.texts.sketch.key`): the server passes on bytes of one
length. What stands inside a seal is a message, too, so that it is laid out and checked as one. The messages of the
secure sum are those of :mod:`fedrank.privacy.secure_sum.messages`.

Names of the sizes that a layout is given (:attr:`fedrank.texts.silo_sketch.setup.settings.SetupSettings.sizes`):

* ``silos``;
* ``document_fields``, fields of a document;
* ``sketches``, documents of a silo;
* ``sketch_cells``, cells of a document's sketch; ``largest_cell``, the largest value of one;
* ``sealed_sketches``, bytes of what is sealed;
* ``totals``, numbers in the summed statistics;
* ``features``, features of a query-document pair.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int32, UInt32
from typing_extensions import override

from fedrank.core import registry
from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, DataError
from fedrank.core.messages import Array, Layout, f4, field, i2, i4, message, sizes_of, u1, u4
from fedrank.core.privacy_report import DELTA, PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.privacy.secure_sum.messages import Terms
from fedrank.privacy.secure_sum.server import Server
from fedrank.texts.config import Sketch, Texts
from fedrank.texts.data.corpus import FIELDS, Corpus
from fedrank.texts.data.features import NAMES, Statistics, statistics_of
from fedrank.texts.sketch import SketchShape, encode_totals, estimate, hash_terms
from fedrank.texts.sketch.key import ADDED, SEALED
from fedrank.texts.sketch.noise import SketchNoise, Source, sketch_account, statistics_noise

#: Bytes of a public key, and characters of a fingerprint.
KEY, FINGERPRINT = 32, 24


@message(kind=1)
class Hello:
    """Server to silos: the setup begins."""

    silos: Array = field(u4, "number of silos")


@message(kind=2)
class PublicKey:
    """Silo to server: its public key for this setup."""

    key: Array = field(u1["bytes":KEY], "public key of this setup, X25519")


@message(kind=3)
class KeyRing:
    """Server to silos: the public keys of all silos."""

    keys: Array = field(u1["silos", "bytes":KEY], "public keys of all silos")
    present: Array = field(u1["silos"], "whether a silo sent a key", largest=1)


@message(kind=4)
class SealedParts:
    """Silo to server: its part of the common secret, encrypted for each silo.

    Zeros stand for the sender itself and for silos that are not present.
    """

    parts: Array = field(u1["silos", "bytes":SEALED], "part of the common secret, sealed for each silo")


@message(kind=5)
class DeliveredParts:
    """Server to one silo: the parts of the secret that the other silos encrypted for it."""

    parts: Array = field(u1["silos", "bytes":SEALED], "what each silo sealed for the receiver")
    present: Array = field(u1["silos"], "whether a silo's part came", largest=1)


@message(kind=6)
class Agreed:
    """Silo to server: a hash of the common secret in characters that people can read out to each other."""

    fingerprint: Array = field(
        u1["bytes":FINGERPRINT], "hash of the common secret, which says whether silos have the same"
    )


@message(kind=7)
class Totals:
    """Server to silos: the statistics of all silos' documents, summed."""

    totals: Array = field(
        i4["parameters":"totals"],
        "sketches of document frequencies and of all words, and sizes, summed over all silos, with their noise",
    )


@message(kind=8)
class Published:
    """Silo to server: its sketches, sealed for the other silos; :class:`OwnSketches` is what is in them."""

    sealed: Array = field(u1["bytes":"sealed_sketches"], "sketches and sizes of the silo's documents, sealed for silos")


@message(kind=12)
class Sketches:
    """Server to one silo: the sealed sketches of the other silos.

    The receiver's own row and those of silos that were not heard are zeros.
    """

    sealed: Array = field(
        u1["silos", "bytes":"sealed_sketches"], "sketches that the others published, sealed for silos"
    )


@message(kind=25)
class OwnSketches:
    """Inside the seal of :class:`Published`: a noisy sketch of each field of each document, and noisy sizes.

    Documents beyond the silo's number of them are zeros.
    """

    documents: Array = field(u4, "number of documents of the silo")
    cells: Array = field(
        (i2 | i4)["fields":"document_fields", "sketches", "cells":"sketch_cells"],
        "sketch of each document's words, with the run's noise",
        largest="largest_cell",
    )
    lengths: Array = field(
        i4["fields":"document_fields", "sketches"],
        "words of each document's fields, with noise where the run has noise",
    )
    distinct: Array = field(
        i4["fields":"document_fields", "sketches"], "different words of each document's fields, likewise"
    )


@message(kind=14)
class Moments:
    """Silo to server: sums over its labelled training rows, from which the common feature scale is computed."""

    rows: Array = field(u4, "number of the silo's labelled training rows")
    sums: Array = field(f4["parameters":"features"], "sum of each feature over them")
    squares: Array = field(f4["parameters":"features"], "sum of each feature's square")


@message(kind=15)
class Scale:
    """Server to silos: mean and standard deviation of the features over the labelled training rows of all silos."""

    means: Array = field(f4["parameters":"features"], "mean of each feature over all silos")
    deviations: Array = field(f4["parameters":"features"], "its standard deviation")


@message(kind=24)
class Prepared:
    """Silo to server: the silo has made its rows; the rows stay with it."""

    rows: Array = field(u4, "number of the silo's labelled training rows")
    pairs: Array = field(u4, "number of its cross pairs")


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
    rng: Source,
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
            values = self._weigh(values, words)
        frequency, collection = values[:, 0].T, values[:, 1].T
        return Statistics(self.documents, frequency, collection, self.totals[-_COUNTS:-1].astype(np.float64))

    def _weigh(
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


#: Largest message, in bytes: what a network is asked to carry, and a machine to hold for each silo.
_LARGEST_MESSAGE = 2**30
#: Largest noise, in standard deviations of 16 bits, with which cells cross in two bytes.
_NARROW_SCALE = 700.0


@dataclass(frozen=True)
class SetupState:
    """The server's state during the setup: the replies that it will relay, and the secure sum.

    Attributes:
        silos: Number of silos.
        replies: By the name of an exchange, its replies (leaves [silos, …]) and which silos were heard, bool [silos].
        sum: The server of the secure sum, and its next message to each silo by number; None when the sum is done.
        totals: int32 [statistics_length], the sum; None before.
    """

    silos: int
    replies: dict[str, tuple[Any, Bool[np.ndarray, " silos"]]]
    sum: tuple[Server, dict[int, Any]] | None = None
    totals: Int32[np.ndarray, " totals"] | None = None

    def with_replies(self, name: str, replies: PyTree, arrived: Bool[np.ndarray, " silos"]) -> SetupState:
        """The state with the replies of one more exchange."""
        return dataclasses.replace(self, replies={**self.replies, name: (replies, np.asarray(arrived, bool))})


@dataclass(frozen=True)
class SetupSettings:
    """Settings on which silos and server agree before anything crosses.

    Attributes:
        silos: Number of silos, at least 2.
        texts: Which query-document pairs become rows, and how features are scaled.
        sketch: Sketches and their noise, with the defaults of the mode.
        documents: Largest number of documents of a silo; sketches are padded to it.
        occurrences: Words of the longest document, for the privacy account.
        delta: δ of Gaussian noise.
        seed: Seed of random choices of rows.

    Raises:
        ConfigError: A number is out of range, or a message would be too large.
    """

    silos: int
    texts: Texts
    sketch: Sketch
    documents: int
    occurrences: int = 0
    delta: float = DELTA
    seed: int = 0

    def __post_init__(self):
        if self.silos < 2:
            raise ConfigError(f"silos must be at least 2 to see each other's documents, got {self.silos}.")
        if self.documents < 1:
            raise ConfigError(f"documents must be at least 1, got {self.documents}.")
        if self.texts.candidates != "all":
            registry.get("fedrank.candidates", self.texts.candidates)  # refuses a name that no package has
        _ = self.promise  # noise and account refuse what they cannot do
        size = self.fields * self.documents * self.document_bytes
        if size > _LARGEST_MESSAGE:
            raise ConfigError(
                f"a silo would send {size / 2**30:,.1f} GiB about its {self.documents:,} documents, more than the "
                f"{_LARGEST_MESSAGE / 2**30:g} GiB that a message may have. "
                f"{int(self.documents * _LARGEST_MESSAGE / size):,} documents fit; or take fewer cells (sketch.z, "
                "sketch.w). A search that leaves documents at home has no such limit: fedrank "
                "search owner serve."
            )

    @cached_property
    def shape(self) -> SketchShape:
        """Rows and cells of a document's sketches."""
        return SketchShape(self.sketch.z, self.sketch.w, self.sketch.kind)

    @cached_property
    def statistics(self) -> SketchShape:
        """Rows and cells of the sketches of document frequencies and of all words."""
        return SketchShape(self.sketch.statistics_z, self.sketch.statistics_w)

    @property
    def document_bytes(self) -> int:
        """Bytes that a silo sends about one field of a document."""
        return (4 if self.wide else 2) * self.shape.cells

    @cached_property
    def noise(self) -> SketchNoise:
        """Noise in the cells of sketches: mode, ε of an occurrence, and what one document changes in statistics."""
        s = self.sketch
        return SketchNoise(s.mode, s.epsilon, s.z, s.noise, self.delta, statistics_change=2 * s.statistics_z + 1)

    @cached_property
    def promise(self) -> PrivacyReport:
        """Privacy account of the sketches."""
        return sketch_account(self.noise, occurrences=self.occurrences)

    @property
    def shrinks(self) -> bool:
        """True if counts are posterior means, which needs signed cells with independent noise."""
        s = self.sketch
        return s.estimate == "posterior" and s.kind == "count" and self.noise.epsilon is not None

    @property
    def statistics_deviation(self) -> float:
        """Standard deviation of the noise of all silos in a cell of the summed statistics; 0 where there is none."""
        scale = self.noise.scale("statistics")
        if scale is None:
            return 0.0
        return math.sqrt(self.silos * (2.0 if self.noise.mechanism == "laplace" else 1.0)) * scale

    @property
    def terms(self) -> Terms:
        """Terms of the secure sum, in which every silo masks with every other one."""
        return Terms(statistics_length(self.statistics), self.silos - 1, self.silos // 2 + 1)

    @property
    def wide(self) -> bool:
        """True if a published cell takes four bytes; with little noise it fits into two."""
        scale = self.noise.scale("sketches")
        return scale is not None and scale > _NARROW_SCALE

    @property
    def fields(self) -> int:
        """Number of fields of a document: body and title."""
        return len(FIELDS)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Lengths of the messages' axes; see :mod:`fedrank.texts.silo_sketch.setup.settings` for the names."""
        sizes = {
            "silos": self.silos,
            "document_fields": self.fields,
            "sketches": self.documents,
            "sketch_cells": self.shape.cells,
            "largest_cell": np.iinfo(np.int32 if self.wide else np.int16).max,
            "totals": self.terms.length,
            "features": len(NAMES),
        }
        return sizes | {"sealed_sketches": sealed_size(OwnSketches, sizes)}

    def inside(self, message: type) -> Layout[Any]:
        """Layout of a message that stands inside a seal."""
        return Layout(message, **_given(message, self.sizes))


def sealed_size(message: type, sizes: Mapping[str, int]) -> int:
    """Bytes of a message and its seal."""
    return Layout(message, **_given(message, sizes)).nbytes + ADDED


def _given(message: type, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a message needs."""
    return {name: sizes[name] for name in sizes_of(message)}


@dataclass(frozen=True)
class HostExchange(Exchange):
    """An exchange of the setup. It runs on the host, and each silo gets a separate request (:meth:`address`).

    Attributes:
        settings: What was agreed.
    """

    settings: SetupSettings

    host = True

    @property
    def shows(self) -> bool:
        """True if its reply shows something of the silo's texts, with noise of the mode."""
        return False

    def fingerprint_in(self, reply: bytes) -> str:
        """The fingerprint of the silos' secret in a reply of this exchange; empty in those of others."""
        return ""

    @override
    def ask(self, state: SetupState) -> PyTree:
        return self.address(state, 0)

    @override
    def draw(self, key: Any) -> PyTree:
        return key  # a simulation's numpy.random.Generator

    @override
    def draw_from_os(self) -> PyTree:
        return None  # every step asks the operating system where it draws something

    @override
    def tell(self, state: SetupState, replies: PyTree, arrived: Bool[np.ndarray, " silos"]) -> SetupState:
        return state.with_replies(self.name, replies, arrived)


def with_fields(party: Party, **arrays: np.ndarray) -> Party:
    """The party with these arrays added to its own state."""
    return party._replace(own={**party.own, **arrays})


def without_fields(party: Party, *names: str) -> Party:
    """The party without these arrays in its own state."""
    return party._replace(own={name: array for name, array in party.own.items() if name not in names})
