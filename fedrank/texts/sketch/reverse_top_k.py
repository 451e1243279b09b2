"""Reverse top-K: which documents hold a term most often, without asking every document (ICDE 2021, Algorithms 4 and 5).

Each of the z × w cells keeps, of all documents, the αK with the largest values there. A question for a term reads its z
cells, keeps the documents that stand in at least βz of them, estimates their counts, and returns the K largest.

As printed, a cell keeps its *largest* values. With a signed Count Sketch that loses half of the rows: where
g_a(t) = −1, the documents that hold t often are large *negative* numbers and are thrown out first. "both" keeps both
ends of a cell, αK/2 each, in the same space; "absolute" keeps the largest by size and mixes the term's documents with
those of terms of the other sign; "top" is as printed.

Measured (3,000 documents of 300 words, z = 30, w = 200, α = 5, K = 50, 30 terms that stand in 70 documents each,
seed 0), share of the returned 50 that belong there, at β = 0.1, 0.5, 0.8: 0.98, 0.43, 0.00 as printed; 1.00 three times
with both ends.

The structure adds no protection: whoever receives a cell's list learns the cells of those documents. Build it from
sketches that already have their noise.

With a cell-major layout, a full scan of the sketches costs about as much as reading the lists did in the paper
(:func:`top_documents`), and misses nothing; the lists save space and traffic where an owner answers from afar.
"""

from __future__ import annotations

import numpy as np

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.texts.sketch import Cells, Hashes, SketchShape, counts_of, flat_cells

#: What a cell keeps: the ends of its values, the largest (as printed), or the largest in size.
ENDS = ("both", "top", "absolute")


class ReverseTopK:
    """The lists of all cells. Made by :func:`build`.

    Attributes:
        shape: Rows and cells of the sketches.
        ends: One of :data:`ENDS`.
        documents: int32 [z · w, held]: numbers of documents. With "both", the first half are those of the largest
            values and the second half those of the smallest.
        values: [z · w, held]: their values in the cell.
    """

    def __init__(self, shape: SketchShape, ends: str, documents: np.ndarray, values: np.ndarray):
        self.shape, self.ends, self.documents, self.values = shape, ends, documents, values

    @property
    def held(self) -> int:
        """Entries of a cell."""
        return self.documents.shape[1]

    def query(self, rows: np.ndarray, signs: np.ndarray, beta: float, k: int) -> tuple[np.ndarray, np.ndarray]:
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

    def top_documents(self, hashes: Hashes, idf: np.ndarray, beta: float, k: int) -> np.ndarray:
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
            for document, estimate in zip(found.tolist(), estimates.tolist(), strict=True):
                scores[document] = scores.get(document, 0.0) + weight * estimate
        ranked = sorted(scores, key=lambda document: (-scores[document], document))
        return np.array(ranked[:k], np.int32)


def build(sketches: np.ndarray | Cells, alpha: float, k: int, ends: str = "both", kind: str = "count") -> ReverseTopK:
    """The lists of all cells (Algorithm 4, for documents that are all there at once).

    Args:
        sketches: [documents, z, w], or their cells.
        alpha: Entries of a cell as a multiple of k. With "both", half of them are for either end: at least 2, or a
            term cannot find k documents.
        k: The K of the questions to come.
        ends: One of :data:`ENDS`.
        kind: Of the sketches. Count-min has no signs and needs "top" only.

    Raises:
        ConfigError: A number is out of range, or there is no such way to keep ends.
    """
    if ends not in ENDS:
        raise UnknownNameError("way to keep ends", ends, ENDS)
    if k < 1 or not alpha * k >= 2:
        raise ConfigError(f"a reverse top-K sketch needs k >= 1 and alpha * k >= 2, got alpha={alpha}, k={k}.")
    cells = sketches if isinstance(sketches, Cells) else Cells(sketches)
    values, held = cells.values, min(round(alpha * k), cells.n_documents)
    shape = SketchShape(cells.z, cells.w, kind)
    if ends == "both":
        half = (held + 1) // 2
        documents = np.concatenate([_largest(values, half), _largest(values, half, -1)], axis=1)
    else:
        documents = _largest(np.abs(values) if ends == "absolute" else values, held)
    return ReverseTopK(shape, ends, documents, np.take_along_axis(values, documents, 1))


def top_documents(
    sketches: np.ndarray | Cells,
    hashes: Hashes,
    shape: SketchShape,
    idf: np.ndarray,
    k: int,
    lengths: np.ndarray | None = None,
    k1: float = 1.2,
    b: float = 0.75,
) -> np.ndarray:
    """The fast path to likely-relevant foreign documents: the k best of a query by estimated counts, all of them read.

    Args:
        sketches: [documents, z, w], or (much faster if asked repeatedly) their cells; with or without noise.
        hashes: Of the query's terms, a repeated word repeatedly.
        shape: Rows and cells.
        idf: float [terms].
        k: Documents wanted.
        lengths: Words of each document, float [documents]: with them documents are scored by BM25 of ``k1`` and ``b``;
            without, by the sum of idf · count.
        k1: BM25's saturation.
        b: BM25's share of the length.

    Returns:
        int32 [min(k, documents)], the best first; of equals, the smaller number.

    Raises:
        DataError: Lengths or idf do not fit.
    """
    cells = sketches if isinstance(sketches, Cells) else Cells(sketches)
    if len(idf) != len(hashes.rows) or (lengths is not None and len(lengths) != cells.n_documents):
        raise DataError("a query needs one idf a term, and lengths of all documents or none.")
    gains = counts_of(cells, hashes, shape)
    if lengths is not None:
        lengths = np.asarray(lengths, np.float32)
        norm = k1 * (1 - b + b * lengths / max(float(lengths.mean()), 1e-9))
        gains = gains * np.float32(k1 + 1) / (gains + np.maximum(norm, np.float32(1e-9)))
    scores = np.asarray(idf, np.float32) @ gains
    k = min(k, len(scores))
    if k == 0:
        return np.zeros(0, np.int32)
    limit = np.partition(scores, len(scores) - k)[len(scores) - k]
    best = np.flatnonzero(scores >= limit)
    return best[np.lexsort((best, -scores[best]))][:k].astype(np.int32)


def _largest(values: np.ndarray, held: int, sign: int = 1) -> np.ndarray:
    """Places of the ``held`` largest values of each line (of the smallest for sign −1), in no order: int32."""
    documents = values.shape[1]
    out = np.empty((len(values), held), np.int32)
    for i, line in enumerate(values):  # one line at a time: no second copy of all cells
        if sign > 0:
            out[i] = np.argpartition(line, documents - held)[documents - held :]
        else:
            out[i] = np.argpartition(line, held - 1)[:held]
    return out
