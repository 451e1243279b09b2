"""Sessions: queries are ranked, users click.

Two layouts of the same data lead to two implementations of the same function: padded arrays to pure JAX (any device),
feature-major blocks to the CPU kernel. Both take their randomness as arguments, so that they can be compared draw by
draw.
"""

from __future__ import annotations

import jax

from fedrank.clicks.cascade import CascadeUser
from fedrank.core.errors import ConfigError
from fedrank.data.queries import FeatureBlocks, PaddedQueries
from fedrank.rankers.base import Ranker
from fedrank.sessions import kernel, reference

#: How equal scores are ordered: as the documents stand in the data, or shuffled anew in each interaction.
TIES = ("fixed", "random")


def check_ties(ties: str) -> bool:
    """True for ``"random"``.

    Raises:
        ConfigError: Neither ``"fixed"`` nor ``"random"``.
    """
    if ties not in TIES:
        raise ConfigError(f"ties must be one of {', '.join(TIES)}, got {ties!r}.")
    return ties == "random"


def click_patterns(
    ranker: Ranker,
    user: CascadeUser,
    data: PaddedQueries | FeatureBlocks,
    center: jax.Array,
    seed: jax.Array,
    steps: tuple[float, ...],
    queries: jax.Array,
    click_words: jax.Array,
    tie_words: jax.Array,
    ties: str = "fixed",
) -> jax.Array:
    """One party's sessions with a model that is perturbed along one direction: H steps along it, K queries at each.

    The model of step h is ``center + steps[h] · perturbation(seed)``.

    Args:
        ranker: The ranker.
        user: Who clicks. Labels of the data must be below ``user.grades``.
        data: The queries.
        center: float32 [n], the model that is perturbed.
        seed: uint32, seed of the perturbation.
        steps: H numbers, such as (σ, −σ) for antithetic halves.
        queries: int32 [H, K]: which query each interaction is about.
        click_words: uint32 [H, K, depth]: the user's chance at each rank.
        tie_words: uint32 [H, K]: the order of equal scores; used when ``ties="random"``.
        ties: ``"fixed"`` or ``"random"``.

    Returns:
        int32 [H, K]: bit i is set when the document at rank i + 1 was clicked.
    """
    path = kernel if isinstance(data, FeatureBlocks) else reference
    random = check_ties(ties)
    return path.click_patterns(ranker, user, data, center, seed, steps, queries, click_words, tie_words, random)  # type: ignore[arg-type]
