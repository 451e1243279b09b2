"""Sessions in JAX: the definition, and the path for accelerators.

Works on :class:`~fedrank.data.queries.PaddedQueries`. The CPU kernel (:mod:`fedrank.sessions.kernel`) must give the
same clicks from the same draws; :mod:`fedrank.sessions.sessions` chooses between the two.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.clicks.cascade import CascadeUser, sample_pattern
from fedrank.core.rng import perturbation_jax
from fedrank.data.queries import PaddedQueries
from fedrank.rankers.base import Ranker


def mix32(words: jax.Array) -> jax.Array:
    """A bijection of 32-bit words that scatters neighbours (the finaliser of MurmurHash3)."""
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return words ^ (words >> np.uint32(16))


def tie_breakers(words: jax.Array, documents: int, random: bool) -> jax.Array:
    """Among documents with equal scores the one with the smaller tie breaker ranks first.

    Args:
        words: uint32 [...], one word an interaction; not used when ``random`` is False.
        documents: Number of documents d.
        random: Shuffle equal scores anew in each interaction, or keep the order of the data.

    Returns:
        uint32 [..., d], no two equal in a list.
    """
    index = jnp.broadcast_to(jnp.arange(documents, dtype=np.uint32), (*words.shape, documents))
    return mix32(words[..., None] ^ mix32(index)) if random else index


def rank(scores: jax.Array, where: jax.Array, breakers: jax.Array, depth: int) -> jax.Array:
    """The documents at the first ``depth`` ranks: by falling score, then by rising tie breaker; padding last.

    Args:
        scores: float32 [..., d].
        where: bool [..., d], False on padding.
        breakers: uint32 [..., d].
        depth: Ranks wanted; cut to d.

    Returns:
        int32 [..., min(depth, d)]: indices of documents.
    """
    scores = jnp.where(scores == 0, 0.0, scores)  # −0 and 0 are the same score
    falling = jnp.where(where & ~jnp.isnan(scores), -scores, jnp.inf)  # not a number ranks last
    index = jnp.broadcast_to(jnp.arange(scores.shape[-1], dtype=jnp.int32), scores.shape)
    *_, order = jax.lax.sort((~where, falling, breakers, index), num_keys=3)
    return order[..., :depth]


def click_patterns(
    ranker: Ranker,
    user: CascadeUser,
    data: PaddedQueries,
    center: jax.Array,
    seed: jax.Array,
    steps: tuple[float, ...],
    queries: jax.Array,
    click_words: jax.Array,
    tie_words: jax.Array,
    random_ties: bool,
) -> jax.Array:
    """The click patterns of sessions; arguments as in :func:`fedrank.sessions.sessions.click_patterns`."""
    noise = perturbation_jax(seed, ranker.size)
    weights = center[None] + jnp.asarray(steps, jnp.float32)[:, None] * noise[None]
    features, labels, where = data.features[queries], data.labels[queries], data.where[queries]
    scores = jax.vmap(ranker.scores)(weights, features)
    order = rank(scores, where, tie_breakers(tie_words, scores.shape[-1], random_ties), user.depth)
    shown = jnp.take_along_axis(where, order, axis=-1)
    return sample_pattern(user, jnp.take_along_axis(labels, order, axis=-1), shown, click_words[..., : order.shape[-1]])
