"""Mechanisms of privacy as values: what a device does to what it sends, and how the server reads it.

A mechanism is a frozen dataclass whose fields are settings, found by an entry point of ``fedrank.mechanisms``. Its
``kind`` is the payload that it takes:

* ``"reward"``: the rewards of a device's interactions, of which FOLtR-ES sends two sums or one number
  (:class:`RewardMechanism`);
* ``"vector"``: the weights that a device has come to, or how they changed (:class:`VectorMechanism`).

Its ``audit`` is an attack on what a device sends (:mod:`fedrank.privacy.audit`), which ``fedrank privacy audit`` runs.
A hostile server may hand out a ranker that is made for one person, so that what it wants to know decides the rewards
themselves: in the two worlds of an audit the rewards are as far apart as they can be.

A run binds the mechanism to what it must know (:class:`Bounds`), and the mechanism refuses a run in which its promise
would not hold.
"""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int, Int32, Key, UInt32

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.messages import Layout
from fedrank.core.privacy_report import DELTA, PrivacyReport
from fedrank.metrics.online import OnlineMetric
from fedrank.privacy.audit import Audit
from fedrank.privacy.noise.parties import PartyNoise
from fedrank.privacy.randomised_response import os_words
from fedrank.ranking.config import Bounds as Bounds
from fedrank.ranking.on_device import ClicksToReply


@dataclass(frozen=True)
class Mechanism(abc.ABC):
    """A mechanism of privacy: its settings, and the facts of the run that it is bound to.

    Attributes:
        name: Name in files and on the command line.
        kind: The payload, see the module.
        implied_by: Settings that stand for this mechanism where a table names none.
        simulated: Reason for which it can only be simulated; empty: devices can use it.
        citation: Key in ``core/references.bib``; empty if there is nothing to cite.
        bounds: Facts of the run; None: not bound to one.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    implied_by: ClassVar[tuple[str, ...]] = ()
    simulated: ClassVar[str] = ""
    citation: ClassVar[str] = ""

    delta: float = setting(DELTA, "δ of the tighter bound for a user, and of Gaussian noise.")
    bounds: Bounds | None = bound()

    def __post_init__(self):
        if not 0 < self.delta < 1:
            raise ConfigError(f"privacy.delta must be between 0 and 1, got {self.delta}.")

    def derive_settings(self) -> Any:
        """The mechanism with what follows from its settings filled in.

        Raises:
            ConfigError: A setting is missing.
        """
        return self

    def check_epsilon(self, name: str) -> None:
        """Refuse an ε that is missing or not positive.

        Args:
            name: The setting.

        Raises:
            ConfigError: Says which.
        """
        epsilon = getattr(self, name)
        if epsilon is None or not epsilon > 0:
            got = "" if epsilon is None else f", got {epsilon}"
            raise ConfigError(f"privacy.name = {self.name!r} needs privacy.{name}, an ε above 0{got}.")

    @classmethod
    def audit(cls, epsilon: float = 1.0, delta: float = DELTA) -> Audit | None:
        """An attack on what a device sends, by its own code and with the operating system's randomness; None: none.

        Args:
            epsilon: ε that is promised, in nats.
            delta: δ that is promised, where the mechanism has one.
        """
        del epsilon, delta
        return None

    @property
    def simulated_only(self) -> str:
        """Reason for which these settings can only be simulated; empty: devices can use them."""
        return self.simulated

    @property
    def of_a_user(self) -> bool:
        """True if ε covers all that a user ever does; False: one message or one interaction."""
        return False


#: The worlds that :func:`click_once` draws.
ONE_CLICK = "the user clicks on the first result of one list, or on none"


def click_once(
    made: ClicksToReply, world: int, trials: int
) -> tuple[Int32[np.ndarray, "2 trials interactions"], UInt32[np.ndarray, "2 trials interactions 2"]]:
    """Clicks of both halves for an audit, with one click on a first result in the second world, and random words."""
    patterns = np.zeros((2, trials, made.per_half), np.int32)
    patterns[0, :, 0] = world
    return patterns, os_words((*patterns.shape, 2))


@dataclass(frozen=True)
class RewardMechanism(Mechanism):
    """A mechanism for the rewards of a device's interactions.

    Attributes:
        one_number: A message has one number, about the difference of the halves, in place of two sums.
        words: Random words of 32 bits that this one number takes.
    """

    kind = "reward"
    one_number: ClassVar[bool] = False
    words: ClassVar[int] = 3

    def bind(self, bounds: Bounds, metric: OnlineMetric) -> Any:
        """The mechanism of a run.

        Args:
            bounds: Facts of the run.
            metric: Reward of an interaction.

        Raises:
            ConfigError: The promise does not hold in such a run.
        """
        del metric
        return dataclasses.replace(self, bounds=bounds)

    def second_moment(self, epsilon: float) -> float | None:
        """m(ε): mean square of what a report of a small difference stands for, in units of the largest that is told.

        Schedules follow from it (:mod:`fedrank.ranking.schedule`). None: not known, so that no schedule is chosen.

        Args:
            epsilon: ε of a message.
        """
        del epsilon
        return None

    @property
    def interleaves(self) -> bool:
        """True if a message may use each interaction twice, once for each ranker of an interleaved list."""
        return False

    @abc.abstractmethod
    def clicks_to_reply(self, metric: OnlineMetric, per_half: int, antithetic: bool) -> ClicksToReply:
        """The rule that turns clicks into a reply, in a simulation and on real devices.

        Args:
            metric: Reward of an interaction.
            per_half: Interactions that judge each ranker.
            antithetic: There are two halves; otherwise one.
        """

    def terms(self) -> dict[str, Any]:
        """Attributes of a hub's terms by which real devices have agreed to this mechanism.

        Raises:
            ConfigError: No device has this mechanism.
        """
        raise ConfigError(f"devices do not have the mechanism {self.name!r}.")

    @classmethod
    def of_terms(cls, terms: Any) -> Any:
        """The mechanism that devices have agreed to; the inverse of :meth:`terms`.

        Args:
            terms: A hub's terms.

        Raises:
            ConfigError: No device has this mechanism.
        """
        del terms
        raise ConfigError(f"devices do not have the mechanism {cls.name!r}.")

    def check_halves(self, antithetic: bool) -> None:
        """Refuse rankers that the mechanism does not go with.

        Raises:
            ConfigError: It needs two halves.
        """
        if not antithetic:
            raise ConfigError(
                f"the mechanism {self.name!r} needs antithetic halves or interleaved lists; with one-sided ones give "
                "privacy.p, the paper's mechanism."
            )

    def draw(self, key: Key[Array, ""], halves: int) -> Int[AnyArray, "{halves}"]:
        """Noise of a simulated device; by default zero. Randomness of other kinds comes with the round's words."""
        del key
        return np.zeros(halves, np.int32)

    def draw_from_os(self, halves: int) -> Int[AnyArray, "{halves}"]:
        """The same for a real device, from the operating system."""
        return np.zeros(halves, np.int32)

    def draw_of_cohort(self, noise: PartyNoise, halves: int) -> Int[np.ndarray, "halves runs parties"] | None:
        """The same for a cohort without JAX; None: there is no noise."""
        del noise, halves
        return None

    @abc.abstractmethod
    def differences(
        self, to_reply: ClicksToReply, replies: PyTree, arrived: Bool[AnyArray, "*runs parties"]
    ) -> tuple[Float[AnyArray, "*runs parties"], Bool[AnyArray, "*runs parties"]]:
        """Unbiased estimates, up to a factor, of the differences of the halves' sums, and a mask of valid messages.

        A message outside the range of an honest device is not valid. With added noise an honest one is taken for
        invalid with a probability of about e⁻⁴⁰ at most.
        """

    def largest(self, to_reply: ClicksToReply) -> float:
        """Unit of the server's rule ``clip``: the largest difference of an honest device, without added noise."""
        return float(to_reply.largest_difference)

    @abc.abstractmethod
    def account(self, to_reply: ClicksToReply, interactions: int, rounds: int, delta: float) -> PrivacyReport:
        """The account of a run.

        Args:
            to_reply: What turns clicks into a reply.
            interactions: Interactions behind a message.
            rounds: Rounds that took place.
            delta: δ of the bound over the run.
        """

    def epsilon_round(self, to_reply: ClicksToReply, interactions: int, delta: float) -> float:
        """The ε of one message."""
        return self.account(to_reply, interactions, 1, delta).epsilon_round


@dataclass(frozen=True)
class VectorMechanism(Mechanism):
    """A mechanism for the vectors that devices send.

    Attributes:
        size: Numbers of a vector; 0: not bound to a run.
        interactions: B, most interactions of a device in a round.
        changes: Devices send how the weights change, in place of the weights.
    """

    kind = "vector"
    changes: ClassVar[bool] = False

    size: int = bound(0)
    interactions: int = bound(1)

    @property
    def in_the_clear(self) -> bool:
        """True if the server sees each device's vector without noise, at most clipped."""
        return False

    def bind(self, bounds: Bounds, size: int, interactions: int) -> Any:
        """The mechanism of a run.

        Args:
            bounds: Facts of the run.
            size: Numbers of a vector.
            interactions: B, most interactions of a device in a round.

        Raises:
            ConfigError: The promise does not hold in such a run.
        """
        return dataclasses.replace(self, bounds=bounds, size=size, interactions=interactions)

    @property
    def parties(self) -> int | None:
        """Devices of a round; None: not known."""
        return None if self.bounds is None else self.bounds.clients

    def check_parties(self, parties: int) -> None:
        """Refuse a number of devices that are too few, or too many.

        Raises:
            ConfigError: See the mechanism.
        """

    def check_rule(self, rule: Any) -> None:
        """Refuse a rule of the server other than the mean where it cannot be computed.

        Raises:
            ConfigError: See the mechanism.
        """

    @property
    @abc.abstractmethod
    def reply(self) -> type:
        """The message that a device sends."""

    @property
    def native(self) -> bool:
        """True if noise of a cohort is drawn without JAX."""
        return True

    def extra_messages(self, parties: int) -> tuple[tuple[str, str, Layout], ...]:
        """Messages that cross beside request and reply."""
        del parties
        return ()

    def init(self, key: Any) -> tuple[Any, Any]:
        """The key for the initial weights, and the server's state of noise; by default ``key`` itself and None.

        Args:
            key: A typed key, or both words of each run's key; consumed.
        """
        return key, None

    def draw(self, key: Key[Array, ""]) -> Any:
        """A simulated device's share of noise in a round; None: it adds none."""
        del key
        return None

    def draw_from_os(self) -> Any:
        """The same for a real device, from the operating system."""
        return None

    def draw_of_cohort(self, noise: PartyNoise) -> Any:
        """The same for a cohort without JAX."""
        del noise
        return None

    @abc.abstractmethod
    def message(self, vector: Float[AnyArray, "*parties n"], amount: Int[AnyArray, "*parties"], noise: Any) -> Any:
        """The reply with a vector: clipped, with the device's share of noise.

        Args:
            vector: float32 [..., n]: weights that a device has come to, or their change.
            amount: int32 [...]: interactions they come from, at least 1.
            noise: The device's share of noise, as it was drawn.
        """

    @abc.abstractmethod
    def combine(
        self, state: Any, replies: Any, arrived: Bool[AnyArray, "*runs parties"], rule: Any, byzantine: int
    ) -> tuple[Float[AnyArray, "*runs n"], Bool[AnyArray, "*runs"], Any]:
        """The mean of the devices' vectors, whether enough were heard, and the server's state of noise.

        Args:
            state: The server's state, with ``weights``, ``round`` and ``noise``.
            replies: Messages of all devices.
            arrived: Which were heard.
            rule: How vectors are combined: ``"mean"``, or a rule of :mod:`fedrank.aggregation.robust`.
            byzantine: Attackers that the rule allows for.

        Returns:
            float32 [..., n]: the weights to go to, bool [...], and the state of noise.
        """

    @abc.abstractmethod
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """The account of a run.

        Args:
            rounds: Rounds that took place.
            delta: δ of the bound over the run.
        """
