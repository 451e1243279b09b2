"""Sessions: queries are ranked, users click.

Two layouts of the same data lead to two implementations of the same function: padded arrays to pure JAX (any device),
feature-major blocks to the CPU kernel. Both take their randomness as arguments, so that they can be compared draw by
draw.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError
from fedrank.ranking.clicks.cascade import CascadeUser, decision_tables
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions import kernel, reference
from fedrank.ranking.sessions.results import InterleavedResults, SessionResults

#: How equal scores are ordered: as the documents stand in the data, or shuffled anew in each interaction.
TIES = ("fixed", "random")

#: Most queries of a device: one of them is drawn with 16-bit arithmetic.
MAX_QUERIES = 65_535


def check_ties(ties: str) -> bool:
    """True for ``"random"``.

    Raises:
        ConfigError: Neither ``"fixed"`` nor ``"random"``.
    """
    if ties not in TIES:
        raise ConfigError(f"ties must be one of {', '.join(TIES)}, got {ties!r}.")
    return ties == "random"


def check_fit(
    ranker: Ranker, users: tuple[CascadeUser, ...], data: PaddedQueries | FeatureBlocks, shares: Shares
) -> None:
    """Refuse data that does not fit its ranker, its users or its shares.

    A kernel would read past the end of an array, and JAX clamp the index: wrong numbers either way.

    Raises:
        ConfigError: Another number of features, a label that the user does not know, or a share of other queries.
    """
    found = data.n_features if isinstance(data, FeatureBlocks) else data.features.shape[-1]
    if found != ranker.n_features:
        raise ConfigError(f"the ranker takes {ranker.n_features} features, the data has {found}.")
    decision_tables(users)  # refuses users who do not fit each other
    user, largest = users[0], int(np.max(np.asarray(data.labels)))
    if largest >= user.grades:
        raise ConfigError(
            f"the {user.name} user knows labels 0..{user.grades - 1}, the data has labels up to {largest}."
        )
    first, count, queries = (np.asarray(a, np.int64) for a in (shares.first, shares.count, shares.queries))
    if count.min() < 1 or count.max() > MAX_QUERIES:
        raise ConfigError(
            f"a device's share must hold 1 to {MAX_QUERIES:,} queries, got {count.min():,} to {count.max():,}. "
            "Give each device its own share, or use a part of the data."
        )
    if first.min() < 0 or (first + count).max() > len(queries):
        raise ConfigError(f"a share reaches beyond the list of {len(queries):,} queries that shares are cut from.")
    known = len(np.asarray(data.length))
    if queries.min() < 0 or queries.max() >= known:
        raise ConfigError(f"shares name queries up to {queries.max()}, the data has {known}.")


def run_sessions(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, ""] | int,
    data: PaddedQueries | FeatureBlocks,
    center: Float[AnyArray, "parameters"],
    seed: UInt32[AnyArray, ""],
    steps: tuple[float, ...],
    queries: Int[AnyArray, "halves interactions"],
    click_bits: UInt32[AnyArray, "halves interactions depth"],
    tie_bits: UInt32[AnyArray, "halves interactions"],
    ties: str = "fixed",
) -> SessionResults:
    """One party's sessions with a model that is perturbed along one direction: H steps along it, K queries at each.

    The model of step h is ``center + steps[h] · perturbation(seed)``.

    Args:
        ranker: The ranker.
        users: Click models of the users. Labels of the data must be below their ``grades``.
        user_index: int32, the number of the user who is at this party.
        data: The queries.
        center: float32 [n], the model that is perturbed.
        seed: uint32, seed of the perturbation.
        steps: H numbers, such as (σ, −σ) for antithetic halves.
        queries: int32 [H, K]: which query each interaction is about.
        click_bits: uint32 [H, K, depth]: random bits for the user's decision at each rank.
        tie_bits: uint32 [H, K]: the order of equal scores; used when ``ties="random"``.
        ties: ``"fixed"`` or ``"random"``.

    Returns:
        The clicks and the quality of what was shown, [H, K] each.
    """
    random = check_ties(ties)
    if isinstance(data, FeatureBlocks):
        return kernel.run_sessions(
            ranker, users, user_index, data, center, seed, steps, queries, click_bits, tie_bits, random
        )
    return reference.run_sessions(
        ranker, users, user_index, data, center, seed, steps, queries, click_bits, tie_bits, random
    )


def run_interleaved(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    user_index: Int[AnyArray, ""] | int,
    data: PaddedQueries | FeatureBlocks,
    center: Float[AnyArray, "parameters"],
    seed: UInt32[AnyArray, ""],
    step: float,
    queries: Int[AnyArray, "interactions"],
    click_bits: UInt32[AnyArray, "interactions depth"],
    tie_bits: UInt32[AnyArray, "interactions"],
    toss: UInt32[AnyArray, "interactions"],
    ties: str = "fixed",
) -> InterleavedResults:
    """One party's sessions with lists that ``center + step · perturbation(seed)`` and its opposite make together.

    Args:
        ranker: The ranker.
        users: Click models of the users. Labels of the data must be below their ``grades``.
        user_index: int32, the number of the user who is at this party.
        data: The queries.
        center: float32 [n], the model that is perturbed.
        seed: uint32, seed of the perturbation.
        step: How far both are from the model.
        queries: int32 [K]: which query each interaction is about.
        click_bits: uint32 [K, depth]: random bits for the user's decision at each rank.
        tie_bits: uint32 [K]: the order of equal scores, the same for both rankers; used when ``ties="random"``.
        toss: uint32 [K]: who goes first in each pair of turns (:mod:`fedrank.ranking.on_device.interleave`).
        ties: ``"fixed"`` or ``"random"``.

    Returns:
        The clicks and the quality of what was shown, [K] each, and the clicks as each ranker is credited with them.
    """
    random = check_ties(ties)
    args = (center, seed, step, queries, click_bits, tie_bits, toss, random)
    if isinstance(data, FeatureBlocks):
        return kernel.run_interleaved(ranker, users, user_index, data, *args)
    return reference.run_interleaved(ranker, users, user_index, data, *args)
