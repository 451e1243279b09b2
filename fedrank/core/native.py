"""Rounds of a protocol on a CPU without JAX: all parties of all runs at once, with NumPy and compiled kernels.

A protocol is defined by its exchanges (:mod:`fedrank.core.protocol`), which JAX maps over parties. Compiling that costs
seconds; kernels that were compiled once cost nothing. A protocol may therefore say the same a second time, as a
:class:`NativeRounds`, for the settings that its kernels know. Both draw the same random numbers, bit by bit, and tests
compare what they make of them: sums differ by rounding, at most 1e-5 of their size.
"""

from __future__ import annotations

import abc
import functools
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped, UInt32

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party, Protocol


class NotNativeError(ConfigError):
    """These settings need JAX; the message says which of them does, as the end of a sentence."""


class NativeRounds(abc.ABC):
    """One exchange a round, for all parties of all runs; every array has a leading axis of runs.

    States and what parties keep have the fields that the exchange's have, so that a run goes on with either.
    """

    @abc.abstractmethod
    def first(self, keys: UInt32[np.ndarray, "runs 2"]) -> PyTree:
        """The server's states before the first round.

        Args:
            keys: Both words of each run's key for the start, consumed.
        """

    @abc.abstractmethod
    def answer(
        self, state: PyTree, own: PyTree, keys: UInt32[np.ndarray, "runs 2"], number: int, first: int
    ) -> tuple[PyTree, Any]:
        """The answers of some parties, one after another in their numbers.

        Args:
            state: The servers' states.
            own: What each of these parties has for itself: leaves [runs, parties, ...].
            keys: Both words of each run's key.
            number: Number of the round.
            first: Number of the first of these parties.

        Returns:
            What the parties keep, and their replies: a message whose fields are [runs, parties, ...].
        """

    @abc.abstractmethod
    def tell(self, state: PyTree, replies: Any, arrived: Bool[np.ndarray, "runs parties"]) -> PyTree:
        """The servers' states after the replies of all parties.

        Args:
            state: The states that were asked from.
            replies: Fields [runs, parties, ...].
            arrived: Which were heard.
        """

    @abc.abstractmethod
    def experience(self, own: PyTree) -> dict[str, Shaped[AnyArray, "runs parties"]]:
        """What parties went through in the round, by name."""


@functools.singledispatch
def native_rounds(protocol: Protocol, parties: Party) -> NativeRounds:
    """The rounds of a protocol without JAX; a module that has some registers them for its protocol's class.

    Args:
        protocol: The protocol.
        parties: All parties, as they are simulated.

    Raises:
        NotNativeError: There are none, or none for these settings.
    """
    del parties
    raise NotNativeError(f"the protocol {protocol.name!r}")


def check_own_class(protocol: Protocol, known: type[Protocol]) -> None:
    """Refuse a subclass, whose rounds may be others than those of the class that is known.

    Raises:
        NotNativeError: It is one.
    """
    if type(protocol) is not known:
        raise NotNativeError(f"the class {type(protocol).__name__}")
