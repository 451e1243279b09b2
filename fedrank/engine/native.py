"""Rounds of a protocol over all its parties without JAX and without compiling, where the protocol has such rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.kernels import folded, run_words, stream
from fedrank.core.native import NativeRounds, NotNativeError, native_rounds
from fedrank.core.protocol import Party, Protocol
from fedrank.engine.conditions import FATE, INIT, Conditions
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

    backend = "numba"

    def __init__(self, protocol: Protocol, parties: Party, chunk: int, conditions: Conditions):
        if conditions.late:
            raise NotNativeError("late replies")
        if conditions.attack is not None:
            raise NotNativeError("attacks on replies")
        if chunk < 1:
            raise ConfigError(f"chunk must be at least 1, got {chunk}.")
        self.native: NativeRounds = native_rounds(protocol, parties)
        self.protocol, self.chunk, self.conditions = protocol, chunk, conditions

    @override
    def keys(self, seeds: Sequence[int]) -> UInt32[np.ndarray, "runs 2"]:
        return run_words(seeds)

    @override
    def begin(self, keys: PyTree, parties: Party) -> tuple[PyTree, PyTree]:
        runs = len(keys)

        def each(leaf):
            return np.broadcast_to(np.asarray(leaf), (runs, *np.shape(leaf)))

        return self.native.first(folded(keys, INIT)), _mapped(each, parties.own)

    @override
    def advance(
        self, keys: PyTree, states: PyTree, shared: PyTree, own: PyTree, first_round: int, rounds: int
    ) -> tuple[PyTree, PyTree, dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        parties = own[0].shape[1]
        for number in range(first_round, first_round + rounds):
            answers = []
            for first in range(0, parties, self.chunk):
                part = _mapped(lambda leaf, at=first: leaf[:, at : at + self.chunk], own)
                answers.append(self.native.answer(states, part, keys, number, first))
            kept, replies = zip(*answers, strict=True)
            if len(kept) == 1:
                own, reply = kept[0], replies[0]
            else:
                own = _mapped(lambda *leaves: np.concatenate(leaves, axis=1), *kept)
                fields = [f.name for f in dataclasses.fields(replies[0])]
                reply = type(replies[0])(*(np.concatenate([getattr(r, f) for r in replies], axis=1) for f in fields))
            states = self.native.tell(states, reply, self._arrived(keys, number, parties))
            means = {name: np.mean(each, axis=1) for name, each in self.native.experience(own).items()}
            seen.append(means)
        return states, own, {name: np.stack([one[name] for one in seen]) for name in (seen[0] if seen else ())}

    def _arrived(self, keys: UInt32[np.ndarray, "runs 2"], number: int, parties: int) -> Bool[np.ndarray, "runs n"]:
        """Whose replies arrive: what ``jax.random.bernoulli`` draws."""
        arrived = np.ones((len(keys), parties), bool)
        if self.conditions.dropout:
            words = stream(folded(keys, number, FATE), parties)
            unit = ((words >> np.uint32(9)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
            arrived = ~(unit < np.float32(self.conditions.dropout))
        if self.conditions.absent:
            arrived &= ~np.asarray(self.conditions.absent)
        return arrived

    @override
    def models(self, states: PyTree) -> PyTree:
        return np.asarray(states.weights)

    @override
    def on_host(self, tree: PyTree) -> PyTree:
        return tree


def _mapped(function: Callable[..., Any], *trees: Any) -> Any:
    """A function of the arrays at the same places of some trees of tuples: ``jax.tree.map`` without JAX."""
    first = trees[0]
    if not isinstance(first, tuple):
        return function(*trees)
    fields = (_mapped(function, *each) for each in zip(*trees, strict=True))
    return first._make(fields) if hasattr(first, "_make") else tuple(fields)  # type: ignore[attr-defined]
