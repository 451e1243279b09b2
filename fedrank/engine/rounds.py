"""Rounds of a protocol over all its parties, whoever computes them: what the loop of a run needs.

:class:`~fedrank.engine.simulator.Simulator` computes any protocol with JAX,
:class:`~fedrank.engine.native.NativeSimulator` some of them without.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from fedrank.core.arrays import PyTree
from fedrank.core.protocol import Party


class Rounds(abc.ABC):
    """The operations that the loop of a run needs; states and ``own`` are pytrees with a leading axis of runs."""

    #: ``"numba"``, ``"numpy"`` or ``"jax"``.
    backend: str
    #: What takes JAX, where it is used; empty where nothing is known.
    why: str = ""

    @abc.abstractmethod
    def keys(self, seeds: Sequence[int]) -> PyTree:
        """One key for each seed."""

    @abc.abstractmethod
    def begin(self, keys: PyTree, parties: Party) -> tuple[PyTree, PyTree]:
        """States, and what each party has for itself, before the first round."""

    @abc.abstractmethod
    def advance(
        self, keys: PyTree, states: PyTree, shared: PyTree, own: PyTree, first_round: int, rounds: int
    ) -> tuple[PyTree, PyTree, dict[str, Any]]:
        """A number of rounds of all runs: new states, new ``own``, and the parties' mean experience [rounds, runs].

        Args:
            keys: Of the runs.
            states: Of the servers.
            shared: What all parties hold in common.
            own: What each has for itself, [runs, parties, ...].
            first_round: Number of the first of these rounds.
            rounds: How many.
        """

    def server(self, states: PyTree) -> PyTree:
        """The protocol's own states among those that :meth:`begin` and :meth:`advance` return."""
        return states

    @abc.abstractmethod
    def models(self, states: PyTree) -> PyTree:
        """The model that each run's server would hand out now, as arrays of NumPy."""

    @abc.abstractmethod
    def on_host(self, tree: PyTree) -> PyTree:
        """A pytree with its leaves as arrays of NumPy."""
