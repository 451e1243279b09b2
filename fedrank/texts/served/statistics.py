"""Statistics of owners' words: noisy sums, in which any word is looked up.

Scores of two owners compare only if both say alike how rare a word is. Each owner makes one vector: in how many of its
documents each word stands, word by word hashed to a cell, for body and title; the number of documents and of words. A
secure sum adds the vectors (:mod:`fedrank.privacy.secure_sum`), and each owner adds a share of discrete Gaussian noise,
so that no party sees an owner's vector and all see a noisy sum.

**What is protected is one document**, whole: added or taken away. It changes at most :data:`MOST_BODY` cells of the
body and :data:`MOST_TITLE` of the title by 1 (of a longer document this number of different words is drawn by chance),
the number of documents by 1, and each number of words by :data:`MOST_LENGTH` at most. The noise is that of
:func:`~fedrank.privacy.calibration.shared_gaussian_sigma` for the ε, δ and number of releases agreed on, against the
broker and any one owner, who knows its own share. Not covered: owners that put their shares together, who takes part,
and documents that an owner has twice under two ids.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64, UInt32

from fedrank.core.errors import ConfigError, DataError, WireError
from fedrank.core.privacy_report import DELTA
from fedrank.privacy.calibration import shared_gaussian_sigma
from fedrank.privacy.noise.arrays import exact_gaussian
from fedrank.texts.data.features import Statistics
from fedrank.texts.served.documents import Words

#: Different words of a document that count, of its body and of its title.
MOST_BODY, MOST_TITLE = 128, 16
#: Longest body and title that count, in words, and most that either adds to a number: lengths are rounded at random to
#: a fourth of it.
LONGEST, MOST_LENGTH = (512, 32), 4
#: L2 distance by which one document changes a vector: its words, itself, two lengths.
SENSITIVITY = math.sqrt(MOST_BODY + MOST_TITLE + 1 + 2 * MOST_LENGTH**2)
#: Numbers after the cells: documents, and words of body and title.
_COUNTS = 3
#: How much more than by chance an owner's rate of a word is expected to differ from the others' (:meth:`TermTable.at`).
_UNLIKE = 3.0
#: A noisy sum counts as half a standard deviation at least: below that it says nothing.
_FLOOR = 0.5
#: Documents below this number of standard deviations of the noise are few: how rare a word is drowns in it, and an
#: owner's own statistics are used. Of the gap between those and exact ones, 1,400 documents close 79 % at 20
#: deviations, 54 % at 6.5, and 13 % at 2.3.
_FEW = 10.0
#: First bytes of a table in a file.
_MAGIC = b"fedrank terms 1\n"


@dataclass(frozen=True)
class StatisticsTerms:
    """Terms of the sums on which the owners of a federation agree.

    Attributes:
        owners: Number of owners; all take part.
        epsilon: ε > 0 of a document over all releases, in nats.
        delta: δ of it.
        releases: Number of releases; each takes an equal part.
        cells: Cells of body and of title; a power of two.

    Raises:
        ConfigError: A number is out of range.
    """

    owners: int
    epsilon: float = 1.0
    delta: float = DELTA
    releases: int = 1
    cells: int = 1 << 16

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("owners", self.owners, 2, 1000),
            ("releases", self.releases, 1, 10_000),
            ("cells", self.cells, 256, 1 << 22),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{name} of the statistics must be in {low}..{high}, got {value}.")
        if self.cells & (self.cells - 1):
            raise ConfigError(f"cells of the statistics must be a power of two, got {self.cells}.")
        if not (0 < self.epsilon < math.inf and 0 < self.delta < 1):
            raise ConfigError(
                f"epsilon of the statistics must be positive and delta in (0, 1), got {self.epsilon} and {self.delta}."
            )

    @property
    def length(self) -> int:
        """Numbers in a vector."""
        return 2 * self.cells + _COUNTS

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise in each number of a sum without that of one owner, who knows its own."""
        return shared_gaussian_sigma(
            self.epsilon, self.delta, SENSITIVITY, self.owners - 1, self.length, rounds=self.releases
        )

    @property
    def share(self) -> float:
        """Standard deviation of the noise that each owner adds."""
        return self.sigma / math.sqrt(self.owners - 1)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each number of the sum."""
        return self.share * math.sqrt(self.owners)

    @property
    def fewest(self) -> float:
        """Documents of all owners below which the noise hides how rare words are."""
        return _FEW * self.deviation

    def vector(
        self, documents: Iterable[Words], noise: Callable[[float, int], Int64[np.ndarray, " n"]] = exact_gaussian
    ) -> UInt32[np.ndarray, " length"]:
        """An owner's vector with its share of the noise, modulo 2³².

        Args:
            documents: Words of all its documents.
            noise: Draws a number of values with a standard deviation; from the operating system unless told otherwise.
        """
        sums = self.count_words(documents)
        noisy = sums + noise(self.share, self.length)
        if np.abs(noisy).max() >= 2**31 // self.owners:
            raise DataError("the statistics do not fit into 32 bits: too many documents, or too much noise.")
        return (noisy % 2**32).astype(np.uint32)

    def count_words(self, documents: Iterable[Words]) -> Int64[np.ndarray, " length"]:
        """The vector without noise, limited to what one document may change; draws with the system's randomness."""
        import secrets

        rng = np.random.default_rng(secrets.randbits(256))  # which words of a long document count; protects nothing
        sums = np.zeros(self.length, np.int64)
        for words in documents:
            sums[-_COUNTS] += 1
            fields = ((words.body, MOST_BODY, words.parts), (words.title, MOST_TITLE, 1))
            for field, (own, most, parts) in enumerate(fields):
                cells = np.unique(cells_of(sorted(set(own)), self.cells))
                if len(cells) > most:
                    cells = rng.choice(cells, most, replace=False)
                sums[field * self.cells + cells] += 1
                # BM25 scores passages: the length that counts is a passage's.
                length = min(len(own) / parts, LONGEST[field]) * MOST_LENGTH / LONGEST[field]
                sums[-_COUNTS + 1 + field] += int(length + rng.random())  # rounded at random: right on average
        return sums

    def table(self, total: UInt32[np.ndarray, " length"], made_by: str = "") -> TermTable:
        """The table that a sum of vectors means.

        Args:
            total: The sum.
            made_by: Fingerprint of the analyser that cut the words.

        Raises:
            DataError: The sum is of another length.
        """
        if total.shape != (self.length,):
            raise DataError(f"a sum of the statistics must have {self.length} numbers, got {list(total.shape)}.")
        signed = total.astype(np.uint32).view(np.int32).astype(np.float64)
        frequency = signed[:-_COUNTS].reshape(2, self.cells)
        documents = max(1.0, float(signed[-_COUNTS]))
        lengths = np.maximum(signed[-_COUNTS + 1 :], 1.0) * np.array(LONGEST) / MOST_LENGTH / documents
        return TermTable(
            frequency, documents, lengths, self.deviation, self.epsilon / self.releases, self.delta, made_by
        )


@dataclass(frozen=True, eq=False)
class TermTable:
    """The summed statistics.

    Attributes:
        frequency: Noisy document frequencies by cell, of body and title.
        documents: Noisy number of documents, at least 1.
        lengths: Mean number of words of body and title.
        deviation: Standard deviation of the noise.
        epsilon: ε of a document that went into this release.
        delta: δ of it.
        made_by: Fingerprint of the analyser that cut the words; empty: not known.
    """

    frequency: Float64[np.ndarray, "fields cells"]
    documents: float
    lengths: Float64[np.ndarray, " fields"]
    deviation: float
    epsilon: float
    delta: float
    made_by: str = ""

    @property
    def few(self) -> bool:
        """True if the noise hides how rare words are, so that an owner's own statistics are better."""
        return self.documents < _FEW * self.deviation

    def note(self, analyser: str = "") -> str:
        """Note for an operator about the statistics; empty: nothing.

        Args:
            analyser: Fingerprint of the analyser that cuts the owner's words now; empty: not compared.
        """
        if analyser and self.made_by not in ("", analyser):
            return "the statistics are of words that were cut otherwise, in other languages: have them made again."
        if not self.few:
            return ""
        return (
            f"the noise of the statistics (standard deviation {self.deviation:.0f}) is large beside about "
            f"{self.documents:,.0f} documents, so that each owner goes on with its own statistics. It is small "
            f"from about {_FEW * self.deviation:,.0f} documents, or with a larger epsilon."
        )

    def at(
        self, words: Sequence[str], own: Sequence[tuple[int, int]] | None = None, own_documents: int = 0
    ) -> Statistics:
        """Statistics of words for features and scores.

        A noisy sum is averaged with what an owner expects from its own documents, weighted by inverse variance: its
        rate of the word, which differs from owner to owner by :data:`_UNLIKE` times the rate itself.

        Args:
            words: The words.
            own: The owner's own document frequencies of the words, body and title; None: the sums alone.
            own_documents: Number of its documents.
        """
        cells = cells_of(words, self.frequency.shape[1])
        sums = np.maximum(self.frequency[:, cells].T, _FLOOR * self.deviation)
        if own is not None and self.deviation > 0:
            mine = np.asarray(own, np.float64).reshape(-1, 2)
            expected = (mine + 0.5) * max(self.documents - own_documents, 0.0) / max(own_documents, 1)
            variance = expected + (_UNLIKE * expected) ** 2
            weight = variance / (variance + self.deviation**2)
            sums = np.maximum(mine + weight * (sums - mine) + (1 - weight) * expected, mine)
        tokens = self.lengths * self.documents
        # A language model of the collection is not summed: occurrences are put at the document frequencies.
        return Statistics(self.documents, sums, sums, tokens)

    def to_bytes(self) -> bytes:
        """The table as bytes, which :meth:`from_bytes` reads."""
        out = io.BytesIO()
        np.savez_compressed(
            out,
            frequency=self.frequency.astype(np.float32),
            numbers=np.array([self.documents, *self.lengths, self.deviation, self.epsilon, self.delta]),
            made_by=np.array(self.made_by),
        )
        return _MAGIC + out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> TermTable:
        """The table in bytes of :meth:`to_bytes`.

        Raises:
            WireError: They are something else.
        """
        if not data.startswith(_MAGIC):
            raise WireError("this is no table of statistics.")
        try:
            with np.load(io.BytesIO(data[len(_MAGIC) :]), allow_pickle=False) as arrays:
                frequency, numbers = arrays["frequency"].astype(np.float64), arrays["numbers"]
                made_by = str(arrays["made_by"]) if "made_by" in arrays else ""
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise WireError(f"the table of statistics is damaged ({error}).") from error
        cells = frequency.shape[-1]
        if frequency.shape != (2, cells) or cells & (cells - 1) or numbers.shape != (6,):
            raise WireError("the table of statistics has other parts than it should.")
        if not (np.isfinite(frequency).all() and np.isfinite(numbers).all() and numbers[0] >= 1):
            raise WireError("a number in the table of statistics is impossible.")
        documents, body, title, deviation, epsilon, delta = (float(number) for number in numbers)
        return cls(frequency, documents, np.array([body, title]), deviation, epsilon, delta, made_by)


def cells_of(words: Sequence[str], cells: int) -> Int64[np.ndarray, " words"]:
    """The cell of each word: its BLAKE2b, which any party can compute; the noise protects, not the hash."""
    digests = (hashlib.blake2b(word.encode(), digest_size=8, person=b"fedrank terms").digest() for word in words)
    return np.array([int.from_bytes(digest, "little") % cells for digest in digests], np.int64)
