"""The inner loops of sketches, compiled with Numba: building, transposing and reading cells.

The median of z numbers is found for many documents at once: a fixed network of "smaller one here, larger one there"
steps (Batcher's odd-even merge sort, Knuth volume 3, 5.2.2, Algorithm M), of which only the steps that the middle
depends on are kept. Every step is the same for all documents, so the compiler does eight of them in one instruction;
what remains is the time that memory needs to deliver z numbers a count.

Definitions are in :mod:`fedrank.texts.sketch`; tests compare with NumPy's median and SciPy's sparse product.
"""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Float32, Int32, Int64, Integer, Real, Shaped

from fedrank.core.compiled import njit, prange
from fedrank.core.kernels import ONE_AT_A_TIME, check_range, check_shapes, freeze

#: Documents handled together: 30 rows of them fit into a core's first cache.
_BLOCK = 512
#: Side of the squares in which a matrix is transposed.
_TILE = 64

_f32 = np.float32


@njit(cache=True, nogil=True, parallel=True)
def _build(starts, terms, values, lines, signs, out):
    for document in prange(out.shape[0]):
        sketch = out[document]
        for k in range(starts[document], starts[document + 1]):
            term, count = terms[k], values[k]
            for a in range(lines.shape[1]):
                sketch[lines[term, a]] += signs[term, a] * count


def build(
    starts: Integer[np.ndarray, " starts"],
    terms: Integer[np.ndarray, " entries"],
    values: Integer[np.ndarray, " entries"],
    lines: Integer[np.ndarray, "terms z"],
    signs: Integer[np.ndarray, "terms z"],
    cells: int,
) -> Int32[np.ndarray, "documents cells"]:
    """Sketches of the rows of a sparse matrix.

    Args:
        starts: ``indptr`` of a ``csr_array``.
        terms: Its ``indices``.
        values: Its ``data``.
        lines: Numbers of the terms' cells in a flattened sketch.
        signs: The terms' signs.
        cells: Number of cells of a sketch.
    """
    out = np.zeros((len(starts) - 1, cells), np.int32)
    check_shapes(
        terms=(terms[: starts[-1]], (int(starts[-1]),)), values=(values, terms.shape), signs=(signs, lines.shape)
    )
    check_range("terms", terms, len(lines))
    check_range("lines", lines, cells)
    with ONE_AT_A_TIME:
        _build(
            freeze(starts, np.int64), freeze(terms, np.int32), freeze(values, np.int32),
            freeze(lines, np.int32), freeze(signs, np.int32), out,
        )  # fmt: skip
    return out


@njit(cache=True, nogil=True, parallel=True)
def _transpose(source, out):
    rows, columns = source.shape
    for tile in prange((rows + _TILE - 1) // _TILE):
        first, last = tile * _TILE, min(rows, (tile + 1) * _TILE)
        for left in range(0, columns, _TILE):
            for j in range(left, min(columns, left + _TILE)):
                for i in range(first, last):
                    out[j, i] = source[i, j]


def transpose(array: Shaped[np.ndarray, "rows columns"]) -> Shaped[np.ndarray, "columns rows"]:
    """The transposed matrix, as a contiguous copy."""
    out = np.empty(array.shape[::-1], array.dtype)
    with ONE_AT_A_TIME:
        _transpose(freeze(array, array.dtype), out)
    return out


@functools.lru_cache
def network(size: int, minimum: bool) -> tuple[Int64[np.ndarray, "steps 2"], int, int]:
    """Steps of a sorting network that bring the median, or the minimum, of ``size`` numbers to known places.

    Args:
        size: Number of values, at least 1.
        minimum: Whether the minimum is wanted instead of the median.

    Returns:
        Pairs of places i < j to put in order, one after another; and the two places whose mean is the result.
    """
    if minimum:
        return freeze([(0, j) for j in range(1, size)] or np.empty((0, 2)), np.int64), 0, 0
    steps, low, high = [], (size - 1) // 2, size // 2
    top = p = 1 << max((size - 1).bit_length() - 1, 0)
    while p and size > 1:
        q, r, d = top, 0, p
        while True:
            steps += [(i, i + d) for i in range(size - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    needed, kept = {low, high}, []
    for step in reversed(steps):
        if needed & set(step):
            needed |= set(step)
            kept.append(step)
    return freeze(kept[::-1] or np.empty((0, 2)), np.int64), low, high


@njit(cache=True, nogil=True, parallel=True)
def _counts(cells, lines, signs, steps, low, high, at_least, out):
    terms, positions = lines.shape
    documents = cells.shape[1]
    blocks = (documents + _BLOCK - 1) // _BLOCK
    for work in prange(terms * blocks):
        term, start = work // blocks, work % blocks * _BLOCK
        width = min(_BLOCK, documents - start)
        held = np.empty((positions, _BLOCK), np.float32)
        for a in range(positions):
            source, sign, target = cells[lines[term, a], start : start + width], signs[term, a], held[a]
            for d in range(width):
                target[d] = sign * _f32(source[d])
        for s in range(steps.shape[0]):
            first, second = held[steps[s, 0]], held[steps[s, 1]]
            for d in range(width):
                x, y = first[d], second[d]
                first[d] = x if x < y else y
                second[d] = y if x < y else x
        first, second, target = held[low], held[high], out[term, start : start + width]
        for d in range(width):
            middle = _f32(0.5) * (first[d] + second[d])
            target[d] = middle if middle > at_least else at_least


def counts(
    cells: Int32[np.ndarray, "lines documents"] | Float32[np.ndarray, "lines documents"],
    lines: Integer[np.ndarray, "terms positions"],
    signs: Real[np.ndarray, "terms positions"],
    minimum: bool,
    at_least: float,
) -> Float32[np.ndarray, "terms documents"]:
    """Medians of signed cells.

    Args:
        cells: Cells of all documents.
        lines: Which lines of ``cells`` a term reads.
        signs: Sign of each.
        minimum: Whether the minimum is wanted instead of the median.
        at_least: Smaller results are raised to it.
    """
    out = np.empty((len(lines), cells.shape[1]), np.float32)
    check_shapes(signs=(signs, lines.shape))
    check_range("lines", lines, len(cells))
    steps, low, high = network(lines.shape[1], minimum)
    with ONE_AT_A_TIME:
        _counts(
            freeze(cells, cells.dtype), freeze(lines, np.int64), freeze(signs, np.float32),
            steps, low, high, _f32(at_least), out,
        )  # fmt: skip
    return out


def medians(values: Real[np.ndarray, "rows columns"], minimum: bool) -> Float32[np.ndarray, " columns"]:
    """The median of each column, or its minimum."""
    rows = len(values)
    return counts(np.asarray(values, np.float32), np.arange(rows)[None], np.ones((1, rows)), minimum, -np.inf)[0]
