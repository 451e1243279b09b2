"""Sessions on the CPU: scores, top ranks and clicks of a whole cohort in one fused loop.

Queries' features are read as they lie in :class:`~fedrank.ranking.data.queries.FeatureBlocks`: feature by feature, so
that a vector holds one feature of neighbouring documents (:mod:`fedrank.ranking.sessions.tiles`). Interactions are
computed query by query, those of all parties with one query together, up to twelve rankers at a time: a feature that
was loaded is used for all of them. Scores stay in the first-level cache. The best ``depth`` documents are found among
those that pass a bound, the best scores of sixteen groups; the rank of each is the number of documents ahead of it,
which vector instructions count. What an interaction does depends on none of this, and not on who else is asked.
"""

from __future__ import annotations

import functools
import threading
import weakref

import numpy as np
from jaxtyping import Float, Float32, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.compiled import njit, prange
from fedrank.core.errors import ConfigError
from fedrank.core.kernels import (
    ONE_AT_A_TIME,
    Cohort,
    check_range,
    check_shapes,
    fill_perturbation,
    freeze,
    scratch_words,
)
from fedrank.core.lazy import jax, jnp
from fedrank.core.rng import normal_table
from fedrank.ranking.clicks.cascade import CascadeUser, decision_tables
from fedrank.ranking.data.queries import FeatureBlocks
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.reference import Interactions, InterleavedResults, Perturbed, SessionResults
from fedrank.ranking.sessions.tiles import (
    ROWS,
    best_tiles,
    hidden_tile_8,
    hidden_tile_16,
    linear_tile_8,
    linear_tile_16,
)

_u32 = np.uint32
_f32 = np.float32
_index = np.uint64
_UNIT = np.float32(2.0**-24)
#: Numbers of perturbations that are held at a time: 32 MiB.
_NOISE = 2**23
#: Parts that parties and queries are cut into for the parallel loops; scratch memory is made once a part.
_PARTS = 64
#: Rankers whose scores of one query's documents are computed together.
_TOGETHER = 12
_ROWS_16, _ROWS_8 = ROWS[16], ROWS[8]


@njit(inline="always")
def _mix32(x):
    x = _u32((x ^ (x >> _u32(16))) * _u32(0x85EBCA6B))
    x = _u32((x ^ (x >> _u32(13))) * _u32(0xC2B2AE35))
    return x ^ (x >> _u32(16))


@njit(cache=True, nogil=True)
def _fill_two_layer(block, width, weights, n_features, hidden, scores):
    for d in range(width):
        scores[d] = _f32(0)
    groups = (hidden + _ROWS_16 - 1) // _ROWS_16  # of about the same size: a small one waits for its own sums
    for d in range(0, width - 8, 16):
        for g in range(groups):
            h, end = g * hidden // groups, (g + 1) * hidden // groups
            hidden_tile_16(block, d, width, weights, h, end - h, n_features, hidden, scores)
    groups = (hidden + _ROWS_8 - 1) // _ROWS_8
    if width % 16:
        for g in range(groups):
            h, end = g * hidden // groups, (g + 1) * hidden // groups
            hidden_tile_8(block, width - 8, width, weights, h, end - h, n_features, hidden, scores)


@njit(cache=True, nogil=True)
def fill_scores_of(block, width, weights, rankers, n_features, hidden, scores):
    """Scores of one query's documents by some rankers.

    Args:
        block: float32 [f · width], the query's features, feature by feature.
        width: Documents with padding, a multiple of 8.
        weights: float32 [rankers or more, size], the rankers.
        rankers: How many.
        n_features: f.
        hidden: Hidden units, 0 for linear.
        scores: float32 [rankers or more, width or more], filled.
    """
    if hidden > 0:
        for r in range(rankers):
            _fill_two_layer(block, width, weights[r], n_features, hidden, scores[r])
        return
    for d in range(0, width - 8, 16):
        for r in range(0, rankers, _ROWS_16):
            linear_tile_16(block, d, width, weights, r, min(_ROWS_16, rankers - r), n_features, scores)
    if width % 16:
        for r in range(0, rankers, _ROWS_8):
            linear_tile_8(block, width - 8, width, weights, r, min(_ROWS_8, rankers - r), n_features, scores)


@njit(cache=True, nogil=True)
def fill_scores(block, width, weights, n_features, hidden, scores):
    """:func:`fill_scores_of` one ranker: ``weights`` [size], ``scores`` [width or more]."""
    if hidden > 0:
        _fill_two_layer(block, width, weights, n_features, hidden, scores)
    else:
        fill_scores_of(block, width, weights.reshape(1, -1), 1, n_features, 0, scores.reshape(1, -1))


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
def fill_best(scores, row, length, width, tie_word, random_ties, top, top_score, top_tie):
    """:func:`fill_top` by vector instructions.

    Args:
        scores: float32 [rankers, width or more]; padding between ``length`` and ``width`` may be written to.
        row: Whose scores.
        length: Documents.
        width: Documents with padding, a multiple of 8.
        tie_word: uint32: order of equal scores.
        random_ties: Or the order of the data.
        top: int32 [depth + 1], the documents at the first ranks, filled; the last place is scratch.
        top_score: float32 [depth], scratch.
        top_tie: uint32 [depth], scratch.

    Returns:
        How many are shown.
    """
    shown = best_tiles(scores, row, length, width, random_ties, top)
    if shown < 0:
        return fill_top(scores[row], length, tie_word, random_ties, top[:-1], top_score, top_tie)
    return shown


@njit(forceinline=True, nogil=True)
def _clicks(labels, first, top, shown, click, leave, user, rng_bits, row, column):
    """:func:`sample_clicks` with whole arrays and where to read them: a slice costs two atomic additions.

    What the user would do at every rank is decided first, and where they stop afterwards: there is nothing to guess
    for the processor. Where the last click does not matter, tables have one entry for it, and ranks do not wait for
    each other.
    """
    clicked, ends, last = 0, 0, -1
    memory = click.shape[2] > 1
    for rank in range(shown):
        # Unsigned, so that no index is checked for counting from the end.
        at, label = _index(rank), _index(labels[_index(first + top[_index(rank)])])
        since = _index(rank - last - 1 if memory else 0)
        u = _f32(rng_bits[_index(row), _index(column + rank)] >> _u32(8)) * _UNIT
        yes = u < click[_index(user), at, since, label]
        stays = u >= leave[_index(user), at, since, label, 0]
        goes = u >= leave[_index(user), at, since, label, 1]
        clicked |= np.int64(yes) << rank
        ends |= np.int64((yes & (not stays)) | ((not yes) & goes)) << rank
        if memory:
            last = rank if yes else last
    end = ends & -ends
    return clicked & (end | (end - 1))  # no end: −1, all ranks


@njit(cache=True, nogil=True)
def sample_clicks(labels, top, shown, click, leave, rng_bits):
    """The click pattern on the documents at the first ranks.

    Args:
        labels: int32, labels of the query's documents.
        top: int32 [shown or more], the documents at the first ranks.
        shown: How many are shown.
        click: float32 [depth, depth or 1, grades] of one user; see :func:`click_tables`.
        leave: float32 [depth, depth or 1, grades, 2].
        rng_bits: uint32 [shown or more].

    Returns:
        An integer whose bit i is set when the document at rank i + 1 was clicked.
    """
    return _clicks(
        labels, 0, top, shown, np.expand_dims(click, 0), np.expand_dims(leave, 0), 0, rng_bits.reshape(1, -1), 0, 0
    )


def click_tables(users: tuple[CascadeUser, ...]) -> tuple[np.ndarray, np.ndarray]:
    """:func:`~fedrank.ranking.clicks.cascade.decision_tables` for kernels, read-only.

    Where every user examines all ranks, the axis of ranks since the last click has length 1.
    """
    click, leave = decision_tables(users)
    if all(user.cascades for user in users):
        click, leave = click[:, :, :1], leave[:, :, :1]
    return freeze(click, np.float32), freeze(leave, np.float32)


@njit(forceinline=True, nogil=True)
def _ndcg(labels, first, top, shown, ideal, discounts, gains):
    if ideal == _f32(0):
        return _f32(0)
    found = _f32(0)
    for rank in range(shown):
        found += gains[_index(labels[_index(first + top[rank])])] * discounts[_index(rank)]
    return found / ideal


@njit(cache=True, nogil=True)
def list_ndcg(labels, top, shown, ideal, discounts, gains):
    """NDCG of the documents at the first ranks, given the query's ideal DCG."""
    return _ndcg(labels, 0, top, shown, ideal, discounts, gains)


@functools.lru_cache(maxsize=2)
def quality_tables(data: FeatureBlocks, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ideal DCG of each query, float32 [q]; discount of each rank [depth]; gain of each label."""
    discounts = (1 / np.log2(2 + np.arange(depth))).astype(np.float32)
    gains = (np.exp2(np.arange(int(data.labels.max()) + 1)) - 1).astype(np.float32)
    ideal = np.zeros(len(data.length), np.float32)
    for query, (first, length) in enumerate(zip(data.label_start, data.length, strict=True)):
        best = np.sort(data.labels[first : first + length])[::-1][:depth]
        ideal[query] = gains[best] @ discounts[: len(best)]
    return freeze(ideal, np.float32), freeze(discounts, np.float32), freeze(gains, np.float32)


def asked_by(
    cohort: Cohort, users: AnyArray, queries: AnyArray, click: np.ndarray, data: FeatureBlocks
) -> tuple[np.ndarray, np.ndarray]:
    """Each party's user, int32 [parties], and queries, int32 [parties, ...], checked: kernels follow both.

    Raises:
        ValueError: There is no such user or query.
    """
    whose, about = cohort.flat(users, np.int32), cohort.flat(queries, np.int32)
    check_range("users", whose, len(click))
    check_range("queries", about, len(data.length))
    return whose, about


def kernel_arrays(
    data: FeatureBlocks,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Values, start, stride, labels, label_start and length, as kernels take them."""
    return (
        freeze(data.values, np.float32), freeze(data.start, np.int64), freeze(data.stride, np.int32),
        freeze(data.labels, np.int32), freeze(data.label_start, np.int64), freeze(data.length, np.int32),
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
def _fill_perturbations(seeds, table, noise):
    """The perturbation of each seed into a row of ``noise``."""
    here, size = len(seeds), noise.shape[1]
    for part in prange(_PARTS):
        low, high = scratch_words(size), scratch_words(size)
        for i in range(part * here // _PARTS, (part + 1) * here // _PARTS):
            fill_perturbation(seeds[i], table, low, high, noise[i])


@njit(cache=True, nogil=True, parallel=True)
def _sessions(
    values, start, stride, labels, label_start, length,
    n_features, hidden, click, leave, random_ties, table, ideal, discounts, gains,
    models, run, users, seeds, steps, queries, click_bits, click_at, tie_bits, tie_at, noise, out, quality,
):  # fmt: skip
    parties, halves, each = queries.shape
    depth, lists = click.shape[1], halves * each
    clicked, found = out.reshape(-1), quality.reshape(-1)
    widest, n_queries = stride.max(), length.size
    size, some = models.shape[1], len(noise)
    for begin in range(0, parties, some):
        here = min(some, parties - begin)
        _fill_perturbations(seeds[begin : begin + here], table, noise)
        order, bounds = _by_query(queries[begin : begin + here].copy().reshape(-1), n_queries)
        for part in prange(_PARTS):
            weights = np.empty((_TOGETHER, size), np.float32)
            scores, top = np.empty((_TOGETHER, widest), np.float32), np.empty(depth + 1, np.int32)
            top_score, top_tie = np.empty(depth, np.float32), np.empty(depth, np.uint32)
            for query in range(part * n_queries // _PARTS, (part + 1) * n_queries // _PARTS):
                width, documents, first = stride[query], length[query], label_start[query]
                block = values[start[query] : start[query] + n_features * width]
                for at in range(bounds[query], bounds[query + 1], _TOGETHER):
                    together = min(_TOGETHER, bounds[query + 1] - at)
                    for r in range(together):
                        number = order[at + r]
                        party, step = number // lists, steps[number // each % halves]
                        model = run[begin + party]
                        for j in range(size):
                            weights[r, j] = models[model, j] + step * noise[party, j]
                    fill_scores_of(block, width, weights, together, n_features, hidden, scores)
                    for r in range(together):
                        row = begin * lists + order[at + r]
                        party = row // lists
                        item = row - party * lists
                        # As in fill_best; a separate function would count references to the arrays.
                        shown = best_tiles(scores, r, documents, width, random_ties, top)
                        if shown < 0:
                            tie = tie_bits[party, tie_at + item]
                            shown = fill_top(scores[r], documents, tie, random_ties, top[:depth], top_score, top_tie)
                        column = click_at + item * depth
                        clicked[row] = _clicks(
                            labels, first, top, shown, click, leave, users[party], click_bits, party, column
                        )
                        found[row] = _ndcg(labels, first, top, shown, ideal[query], discounts, gains)


@njit(inline="always")
def _holds(top, rank, document):
    found = False
    for other in range(rank):
        found |= top[other] == document
    return found


@njit(cache=True, nogil=True)
def fill_draft(first, second, shown, toss, top, team):
    """One list of two into ``top``, whose each document is into ``team``: :func:`fedrank.ranking.on_device.draft`."""
    starts, whose = True, False
    i, j = 0, 0
    for rank in range(shown):
        while _holds(top, rank, first[i]):  # the best of each that is not taken
            i += 1
        while _holds(top, rank, second[j]):
            j += 1
        one, other = first[i], second[j]
        if starts and one == other:
            top[rank], team[rank] = one, 0
            continue
        whose = (toss >> _u32(rank)) & _u32(1) == _u32(1) if starts else not whose
        top[rank], team[rank] = (one, 1) if whose else (other, -1)
        starts = not starts


@njit(cache=True, nogil=True, parallel=True)
def _interleave(
    values, start, stride, labels, label_start, length,
    n_features, hidden, click, leave, random_ties, table, ideal, discounts, gains,
    models, run, users, seeds, step, queries, click_bits, tie_bits, tosses, noise, out, quality, credited,
):  # fmt: skip
    parties, each = queries.shape
    depth = click_bits.shape[2]
    clicked, found, rng_bits = out.reshape(-1), quality.reshape(-1), click_bits.reshape(-1, depth)
    widest, n_queries = stride.max(), length.size
    size, some = models.shape[1], len(noise)
    for begin in range(0, parties, some):
        here = min(some, parties - begin)
        _fill_perturbations(seeds[begin : begin + here], table, noise)
        order, bounds = _by_query(queries[begin : begin + here].copy().reshape(-1), n_queries)
        for part in prange(_PARTS):
            weights = np.empty((_TOGETHER, size), np.float32)
            scores, both = np.empty((_TOGETHER, widest), np.float32), np.empty((2, depth + 1), np.int32)
            top_score, top_tie = np.empty(depth, np.float32), np.empty(depth, np.uint32)
            top, team = np.empty(depth, np.int32), np.empty(depth, np.int32)
            for query in range(part * n_queries // _PARTS, (part + 1) * n_queries // _PARTS):
                width, documents, first = stride[query], length[query], label_start[query]
                block = values[start[query] : start[query] + n_features * width]
                for at in range(bounds[query], bounds[query + 1], _TOGETHER // 2):
                    pairs = min(_TOGETHER // 2, bounds[query + 1] - at)
                    for r in range(pairs):
                        party = order[at + r] // each
                        model = run[begin + party]
                        for j in range(size):
                            moved = step * noise[party, j]
                            weights[2 * r, j] = models[model, j] + moved
                            weights[2 * r + 1, j] = models[model, j] - moved
                    fill_scores_of(block, width, weights, 2 * pairs, n_features, hidden, scores)
                    for r in range(pairs):
                        row = begin * each + order[at + r]
                        party = row // each
                        item = row - party * each
                        tie, shown = tie_bits[party, item], 0
                        for i in range(2):
                            shown = best_tiles(scores, 2 * r + i, documents, width, random_ties, both[i])
                            if shown < 0:
                                shown = fill_top(
                                    scores[2 * r + i], documents, tie, random_ties, both[i, :depth], top_score, top_tie
                                )
                        fill_draft(both[0], both[1], shown, tosses[party, item], top, team)
                        pattern = _clicks(labels, first, top, shown, click, leave, users[party], rng_bits, row, 0)
                        clicked[row] = pattern
                        found[row] = _ndcg(labels, first, top, shown, ideal[query], discounts, gains)
                        plus, minus = 0, 0
                        for rank in range(shown):
                            if pattern >> rank & 1:
                                plus |= (1 << rank) * (team[rank] >= 0)
                                minus |= (1 << rank) * (team[rank] <= 0)
                        credited[party, 0, item], credited[party, 1, item] = plus, minus


def _host(
    center, user_index, seeds, queries, click_bits, tie_bits, *tosses,
    kernel, blocks, hidden, click, leave, random_ties, step,
):  # fmt: skip
    """Call a kernel for a whole cohort: the clicks and the quality of lists and, with tosses, whose the clicks are."""
    lead = np.broadcast_shapes(center.shape[:-1], seeds.shape, user_index.shape)
    cohort = Cohort(lead)
    (models, run), flat = cohort.models(center), cohort.flat
    user_index, queries = asked_by(cohort, user_index, queries, click, blocks)
    out = [np.zeros(queries.shape, np.int32), np.zeros(queries.shape, np.float32)]
    bits = [flat(bits, np.uint32) for bits in (click_bits, tie_bits, *tosses)]
    check_shapes(click_bits=(bits[0], (*queries.shape, click.shape[1])))
    for other in bits[1:]:
        check_shapes(bits=(other, queries.shape))
    if tosses:
        out.append(np.zeros((len(queries), 2, *queries.shape[1:]), np.int32))
    else:
        rows = (bit.reshape(len(queries), -1) for bit in bits)
        bits = [one for row in rows for one in (row, 0)]
    bits.append(_room(len(queries), models.shape[1]))
    if queries.size:
        with ONE_AT_A_TIME:
            kernel(
                *kernel_arrays(blocks), blocks.n_features, hidden, click, leave, random_ties, normal_table(),
                *quality_tables(blocks, click.shape[1]),
                models, run, user_index, flat(seeds, np.uint32), step, queries, *bits, *out,
            )  # fmt: skip
    return tuple(array.reshape(*lead, *array.shape[1:]) for array in out)


def _room(parties, size):
    """For the perturbations that are held at a time."""
    return np.empty((max(1, min(parties, _NOISE // size)), size), np.float32)


def kernel_shape(ranker: Ranker) -> tuple[int, int]:
    """Features and hidden units.

    Raises:
        ConfigError: The kernel cannot compute this ranker.
    """
    shape = ranker.kernel_shape()
    if shape is None:
        raise ConfigError(f"the CPU kernel cannot compute {type(ranker).__name__}; use queries.padded().")
    return shape


def run_sessions(model: Perturbed, steps: tuple[float, ...], lists: Interactions, random_ties: bool) -> SessionResults:
    """Sessions; arguments as in :func:`fedrank.ranking.sessions.devices.run_sessions`.

    ``vmap`` over parties (and over runs) becomes one call of the kernel.
    """
    return SessionResults(*_call(_sessions, model, freeze(steps, np.float32), random_ties, lists.arrays))


def run_interleaved(model: Perturbed, step: float, lists: Interactions, random_ties: bool) -> InterleavedResults:
    """Lists made of two rankers' lists; arguments as in :func:`fedrank.ranking.sessions.devices.run_interleaved`."""
    *shown, credited = _call(_interleave, model, np.float32(step), random_ties, lists.arrays)
    return InterleavedResults(SessionResults(*shown), credited)


class HostSessions:
    """:func:`run_sessions` of whole cohorts, round after round, without JAX.

    Args:
        ranker: The ranker.
        users: The users.
        data: The queries.
        steps: What each half multiplies a perturbation with.
        random_ties: Order of equal scores.
    """

    def __init__(
        self,
        ranker: Ranker,
        users: tuple[CascadeUser, ...],
        data: FeatureBlocks,
        steps: tuple[float, ...],
        random_ties: bool,
    ):
        click, leave = click_tables(users)
        self._known = (
            *kernel_arrays(data), data.n_features, kernel_shape(ranker)[1], click, leave, random_ties,
            freeze(normal_table(), np.float32), *quality_tables(data, users[0].depth),
        )  # fmt: skip
        self._steps, self._depth = freeze(steps, np.float32), click.shape[1]
        self._click, self._data = click, data
        self._size, self._noise = ranker.size, np.empty((0, ranker.size), np.float32)
        self._made = np.empty(0, np.uint32)  # whose perturbations are in self._noise

    def __call__(
        self,
        center: Float[AnyArray, "runs 1 n"],
        user_index: Int[AnyArray, "runs parties"],
        seed: UInt32[AnyArray, "runs parties"],
        queries: Int[AnyArray, "runs parties halves interactions"],
        words: UInt32[np.ndarray, "rows words"],
        click_at: int,
        tie_at: int,
    ) -> SessionResults:
        """The sessions of a cohort.

        Args:
            center: Each run's weights.
            user_index: Each party's user.
            seed: Each party's seed.
            queries: What they ask.
            words: Random words in C order, a row for each party, runs one after another.
            click_at: The column where those for clicks begin.
            tie_at: The column where those for ties begin.
        """
        cohort = Cohort(seed.shape)
        (models, run), flat = cohort.models(center), cohort.flat
        whose, asked = asked_by(cohort, user_index, queries, self._click, self._data)
        if len(self._noise) < min(cohort.parties, len(_room(cohort.parties, self._size))):
            self._noise = _room(cohort.parties, self._size)
        patterns, ndcg = np.zeros(asked.shape, np.int32), np.zeros(asked.shape, np.float32)
        lists = asked[0].size
        check_shapes(
            queries=(asked, (None, len(self._steps), None)),
            weights=(models, (None, self._size)),
            words=(words, (cohort.parties, None)),
            click_words=(words[:1, click_at : click_at + lists * self._depth], (1, lists * self._depth)),
            tie_words=(words[:1, tie_at : tie_at + lists], (1, lists)),
        )
        _AT_HAND.sessions = None
        with ONE_AT_A_TIME:
            _sessions(
                *self._known, models, run, whose, flat(seed, np.uint32), self._steps, asked,
                words, click_at, words, tie_at, self._noise, patterns, ndcg,
            )  # fmt: skip
        fits = len(self._noise) >= cohort.parties
        self._made = flat(seed, np.uint32) if fits else self._made[:0]
        _AT_HAND.sessions = weakref.ref(self)
        return SessionResults(patterns.reshape(queries.shape), ndcg.reshape(queries.shape))

    @property
    def data(self) -> FeatureBlocks:
        """The queries."""
        return self._data

    def perturbations(self, seed: UInt32[AnyArray, "runs parties"]) -> Float32[np.ndarray, "rows n"] | None:
        """Those of a cohort's seeds, runs one after another, if the last sessions were its; None otherwise."""
        return self._noise if np.array_equal(self._made, np.ravel(seed)) else None


#: The last :class:`HostSessions` of each thread: the server makes the same perturbations again.
_AT_HAND = threading.local()


def perturbations_at_hand(seeds: UInt32[AnyArray, "*runs parties"], size: int) -> Float32[np.ndarray, "rows n"] | None:
    """Perturbations of these seeds, one after another, if the last sessions of this thread made them."""
    sessions = getattr(_AT_HAND, "sessions", None)
    last = None if sessions is None else sessions()
    found = None if last is None else last.perturbations(seeds)
    return found if found is not None and found.shape[1] == size else None


def host_interleaved(model: Perturbed, step: float, lists: Interactions, random_ties: bool) -> InterleavedResults:
    """:func:`run_interleaved` of a cohort, without JAX.

    Leading axes are runs and parties, of length 1 where an argument is the same along them. ``credited`` is
    ``[*lead, 2, interactions]``.
    """
    host = _settings(_interleave, model, np.float32(step), random_ties)
    *shown, credited = host(model.center, model.user_index, model.seed, *lists.arrays)
    return InterleavedResults(SessionResults(*shown), credited)


def _settings(kernel, model: Perturbed, step, random_ties):
    """:func:`_host` with the arguments that are the same for all parties."""
    _, hidden = kernel_shape(model.ranker)
    click, leave = click_tables(model.users)
    return functools.partial(
        _host, kernel=kernel, blocks=model.data, hidden=hidden, click=click, leave=leave, random_ties=random_ties,
        step=step,
    )  # fmt: skip


def _call(kernel, model: Perturbed, step, random_ties, lists):
    """Call a kernel from a program of JAX; ``lists`` are queries and bits."""
    shape, interleaved = lists[0].shape, kernel is _interleave
    shapes = [jax.ShapeDtypeStruct(shape, jnp.int32), jax.ShapeDtypeStruct(shape, jnp.float32)]
    if interleaved:
        shapes.append(jax.ShapeDtypeStruct((2, *shape), jnp.int32))
    host, user = _settings(kernel, model, step, random_ties), jnp.asarray(model.user_index, jnp.int32)
    return jax.pure_callback(host, tuple(shapes), model.center, user, model.seed, *lists, vmap_method="expand_dims")
