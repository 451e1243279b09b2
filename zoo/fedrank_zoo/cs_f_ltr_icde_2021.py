"""What only the ICDE 2021 version of CS-F-LTR has: decoys word by word, and reverse top-K lists.

Wang, Tong, Shi, Xu: *An Efficient Approach for Cross-Silo Federated Learning to Rank*, ICDE 2021. Neither is a default.

**Decoys word by word** (equation 4; :class:`IcdeObfuscator`). Every position of a question that does not belong to the
term holds the cell of another word. An owner of documents who counts for each word of a dictionary in how many
positions it fits finds the term, because nothing else fits in z₁ positions. The journal version mends that
(:mod:`fedrank_zoo.decoys`).

**Reverse top-K** (Algorithms 4 and 5; :class:`ReverseTopK`): which documents hold a term most often, without asking
every document. Each of the z × w cells keeps, of all documents, the αK with the largest values there. A question for a
term reads its z cells, keeps the documents that stand in at least βz of them, estimates their counts, and returns the K
largest.

As printed, a cell keeps its *largest* values. With a signed Count Sketch that loses half of the rows: where
g_a(t) = −1, the documents that hold t often are large *negative* numbers and are thrown out first. "both" keeps both
ends of a cell, αK/2 each, in the same space; "absolute" keeps the largest by size and mixes the term's documents with
those of terms of the other sign; "top" is as printed.

Measured (3,000 documents of 300 words, z = 30, w = 200, α = 5, K = 50, 30 terms that stand in 70 documents each,
seed 0), share of the returned 50 that belong there, at β = 0.1, 0.5, 0.8: 0.98, 0.43, 0.00 as printed; 1.00 three times
with both ends.

The lists add no protection: whoever receives a cell's list learns the cells of those documents. Build them from
sketches that already have their noise. Reading all sketches misses nothing and costs about as much time; the lists save
space and traffic where an owner answers from afar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float, Float32, Int32, Integer, Shaped
from typing_extensions import override

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.texts.silo_sketch.setup.settings import SetupSettings
from fedrank.texts.sketch import Hashes, SketchShape, by_cell, flat_cells
from fedrank_zoo.decoys import Obfuscator

#: What a cell keeps: the ends of its values, the largest (as printed), or the largest in size.
ENDS = ("both", "top", "absolute")
#: Documents in a cell's list as a multiple of those wanted, and the share of rows in which one must stand (ICDE 2021).
_ALPHA, _BETA = 5, 0.1


class IcdeObfuscator(Obfuscator):
    """Questions whose decoys are single words (ICDE 2021, equation 4); a dictionary finds the term of each."""

    @property
    @override
    def among(self) -> int:
        return 1

    @override
    def _fill(
        self,
        term: str,
        number: int,
        own: Integer[np.ndarray, " z1"],
        others: Integer[np.ndarray, " others"],
        sent: Int32[np.ndarray, " z"],
        drawn: Iterator[int],
    ) -> None:
        for position in others:
            candidate = next(drawn, None)
            if candidate is None:
                raise DataError(f"there is no word but {term!r} to fill its question with; give more candidates.")
            sent[position] = self._rows[candidate, position]


class ReverseTopK:
    """The reverse top-K lists of all cells. Made by :func:`build_lists`.

    Attributes:
        shape: Rows and cells of the sketches.
        ends: One of :data:`ENDS`.
        documents: int32 [z · w, held]: numbers of documents. With "both", the first half are those of the largest
            values and the second half those of the smallest.
        values: [z · w, held]: their values in the cell.
    """

    def __init__(
        self,
        shape: SketchShape,
        ends: str,
        documents: Int32[np.ndarray, "cells held"],
        values: Shaped[np.ndarray, "cells held"],
    ):
        self.shape, self.ends, self.documents, self.values = shape, ends, documents, values

    @property
    def held(self) -> int:
        """Number of entries of a cell."""
        return self.documents.shape[1]

    def query(
        self, rows: Int32[np.ndarray, " z"], signs: Int32[np.ndarray, " z"], beta: float, k: int
    ) -> tuple[Int32[np.ndarray, " found"], Float32[np.ndarray, " found"]]:
        """The documents that probably hold a term most often (Algorithm 5, with the sign).

        Args:
            rows: int32 [z], the term's cells.
            signs: int32 [z], its signs.
            beta: Share of the rows in which a document has to stand, in [0, 1].
            k: Documents wanted.

        Returns:
            Documents int32 [at most k], the largest estimate first (of equals, the smaller number), and their
            estimates float32: the median of sign · value. Where a document does not stand, its value is in the middle
            of the cell's values and counts as 0; with "top" absence says nothing, and the median is over the rows in
            which the document stands. Entries whose sign · value is not positive do not count as standing there.

        Raises:
            ConfigError: beta or k is out of range.
        """
        if not 0 <= beta <= 1 or k < 1:
            raise ConfigError(f"a reverse top-K query needs 0 <= beta <= 1 and k >= 1, got {beta} and {k}.")
        lines = flat_cells(rows, self.shape)
        documents, values = self.documents[lines], self.values[lines]
        if self.ends == "both":  # the end that the term's documents are at
            half = (self.held + 1) // 2
            first = (signs > 0)[:, None]
            documents = np.where(first, documents[:, :half], documents[:, -half:])
            values = np.where(first, values[:, :half], values[:, -half:])
        signed = (values * signs[:, None]).astype(np.float32)
        there = signed > 0
        found, index = np.unique(documents[there], return_inverse=True)
        if not found.size:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        index = index.ravel()
        order = np.lexsort((signed[there], index))
        stands = np.bincount(index, minlength=len(found))
        start, ranked = np.cumsum(stands) - stands, signed[there][order]
        size = stands if self.ends == "top" else np.full_like(stands, self.shape.z)

        def sorted_at(place: np.ndarray) -> np.ndarray:
            """The value at a place of each document's sorted values, of which the first ``size - stands`` are 0."""
            inside = place - (size - stands)
            return np.where(inside < 0, np.float32(0), ranked[start + np.maximum(inside, 0)])

        estimates = (sorted_at((size - 1) // 2) + sorted_at(size // 2)) / np.float32(2)
        often = stands >= beta * self.shape.z
        found, estimates = found[often], estimates[often]
        best = np.lexsort((found, -estimates))[:k]
        return found[best].astype(np.int32), estimates[best]

    def top_documents(
        self, hashes: Hashes, idf: Float[np.ndarray, " terms"], beta: float, k: int
    ) -> Int32[np.ndarray, " found"]:
        """Documents by the sum of idf · estimate over a query's terms, from the lists alone.

        Args:
            hashes: Of the query's terms.
            idf: float [terms].
            beta: As in :meth:`query`.
            k: Documents wanted. Of every term, all that the lists hold are considered.

        Returns:
            int32 [at most k], the best first.
        """
        scores: dict[int, float] = {}
        for rows, signs, weight in zip(hashes.rows, hashes.signs, idf.tolist(), strict=True):
            found, estimates = self.query(rows, signs, beta, self.held * self.shape.z)
            for document, value in zip(found.tolist(), estimates.tolist(), strict=True):
                scores[document] = scores.get(document, 0.0) + weight * value
        ranked = sorted(scores, key=lambda document: (-scores[document], document))
        return np.array(ranked[:k], np.int32)


def build_lists(
    sketches: Shaped[np.ndarray, "documents z w"],
    alpha: float,
    k: int,
    ends: str = "both",
    shape: SketchShape | None = None,
) -> ReverseTopK:
    """The lists of all cells (Algorithm 4, for documents that are all there at once).

    Args:
        sketches: Of all documents.
        alpha: Entries of a cell as a multiple of k. With "both", half of them are for either end: at least 2, or a
            term cannot find k documents.
        k: The K of the questions to come.
        ends: One of :data:`ENDS`.
        shape: Rows and cells of a sketch; None: of a Count Sketch. Count-min has no signs and needs "top" only.

    Raises:
        ConfigError: A number is out of range, or there is no such way to keep ends.
    """
    if ends not in ENDS:
        raise UnknownNameError("way to keep ends", ends, ENDS)
    if k < 1 or not alpha * k >= 2:
        raise ConfigError(f"a reverse top-K sketch needs k >= 1 and alpha * k >= 2, got alpha={alpha}, k={k}.")
    values, held = by_cell(sketches), min(round(alpha * k), len(sketches))
    shape = shape or SketchShape(*sketches.shape[1:])
    if ends == "both":
        half = (held + 1) // 2
        documents = np.concatenate([_largest(values, half), _largest(values, half, -1)], axis=1)
    else:
        documents = _largest(np.abs(values) if ends == "absolute" else values, held)
    return ReverseTopK(shape, ends, documents, np.take_along_axis(values, documents, 1))


def _largest(
    values: Shaped[np.ndarray, "lines documents"], held: int, sign: int = 1
) -> Int32[np.ndarray, "lines held"]:
    """Places of the ``held`` largest values of each line (of the smallest for sign −1), in no order."""
    documents = values.shape[1]
    out = np.empty((len(values), held), np.int32)
    for i, line in enumerate(values):  # one line at a time: no second copy of all cells
        if sign > 0:
            out[i] = np.argpartition(line, documents - held)[documents - held :]
        else:
            out[i] = np.argpartition(line, held - 1)[:held]
    return out


def likely_documents(
    s: SetupSettings, fields: list[np.ndarray], hashes: Hashes, places: dict[str, int]
) -> Callable[[Sequence[str], np.ndarray], np.ndarray]:
    """A function from a query's words and their IDF to the documents that reverse top-K lists name for them."""
    k = s.texts.foreign
    ends = "both" if s.shape.kind == "count" else "top"
    lists = [build_lists(field, _ALPHA, k, ends, s.shape) for field in fields]

    def likely(words: Sequence[str], idf: np.ndarray) -> np.ndarray:
        mine = hashes.select(np.array([places[word] for word in words], np.int64))
        found = [one.top_documents(mine, idf[:, field], _BETA, _ALPHA * k) for field, one in enumerate(lists)]
        return np.unique(np.concatenate(found))

    return likely
