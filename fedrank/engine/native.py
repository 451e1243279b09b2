"""Rounds of a protocol over all its parties without JAX and without compiling, where the protocol has such rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.native import NativeRounds, NotNativeError, native_rounds
from fedrank.core.protocol import Party, Protocol
from fedrank.core.rng import FATE
from fedrank.core.streams import folded, run_words, stream, uniforms
from fedrank.engine.conditions import Conditions
from fedrank.engine.rounds import Rounds


class NativeSimulator(Rounds):
    """Runs a protocol whose rounds are native; see the module.

    Args:
        protocol: The protocol.
        parties: All of its parties.
        chunk: Parties that answer at once.
        conditions: What happens to replies on their way: some may not arrive.

    Raises:
        NotNativeError: The protocol, its settings, or the conditions need JAX.
    """

    def __init__(self, protocol: Protocol, parties: Party, chunk: int, conditions: Conditions):
        if conditions.late:
            raise NotNativeError("late replies")
        if conditions.attack is not None:
            raise NotNativeError("attacks on replies")
        if chunk < 1:
            raise ConfigError(f"chunk must be at least 1, got {chunk}.")
        self.native: NativeRounds = native_rounds(protocol, parties)
        self.backend = self.native.backend
        self.protocol, self.chunk, self.conditions = protocol, chunk, conditions

    @override
    def keys(self, seeds: Sequence[int]) -> UInt32[np.ndarray, "runs 2"]:
        return run_words(seeds)

    @override
    def begin(self, keys: PyTree, parties: Party) -> tuple[PyTree, PyTree]:
        return self.native.begin(keys, parties)

    @override
    def advance(
        self, keys: PyTree, states: PyTree, shared: PyTree, own: PyTree, first_round: int, rounds: int
    ) -> tuple[PyTree, PyTree, dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        for number in range(first_round, first_round + rounds):
            arrived = self._arrived(keys, number, own[0].shape[1])
            states, own, told = self.native.round(states, own, keys, number, arrived, self.chunk)
            seen.append(told)
        return states, own, _stacked(seen) if seen else {}

    def _arrived(self, keys: UInt32[np.ndarray, "runs 2"], number: int, parties: int) -> Bool[np.ndarray, "runs n"]:
        """Whose replies arrive: what ``jax.random.bernoulli`` draws."""
        arrived = np.ones((len(keys), parties), bool)
        if self.conditions.dropout:
            words = stream(folded(keys, number, FATE), parties)
            arrived = ~(uniforms(words) < np.float32(self.conditions.dropout))
        if self.conditions.absent:
            arrived &= ~np.asarray(self.conditions.absent)
        return arrived

    @override
    def models(self, states: PyTree) -> PyTree:
        return self.native.models(states)

    @override
    def on_host(self, tree: PyTree) -> PyTree:
        return tree


def _stacked(rounds: Sequence[Any]) -> Any:
    """Arrays [rounds, ...] of what was told of each round, in dictionaries as deep as they are."""
    if isinstance(rounds[0], dict):
        return {name: _stacked([one[name] for one in rounds]) for name in rounds[0]}
    return np.stack(rounds)
