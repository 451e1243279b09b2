"""Base of the methods of this wing: a ranker, simulated users, and devices that hold queries."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.kernels import normals
from fedrank.core.lazy import jax, jnp
from fedrank.core.protocol import Party, Protocol
from fedrank.core.registry import Registry
from fedrank.engine.methods import PrivacyMode as PrivacyMode
from fedrank.metrics.online import OnlineMetric, max_rr
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.config import INTERACTIONS, DeviceRun
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.mechanisms import Bounds
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.devices import PerDevice, devices

#: Standard deviation of a network's weights at the start: with all of them zero its gradient is zero, for ever.
INITIAL = 0.1


@dataclass(frozen=True)
class Parts:
    """Parts that a run gives to a method besides its settings.

    Attributes:
        ranker: The ranker, a function from features to scores.
        users: Click models of all users.
        metric: The reward as users experience it, with all of its values.
        kernels: Use the compiled CPU kernels.
        bounds: Facts of the run.
        aggregate: A rule of the caller's own that combines replies; None: what the settings say.
        attackers: Number of devices that attack.
        start: Weights to start from; empty: those of the ranker's own start.
    """

    ranker: Ranker
    users: tuple[CascadeUser, ...]
    metric: OnlineMetric
    kernels: bool
    bounds: Bounds
    aggregate: Any = None
    attackers: int = 0
    start: tuple[float, ...] = ()


@dataclass(frozen=True)
class RankingProtocol(Protocol):
    """A method whose parties rank queries for simulated users and learn from their clicks.

    Subclasses are frozen dataclasses whose fields are settings; the server's state has the model as ``weights``. The
    fields below but ``interactions`` are filled in by a run (:meth:`bind`).

    Attributes:
        ranker: The ranker, a function from features to scores.
        user: Click model of the simulated user; on a real device the user is the person who holds it.
        metric: Reward of an interaction: a function of its clicks with n values.
        others: Further users of a simulation whose devices are not all alike; ``user`` is number 0.
        bounds: Facts of the run that a promise may rest on.
        kernels: The compiled CPU kernels are used where there are any.
        start: Weights to start from; empty: those of the ranker's own start.
        rules: Rules by which the server may combine replies; None: it has one way.
        populations: Devices may be new ones every round.
        new_devices: They are, where an ε is of a user's life and nothing else is said.
        group: Interactions come in multiples of this number.
    """

    ranker: Ranker = bound()
    user: CascadeUser = bound()
    metric: OnlineMetric = field(default_factory=max_rr, metadata={"bound": True})
    others: tuple[CascadeUser, ...] = bound(())
    bounds: Bounds = bound(Bounds())
    kernels: bool = bound(True)
    start: tuple[float, ...] = bound(())
    interactions: int = setting(INTERACTIONS, "B, interactions of a device in a round.", low=1, high=10**6)

    task = "ranking"
    run_settings: ClassVar[type] = DeviceRun
    rules: ClassVar[Registry | None] = None
    populations: ClassVar[bool] = False
    new_devices: ClassVar[bool] = False

    def __post_init__(self):
        if self.user is not None and self.interactions < 1:
            raise ConfigError(f"interactions must be at least 1, got {self.interactions}.")
        if self.user is not None and self.user.depth != self.metric.depth:
            raise ConfigError(f"{self.metric.name} looks at {self.metric.depth} ranks, the user at {self.user.depth}.")

    def bind(self, parts: Parts) -> Any:
        """The method of a run.

        Args:
            parts: What the run gives.

        Raises:
            ConfigError: The settings do not fit the run.
        """
        user, *others = parts.users
        return dataclasses.replace(
            self,
            ranker=parts.ranker,
            user=user,
            others=tuple(others),
            metric=parts.metric,
            bounds=parts.bounds,
            kernels=parts.kernels,
            start=parts.start,
        )

    def choose_schedule(self, bounds: Bounds, said: Collection[str]) -> tuple[int, int, Any] | None:
        """Rounds, devices of a round, and the method with its interactions and step size, chosen for a promise.

        Args:
            bounds: Facts of the run.
            said: Names of the settings that were given, which stay.

        Returns:
            None: nothing is to be chosen.
        """
        del bounds, said
        return None

    def start_weights(self) -> Float32[np.ndarray, " parameters"]:
        """The weights that learning starts from."""
        return np.array(self.start, np.float32) if self.start else self.ranker.initial()

    def first_weights(self, key: Any) -> Float[AnyArray, " n"]:
        """The ranker of the start.

        Args:
            key: A typed key, or both words of one; consumed.
        """
        linear = bool(self.start) or (self.ranker.kernel_shape() or (0, 1))[1] == 0
        if isinstance(key, np.ndarray):
            weights = self.start_weights()
            return weights if linear else weights + np.float32(INITIAL) * normals(key[None], self.ranker.size)[0]
        weights = jnp.asarray(self.start_weights())
        return weights if linear else weights + INITIAL * jax.random.normal(key, weights.shape, jnp.float32)

    @property
    def group(self) -> int:
        """Number of which interactions come in multiples."""
        return 1

    @property
    def users(self) -> tuple[CascadeUser, ...]:
        """Click models of all users, by the numbers that devices have."""
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

    @override
    def weights(self, state: PyTree) -> Any:
        return state.weights

    @override
    def experience(self, party: Party) -> dict[str, Any]:
        return {self.metric.name: party.own.reward, f"nDCG(dcg='exp-log2')@{self.user.depth}": party.own.ndcg}
