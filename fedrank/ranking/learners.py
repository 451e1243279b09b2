"""PDGD: pairwise differentiable gradient descent (Oosterhuis & de Rijke, CIKM 2018).

A ranking is drawn from the scores, a user clicks, and the ranker moves so that clicked documents score higher than
documents that were seen and not clicked (the paper's Section 4 and Algorithm 1). For a ranking R, scores s(d), and the
documents D_t that are not above rank t::

    (1)  P(R) = Π_t e^{s(R_t)} / Σ_{d in D_t} e^{s(d)}            Plackett–Luce
    (2)  k > l  for k clicked, l not clicked, and l above a click or right below the last one
    (3)  ρ(k, l) = P(R*) / (P(R) + P(R*)),   R* = R with k and l swapped
    (4)  ∇ = Σ_{k > l} ρ(k, l) · e^{s(k)} e^{s(l)} / (e^{s(k)} + e^{s(l)})² · (∇s(k) − ∇s(l))

ρ makes up for where documents are shown: two documents that would be clicked alike wherever they stood are preferred to
each other with equal expected weight.

Only the first ``depth`` ranks are shown. P is the probability of those, with all documents of the query in its
denominators. Swapping the documents a and b at ranks i < j changes the denominators between them only, so that with L_t
the logarithm of the denominator at rank t::

    (5)  P(R) / P(R*) = Π_{t = i+1..j} (1 + e^{s(a) − L_t} − e^{s(b) − L_t}),    ρ = 1 / (1 + P(R)/P(R*))

b is in D_t, so that its term is at most 1: no factor is negative, all are on the same side of 1, and however far apart
scores are, ρ is a number from 0 to 1.

The definition is in JAX. The kernel computes the same on the CPU, from the same draws: ranking, clicks, preferences and
gradient of a whole cohort in one fused loop. One party a step of the parallel loop,
its interactions one after another. Scores, ranks and clicks are made by the functions of
:mod:`fedrank.ranking.sessions.kernel`; the pairs' weights are made in double precision, and the gradient reads the
features of those few documents only that have a weight. Equation numbers are those of the definition.

**Draws**: 32 random bits for every document of a query, from 64 random bits of an interaction. Queries have different
numbers of documents, and a party's random bits of a round are drawn before it is known which query is meant. So an
interaction has two integers of 32 bits, and the documents' bits are made from them where they are used: Threefry-2x32
with 20 rounds, key ``(w0, w1)`` and, for block ``b``, counter ``(b, 0)`` gives those of the documents ``2b`` and ``2b +
1``. Equal pairs give equal bits for the documents; a pair must therefore serve one purpose in one interaction.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.compiled import njit, prange
from fedrank.core.kernels import ONE_AT_A_TIME, Cohort, check_shapes, threefry_block
from fedrank.core.lazy import jax, jnp
from fedrank.core.rng import threefry_2x32
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
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
from fedrank.ranking.sessions.reference import SessionResults, rank, simulate_clicks

_u32 = np.uint32


def document_bits(
    w0: UInt32[AnyArray, "*interactions"], w1: UInt32[AnyArray, "*interactions"], documents: int
) -> UInt32[Array, "*interactions {documents}"]:
    """Random bits of a query's documents, in JAX.

    Args:
        w0: uint32 [...].
        w1: uint32 [...].
        documents: Number of documents d.

    Returns:
        uint32 [..., d].
    """
    blocks = jnp.arange(-(-documents // 2), dtype=jnp.uint32)
    lead = (*w0.shape, blocks.shape[0])
    counter = (jnp.broadcast_to(blocks, lead), jnp.zeros(lead, jnp.uint32))
    pair = threefry_2x32((w0[..., None], w1[..., None]), counter)
    return jnp.stack(pair, axis=-1).reshape(*w0.shape, -1)[..., :documents]


@njit(cache=True, nogil=True)
def fill_document_bits(w0, w1, out):
    """:func:`document_bits` into ``out`` (uint32 [d], filled in place), for CPU kernels."""
    for block in range(out.size // 2):
        out[2 * block], out[2 * block + 1] = threefry_block(_u32(w0), _u32(w1), _u32(block), _u32(0))
    if out.size % 2:
        out[out.size - 1], _ = threefry_block(_u32(w0), _u32(w1), _u32(out.size // 2), _u32(0))


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
    """:func:`pdgd_steps` of a whole cohort with the kernel, without JAX.

    Leading axes are runs and parties, of length 1 where an argument is the same along them. After each interaction
    weights are pulled back by ``mu`` times the rate, as in :class:`fedrank.ranking.foltr_pdgd.Proximal`.

    Returns:
        Weights afterwards float32 [..., n], patterns int32 [..., K], nDCG float32 [..., K].

    Raises:
        ConfigError: The kernel does not know the ranker, or the users do not fit each other.
    """
    (_, hidden), (click, leave) = kernel_shape(ranker), click_tables(users)
    lead = np.broadcast_shapes(
        user_index.shape, weights.shape[:-1], rate.shape, queries.shape[:-1], active.shape[:-1],
        document_bits.shape[:-2], click_bits.shape[:-2],
    )  # fmt: skip
    cohort = Cohort(lead)
    (models, run), flat = cohort.models(weights), cohort.flat
    user_index, queries = asked_by(cohort, user_index, queries, click, data)
    out = np.empty((cohort.parties, models.shape[1]), np.float32)
    patterns, quality = np.zeros(queries.shape, np.int32), np.zeros(queries.shape, np.float32)
    ideal, discounts, gains = quality_tables(data, click.shape[1])
    took_place, documents, clicks = flat(active, np.bool_), flat(document_bits, np.uint32), flat(click_bits, np.uint32)
    check_shapes(
        active=(took_place, queries.shape),
        document_bits=(documents, (*queries.shape, 2)),
        click_bits=(clicks, (*queries.shape, click.shape[1])),
    )
    with ONE_AT_A_TIME:
        _steps(
            *kernel_arrays(data), data.n_features, hidden, click, leave, ideal, discounts, gains,
            models, run, user_index, flat(rate, np.float32), queries,
            took_place, documents, clicks, batch,
            np.float32(mu),
            out, patterns, quality,
        )  # fmt: skip
    learned, patterns, ndcg = (array.reshape(*lead, *array.shape[1:]) for array in (out, patterns, quality))
    return learned, patterns, ndcg


class PdgdDraws(NamedTuple):
    """A party's random bits for K interactions; none is used twice.

    Attributes:
        documents: uint32 [K, 2]: makes random bits for every document, for drawing a ranking.
        clicks: uint32 [K, depth]: random bits for the user's decision at each rank.
    """

    documents: UInt32[Array, "interactions 2"]
    clicks: UInt32[Array, "interactions depth"]


class Learned(NamedTuple):
    """Result of a party's interactions.

    Attributes:
        weights: float32 [n]: the ranker's weights afterwards.
        sessions: The clicks and the quality of what was shown, [K] each; 0 where no interaction took place.
    """

    weights: Float[AnyArray, "parameters"]
    sessions: SessionResults


def pdgd_steps(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, ""] | int,
    data: PaddedQueries | FeatureBlocks,
    weights: Float[AnyArray, "parameters"],
    rate: Float[AnyArray, ""] | float,
    queries: Int[AnyArray, "interactions"],
    active: Bool[AnyArray, "interactions"],
    rng_bits: PdgdDraws,
    batch: bool = False,
) -> Learned:
    """K interactions of one party, one after another, with a ranker that learns from them.

    Args:
        ranker: The ranker.
        users: Click models of the users, all of one depth. Labels of the data must be below their ``grades``.
        user_index: int32, the number of the user who is at this party.
        data: The queries: feature blocks go to the CPU kernel, padded queries to JAX.
        weights: float32 [n], at the start.
        rate: float32, learning rate η.
        queries: int32 [K]: which query each interaction is about.
        active: bool [K]: which interactions take place; the others change nothing.
        rng_bits: The party's random bits.
        batch: False: the weights move by η times the gradient after each interaction. True: all gradients are taken at
            the starting weights, and the weights move by η times their sum.

    Returns:
        The weights afterwards, and what happened. The nDCG is that of the ranking which was drawn and shown.

    Raises:
        ConfigError: Users do not fit each other, or the kernel does not know the ranker.
    """
    weights, queries, active = (jnp.asarray(x) for x in (weights, queries, active))
    rng_bits = PdgdDraws(*map(jnp.asarray, rng_bits))
    rate, user_index = jnp.asarray(rate, jnp.float32), jnp.asarray(user_index, jnp.int32)
    if isinstance(data, FeatureBlocks):
        kernel_shape(ranker), click_tables(users)  # what the kernel does not know is refused here

        def host(*arrays: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            whose, start, rates, about, took_place, documents, clicks = map(np.asarray, arrays)
            lists = (about, took_place, documents, clicks)
            return host_steps(ranker, users, whose, data, start, rates, *lists, batch=batch)

        shapes = [(weights.shape, jnp.float32), (queries.shape, jnp.int32), (queries.shape, jnp.float32)]
        out = tuple(jax.ShapeDtypeStruct(*each) for each in shapes)
        mine = (user_index, weights, rate, queries, active, *rng_bits)
        # vmap over parties (and over runs) becomes one call of the kernel.
        weights, patterns, ndcg = jax.pure_callback(host, out, *mine, vmap_method="expand_dims")
        return Learned(weights, SessionResults(patterns, ndcg))

    def interact(weights: jax.Array, each: Any) -> tuple[jax.Array, SessionResults]:
        query, takes_place, document_pair, click_bits = each
        features, labels, where = (jnp.asarray(a)[query] for a in (data.features, data.labels, data.where))
        noise = document_bits(document_pair[0], document_pair[1], where.shape[0])
        ranking = sample_ranking(ranker.scores(weights, features), where, noise, users[0].depth)
        sessions = simulate_clicks(users, user_index, labels, where, ranking, click_bits)
        gradient = pdgd_gradient(ranker, weights, features, where, ranking, sessions.patterns)
        return jax.tree.map(lambda leaf: jnp.where(takes_place, leaf, jnp.zeros_like(leaf)), (gradient, sessions))

    each = (queries, active, rng_bits.documents, rng_bits.clicks)
    if batch:
        gradients, sessions = jax.vmap(lambda one: interact(weights, one))(each)
        return Learned(weights + rate * jnp.sum(gradients, axis=0), sessions)

    def step(weights: jax.Array, one: Any) -> tuple[jax.Array, SessionResults]:
        gradient, sessions = interact(weights, one)
        return weights + rate * gradient, sessions

    return Learned(*jax.lax.scan(step, weights, each))


def sample_ranking(
    scores: Float[AnyArray, "documents"],
    where: Bool[AnyArray, "documents"],
    rng_bits: UInt32[AnyArray, "documents"],
    depth: int,
) -> Int[Array, "ranks"]:
    """The first ranks of a ranking drawn from the Plackett–Luce model of the scores, (1).

    An exponential race: with E(d) exponentially distributed, documents by rising E(d)/e^{s(d)} are in Plackett–Luce
    order (the same as by falling score plus Gumbel noise −log E).

    Args:
        scores: float32 [d].
        where: bool [d], False on padding.
        rng_bits: uint32 [d], random bits of each document.
        depth: Ranks wanted; cut to d.

    Returns:
        int32 [min(depth, d)]: indices of documents, padding last.
    """
    # Small values of E decide who comes first; −log(1 − u) has them down to 2⁻³³, where −log u would stop at 2⁻²⁴.
    unit = (rng_bits.astype(jnp.float32) + 0.5) * np.float32(2.0**-32)
    race = -jnp.log1p(-jnp.minimum(unit, np.float32(1 - 2.0**-24)))
    best = jnp.max(jnp.where(where, scores, -jnp.inf))
    index = jnp.arange(scores.shape[0], dtype=jnp.uint32)
    return rank((scores - best) - jnp.log(race), where, index, depth)


def pdgd_gradient(
    ranker: Ranker,
    weights: Float[AnyArray, "parameters"],
    features: Float[AnyArray, "documents features"],
    where: Bool[AnyArray, "documents"],
    ranking: Int[AnyArray, "ranks"],
    pattern: Int[AnyArray, ""] | int,
) -> Float[Array, "parameters"]:
    """The gradient of one interaction, given what was shown and what was clicked: (4).

    Args:
        ranker: The ranker.
        weights: float32 [n].
        features: float32 [d, f] of the query's documents.
        where: bool [d], False on padding.
        ranking: int32 [k], the documents shown; ranks beyond the last document hold padding.
        pattern: int32, bit i is set when the document at rank i + 1 was clicked.

    Returns:
        float32 [n]; the ranker is to move along it, uphill. Zero without a click.
    """
    scores, backward = jax.vjp(lambda weights: ranker.scores(weights, features), weights)
    coefficients = pair_weights(scores, where, ranking, pattern)
    # Each document's ∇s(d) times the sum of its pairs' weights: one pass backwards for all pairs.
    return backward(jnp.zeros_like(scores).at[ranking].add(coefficients))[0]


def pair_weights(
    scores: Float[AnyArray, "documents"],
    where: Bool[AnyArray, "documents"],
    ranking: Int[AnyArray, "ranks"],
    pattern: Int[AnyArray, ""] | int,
) -> Float[Array, "ranks"]:
    """Factor of ∇s(d) of each shown document: Σ of its pairs' weights, + as preferred, − as the other.

    Args:
        scores: float32 [d].
        where: bool [d].
        ranking: int32 [k].
        pattern: int32.

    Returns:
        float32 [k].
    """
    place = jnp.arange(ranking.shape[0])
    shown = where[ranking]
    clicked = shown & (((pattern >> place) & 1) > 0)
    last = jnp.max(jnp.where(clicked, place, -1))
    skipped = shown & ~clicked & (place <= last + 1) & (last >= 0)
    s = jnp.where(shown, scores[ranking], 0.0)

    # L_t over the documents at rank t or below, those that are not shown included; 0 where there is no rank t.
    beyond = jnp.asarray(where).at[ranking].set(False)
    rest = jax.nn.logsumexp(jnp.where(beyond, scores, -jnp.inf))
    below = shown[None, :] & (place[None, :] >= place[:, None])
    logits = jnp.concatenate([jnp.where(below, s[None, :], -jnp.inf), jnp.broadcast_to(rest, (len(place), 1))], axis=1)
    log_denominators = jnp.where(shown, jax.nn.logsumexp(logits, axis=1), 0.0)

    # (5): odds[i, j] = P(R)/P(R*) for i < j.
    relative = jnp.exp(s[None, :] - log_denominators[:, None])  # [t, document]
    factors = 1 + relative[:, :, None] - relative[:, None, :]  # [t, i, j]
    first, second, t = place[None, :, None], place[None, None, :], place[:, None, None]
    between = (t > first) & (t <= second) & (shown[:, None] & shown[None, :])[None]
    odds = jnp.prod(jnp.where(between, jnp.maximum(factors, 0.0), 1.0), axis=0)
    rho = 1 / (1 + odds)  # (3)
    rho = jnp.where(place[:, None] < place[None, :], rho, rho.T)

    smaller = jnp.exp(-jnp.abs(s[:, None] - s[None, :]))  # e^a e^b / (e^a + e^b)² with the larger one taken out
    pairs = jnp.where(clicked[:, None] & skipped[None, :], rho * smaller / jnp.square(1 + smaller), 0.0)
    return jnp.sum(pairs, axis=1) - jnp.sum(pairs, axis=0)
