"""FOLtR-ES with the random stream of the code published with it (Kharitonov, WSDM 2019), fault included.

That code (``foltr/client/client.py`` of the repository ``facebookresearch/foltr-es``) re-seeds the Mersenne Twister
that simulates the user with the very seed that makes the perturbation. Both read the same words from the start:

* the perturbation reads them two at a time as 53-bit numbers, for the polar method of the normal distribution;
* the user reads one for each query (masked rejection), two for each click decision, and two for each stop decision
  after a click.

So a click is drawn from the numbers that also made some of the weights' noise, and the reward is correlated with the
noise even where the ranking cannot matter. Equal scores are ordered as that code's reversed sort does: later documents
first.

``foltr-es-2019`` is FOLtR-ES with that stream: biased, for comparison only. Only the order of the draws is taken from
that code; tests check it against NumPy's ``RandomState``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.compiled import njit, prange
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, part
from fedrank.core.kernels import ONE_AT_A_TIME, freeze
from fedrank.core.lazy import jax, jnp
from fedrank.core.native import NotNativeError
from fedrank.core.protocol import Party
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.foltr_es import FoltrES
from fedrank.ranking.foltr_es.presentations import AntitheticHalves, OneSided, Presentation
from fedrank.ranking.mechanisms import RewardMechanism
from fedrank.ranking.mechanisms.randomised_response import RandomisedResponse
from fedrank.ranking.protocol import Parts
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.devices import PerDevice
from fedrank.ranking.sessions.kernel import (
    fill_scores,
    fill_top,
    kernel_arrays,
    kernel_shape,
    list_ndcg,
    quality_tables,
)
from fedrank.ranking.sessions.reference import SessionResults

_u32 = np.uint32


@njit(cache=True, nogil=True)
def seed_twister(state, seed):
    """MT19937 from a 32-bit seed; ``state`` is uint32 [625], the last entry the position."""
    state[0] = seed
    for i in range(1, 624):
        previous = state[i - 1]
        state[i] = _u32(_u32(1812433253) * (previous ^ (previous >> _u32(30))) + _u32(i))
    state[624] = 624


@njit(cache=True, nogil=True)
def next_word(state):
    """The next 32 bits of the published program's Mersenne Twister."""
    if state[624] == 624:
        for i in range(624):
            y = (state[i] & _u32(0x80000000)) | (state[(i + 1) % 624] & _u32(0x7FFFFFFF))
            twist = _u32(0x9908B0DF) if y & _u32(1) else _u32(0)
            state[i] = state[(i + 397) % 624] ^ (y >> _u32(1)) ^ twist
        state[624] = 0
    y = state[state[624]]
    state[624] += _u32(1)
    y ^= y >> _u32(11)
    y ^= _u32(y << _u32(7)) & _u32(0x9D2C5680)
    y ^= _u32(y << _u32(15)) & _u32(0xEFC60000)
    return y ^ (y >> _u32(18))


@njit(cache=True, nogil=True)
def next_double(state):
    """The next 53-bit number in [0, 1): two words."""
    a, b = next_word(state) >> _u32(5), next_word(state) >> _u32(6)
    return (np.float64(a) * 67108864.0 + np.float64(b)) / 9007199254740992.0


@njit(cache=True, nogil=True)
def next_below(state, bound):
    """The next integer in [0, bound): words under a mask until one fits."""
    largest = _u32(bound - 1)
    mask = largest
    for shift in (1, 2, 4, 8, 16):
        mask |= mask >> _u32(shift)
    if largest == 0:
        return 0
    while True:
        word = next_word(state) & mask
        if word <= largest:
            return np.int64(word)


@njit(cache=True, nogil=True)
def fill_normals(state, out):
    """Normals by the polar method; the second of each pair comes first."""
    j = 0
    while j < out.size:
        while True:
            x1, x2 = 2.0 * next_double(state) - 1.0, 2.0 * next_double(state) - 1.0
            r = x1 * x1 + x2 * x2
            if 0.0 < r < 1.0:
                break
        f = math.sqrt(-2.0 * math.log(r) / r)
        out[j] = np.float32(f * x2)
        if j + 1 < out.size:
            out[j + 1] = np.float32(f * x1)
        j += 2


@njit(cache=True, nogil=True, parallel=True)
def _sessions(
    values, start, stride, labels, label_start, length,
    n_features, hidden, click, stop, depth, ideal, discounts, gains, steps, queries, first, count,
    weights, seeds, out, quality,
):  # fmt: skip
    parties, halves, each = out.shape
    widest = stride.max()
    size = weights.shape[1]
    for party in prange(parties):
        state = np.empty(625, np.uint32)
        noise, perturbed = np.empty(size, np.float32), np.empty(size, np.float32)
        scores = np.empty(widest, np.float32)
        backwards = np.empty(widest, np.float32)
        top, top_score, top_tie = np.empty(depth, np.int32), np.empty(depth, np.float32), np.empty(depth, np.uint32)
        seed_twister(state, seeds[party])
        fill_normals(state, noise)
        seed_twister(state, seeds[party])  # the fault: the user's chance starts where the perturbation's did
        for half in range(halves):
            for j in range(size):
                perturbed[j] = weights[party, j] + steps[half] * noise[j]
            for k in range(each):
                query = queries[first[party] + next_below(state, count[party])]
                width, documents = stride[query], length[query]
                block = values[start[query] : start[query] + n_features * width]
                fill_scores(block, width, perturbed, n_features, hidden, scores)
                for d in range(documents):
                    backwards[d] = scores[documents - 1 - d]
                shown = fill_top(backwards, documents, _u32(0), False, top, top_score, top_tie)
                for rank in range(shown):
                    top[rank] = documents - 1 - top[rank]
                grades = labels[label_start[query] :]
                quality[party, half, k] = list_ndcg(grades, top, shown, ideal[query], discounts, gains)
                pattern = 0
                for rank in range(shown):
                    label = grades[top[rank]]
                    if next_double(state) < click[label]:
                        pattern |= 1 << rank
                        if next_double(state) < stop[label]:
                            break
                out[party, half, k] = pattern


@njit(cache=True, nogil=True, parallel=True)
def _weighted_sums(seeds, coefficients, partial):
    block = 64
    for work in prange(partial.shape[0]):
        state, noise = np.empty(625, np.uint32), np.empty(partial.shape[1], np.float32)
        for i in range(work * block, min((work + 1) * block, seeds.size)):
            if coefficients[i] != np.float32(0):
                seed_twister(state, seeds[i])
                fill_normals(state, noise)
                for j in range(noise.size):
                    partial[work, j] += coefficients[i] * noise[j]


def _host_sessions(
    queries, first, count, weights, seeds, *, blocks, hidden, user, each, steps
) -> tuple[np.ndarray, np.ndarray]:
    lead = np.broadcast_shapes(np.shape(first), np.shape(seeds), np.shape(weights)[:-1])
    parties = int(np.prod(lead, dtype=np.int64))

    def flat(array, dtype, *core):
        return freeze(np.broadcast_to(np.asarray(array, dtype), (*lead, *core)).reshape(parties, *core), dtype)

    weights = np.asarray(weights, np.float32)
    out = np.zeros((parties, len(steps), each), np.int32)
    quality = np.zeros(out.shape, np.float32)
    with ONE_AT_A_TIME:
        _sessions(
            *kernel_arrays(blocks), blocks.n_features, hidden,
            freeze(user.click, np.float64), freeze(user.stop, np.float64), user.depth,
            *quality_tables(blocks, user.depth), steps, freeze(np.reshape(queries, -1), np.int32),
            flat(first, np.int32), flat(count, np.int32),
            flat(weights, np.float32, weights.shape[-1]), flat(seeds, np.uint32), out, quality,
        )  # fmt: skip
    return out.reshape(*lead, len(steps), each), quality.reshape(*lead, len(steps), each)


def _host_weighted_sum(seeds, coefficients, *, size: int) -> np.ndarray:
    seeds = np.asarray(seeds, np.uint32)
    coefficients = np.broadcast_to(np.asarray(coefficients, np.float32), seeds.shape)
    out = []
    for s, c in zip(seeds.reshape(-1, seeds.shape[-1]), coefficients.reshape(-1, seeds.shape[-1]), strict=True):
        partial = np.zeros((max(1, -(-s.size // 64)), size), np.float32)
        with ONE_AT_A_TIME:
            _weighted_sums(freeze(s, np.uint32), freeze(c, np.float32), partial)
        out.append(partial.sum(axis=0, dtype=np.float64).astype(np.float32))
    return np.stack(out).reshape(*seeds.shape[:-1], size)


def published_sessions(
    ranker: Ranker,
    user: CascadeUser,
    data: PaddedQueries | FeatureBlocks,
    center: Float[AnyArray, " parameters"],
    seed: UInt32[AnyArray, ""],
    steps: tuple[float, ...],
    queries: Int[AnyArray, " queries"],
    first: Int[AnyArray, ""],
    count: Int[AnyArray, ""],
    each: int,
) -> SessionResults:
    """One device's sessions, all random numbers from the seed's stream.

    Args:
        ranker: The ranker.
        user: Click model of the user.
        data: The queries, as blocks (this runs on the CPU only).
        center: float32 [n], the model that is perturbed.
        seed: uint32.
        steps: H steps along the perturbation, as in :func:`fedrank.ranking.sessions.devices.run_sessions`.
        queries: int32 [m], the list of all shares' queries.
        first: int32, start of the device's share in that list.
        count: int32, its length.
        each: Interactions at each step.

    Returns:
        The clicks and the quality of what was shown, [H, each] each.

    Raises:
        ConfigError: The data is not laid out for the CPU.
    """
    if not isinstance(data, FeatureBlocks):
        raise ConfigError(
            "foltr-es-2019 runs on the CPU kernels only: set compute.kernels = 'on', or JAX_PLATFORMS=cpu."
        )
    _, hidden = kernel_shape(ranker)
    host = functools.partial(
        _host_sessions, blocks=data, hidden=hidden, user=user, each=each, steps=freeze(steps, np.float32)
    )
    shapes = tuple(jax.ShapeDtypeStruct((len(steps), each), dtype) for dtype in (jnp.int32, jnp.float32))
    return SessionResults(
        *jax.pure_callback(host, shapes, queries, first, count, center, seed, vmap_method="expand_dims")
    )


def published_weighted_sum(seeds: Any, coefficients: Any, size: int) -> Any:
    """Σᵢ cᵢ·v(seedᵢ) with the published code's perturbations; float32 [size]."""
    shape = jax.ShapeDtypeStruct((*seeds.shape[:-1], size), jnp.float32)
    host = functools.partial(_host_weighted_sum, size=size)
    return jax.pure_callback(host, shape, seeds, coefficients, vmap_method="expand_dims")


def _show(self: Any, s: Any, request: Any, party: Party, draws: Any) -> tuple[SessionResults, Any]:
    """:meth:`fedrank.ranking.foltr_es.presentations.Presentation.show` with the published stream."""
    (data, queries), own = party.shared, party.own
    seed, steps = jnp.asarray(draws.seed), self.steps(s.sigma)
    share = (queries, own.first, own.count, s.per_half)
    sessions = published_sessions(s.ranker, s.user, data, request.weights, seed, steps, *share)
    return sessions, sessions.patterns


@dataclass(frozen=True)
class PublishedHalves(AntitheticHalves):
    """Antithetic halves whose queries and clicks are drawn from the perturbation's seed."""

    name, kind, show = "published-halves", "published", _show


@dataclass(frozen=True)
class PublishedOneSided(OneSided):
    """Lists of θ + σv whose queries and clicks are drawn from the perturbation's seed."""

    name, kind, show = "published-one-sided", "published", _show


@dataclass(frozen=True)
class FoltrES2019(FoltrES):
    """FOLtR-ES whose queries and clicks are drawn from the perturbation's seed, as published; biased."""

    presentation: Presentation = part(
        PublishedHalves, "Lists that a device shows.", "fedrank.presentations", ["published"]
    )
    privacy: RewardMechanism = part(
        RandomisedResponse, "What a device does to its rewards before it sends them.", "fedrank.mechanisms", ["reward"]
    )
    ties: Any = bound("fixed")

    name = "foltr-es-2019"
    caveat = "As published: users share the perturbation's random numbers, which biases the gradient"
    modes = ()

    def __post_init__(self):
        super().__post_init__()
        if self.user is not None and not all(user.cascades for user in self.users):
            raise ConfigError(f"foltr-es-2019 has cascade users only, got a {self.user.name} user.")

    @override
    def bind(self, parts: Parts) -> Any:
        if not parts.kernels:
            raise ConfigError("foltr-es-2019 needs the CPU kernels; set compute.kernels = 'on'.")
        return super().bind(parts)

    @override
    def cohort(self, parties: Party) -> Any:
        raise NotNativeError(f"the protocol {self.name!r}")

    @override
    def weighted_sum(self, seeds, weights):
        return published_weighted_sum(seeds, weights, self.ranker.size)

    @override
    def devices(self, data, shares, user_index: PerDevice = None, amounts: PerDevice = None) -> Party:
        if not (user_index is None and amounts is None):
            raise ConfigError("foltr-es-2019 simulates devices that are all alike; give no users or amounts.")
        return super().devices(data, shares, user_index, amounts)
