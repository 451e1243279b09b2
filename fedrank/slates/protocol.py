"""Protocols of platforms: their users, first states and policies, so that runs can be played and measured."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

from jaxtyping import Bool, Float, Key

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.lazy import jax
from fedrank.core.privacy_report import DELTA
from fedrank.core.protocol import Party, Protocol
from fedrank.core.trees import Json
from fedrank.slates.config import SlatesRun
from fedrank.slates.world.policies import Copying, Played, Policy, StayKeys, play
from fedrank.slates.world.satisfaction import Satisfaction


class PlatformProtocol(Protocol):
    """A protocol whose parties are platforms that show slates to the same users.

    One of its exchanges has an :class:`~fedrank.core.protocol.Environment` in which users act; what that shows of a
    round has ``engagement``, float [K], and ``over``, whether the user has left. A protocol that brings its users has
    them as ``world``. One that has none is a method: a frozen dataclass whose fields are settings, played for the users
    of the run (:meth:`bind`).

    Attributes:
        world: The users; None: those of the run.
        central: Each platform sees the user as all of them do.
        silent: Platforms tell each other nothing.
        plans: Platforms serve by themselves: nothing crosses but sums and models, a few times.
        scores: What it learns can value items by itself: runs leave a :class:`fedrank.slates.model.SlateModel`.
        fresh: Platforms see the user as the round begins.
        faults: Faults of a published code that are on: of each its ``key``, the setting, its ``name``, and ``what`` it
            is.
        notes: Sentences that a reader of the results must know.
        cites: Keys of publications that its settings rest on, beside its own.
        delta: δ of the account of a run.
    """

    task = "slates"
    run_settings: ClassVar[type[SlatesRun]] = SlatesRun
    world: Satisfaction | None = None
    central: bool = False
    silent: bool = False
    plans: ClassVar[bool] = False
    scores: ClassVar[bool] = False
    fresh: bool = True
    faults: tuple[Mapping[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    cites: tuple[str, ...] = ()
    delta: float = DELTA

    def unchanged(self) -> Any:
        """The same method with no setting changed; by default it has none."""
        return self

    def resolved(self, run: SlatesRun) -> Any:
        """The same with settings filled in that follow from others and from those of the run; by default as it is.

        Args:
            run: The run's settings.

        Raises:
            ConfigError: Settings contradict each other.
        """
        del run
        return self

    def bind(self, world: Satisfaction) -> Any:
        """The protocol for these users; by default as it is.

        Args:
            world: The users.

        Raises:
            ConfigError: The settings do not fit the users.
        """
        del world
        return self

    @property
    @abc.abstractmethod
    def feedback(self) -> tuple[bool, ...]:
        """For each platform, true if it sees clicks and engagement."""

    @abc.abstractmethod
    def parties(self, keys: Key[Array, " runs"]) -> Party:
        """All platforms of several runs before the first user: leaves of ``own`` are [runs, K, ...].

        Args:
            keys: Typed keys [runs].
        """

    @abc.abstractmethod
    def policy(self, state: PyTree, own: PyTree) -> Policy:
        """Policy of the platforms of one run now, without exploration.

        Args:
            state: The coordinator's.
            own: What the platforms have, leaves [K, ...].
        """

    def evaluate(
        self,
        world: Satisfaction,
        states: PyTree,
        own: PyTree,
        keys: Key[Array, "runs episodes"] | StayKeys,
        copying: Bool[Array, ""] | bool = False,
    ) -> Played:
        """Outcome of fresh episodes without exploration: entries [runs, ...].

        Args:
            world: The users.
            states: The coordinator's, leaves [runs, ...].
            own: What the platforms have, leaves [runs, K, ...].
            keys: Typed keys [runs, episodes], or those of the users' stays.
            copying: Whether all platforms show what the first with feedback would show.
        """
        source = self.feedback.index(True)

        def of_run(state, own, keys):
            return play(world, Copying(world, self.policy(state, own), source, copying), keys)

        return jax.vmap(of_run)(states, own, keys)

    def changing(self, first: int, last: int) -> bool:
        """True if slates without exploration may change in the rounds from ``first`` to before ``last``.

        Where it does not, it is not played again for the same fresh users.
        """
        del first, last
        return True

    def count_learnt_from(self, users: int) -> int:
        """Users from whom it learns and by whom it is tested; by default all.

        Args:
            users: Users of the run.
        """
        return users

    def describe(self) -> Mapping[str, Json]:
        """Kinds and sizes of the networks, as ``model.json`` has them."""
        return {"network": self.name}

    def platform_tensors(self, own: PyTree) -> Mapping[str, Float[Array, "runs platforms *shape"]]:
        """Tensors of each platform in the files of a finished run, by name.

        Args:
            own: What the platforms have, leaves [runs, K, ...].
        """
        return {}
