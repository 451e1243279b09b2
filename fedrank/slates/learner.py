"""A learner of slates: what platforms know of a user, how they value candidates, and how slates follow from values.

A learner is written for *one* platform, as functions of arrays::

    greeted     what the platform knows of a user who has just come                       state features
    view_after  what it knows after a round
    remembered  what it keeps of a round to learn from                                    memory
    values      how much a click on each candidate is worth now                           critic
    best        the slate that follows from values                                        improvement

How it learns depends on what its critic needs from other platforms, which is why there are three kinds:

* nothing: a :class:`SlateLearner` that keeps to itself, played by :class:`fedrank.slates.alone.AloneSlates`;
* sums over users, now and then: a :class:`fedrank.slates.sums.learner.SumLearner`, played by
  :class:`fedrank.slates.sums.SummedSlates`, which clips each user's part, adds noise, and accounts for both;
* values of candidates in every round, and gradients of them: a :class:`fedrank.slates.fedslate.learner.ValueLearner`,
  played by :class:`fedrank.slates.fedslate.FedSlate`.

The users, the runs, their baselines and their reports are the same for all.
"""

from __future__ import annotations

import abc
from typing import Any

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedrank.core.arrays import PyTree
from fedrank.slates.world.satisfaction import Satisfaction, Turn


class SlateLearner(abc.ABC):
    """What one platform of several learns, and how it fills its slates.

    A platform's state is a NamedTuple with at least ``view``, what is known of the user who is there and of the
    candidates, and ``slate``, int32 [n], what it shows in this round. Hashable, as a frozen dataclass is: compiled
    programs are made for it.

    Attributes:
        name: Short name.
        world: The users. A learner knows of them N, n, K, the rounds of a stay, and how they choose from a slate.
        feedback: Whether each platform sees clicks and engagement.
    """

    name: str
    world: Satisfaction
    feedback: tuple[bool, ...]

    @abc.abstractmethod
    def first_state(self, key: PRNGKeyArray, number: Int[Array, ""] | int) -> Any:
        """A platform's state before its first user.

        Args:
            key: Consumed.
            number: Number of the platform, from 0.
        """

    @abc.abstractmethod
    def greeted(self, own: Any, observed: Float[Array, ""], documents: Float[Array, " candidates"]) -> PyTree:
        """The view of a user who has just come.

        Args:
            own: The platform's state.
            observed: The satisfaction that the platform observes.
            documents: The feature of each candidate, in [0, 1].
        """

    @abc.abstractmethod
    def view_after(
        self,
        own: Any,
        turn: Turn,
        observed: Float[Array, ""],
        documents: Float[Array, " candidates"],
        over: Bool[Array, ""],
    ) -> PyTree:
        """The view after a round; other arguments as of :meth:`greeted`.

        Args:
            own: The platform's state in the round.
            turn: The outcome of its slate; a platform without feedback uses nothing of it.
            observed: What it observes now.
            documents: The candidates now.
            over: Whether another user has come.
        """

    def together(self, views: PyTree) -> PyTree:
        """Views of all platforms, leaves [K, ...], where they see each other's; by default none does."""
        return views

    def remembered(self, own: Any, turn: Turn, number: Int[Array, ""], over: Bool[Array, ""]) -> Any:
        """The state with what is kept of a round, the view of which is still there; by default nothing is kept.

        Args:
            own: The platform's state in the round.
            turn: The outcome of its slate.
            number: Number of the round.
            over: Whether the user has left.
        """
        return own

    @abc.abstractmethod
    def values(self, own: Any) -> Float[Array, " values"]:
        """How much a click on each candidate is worth now; one more where a round without a click is worth anything."""

    def joined(
        self, shared: PyTree, values: Float[Array, "platforms values"], key: PRNGKeyArray
    ) -> Float[Array, "platforms values"]:
        """Values of all platforms as slates are made by them; by default each platform's own.

        Args:
            shared: The coordinator's model.
            values: Each platform's own.
            key: Consumed, by noise on what is sent.
        """
        return values

    @abc.abstractmethod
    def best(self, own: Any, values: Float[Array, " values"]) -> Int[Array, " slots"]:
        """The slate that follows from values; places of candidates in slot order."""
