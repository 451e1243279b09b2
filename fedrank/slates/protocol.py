"""What a protocol of platforms has beside its exchanges, so that its runs can be played and measured."""

from __future__ import annotations

import abc
from collections.abc import Mapping

from jaxtyping import Array, Float, Key

from fedrank.core.arrays import PyTree
from fedrank.core.protocol import Party, Protocol
from fedrank.core.trees import Json
from fedrank.slates.world.satisfaction import Satisfaction


class PlatformProtocol(Protocol):
    """A protocol whose parties are platforms that show slates to the same users.

    One of its exchanges has an :class:`~fedrank.core.protocol.Environment` in which users act; what that shows of a
    round has ``engagement``, float [K], and ``over``, whether the user has left. A protocol with users of its own has
    them as ``world``; otherwise they are those of the run's settings.
    """

    task = "slates"
    world: Satisfaction | None = None

    @property
    @abc.abstractmethod
    def feedback(self) -> tuple[bool, ...]:
        """Whether each platform sees clicks and engagement."""

    @abc.abstractmethod
    def parties(self, keys: Key[Array, " runs"]) -> Party:
        """All platforms of several runs before the first user: leaves of ``own`` are [runs, K, ...].

        Args:
            keys: Typed keys [runs].
        """

    @abc.abstractmethod
    def evaluated(
        self, states: PyTree, own: PyTree, keys: Key[Array, "runs episodes"]
    ) -> Float[Array, "runs episodes platforms"]:
        """Engagement in fresh episodes without exploration, summed over the rounds of each.

        Args:
            states: The coordinator's, leaves [runs, ...].
            own: What the platforms have, leaves [runs, K, ...].
            keys: Typed keys [runs, episodes].
        """

    def describe(self) -> Mapping[str, Json]:
        """Kinds and sizes of the networks, as ``model.json`` has them."""
        return {"network": self.name}

    def platform_tensors(self, own: PyTree) -> Mapping[str, Float[Array, "runs platforms *shape"]]:
        """What is kept of each platform in the files of a finished run, by name.

        Args:
            own: What the platforms have, leaves [runs, K, ...].
        """
        return {}
