"""What the protocols of this wing have in common: a ranker, simulated users, and devices that hold queries."""

from __future__ import annotations

from jaxtyping import Float
from typing_extensions import override

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.lazy import jax
from fedrank.core.protocol import Party, Protocol
from fedrank.metrics.online import OnlineMetric
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.devices import Device, PerDevice, devices


class RankingProtocol(Protocol):
    """A protocol whose parties rank queries for simulated users and learn from their clicks.

    Subclasses are frozen dataclasses with these fields, whose server's state has the model as ``weights``.

    Attributes:
        ranker: The ranker, a function from features to scores.
        user: Click model of the simulated user; on a real device the user is the person who holds it.
        others: Further users of a simulation whose devices are not all alike; ``user`` is number 0.
        metric: Reward of an interaction: a function of its clicks with n values.
        interactions: B, most interactions a device makes in a round.
        kernels: The compiled CPU kernels are used where there are any.
    """

    ranker: Ranker
    user: CascadeUser
    others: tuple[CascadeUser, ...]
    metric: OnlineMetric
    interactions: int
    kernels: bool

    @property
    def users(self) -> tuple[CascadeUser, ...]:
        """All users: ``user`` and ``others``."""
        return (self.user, *self.others)

    @property
    def sizes(self) -> dict[str, int]:  # type: ignore[override] - elsewhere an attribute of the class
        """Lengths of the axes of messages: that of the ranker's weights."""
        return {"parameters": self.ranker.size}

    def devices(
        self,
        data: PaddedQueries | FeatureBlocks,
        shares: Shares,
        user_index: PerDevice = None,
        amounts: PerDevice = None,
    ) -> Party:
        """All devices of a simulation.

        Args:
            data: The queries.
            shares: Which queries each device asks about.
            user_index: int [parties], number of each device's user; None: the first everywhere.
            amounts: int [parties], interactions of each device in a round; None: ``interactions``.

        Raises:
            ConfigError: See :func:`fedrank.ranking.sessions.devices.devices`; or what the protocol cannot do.
        """
        return devices(self.ranker, self.users, data, shares, self.interactions, user_index, amounts)

    def own_models(self, state: PyTree, own: Device) -> Float[Array, "parties n"] | None:
        """The rankers that devices show their users; None: the server's, on every device.

        Args:
            state: The server's.
            own: What devices keep, with leading axis [parties].
        """
        del state, own
        return None

    @override
    def weights(self, state: PyTree) -> jax.Array:
        return state.weights

    @override
    def experience(self, party: Party) -> dict[str, jax.Array]:
        return {self.metric.name: party.own.reward, f"nDCG@{self.user.depth}": party.own.ndcg}
