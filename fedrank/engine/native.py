"""Rounds of a protocol over all its parties without JAX and without compiling, where the protocol has such rounds.

Beside them stands the choice between these, which start at once, and JAX, which knows all settings (:func:`rounds_of`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import AnswerError, ConfigError
from fedrank.core.native import NativeRounds, NotNativeError, map_trees, native_rounds
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.core.rng import FATE, INIT
from fedrank.core.streams import fold_words, run_words, stream, uniforms
from fedrank.engine.attackers import Conditions
from fedrank.engine.rounds import Rounds
from fedrank.engine.simulator import selective


class NativeSimulator(Rounds):
    """Runs a protocol whose rounds are native; see the module.

    Args:
        protocol: The protocol.
        parties: All of its parties.
        chunk: Parties that answer at once.
        conditions: What happens to replies on their way: some may not arrive.
        debug: One party after another, so that an error says whose answer failed; for batched exchanges only.

    Raises:
        NotNativeError: The protocol, its settings, or the conditions need JAX.
    """

    def __init__(self, protocol: Protocol, parties: Party, chunk: int, conditions: Conditions, debug: bool = False):
        if conditions.late:
            raise NotNativeError("late replies")
        if conditions.attack is not None:
            raise NotNativeError("attacks on replies")
        if chunk < 1:
            raise ConfigError(f"chunk must be at least 1, got {chunk}.")
        batched = all(exchange.batched for exchange in protocol.exchanges)
        self.native: NativeRounds = (
            BatchedRounds(protocol, parties, debug) if batched else native_rounds(protocol, parties)
        )
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
            arrived = self._draw_arrivals(keys, number, own[0].shape[1])
            states, own, told = self.native.round(states, own, keys, number, arrived, self.chunk)
            seen.append(told)
        return states, own, _stack_rounds(seen) if seen else {}

    def _draw_arrivals(
        self, keys: UInt32[np.ndarray, "runs 2"], number: int, parties: int
    ) -> Bool[np.ndarray, "runs n"]:
        """The parties whose replies arrive, bool [runs, parties]: the draws of ``jax.random.bernoulli``."""
        arrived = np.ones((len(keys), parties), bool)
        if self.conditions.dropout:
            words = stream(fold_words(keys, number, FATE), parties)
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


class BatchedRounds(NativeRounds):
    """Rounds of a protocol whose exchanges all answer for several parties at once (:attr:`Exchange.batched`).

    The server's part is the exchanges' own ``ask``, ``asked`` and ``tell``, run by run.

    Args:
        protocol: The protocol.
        parties: All of its parties.
        debug: One party after another.
    """

    backend = "numpy"

    def __init__(self, protocol: Protocol, parties: Party, debug: bool = False):
        self.protocol, self._shared, self._debug = protocol, parties.shared, debug

    @override
    def begin(self, keys, parties):
        own = map_trees(lambda leaf: np.broadcast_to(leaf, (len(keys), *np.shape(leaf))), parties.own)
        return stack_states([self.protocol.init(key) for key in fold_words(keys, INIT)]), own

    @override
    def round(self, state, own, keys, number, arrived, chunk):
        exchanges, (runs, parties) = self.protocol.exchanges, arrived.shape
        at_once = 1 if self._debug else chunk * runs
        states = [map_trees(lambda leaf, run=run: leaf[run], state) for run in range(runs)]
        crossed = np.zeros((runs, len(exchanges), 2), np.int32)
        keys = fold_words(keys, number)
        with np.errstate(all="ignore"):  # numbers of models that diverged
            for index, exchange in enumerate(exchanges):
                if not exchange.due(number):
                    continue
                asked = [exchange.asked(one, parties) for one in states]
                asked = np.stack([np.ones(parties, bool) if one is None else one for one in asked])
                requests = [exchange.ask(one) for one in states]
                request = _with_fields(requests[0], lambda name, r=requests: np.stack([getattr(x, name) for x in r]))
                run, party = np.nonzero(asked)
                mine = fold_words(keys[run], party)
                mine = mine if len(exchanges) == 1 else fold_words(mine, index)
                parts = []
                for first in range(0, max(1, len(run)), at_once):
                    here = slice(first, first + at_once)
                    parts.append(self._answer(exchange, number, request, own, mine[here], run[here], party[here]))
                befores, afters, replies = zip(*parts, strict=True)

                def keep(old: Any, *leaves: Any, at: Any = (run, party)) -> Any:
                    before, after = leaves[: len(leaves) // 2], leaves[len(leaves) // 2 :]
                    if all(a is b for a, b in zip(before, after, strict=True)):
                        return old  # a large memory that no answer changes is not copied
                    return _put(np.array(old), at, np.concatenate(after))

                own = map_trees(keep, own, *befores, *afters)
                heard = arrived & asked
                for one in range(runs):
                    at = run == one

                    def of_run(name: str, at: Any = at, replies: Any = replies, party: Any = party) -> np.ndarray:
                        new = np.concatenate([getattr(reply, name) for reply in replies])
                        return _put(np.zeros((parties, *new.shape[1:]), new.dtype), party[at], new[at])

                    states[one] = exchange.tell(states[one], _with_fields(replies[0], of_run), heard[one])
                if not exchange.silent:
                    crossed[:, index] = np.stack([asked.sum(1), heard.sum(1)], axis=-1)
            watched = [self.protocol.watch(one) for one in states]
            experience = self.protocol.experience(Party(self._shared, own))
        told: dict[str, Any] = {name: np.mean(each, axis=1) for name, each in experience.items()}
        if watched[0]:
            told["watched"] = {name: np.stack([one[name] for one in watched]) for name in watched[0]}
        if selective(self.protocol):
            told["crossed"] = crossed
        return stack_states(states, state), own, told

    def _answer(
        self, exchange: Exchange, number: int, request: Any, own: PyTree, keys: Any, run: Any, party: Any
    ) -> tuple[PyTree, PyTree, Any]:
        """State of the answering parties before and after, and their replies: leading axis [parties that answer]."""
        mine = Party(self._shared, map_trees(lambda leaf: leaf[run, party], own))
        arguments = (_with_fields(request, lambda name: getattr(request, name)[run]), mine, keys)
        try:
            after, reply = exchange.answer(*arguments)
        except Exception as error:
            if not self._debug:
                raise
            raise AnswerError(exchange.name, int(party[0]), number, error, arguments) from error
        return mine.own, after.own, reply

    @override
    def models(self, state: PyTree) -> PyTree:
        runs = len(state[0])
        each = [self.protocol.weights(map_trees(lambda leaf, run=run: leaf[run], state)) for run in range(runs)]
        return np.stack(each)


def _with_fields(message: Any, make: Any) -> Any:
    """A message of the same type, whose fields are made from their names."""
    return type(message)(**{f.name: make(f.name) for f in dataclasses.fields(message)})


def _put(into: np.ndarray, at: Any, new: np.ndarray) -> np.ndarray:
    into[at] = new
    return into


def stack_states(states: Sequence[PyTree], like: PyTree | None = None) -> PyTree:
    """States of runs as one with a leading axis, of the types of numbers of ``like``."""
    if like is None:
        return map_trees(lambda *leaves: np.stack(leaves), *states)
    return map_trees(lambda old, *leaves: np.stack(leaves).astype(old.dtype, copy=False), like, *states)


def _stack_rounds(rounds: Sequence[Any]) -> Any:
    """Arrays [rounds, ...] of what was told of each round, in dictionaries as deep as they are."""
    if isinstance(rounds[0], dict):
        return {name: _stack_rounds([one[name] for one in rounds]) for name in rounds[0]}
    return np.stack(rounds)


def rounds_of(
    protocol: Protocol, parties: Party, chunk: int, conditions: Conditions, backend: str, debug: bool = False
) -> Rounds:
    """The backend that computes the rounds of a protocol.

    Args:
        protocol: The protocol.
        parties: All of its parties.
        chunk: Parties that answer at once.
        conditions: What happens to replies on their way.
        backend: ``"numba"`` or ``"numpy"`` for native rounds, ``"jax"``, or ``"auto"`` for the first where they can.
        debug: Without compiling, party by party, which takes JAX.

    Raises:
        ConfigError: ``backend`` names native rounds, and something needs JAX.
    """
    why = "compute.backend = 'jax'"
    if backend != "jax":
        try:
            if debug:
                raise NotNativeError("compute.debug")
            return NativeSimulator(protocol, parties, chunk, conditions)
        except NotNativeError as error:
            if backend != "auto":
                raise ConfigError(
                    f"compute.backend = {backend!r} cannot compute this run: {error} takes JAX. Use 'auto' or 'jax'."
                ) from error
            why = str(error)
    from fedrank.engine.simulator import Simulator

    return Simulator(protocol, chunk, debug, conditions, why=why)
