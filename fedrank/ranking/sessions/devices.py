"""Simulated devices: the queries that each holds, its user's click model, and its interactions in a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jnp
from fedrank.core.protocol import Party
from fedrank.core.rng import below
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.results import SessionResults
from fedrank.ranking.sessions.sessions import check_fit

#: One integer for each device; None for a default.
PerDevice: TypeAlias = Sequence[int] | AnyArray | None


class Device(NamedTuple):
    """State of a device.

    Attributes:
        first: int32: start of its share in the list of all shares' queries.
        count: int32: how many queries its user asks about, each equally likely.
        user: int32: number of its user's click model.
        amount: int32: interactions its user makes in a round, at most the protocol's.
        reward: float32: true mean metric of the last round. Never leaves; a simulator draws its curves from it.
        ndcg: float32: mean nDCG of what was shown in the last round; as reward.
        kept: What else the protocol keeps on the device, a pytree of arrays; nothing by default.
    """

    first: Int[AnyArray, "*parties"]
    count: Int[AnyArray, "*parties"]
    user: Int[AnyArray, "*parties"]
    amount: Int[AnyArray, "*parties"]
    reward: Float[AnyArray, "*parties"]
    ndcg: Float[AnyArray, "*parties"]
    kept: PyTree = ()


def devices(
    ranker: Ranker,
    users: tuple[CascadeUser, ...],
    data: PaddedQueries | FeatureBlocks,
    shares: Shares,
    interactions: int,
    user_index: PerDevice = None,
    amounts: PerDevice = None,
) -> Party:
    """All devices of a simulation: the collection once, one share of it each.

    Args:
        ranker: What ranks.
        users: Click models of the users that devices have.
        data: The queries.
        shares: Which queries each device asks about.
        interactions: Most interactions of a device in a round.
        user_index: int [parties], number of each device's user; None: the first everywhere.
        amounts: int [parties], interactions of each device in a round; None: ``interactions``.

    Returns:
        ``shared`` is (data, queries of the shares), ``own`` a :class:`Device` with leading axis [parties].

    Raises:
        ConfigError: The data does not fit the ranker or the users, a share the data, or a number is out of range.
    """
    check_fit(ranker, users, data, shares)
    parties = shares.parties

    def numbers(values: PerDevice, default: int, what: str, low: int, high: int) -> np.ndarray:
        values = np.full(parties, default) if values is None else np.asarray(values)
        if values.shape != (parties,):
            raise ConfigError(f"{what} must be given for each of {parties} devices, got shape {values.shape}.")
        if values.min() < low or values.max() > high:
            raise ConfigError(f"{what} must be in {low}..{high}, got {values.min()}..{values.max()}.")
        return values.astype(np.int32)

    own = Device(
        np.asarray(shares.first, np.int32),
        np.asarray(shares.count, np.int32),
        numbers(user_index, 0, "numbers of users", 0, len(users) - 1),
        numbers(amounts, interactions, "interactions in a round", 1, interactions),
        np.zeros(parties, np.float32),
        np.zeros(parties, np.float32),
    )
    return Party((data, np.asarray(shares.queries, np.int32)), own)


def draw_queries(
    queries: Int[AnyArray, "held"], device: Device, rng_bits: UInt32[AnyArray, "*interactions"]
) -> Int[Array, "*interactions"]:
    """The query that each of some random integers stands for at a device: int32, of the shape of ``rng_bits``."""
    return jnp.asarray(queries)[device.first + below(rng_bits, device.count.astype(jnp.uint32))]


def record_experience(
    device: Device,
    values: Float[AnyArray, "*interactions"],
    sessions: SessionResults,
    active: Bool[AnyArray, "*interactions"],
) -> Device:
    """The device after its interactions, with the means for a simulator's curves.

    Args:
        device: Before.
        values: float32 [...], true metric value of each interaction.
        sessions: The same interactions.
        active: bool [...]: which of them took place.
    """
    n = jnp.maximum(jnp.sum(active), 1)
    mean = [jnp.sum(jnp.where(active, x, 0.0)) / n for x in (values, sessions.ndcg)]
    return device._replace(reward=mean[0], ndcg=mean[1])
