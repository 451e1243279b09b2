"""Rounds of a protocol on a CPU without JAX: all parties of all runs at once, with NumPy and compiled kernels.

A protocol is defined by its exchanges (:mod:`fedrank.core.protocol`), which JAX maps over parties. Compiling that costs
seconds; kernels that were compiled once cost nothing. A protocol may therefore have a second form of its parties'
answers, a :class:`Cohort`, for the settings that its kernels know; the server's part is the exchange's own. Both draw
the same random numbers, bit by bit, and tests compare what they make of them: sums differ by rounding, at most 1e-5 of
their size.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import NotNativeError as NotNativeError
from fedrank.core.lazy import is_loaded, jax
from fedrank.core.protocol import Party, Protocol
from fedrank.core.rng import INIT
from fedrank.core.streams import fold_words


class NativeRounds(abc.ABC):
    """Rounds for all parties of all runs; every array has a leading axis of runs.

    States and what parties keep have the fields that the exchanges' have, so that a run goes on with either.
    """

    #: What computes them, as settings call it: ``"numba"`` or ``"numpy"``.
    backend: str = "numba"

    @abc.abstractmethod
    def begin(self, keys: UInt32[np.ndarray, "runs 2"], parties: Party) -> tuple[PyTree, PyTree]:
        """The servers' states, and what each party has for itself [runs, parties, ...], before the first round.

        Args:
            keys: Both words of each run's key.
            parties: All parties, as they are simulated.
        """

    @abc.abstractmethod
    def round(
        self,
        state: PyTree,
        own: PyTree,
        keys: UInt32[np.ndarray, "runs 2"],
        number: int,
        arrived: Bool[np.ndarray, "runs parties"],
        chunk: int,
    ) -> tuple[PyTree, PyTree, dict[str, Any]]:
        """One round: new states, what the parties keep, and what there is to say of it.

        Args:
            state: The servers' states.
            own: What each party has for itself, leaves [runs, parties, ...].
            keys: Both words of each run's key.
            number: Number of the round.
            arrived: Whose replies the servers get to see.
            chunk: Parties that answer at once, at most.

        Returns:
            The last has what :meth:`fedrank.engine.simulator.Simulator.advance` tells of a round: arrays [runs, ...] by
            name, or dictionaries of such.
        """

    def models(self, state: PyTree) -> PyTree:
        """The model that each run's server would hand out now."""
        return np.asarray(state.weights)


class Cohort(abc.ABC):
    """Answers of all parties of all runs to one exchange, with compiled kernels: ``answer``, vectorised."""

    @abc.abstractmethod
    def answer(
        self, request: Any, own: PyTree, keys: UInt32[np.ndarray, "runs 2"], number: int, first: int
    ) -> tuple[PyTree, Any]:
        """The answers of some parties, one after another in their numbers.

        Args:
            request: What each run's server asked, a message whose fields are [runs, ...].
            own: What each of these parties has for itself: leaves [runs, parties, ...].
            keys: Both words of each run's key.
            number: Number of the round.
            first: Number of the first of these parties.

        Returns:
            What the parties keep, and their replies: a message whose fields are [runs, parties, ...].
        """


class CohortRounds(NativeRounds):
    """Rounds of a protocol of one exchange, in which all parties answer: the exchange's own ask and tell, with NumPy.

    ``ask`` and ``tell`` take states and replies of all runs at once, with a leading axis of runs.

    Args:
        protocol: The protocol.
        parties: All parties.

    Raises:
        NotNativeError: The kernels do not know these settings.
    """

    def __init__(self, protocol: Protocol, parties: Party):
        self.protocol, (self.exchange,) = protocol, protocol.exchanges
        self.cohort = protocol.cohort(parties)

    @override
    def begin(self, keys, parties):
        def each(leaf):
            return np.broadcast_to(np.asarray(leaf), (len(keys), *np.shape(leaf)))

        states = [self.protocol.init(key) for key in fold_words(keys, INIT)]
        return map_trees(lambda *leaves: np.stack(leaves), *states), map_trees(each, parties.own)

    @override
    def round(self, state, own, keys, number, arrived, chunk):
        parties, answers = arrived.shape[1], []
        request = self.exchange.ask(state)
        for first in range(0, parties, chunk):
            part = map_trees(lambda leaf, at=first: leaf[:, at : at + chunk], own)
            answers.append(self.cohort.answer(request, part, keys, number, first))
        kept, replies = zip(*answers, strict=True)
        if len(kept) == 1:
            own, reply = kept[0], replies[0]
        else:
            own = map_trees(lambda *leaves: np.concatenate(leaves, axis=1), *kept)
            fields = [f.name for f in dataclasses.fields(replies[0])]
            reply = type(replies[0])(*(np.concatenate([getattr(r, f) for r in replies], axis=1) for f in fields))
        lived = self.protocol.experience(Party((), own))
        means = {name: np.mean(each, axis=1) for name, each in lived.items()}
        return self.exchange.tell(state, reply, arrived), own, means


def map_trees(function: Callable[..., Any], *trees: Any) -> Any:
    """A function of the arrays at the same places of trees of tuples and messages: ``jax.tree.map`` without JAX."""
    first = trees[0]
    if first is None:
        return None
    if dataclasses.is_dataclass(first) and not isinstance(first, type):  # a message
        fields = [field.name for field in dataclasses.fields(first)]
        return type(first)(*(map_trees(function, *(getattr(tree, name) for tree in trees)) for name in fields))
    if not isinstance(first, tuple):
        return function(*trees)
    fields = (map_trees(function, *each) for each in zip(*trees, strict=True))
    return first._make(fields) if hasattr(first, "_make") else tuple(fields)  # type: ignore[attr-defined]


def map_arrays(function: Callable[..., Any], *trees: Any) -> Any:
    """:func:`map_trees`, by JAX once that is loaded: it knows trees of more kinds, and those of no other need it."""
    return jax.tree.map(function, *trees) if is_loaded() else map_trees(function, *trees)


@functools.singledispatch
def native_rounds(protocol: Protocol, parties: Party) -> NativeRounds:
    """The rounds of a protocol without JAX; a module that has some registers them for its protocol's class.

    Args:
        protocol: The protocol.
        parties: All parties, as they are simulated.

    Raises:
        NotNativeError: There are none, or none for these settings.
    """
    return CohortRounds(protocol, parties)
