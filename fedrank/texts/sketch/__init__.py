"""Count Sketch and Count-Min: a document's term counts in z rows of w cells, addressed by a keyed hash.

Row a of a document's sketch is w cells. A term t goes to cell h_a(t) of it, with the sign g_a(t) ∈ {−1, +1} (Charikar,
Chen, Farach-Colton, *Finding frequent items in data streams*, ICALP 2002; Count-Min, Cormode and Muthukrishnan 2005,
has no signs)::

    C_d(a, h_a(t)) += g_a(t)        for every occurrence of t in d, a = 1 … z     (equation 2 of CS-F-LTR)
    f̂(t, d) = median over a of g_a(t) · C_d(a, h_a(t))                            (equation 3)

CS-F-LTR prints equation 3 without g_a(t), in both versions. Without it half of the rows say minus the count, and the
median estimates nothing; the sign is applied here. Count-Min takes the minimum instead of the median.

A sketch is an integer array, and encoding is linear: the sketch of a sum of counts is the sum of the sketches, exactly.
Sums and differences are therefore ``+`` and ``-``; :func:`hash_matrix` is the linear map itself.

Every silo hashes with one secret, so that the same term has the same cells everywhere, and whoever lacks the secret
cannot tell which cells a term has. Whoever *has* it can look up every word of a dictionary: a sketch without noise
hides nothing from the other silos.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, Int64, Integer, Real
from scipy.sparse import csr_array

from fedrank.core.errors import ConfigError, DataError, UnknownNameError

#: "count" has signs and takes medians; "count-min" has none and takes minima.
KINDS = ("count", "count-min")

#: Bytes of the secret: BLAKE2b takes keys of at most 64.
SECRET_BYTES = (16, 64)

_PERSON = b"fedrank sketch 1"
_WORD = 8  # bytes of hash for one row's cell and sign: the remainder modulo w is uniform to w / 2**63
_DIGEST = 64  # the longest that BLAKE2b makes


@dataclass(frozen=True)
class SketchShape:
    """Size and kind of a sketch.

    Args:
        z: Number of rows (independent hashes of a term), at least 1.
        w: Number of cells of a row, at least 2.
        kind: One of :data:`KINDS`.

    Raises:
        ConfigError: A number is too small, or there is no such kind.
    """

    z: int
    w: int
    kind: str = "count"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("kind of sketch", self.kind, KINDS)
        if self.z < 1 or self.w < 2:
            raise ConfigError(f"a sketch needs z >= 1 rows of w >= 2 cells, got z={self.z}, w={self.w}.")

    @property
    def cells(self) -> int:
        """Number of cells of one document's sketch, z · w."""
        return self.z * self.w


class Hashes(NamedTuple):
    """Cells and signs of terms: term i adds ``signs[i, a]`` to cell ``rows[i, a]`` of row a.

    Attributes:
        rows: h_a(t), in 0 … w − 1.
        signs: g_a(t), +1 or −1. All +1 for count-min.
    """

    rows: Int32[np.ndarray, "terms z"]
    signs: Int32[np.ndarray, "terms z"]

    def select(self, terms: Integer[np.ndarray, " n"] | Sequence[int]) -> Hashes:
        """The hashes of the terms with these numbers, in this order."""
        return Hashes(self.rows[terms], self.signs[terms])


def hash_terms(terms: Sequence[str], shape: SketchShape, secret: bytes) -> Hashes:
    """Hash each term once, with keyed BLAKE2b.

    A term's hashes depend on the term, the secret and w, not on its place in the vocabulary: every silo computes the
    same for the same word. The first rows of a sketch with more rows are those of one with fewer.

    Args:
        terms: Words of a vocabulary.
        shape: Rows and cells.
        secret: What the silos have agreed on, 16 … 64 bytes.

    Raises:
        ConfigError: The secret is too short or too long.
    """
    low, high = SECRET_BYTES
    if not low <= len(secret) <= high:
        raise ConfigError(f"the secret of the sketches has {low} to {high} bytes, got {len(secret)}.")
    digests = -(-shape.z * _WORD // _DIGEST)
    salts = [number.to_bytes(hashlib.blake2b.SALT_SIZE, "little") for number in range(digests)]
    text = b"".join(
        hashlib.blake2b(word, key=secret, salt=salt, person=_PERSON).digest()
        for word in (term.encode() for term in terms)
        for salt in salts
    )
    words = np.frombuffer(text, "<u8").reshape(len(terms), digests * _DIGEST // _WORD)[:, : shape.z]
    rows = ((words >> np.uint64(1)) % np.uint64(shape.w)).astype(np.int32)
    if shape.kind == "count-min":
        return Hashes(rows, np.ones_like(rows))
    return Hashes(rows, 1 - 2 * (words & np.uint64(1)).astype(np.int32))


def hash_matrix(hashes: Hashes, shape: SketchShape) -> csr_array:
    """The linear map from counts to sketches: int32 [terms, z · w] with z signed ones in each row."""
    terms = len(hashes.rows)
    return csr_array(
        (hashes.signs.ravel(), flat_cells(hashes.rows, shape).ravel(), np.arange(terms + 1) * shape.z),
        shape=(terms, shape.cells),
    )


def flat_cells(rows: Integer[np.ndarray, "*terms z"], shape: SketchShape) -> Int64[np.ndarray, "*terms z"]:
    """Numbers of cells in a flattened sketch, a · w + h_a(t)."""
    return np.arange(shape.z, dtype=np.int64) * shape.w + rows


def encode(counts: csr_array, hashes: Hashes, shape: SketchShape) -> Int32[np.ndarray, "documents z w"]:
    """The sketches of documents (equation 2).

    Args:
        counts: Occurrences, integers [documents, terms]. Its terms are those of ``hashes``, in order.
        hashes: From :func:`hash_terms`.
        shape: Rows and cells.

    Returns:
        4 · z · w bytes a document, more than sparse counts take, and twice as much meanwhile; encode a part of the
        documents at a time where that is too much.

    Raises:
        DataError: Counts and hashes are not of the same terms, or counts are not whole numbers.
    """
    _check_terms(counts.shape[1], hashes, shape)  # type: ignore[index] - scipy has no types
    if not np.issubdtype(counts.dtype, np.integer):
        raise DataError(f"a sketch is made of counts, whole numbers; got an array of {counts.dtype}.")
    product: Any = counts @ hash_matrix(hashes, shape)  # scipy has no types
    return product.toarray().astype(np.int32, copy=False).reshape(-1, shape.z, shape.w)


def encode_totals(totals: Real[np.ndarray, " terms"], hashes: Hashes, shape: SketchShape) -> Int64[np.ndarray, "z w"]:
    """The sketch of one virtual document, such as document frequencies or the counts of a whole collection.

    Args:
        totals: Whole numbers: how often each term "occurs".
        hashes: From :func:`hash_terms`.
        shape: Rows and cells.

    Raises:
        DataError: Totals and hashes are not of the same terms.
    """
    _check_terms(len(totals), hashes, shape)
    sketch = np.zeros(shape.cells, np.int64)
    np.add.at(sketch, flat_cells(hashes.rows, shape), totals.astype(np.int64)[:, None] * hashes.signs)
    return sketch.reshape(shape.z, shape.w)


def cells_at(
    sketches: Real[np.ndarray, "documents z w"], rows: Integer[np.ndarray, "questions z"]
) -> Real[np.ndarray, "questions documents z"]:
    """The cells that questions ask for.

    Args:
        sketches: Of many documents, with or without noise.
        rows: Of each question a cell of each row.

    Raises:
        DataError: A number of a cell is not in 0 … w − 1.
    """
    z, w = sketches.shape[1:]
    if rows.shape[1] != z or (rows.size and not 0 <= rows.min() <= rows.max() < w):
        raise DataError(f"a question names {z} cells, each from 0 to {w - 1}.")
    return sketches[:, np.arange(z), rows].swapaxes(0, 1)


def by_cell(sketches: Real[np.ndarray, "documents z w"]) -> Real[np.ndarray, "cells documents"]:
    """Sketches laid out for answering: one cell of all documents lies together, int32 or float32 [z · w, documents].

    A question reads z cells of every document. With a document's cells together that is a jump for every cell; with a
    cell's documents together it is z runs of memory.

    Raises:
        DataError: Integers do not fit into 32 bits.
    """
    return np.ascontiguousarray(_narrow(sketches).reshape(len(sketches), sketches.shape[1] * sketches.shape[2]).T)


@functools.cache
def network(size: int) -> tuple[tuple[int, int], ...]:
    """Steps of a sorting network that bring the middle of ``size`` numbers, at least 1, to its place or places.

    Batcher's odd-even merge sort (Knuth volume 3, 5.2.2, Algorithm M), of which only the steps that the middle depends
    on are kept: pairs of places i < j to put in order, one after another. Every step is the same for all documents.
    """
    steps: list[tuple[int, int]] = []
    top = p = 1 << max((size - 1).bit_length() - 1, 0)
    while p and size > 1:
        q, r, d = top, 0, p
        while True:
            steps += [(i, i + d) for i in range(size - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    needed, kept = {(size - 1) // 2, size // 2}, []
    for step in reversed(steps):
        if needed & set(step):
            needed |= set(step)
            kept.append(step)
    return tuple(reversed(kept))


def _middle(signed: Float32[np.ndarray, "z *counts"], kind: str) -> Float32[np.ndarray, "*counts"]:
    """Median of each count's cells, or their minimum for count-min."""
    if kind == "count-min":
        return signed.min(axis=0)
    rows = list(signed)
    for i, j in network(len(rows)):
        rows[i], rows[j] = np.minimum(rows[i], rows[j]), np.maximum(rows[i], rows[j])
    return np.float32(0.5) * (rows[(len(rows) - 1) // 2] + rows[len(rows) // 2])


def estimate(
    answers: Real[np.ndarray, "*#lead z"], signs: Real[np.ndarray, "*#lead z"], kind: str = "count"
) -> Float32[np.ndarray, " ..."]:
    """Counts from answers: equations 3 and 6, with the sign that both papers omit.

    Args:
        answers: The cells at the positions that belong to the term.
        signs: +1 or −1; leading axes broadcast.
        kind: One of :data:`KINDS`.

    Returns:
        Median over the last axis of sign · cell, or the minimum for count-min. It is not clipped. The median of an even
        number of values is the mean of the two middle ones.

    Raises:
        DataError: There are no positions.
    """
    if kind not in KINDS:
        raise UnknownNameError("kind of sketch", kind, KINDS)
    signed = np.multiply(answers, signs, dtype=np.float32, casting="unsafe")
    if not signed.shape[-1]:
        raise DataError("an estimate needs the answer at one position at least, got none.")
    return _middle(np.ascontiguousarray(np.moveaxis(signed, -1, 0)), kind)


def counts_of(
    sketches: Real[np.ndarray, "documents z w"], hashes: Hashes, shape: SketchShape, at_least: float = 0.0
) -> Float32[np.ndarray, "terms documents"]:
    """The estimated count of every term in every document.

    Equals ``estimate(cells_at(sketches, rows), signs)`` without an array of [terms, documents, z].

    Args:
        sketches: With or without noise.
        hashes: Hashes of the terms asked about.
        shape: Rows and cells.
        at_least: Estimates below are raised to it; ``-inf`` leaves them as they are. A count is not negative, and
            clipping noise at 0 makes the mean of small counts too large.

    Raises:
        DataError: Sketches and hashes are not of the shape.
    """
    _check_terms(len(hashes.rows), hashes, shape)
    if sketches.shape[1:] != (shape.z, shape.w):
        raise DataError(
            f"sketches are of {sketches.shape[1]} x {sketches.shape[2]}, the shape is {shape.z} x {shape.w}."
        )
    lines, places = np.unique(flat_cells(hashes.rows, shape), return_inverse=True)  # only what is asked for is read
    cells = np.take(sketches.reshape(len(sketches), shape.z * shape.w), lines, axis=1).T.astype(np.float32, order="C")
    signs, out = hashes.signs.astype(np.float32), np.empty((len(hashes.signs), len(sketches)), np.float32)
    for term, asked in enumerate(places.reshape(hashes.rows.shape)):
        out[term] = _middle(cells[asked] * signs[term, :, None], shape.kind)
    return np.maximum(out, np.float32(at_least))


def _check_terms(terms: int, hashes: Hashes, shape: SketchShape) -> None:
    for array in hashes:
        if array.shape != (terms, shape.z):
            raise DataError(f"hashes of {terms} terms in {shape.z} rows are needed, got an array of {array.shape}.")
    if terms and not 0 <= hashes.rows.min() <= hashes.rows.max() < shape.w:
        raise DataError(f"hashes name cells outside of 0 to {shape.w - 1}: they are of another shape.")


def _narrow(array: Real[np.ndarray, " ..."]) -> Real[np.ndarray, " ..."]:
    """The array as int32 or float32."""
    if array.dtype in (np.int32, np.float32):
        return array
    if not np.issubdtype(array.dtype, np.integer):
        return array.astype(np.float32)
    bounds = np.iinfo(np.int32)
    if array.size and not bounds.min <= array.min() <= array.max() <= bounds.max:
        raise DataError("a cell of a sketch does not fit into 32 bits; sketch fewer documents or add less noise.")
    return array.astype(np.int32)
