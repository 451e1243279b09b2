"""PDGD on the CPU: ranking, clicks, preferences and gradient of a whole cohort in one fused loop.

Computes what :mod:`fedrank.ranking.learners.pdgd` defines, from the same draws. One party a step of the parallel loop,
its interactions one after another. Scores, ranks and clicks are made by the functions of
:mod:`fedrank.ranking.sessions.kernel`; the pairs' weights are made in double precision, and the gradient reads the
features of those few documents only that have a weight. Equation numbers are those of the definition.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from fedrank.core.compiled import njit, prange
from fedrank.core.kernels import ONE_AT_A_TIME, Cohort, check_shapes
from fedrank.core.lazy import jax, jnp
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import FeatureBlocks
from fedrank.ranking.learners.draws import fill_document_bits
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.kernel import (
    asked_by,
    click_tables,
    fill_scores,
    fill_top,
    kernel_arrays,
    kernel_shape,
    list_ndcg,
    quality_tables,
    sample_clicks,
)

_u32 = np.uint32
_f32 = np.float32
_f64 = np.float64
_STEP = np.float32(2.0**-32)
_LARGEST = np.float32(1 - 2.0**-24)
#: How far below the best score a shown document may be for e^(score − best) to be handled as a number: e^−600 and its
#: inverse are well inside the range of doubles.
_WIDE = 600.0


@njit(cache=True, nogil=True)
def fill_race(scores, length, rng_bits, race):
    """Scores less the best one, plus Gumbel noise, into ``race``; returns the best score."""
    best = scores[0]
    for d in range(1, length):
        best = max(best, scores[d])
    for d in range(length):
        unit = min((_f32(rng_bits[d]) + _f32(0.5)) * _STEP, _LARGEST)
        race[d] = (scores[d] - best) - np.log(-np.log1p(-unit))
    return best


@njit(inline="always")
def _log_add(a, b):
    high, low = max(a, b), min(a, b)
    return high + math.log1p(math.exp(low - high)) if low > -math.inf else high


@njit(cache=True, nogil=True, error_model="numpy")
def fill_relative(scores, length, best, top, shown, observed, rest, relative):
    """The terms of (5): relative[t, i] = e^(score at rank i − L_t), for 1 ≤ t < observed and i < observed.

    ``rest`` [length or more] and ``relative[0]`` are scratch.
    """
    lowest = best
    for t in range(shown):
        lowest = min(lowest, scores[top[t]])
    if lowest > best - _WIDE:
        for d in range(length):
            rest[d] = math.exp(_f64(scores[d]) - _f64(best))
        for t in range(shown):
            relative[0, t] = rest[top[t]]
            rest[top[t]] = 0.0
        left = 0.0
        for d in range(length):
            left += rest[d]
        for t in range(shown - 1, 0, -1):
            left += relative[0, t]
            if t < observed:
                inverse = 1.0 / left
                for i in range(observed):
                    relative[t, i] = relative[0, i] * inverse
        return
    # The same with logarithms of sums, where the sums themselves would vanish.
    rest[:length] = 1.0
    for t in range(shown):
        rest[top[t]] = 0.0
    log_left = -math.inf
    for d in range(length):
        if rest[d] > 0.0:
            log_left = _log_add(log_left, _f64(scores[d]))
    for t in range(shown - 1, 0, -1):
        log_left = _log_add(log_left, _f64(scores[top[t]]))
        if t < observed:
            for i in range(observed):
                relative[t, i] = math.exp(_f64(scores[top[i]]) - log_left)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_pair_weights(scores, top, observed, pattern, relative, out):
    """Factors of ∇s of the document at each observed rank in (4), written to ``out``."""
    for i in range(observed):
        out[i] = 0.0
    for i in range(observed):
        if not (pattern >> i) & 1:
            continue
        for j in range(observed):
            if (pattern >> j) & 1:
                continue
            first, second = min(i, j), max(i, j)
            odds = 1.0
            for t in range(first + 1, second + 1):
                odds *= max(0.0, 1.0 + relative[t, first] - relative[t, second])
            smaller = math.exp(-abs(_f64(scores[top[i]]) - _f64(scores[top[j]])))
            weight = smaller / ((1.0 + smaller) * (1.0 + smaller) * (1.0 + odds))
            out[i] += weight
            out[j] -= weight


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def add_gradient(block, width, weights, n_features, hidden, top, coefficients, observed, row, step):
    """Adds Σ coefficient · ∇s over the observed ranks to ``step``, for linear and two-layer; ``row`` [f] is scratch."""
    f, into = n_features, hidden * n_features
    for i in range(observed):
        c, document = _f32(coefficients[i]), top[i]
        if c == _f32(0):
            continue
        if hidden == 0:
            for j in range(f):
                step[j] += c * block[j * width + document]
            continue
        for j in range(f):
            row[j] = block[j * width + document]
        for h in range(hidden):
            of_unit = weights[h * f : (h + 1) * f]
            z = _f32(0)
            for j in range(f):
                z += of_unit[j] * row[j]
            z += weights[into + h]
            if z > _f32(0):
                step[into + hidden + h] += c * z
                back = c * weights[into + hidden + h]
                step[into + h] += back
                slope = step[h * f : (h + 1) * f]
                for j in range(f):
                    slope[j] += back * row[j]


@njit(cache=True, nogil=True, parallel=True)
def _steps(
    values, start, stride, labels, label_start, length,
    n_features, hidden, click, leave, ideal, discounts, gains,
    models, run, users, rates, queries, active, document_bits, click_bits, batch, mu, out, patterns, quality,
):  # fmt: skip
    parties, interactions = queries.shape
    depth = click_bits.shape[2]
    widest = stride.max()
    size = models.shape[1]
    for party in prange(parties):
        scores = np.empty(widest, np.float32)
        rng_bits, race = np.empty(widest, np.uint32), np.empty(widest, np.float32)
        top, top_score, top_tie = np.empty(depth, np.int32), np.empty(depth, np.float32), np.empty(depth, np.uint32)
        rest, relative, pairs = np.empty(widest), np.empty((depth, depth)), np.empty(depth)
        row, step = np.empty(n_features, np.float32), np.zeros(size, np.float32)
        rate, user, weights = rates[party], users[party], out[party]
        weights[:] = models[run[party]]
        for k in range(interactions):
            if not active[party, k]:
                continue
            query = queries[party, k]
            width, documents = stride[query], length[query]
            block = values[start[query] : start[query] + n_features * width]
            grades = labels[label_start[query] :]
            fill_scores(block, width, weights, n_features, hidden, scores)
            fill_document_bits(document_bits[party, k, 0], document_bits[party, k, 1], rng_bits[:documents])
            best = fill_race(scores, documents, rng_bits, race)
            shown = fill_top(race, documents, _u32(0), False, top, top_score, top_tie)
            pattern = sample_clicks(grades, top, shown, click[user], leave[user], click_bits[party, k])
            patterns[party, k] = pattern
            quality[party, k] = list_ndcg(grades, top, shown, ideal[query], discounts, gains)
            if pattern != 0:
                # (2): ranks down to one below the last click.
                observed = 1
                while pattern >> observed:
                    observed += 1
                observed = min(observed + 1, shown)
                fill_relative(scores, documents, best, top, shown, observed, rest, relative)
                fill_pair_weights(scores, top, observed, pattern, relative, pairs)
                add_gradient(block, width, weights, n_features, hidden, top, pairs, observed, row, step)
            if pattern != 0 and not batch:
                for j in range(size):
                    weights[j] += rate * step[j]
                    step[j] = _f32(0)
            if mu > _f32(0):  # a pull back to where the party began
                for j in range(size):
                    weights[j] -= rate * mu * (weights[j] - models[run[party], j])
        if batch:
            for j in range(size):
                weights[j] += rate * step[j]


def _host_steps(
    user_index,
    weights,
    rate,
    queries,
    active,
    document_bits,
    click_bits,
    *,
    blocks,
    hidden,
    click,
    leave,
    batch,
    mu=0.0,
):
    lead = np.broadcast_shapes(
        user_index.shape, weights.shape[:-1], rate.shape, queries.shape[:-1], active.shape[:-1],
        document_bits.shape[:-2], click_bits.shape[:-2],
    )  # fmt: skip
    cohort = Cohort(lead)
    (models, run), flat = cohort.models(weights), cohort.flat
    user_index, queries = asked_by(cohort, user_index, queries, click, blocks)
    out = np.empty((cohort.parties, models.shape[1]), np.float32)
    patterns, quality = np.zeros(queries.shape, np.int32), np.zeros(queries.shape, np.float32)
    ideal, discounts, gains = quality_tables(blocks, click.shape[1])
    took_place, documents, clicks = flat(active, np.bool_), flat(document_bits, np.uint32), flat(click_bits, np.uint32)
    check_shapes(
        active=(took_place, queries.shape),
        document_bits=(documents, (*queries.shape, 2)),
        click_bits=(clicks, (*queries.shape, click.shape[1])),
    )
    with ONE_AT_A_TIME:
        _steps(
            *kernel_arrays(blocks), blocks.n_features, hidden, click, leave, ideal, discounts, gains,
            models, run, user_index, flat(rate, np.float32), queries,
            took_place, documents, clicks, batch,
            np.float32(mu),
            out, patterns, quality,
        )  # fmt: skip
    return tuple(array.reshape(*lead, *array.shape[1:]) for array in (out, patterns, quality))


def host_steps(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: np.ndarray,
    data: FeatureBlocks,
    weights: np.ndarray,
    rate: np.ndarray,
    queries: np.ndarray,
    active: np.ndarray,
    document_bits: np.ndarray,
    click_bits: np.ndarray,
    mu: float = 0.0,
    batch: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """:func:`steps` of a whole cohort, without JAX.

    Leading axes are runs and parties, of length 1 where an argument is the same along them. After each interaction
    weights are pulled back by ``mu`` times the rate, as in :class:`fedrank.ranking.foltr_pdgd.Proximal`.
    """
    _, hidden = kernel_shape(ranker)
    click, leave = click_tables(users)
    learned, patterns, ndcg = _host_steps(
        user_index, weights, rate, queries, active, document_bits, click_bits,
        blocks=data, hidden=hidden, click=click, leave=leave, batch=batch, mu=mu,
    )  # fmt: skip
    return learned, patterns, ndcg


def steps(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: jax.Array,
    data: FeatureBlocks,
    weights: jax.Array,
    rate: jax.Array,
    queries: jax.Array,
    active: jax.Array,
    document_bits: jax.Array,
    click_bits: jax.Array,
    batch: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Interactions; arguments as in :func:`fedrank.ranking.learners.pdgd.pdgd_steps`.

    ``vmap`` over parties (and over runs) becomes one call of the kernel.

    Returns:
        Weights afterwards float32 [n], patterns int32 [K], nDCG float32 [K].

    Raises:
        ConfigError: The kernel does not know the ranker, or the users do not fit each other.
    """
    _, hidden = kernel_shape(ranker)
    click, leave = click_tables(users)
    host = functools.partial(_host_steps, blocks=data, hidden=hidden, click=click, leave=leave, batch=batch)
    shapes = (
        jax.ShapeDtypeStruct(weights.shape, jnp.float32),
        jax.ShapeDtypeStruct(queries.shape, jnp.int32),
        jax.ShapeDtypeStruct(queries.shape, jnp.float32),
    )
    return jax.pure_callback(
        host, shapes, user_index, weights, rate, queries, active, document_bits, click_bits, vmap_method="expand_dims"
    )
