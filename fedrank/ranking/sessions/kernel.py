"""Sessions on the CPU: scores, top ranks and clicks of a whole cohort in one fused loop.

Queries' features are read as they lie in :class:`~fedrank.ranking.data.queries.FeatureBlocks`: feature by feature, so
that the innermost loop runs over the documents of a query and compiles to vector instructions. Interactions are
computed query by query, those of all parties with one query together, and four rankers at a time: a feature that was
loaded is used four times. Scores stay in the first-level cache. In short lists a document's rank is the number of
documents with a higher score, which is counted by vector instructions; long ones keep the best ``depth`` documents
while they are compared. What an interaction does depends on neither, and not on who else is asked.
"""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Float, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.compiled import njit, prange
from fedrank.core.errors import ConfigError
from fedrank.core.kernels import ONE_AT_A_TIME, Cohort, fill_perturbation, fixed
from fedrank.core.lazy import jax, jnp
from fedrank.core.rng import normal_table
from fedrank.ranking.clicks.cascade import CascadeUser, decision_tables
from fedrank.ranking.data.queries import FeatureBlocks
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.results import InterleavedResults, SessionResults

_u32 = np.uint32
_f32 = np.float32
_UNIT = np.float32(2.0**-24)
#: Numbers of perturbations that are held at a time: 4 MiB.
_NOISE = 2**20
#: Parts that parties and queries are cut into for the parallel loops; scratch memory is made once a part.
_PARTS = 64
#: Up to so many documents, with padding, counting ranks is quicker than keeping the best.
_SHORT = 96


@njit(inline="always")
def _mix32(x):
    x = _u32((x ^ (x >> _u32(16))) * _u32(0x85EBCA6B))
    x = _u32((x ^ (x >> _u32(13))) * _u32(0xC2B2AE35))
    return x ^ (x >> _u32(16))


@njit(cache=True, nogil=True, fastmath={"contract"})
def add_products(block, width, weights, n_features, out):
    """out[d] += Σ_j weights[j]·block[j, d], four features at a time: ``out`` is loaded and stored once for four."""
    quads = n_features // 4
    for q in range(quads):
        j = 4 * q
        a, b, c, e = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        r0 = block[j * width : (j + 1) * width]
        r1 = block[(j + 1) * width : (j + 2) * width]
        r2 = block[(j + 2) * width : (j + 3) * width]
        r3 = block[(j + 3) * width : (j + 4) * width]
        for d in range(width):
            out[d] += a * r0[d] + b * r1[d] + c * r2[d] + e * r3[d]
    for j in range(4 * quads, n_features):
        a = weights[j]
        row = block[j * width : (j + 1) * width]
        for d in range(width):
            out[d] += a * row[d]


@njit(cache=True, nogil=True, fastmath={"contract"})
def add_products_twice(block, width, first, second, n_features, out, out2):
    """:func:`add_products` for two hidden units at once, so that each feature is loaded once for both."""
    quads = n_features // 4
    for q in range(quads):
        j = 4 * q
        a, b, c, e = first[j], first[j + 1], first[j + 2], first[j + 3]
        a2, b2, c2, e2 = second[j], second[j + 1], second[j + 2], second[j + 3]
        r0 = block[j * width : (j + 1) * width]
        r1 = block[(j + 1) * width : (j + 2) * width]
        r2 = block[(j + 2) * width : (j + 3) * width]
        r3 = block[(j + 3) * width : (j + 4) * width]
        for d in range(width):
            x0, x1, x2, x3 = r0[d], r1[d], r2[d], r3[d]
            out[d] += a * x0 + b * x1 + c * x2 + e * x3
            out2[d] += a2 * x0 + b2 * x1 + c2 * x2 + e2 * x3
    for j in range(4 * quads, n_features):
        row = block[j * width : (j + 1) * width]
        for d in range(width):
            out[d] += first[j] * row[d]
            out2[d] += second[j] * row[d]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_products_of_four(block, width, weights, first, n_features, out):
    """:func:`add_products` for four rankers at once: rows of ``weights``, from column ``first`` on, and of ``out``."""
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    o0, o1, o2, o3 = out[0], out[1], out[2], out[3]
    quads = n_features // 4
    for q in range(quads):
        j, i = 4 * q, first + 4 * q
        a0, b0, c0, e0 = w0[i], w0[i + 1], w0[i + 2], w0[i + 3]
        a1, b1, c1, e1 = w1[i], w1[i + 1], w1[i + 2], w1[i + 3]
        a2, b2, c2, e2 = w2[i], w2[i + 1], w2[i + 2], w2[i + 3]
        a3, b3, c3, e3 = w3[i], w3[i + 1], w3[i + 2], w3[i + 3]
        r0 = block[j * width : (j + 1) * width]
        r1 = block[(j + 1) * width : (j + 2) * width]
        r2 = block[(j + 2) * width : (j + 3) * width]
        r3 = block[(j + 3) * width : (j + 4) * width]
        for d in range(width):
            x0, x1, x2, x3 = r0[d], r1[d], r2[d], r3[d]
            o0[d] += a0 * x0 + b0 * x1 + c0 * x2 + e0 * x3
            o1[d] += a1 * x0 + b1 * x1 + c1 * x2 + e1 * x3
            o2[d] += a2 * x0 + b2 * x1 + c2 * x2 + e2 * x3
            o3[d] += a3 * x0 + b3 * x1 + c3 * x2 + e3 * x3
    for j in range(4 * quads, n_features):
        row, i = block[j * width : (j + 1) * width], first + j
        for d in range(width):
            o0[d] += w0[i] * row[d]
            o1[d] += w1[i] * row[d]
            o2[d] += w2[i] * row[d]
            o3[d] += w3[i] * row[d]


@njit(cache=True, nogil=True, fastmath={"contract"})
def fill_scores_of_four(block, width, weights, n_features, hidden, unit, scores):
    """Scores of one query's documents by four rankers.

    Args:
        block: float32 [f · width], the query's features, feature by feature.
        width: Documents with padding.
        weights: float32 [4, size], the rankers.
        n_features: f.
        hidden: Hidden units, 0 for linear.
        unit: float32 [4, width or more], scratch.
        scores: float32 [4, width or more], filled.
    """
    for r in range(4):
        for d in range(width):
            scores[r, d] = _f32(0)
    if hidden == 0:
        _add_products_of_four(block, width, weights, 0, n_features, scores)
        return
    into = hidden * n_features
    for h in range(hidden):
        for r in range(4):
            one, bias = unit[r], weights[r, into + h]
            for d in range(width):
                one[d] = bias
        _add_products_of_four(block, width, weights, h * n_features, n_features, unit)
        for r in range(4):
            one, to, out = unit[r], scores[r], weights[r, into + hidden + h]
            for d in range(width):
                to[d] += out * max(one[d], _f32(0))


@njit(cache=True, nogil=True, fastmath={"contract"})
def fill_scores(block, width, weights, n_features, hidden, unit, scores):
    """Scores of one query's documents into ``scores`` [width]; ``unit`` [2, width or more] is scratch."""
    f = n_features
    for d in range(width):
        scores[d] = _f32(0)
    if hidden == 0:
        add_products(block, width, weights, f, scores)
        return
    into = hidden * f
    one, two = unit[0], unit[1]
    for h in range(0, hidden - 1, 2):
        bias, bias2 = weights[into + h], weights[into + h + 1]
        out, out2 = weights[into + hidden + h], weights[into + hidden + h + 1]
        for d in range(width):
            one[d] = bias
            two[d] = bias2
        add_products_twice(block, width, weights[h * f : (h + 1) * f], weights[(h + 1) * f : (h + 2) * f], f, one, two)
        for d in range(width):
            scores[d] = (scores[d] + out * max(one[d], _f32(0))) + out2 * max(two[d], _f32(0))
    if hidden % 2:
        h = hidden - 1
        bias, out = weights[into + h], weights[into + hidden + h]
        for d in range(width):
            one[d] = bias
        add_products(block, width, weights[h * f : (h + 1) * f], f, one)
        for d in range(width):
            scores[d] += out * max(one[d], _f32(0))


@njit(cache=True, nogil=True)
def fill_top(scores, length, tie_word, random_ties, top, top_score, top_tie):
    """The documents at the first ranks into ``top``; returns how many. ``top_score``, ``top_tie`` are scratch."""
    depth = top.size
    shown = 0
    for d in range(length):
        score = scores[d]
        if score != score:  # not a number: ranks last, as in the reference
            score = -_f32(np.inf)
        tie = _mix32(tie_word ^ _mix32(_u32(d))) if random_ties else _u32(d)
        if shown == depth:
            last = depth - 1
            if not (score > top_score[last] or (score == top_score[last] and tie < top_tie[last])):
                continue
            position = last
        else:
            position = shown
            shown += 1
        while position > 0 and (
            score > top_score[position - 1] or (score == top_score[position - 1] and tie < top_tie[position - 1])
        ):
            top[position] = top[position - 1]
            top_score[position] = top_score[position - 1]
            top_tie[position] = top_tie[position - 1]
            position -= 1
        top[position], top_score[position], top_tie[position] = d, score, tie
    return shown


@njit(cache=True, nogil=True)
def _fill_ranks(scores, length, width, ranks):
    """How many documents have a higher score than each, into ``ranks`` (int32); ``scores`` beyond ``length`` are −∞."""
    for d in range(width):
        ranks[d] = 0
    for q in range((length + 3) // 4):
        a, b, c, e = scores[4 * q], scores[4 * q + 1], scores[4 * q + 2], scores[4 * q + 3]
        for d in range(width):
            s = scores[d]
            ranks[d] += np.int32(a > s) + np.int32(b > s) + np.int32(c > s) + np.int32(e > s)


@njit(cache=True, nogil=True)
def fill_top_counting(scores, length, width, tie_word, random_ties, ranks, top, top_score, top_tie):
    """:func:`fill_top` for short lists, by counting; ``ranks`` int32 [width + depth + 1 or more] is scratch.

    ``width`` is ``length`` rounded up to a multiple of 8; scores beyond ``length`` are overwritten.
    """
    shown = np.int32(min(top.size, length))
    for d in range(length):
        scores[d] = scores[d] if scores[d] == scores[d] else -_f32(np.inf)  # not a number: ranks last
    for d in range(length, width):
        scores[d] = -_f32(np.inf)
    _fill_ranks(scores, length, width, ranks)
    place = ranks[width : width + shown + 1]  # the last one takes all that are not shown
    found, total = np.int32(0), np.int32(0)
    for d in range(length):
        r = min(ranks[d], shown)
        found += np.int32(r < shown)
        total += r
    for d in range(length):
        place[min(ranks[d], shown)] = d
    # Equal scores among those shown or at the end: a rank is taken twice, and the sum of ranks is smaller.
    if found == shown and 2 * (total - shown * (length - shown)) == shown * (shown - 1):
        for rank in range(shown):
            top[rank] = place[rank]
        return np.int64(shown)
    return fill_top(scores, length, tie_word, random_ties, top, top_score, top_tie)


@njit(cache=True, nogil=True)
def sample_clicks(labels, top, shown, click, leave, rng_bits):
    """The click pattern on the documents at the first ranks.

    Args:
        labels: int32, labels of the query's documents.
        top: int32 [shown or more], the documents at the first ranks.
        shown: How many are shown.
        click: float32 [depth, depth, grades] of one user; see :func:`fedrank.ranking.clicks.cascade.decision_tables`.
        leave: float32 [depth, depth, grades, 2].
        rng_bits: uint32 [shown or more].

    Returns:
        An integer whose bit i is set when the document at rank i + 1 was clicked.
    """
    pattern, last = 0, -1
    for rank in range(shown):
        label, since = labels[top[rank]], rank - last - 1
        u = _f32(rng_bits[rank] >> _u32(8)) * _UNIT
        if u < click[rank, since, label]:
            pattern |= 1 << rank
            last = rank
            if u < leave[rank, since, label, 0]:
                break
        elif u >= leave[rank, since, label, 1]:
            break
    return pattern


@njit(cache=True, nogil=True)
def list_ndcg(labels, top, shown, ideal, discounts, gains):
    """NDCG of the documents at the first ranks, given the query's ideal DCG."""
    if ideal == _f32(0):
        return _f32(0)
    found = _f32(0)
    for rank in range(shown):
        found += gains[labels[top[rank]]] * discounts[rank]
    return found / ideal


@functools.lru_cache(maxsize=2)
def quality_tables(data: FeatureBlocks, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ideal DCG of each query, float32 [q]; discount of each rank [depth]; gain of each label."""
    discounts = (1 / np.log2(2 + np.arange(depth))).astype(np.float32)
    gains = (np.exp2(np.arange(int(data.labels.max()) + 1)) - 1).astype(np.float32)
    ideal = np.zeros(len(data.length), np.float32)
    for query, (first, length) in enumerate(zip(data.label_start, data.length, strict=True)):
        best = np.sort(data.labels[first : first + length])[::-1][:depth]
        ideal[query] = gains[best] @ discounts[: len(best)]
    return fixed(ideal, np.float32), fixed(discounts, np.float32), fixed(gains, np.float32)


def kernel_arrays(
    data: FeatureBlocks,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Values, start, stride, labels, label_start and length, as kernels take them."""
    return (
        fixed(data.values, np.float32), fixed(data.start, np.int64), fixed(data.stride, np.int32),
        fixed(data.labels, np.int32), fixed(data.label_start, np.int64), fixed(data.length, np.int32),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _by_query(queries, n_queries):
    """Numbers of the interactions in the order of their queries, and where each query's begin: [q + 1]."""
    begin = np.zeros(n_queries + 1, np.int64)
    for query in queries:
        begin[query + 1] += 1
    for query in range(n_queries):
        begin[query + 1] += begin[query]
    at, order = begin[:-1].copy(), np.empty(queries.size, np.int64)
    for number, query in enumerate(queries):
        order[at[query]] = number
        at[query] += 1
    return order, begin


@njit(cache=True, nogil=True, parallel=True)
def _sessions(
    values, start, stride, labels, label_start, length,
    n_features, hidden, click, leave, random_ties, table, ideal, discounts, gains,
    models, run, users, seeds, steps, queries, click_bits, tie_bits, out, quality,
):  # fmt: skip
    parties, halves, each = queries.shape
    depth = click_bits.shape[3]
    widest, n_queries = stride.max(), length.size
    size = models.shape[1]
    some = max(1, _NOISE // size)
    noise = np.empty((min(some, parties), size), np.float32)
    for begin in range(0, parties, some):
        here = min(some, parties - begin)
        for part in prange(_PARTS):
            low, high = np.empty((size + 3) // 4, np.uint32), np.empty((size + 3) // 4, np.uint32)
            for i in range(part * here // _PARTS, (part + 1) * here // _PARTS):
                fill_perturbation(seeds[begin + i], table, low, high, noise[i])
        order, bounds = _by_query(queries[begin : begin + here].copy().reshape(-1), n_queries)
        for part in prange(_PARTS):
            weights, scores = np.empty((4, size), np.float32), np.empty((4, widest), np.float32)
            unit, ranks = np.empty((4, widest), np.float32), np.empty(widest + depth + 1, np.int32)
            top, top_score, top_tie = np.empty(depth, np.int32), np.empty(depth, np.float32), np.empty(depth, np.uint32)
            for query in range(part * n_queries // _PARTS, (part + 1) * n_queries // _PARTS):
                width, documents = stride[query], length[query]
                block = values[start[query] : start[query] + n_features * width]
                grades = labels[label_start[query] : label_start[query] + documents]
                at, end = bounds[query], bounds[query + 1]
                while at < end:
                    together = 4 if end - at >= 4 else 1
                    for r in range(together):
                        number = order[at + r]
                        party, half = number // (halves * each), number // each % halves
                        step, model, mine, w = steps[half], models[run[begin + party]], noise[party], weights[r]
                        for j in range(size):
                            w[j] = model[j] + step * mine[j]
                    if together == 4:
                        fill_scores_of_four(block, width, weights, n_features, hidden, unit, scores)
                    else:
                        fill_scores(block, width, weights[0], n_features, hidden, unit, scores[0])
                    for r in range(together):
                        number = order[at + r]
                        party, half, k = begin + number // (halves * each), number // each % halves, number % each
                        tie = tie_bits[party, half, k]
                        if width <= _SHORT:
                            shown = fill_top_counting(
                                scores[r], documents, width, tie, random_ties, ranks, top, top_score, top_tie
                            )
                        else:
                            shown = fill_top(scores[r], documents, tie, random_ties, top, top_score, top_tie)
                        user = users[party]
                        out[party, half, k] = sample_clicks(
                            grades, top, shown, click[user], leave[user], click_bits[party, half, k]
                        )
                        quality[party, half, k] = list_ndcg(grades, top, shown, ideal[query], discounts, gains)
                    at += together


@njit(cache=True, nogil=True)
def fill_draft(first, second, shown, toss, top, team):
    """One list of two into ``top`` and whose each document is into ``team``; see ``on_device.interleave.draft``."""
    starts, whose = True, False
    for rank in range(shown):
        one, other = -1, -1
        for i in range(shown):  # the best of each that is not taken
            a, b = first[i], second[i]
            for j in range(rank):
                a = -1 if top[j] == a else a
                b = -1 if top[j] == b else b
            one = a if one < 0 else one
            other = b if other < 0 else other
        if starts and one == other:
            top[rank], team[rank] = one, 0
            continue
        whose = (toss >> _u32(rank)) & _u32(1) == _u32(1) if starts else not whose
        top[rank], team[rank] = (one, 1) if whose else (other, -1)
        starts = not starts


@njit(cache=True, nogil=True, parallel=True)
def _interleaved(
    values, start, stride, labels, label_start, length,
    n_features, hidden, click, leave, random_ties, table, ideal, discounts, gains,
    models, run, users, seeds, step, queries, click_bits, tie_bits, tosses, out, quality, credited,
):  # fmt: skip
    parties, each = queries.shape
    depth = click_bits.shape[2]
    widest = stride.max()
    size = models.shape[1]
    for party in prange(parties):
        low, high = np.empty((size + 3) // 4, np.uint32), np.empty((size + 3) // 4, np.uint32)
        noise, weights = np.empty(size, np.float32), np.empty((2, size), np.float32)
        scores, unit = np.empty(widest, np.float32), np.empty((2, widest), np.float32)
        both, top_score, top_tie = (
            np.empty((2, depth), np.int32),
            np.empty(depth, np.float32),
            np.empty(depth, np.uint32),
        )
        top, team = np.empty(depth, np.int32), np.empty(depth, np.int32)
        model = models[run[party]]
        fill_perturbation(seeds[party], table, low, high, noise)
        for j in range(size):
            weights[0, j] = model[j] + step * noise[j]
            weights[1, j] = model[j] - step * noise[j]
        for k in range(each):
            query = queries[party, k]
            width = stride[query]
            block = values[start[query] : start[query] + n_features * width]
            shown = 0
            for i in range(2):
                fill_scores(block, width, weights[i], n_features, hidden, unit, scores)
                shown = fill_top(scores, length[query], tie_bits[party, k], random_ties, both[i], top_score, top_tie)
            fill_draft(both[0], both[1], shown, tosses[party, k], top, team)
            grades = labels[label_start[query] :]
            pattern = sample_clicks(grades, top, shown, click[users[party]], leave[users[party]], click_bits[party, k])
            out[party, k] = pattern
            quality[party, k] = list_ndcg(grades, top, shown, ideal[query], discounts, gains)
            plus, minus = 0, 0
            for rank in range(shown):
                if pattern >> rank & 1:
                    plus |= (1 << rank) * (team[rank] >= 0)
                    minus |= (1 << rank) * (team[rank] <= 0)
            credited[party, 0, k], credited[party, 1, k] = plus, minus


def _host(
    center, user_index, seeds, queries, click_bits, tie_bits, *tosses,
    kernel, blocks, hidden, click, leave, random_ties, step,
):  # fmt: skip
    """Call a kernel for a whole cohort: the clicks and the quality of lists and, with tosses, whose the clicks are."""
    lead = np.broadcast_shapes(center.shape[:-1], seeds.shape, user_index.shape)
    cohort = Cohort(lead)
    (models, run), flat = cohort.models(center), cohort.flat
    queries = flat(queries, np.int32)
    out = [np.zeros(queries.shape, np.int32), np.zeros(queries.shape, np.float32)]
    if tosses:
        out.append(np.zeros((len(queries), 2, *queries.shape[1:]), np.int32))
    if queries.size:
        with ONE_AT_A_TIME:
            kernel(
                *kernel_arrays(blocks), blocks.n_features, hidden, click, leave, random_ties, normal_table(),
                *quality_tables(blocks, click_bits.shape[-1]),
                models, run, flat(user_index, np.int32), flat(seeds, np.uint32), step, queries,
                *(flat(bits, np.uint32) for bits in (click_bits, tie_bits, *tosses)), *out,
            )  # fmt: skip
    return tuple(array.reshape(*lead, *array.shape[1:]) for array in out)


def kernel_shape(ranker: Ranker) -> tuple[int, int]:
    """Features and hidden units.

    Raises:
        ConfigError: The kernel cannot compute this ranker.
    """
    shape = ranker.kernel_shape()
    if shape is None:
        raise ConfigError(f"the CPU kernel cannot compute {type(ranker).__name__}; use queries.padded().")
    return shape


def run_sessions(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, ""] | int,
    data: FeatureBlocks,
    center: Float[AnyArray, "parameters"],
    seed: UInt32[AnyArray, ""],
    steps: tuple[float, ...],
    queries: Int[AnyArray, "halves interactions"],
    click_bits: UInt32[AnyArray, "halves interactions depth"],
    tie_bits: UInt32[AnyArray, "halves interactions"],
    random_ties: bool,
) -> SessionResults:
    """Sessions; arguments as in :func:`fedrank.ranking.sessions.sessions.run_sessions`.

    ``vmap`` over parties (and over runs) becomes one call of the kernel.
    """
    bits = (queries, click_bits, tie_bits)
    out = _call(_sessions, ranker, users, user_index, data, center, seed, fixed(steps, np.float32), random_ties, *bits)
    return SessionResults(*out)


def run_interleaved(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, ""] | int,
    data: FeatureBlocks,
    center: Float[AnyArray, "parameters"],
    seed: UInt32[AnyArray, ""],
    step: float,
    queries: Int[AnyArray, "interactions"],
    click_bits: UInt32[AnyArray, "interactions depth"],
    tie_bits: UInt32[AnyArray, "interactions"],
    toss: UInt32[AnyArray, "interactions"],
    random_ties: bool,
) -> InterleavedResults:
    """Lists made of two rankers' lists; arguments as in :func:`fedrank.ranking.sessions.sessions.run_interleaved`."""
    bits = (queries, click_bits, tie_bits, toss)
    *shown, credited = _call(
        _interleaved, ranker, users, user_index, data, center, seed, np.float32(step), random_ties, *bits
    )
    return InterleavedResults(SessionResults(*shown), credited)


def host_sessions(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, "*lead"],
    data: FeatureBlocks,
    center: Float[AnyArray, "*lead parameters"],
    seed: UInt32[AnyArray, "*lead"],
    steps: tuple[float, ...],
    queries: Int[AnyArray, "*lead halves interactions"],
    click_bits: UInt32[AnyArray, "*lead halves interactions depth"],
    tie_bits: UInt32[AnyArray, "*lead halves interactions"],
    random_ties: bool,
) -> SessionResults:
    """:func:`run_sessions` of a whole cohort, without JAX.

    Leading axes are runs and parties, of length 1 where an argument is the same along them.
    """
    args = _settings(_sessions, ranker, users, data, fixed(steps, np.float32), random_ties)
    return SessionResults(*_host(center, user_index, seed, queries, click_bits, tie_bits, **args))


def host_interleaved(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, "*lead"],
    data: FeatureBlocks,
    center: Float[AnyArray, "*lead parameters"],
    seed: UInt32[AnyArray, "*lead"],
    step: float,
    queries: Int[AnyArray, "*lead interactions"],
    click_bits: UInt32[AnyArray, "*lead interactions depth"],
    tie_bits: UInt32[AnyArray, "*lead interactions"],
    toss: UInt32[AnyArray, "*lead interactions"],
    random_ties: bool,
) -> InterleavedResults:
    """:func:`run_interleaved` of a cohort; as :func:`host_sessions`. ``credited`` is ``[*lead, 2, interactions]``."""
    args = _settings(_interleaved, ranker, users, data, np.float32(step), random_ties)
    *shown, credited = _host(center, user_index, seed, queries, click_bits, tie_bits, toss, **args)
    return InterleavedResults(SessionResults(*shown), credited)


def _settings(kernel, ranker, users, data, step, random_ties):
    """What a kernel takes besides what differs from party to party."""
    _, hidden = kernel_shape(ranker)
    click, leave = (fixed(table, np.float32) for table in decision_tables(users))
    return {
        "kernel": kernel, "blocks": data, "hidden": hidden, "click": click, "leave": leave,
        "random_ties": random_ties, "step": step,
    }  # fmt: skip


def _call(kernel, ranker, users, user_index, data, center, seed, step, random_ties, queries, *bits):
    """Call a kernel from a program of JAX; ``bits`` are those of clicks, ties and, with both rankers' lists, tosses."""
    host = functools.partial(_host, **_settings(kernel, ranker, users, data, step, random_ties))
    shape, interleaved = queries.shape, len(bits) == 3
    shapes = [jax.ShapeDtypeStruct(shape, jnp.int32), jax.ShapeDtypeStruct(shape, jnp.float32)]
    if interleaved:
        shapes.append(jax.ShapeDtypeStruct((2, *shape), jnp.int32))
    user_index = jnp.asarray(user_index, jnp.int32)
    return jax.pure_callback(host, tuple(shapes), center, user_index, seed, queries, *bits, vmap_method="expand_dims")
