"""The model that a hub hands out: its own, which it trains, or that of a coordinator for which it collects."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedrank.core.messages import Layout
from fedrank.deploy.hub.learning import learning_of, rebuild
from fedrank.deploy.hub.settings import HubSettings, fingerprint
from fedrank.deploy.hub.store import States, Store
from fedrank.deploy.terms import Terms

_log = logging.getLogger("fedrank.hub")


class Model(Protocol):
    """The model that a hub hands out, round by round."""

    def restore(self, number: int) -> None:
        """Restore the model before a round of the log.

        Raises:
            RunError: The files that it is restored from cannot be read.
        """
        ...

    def question(self) -> bytes:
        """The request that devices get, as bytes."""
        ...

    def digest(self) -> bytes:
        """SHA-256 of the request's weights, 32 bytes."""
        ...

    def warm(self, reports: int) -> None:
        """Compile what rounds of ``reports`` reports need."""
        ...

    def tell(self, number: int, messages: Sequence[bytes]) -> None:
        """Update the model with the reports of a round; the result is on the disk when this returns.

        Raises:
            RunError: It cannot be written. The call may be repeated.
        """
        ...


class OwnModel:
    """A model that the hub trains: every round updates it.

    Args:
        folder: Folder of the checkpoints.
        store: The log, from which the model is rebuilt where checkpoints are missing.
        settings: Settings of the hub.
    """

    def __init__(self, folder: Path, store: Store, settings: HubSettings):
        self._store, self._learning = store, learning_of(settings.protocol())
        self._checkpoints = store.states(folder, fingerprint(settings, store.name))
        self._checkpoints.sweep()
        self._bests = store.states(folder / "best", fingerprint(settings, store.name))
        self._bests.sweep()
        self._state, self._best = self._learning.init(), None
        self._check = settings.terms(store.name).check

    def restore(self, number: int) -> None:
        """Restore the model before a round from the newest checkpoint up to there, and the log from there on."""
        self._state = self._before(self._checkpoints, number)

    def _before(self, checkpoints: States, number: int) -> Any:
        """The state before a round."""
        # A state beyond the log's round belongs to a round that was not marked as applied: it is made again.
        start, state = next(checkpoints.states(self._state, number), (0, self._learning.init()))
        returns = {halt.round: halt.best for halt in self._store.halts() if start < halt.round <= number}
        if any(best < start for best in returns.values()):
            start, state = 0, self._learning.init()
            returns = {halt.round: halt.best for halt in self._store.halts() if halt.round <= number}
        todo = [(n, learnt_from(self._store.reports(n), self._check)) for n in range(start, number)]
        if todo:
            _log.warning("no checkpoint of round %d; the model is made again from round %d of the log", number, start)
        return rebuild(self._learning, state, todo, returns=returns)

    def compare_with(self, number: int) -> None:
        """Take the model before a round for the best one; it is kept apart, however old it gets."""
        if self._best is not None and self._best[0] == number:
            return
        current = int(np.asarray(self._state.round)) == number
        state = self._state if current else self._before(self._bests, number)
        self._bests.save(number, state)
        self._best = (number, state)

    def best(self) -> bytes | None:
        """The request of the best model, as it was handed out; None where there is none."""
        return None if self._best is None else self._learning.request(self._best[1])

    def return_to_best(self, number: int) -> None:
        """Make the best model, with its optimiser, the one before a round; errors as :meth:`tell`."""
        assert self._best is not None
        state = self._learning.returned(self._best[1], number)
        self._checkpoints.save(number, state)
        self._state = state

    def question(self) -> bytes:
        """The protocol's request, as bytes."""
        return self._learning.request(self._state)

    def digest(self) -> bytes:
        """SHA-256 of the model's weights, 32 bytes."""
        return self._learning.digest(self._state)

    def warm(self, reports: int) -> None:
        """Compile the update for rounds of ``reports`` reports."""
        self._learning.warm(self._state, reports)

    def tell(self, number: int, messages: Sequence[bytes]) -> None:
        """Do one step of the protocol and write a checkpoint."""
        state = self._learning.tell(self._state, messages)
        self._checkpoints.save(number + 1, state)
        self._state = state


class RelayedModel:
    """A model that a coordinator trains: the hub hands out the requests that it is given, and keeps them in its log.

    Args:
        store: The log.
        terms: Terms of the hub, which define the layout of a request.
    """

    def __init__(self, store: Store, terms: Terms):
        self._store, self._layout, self._question = store, terms.request, b""

    def number_of(self, question: bytes) -> int:
        """Number of the round that a request is about.

        Raises:
            WireError: It does not fit this hub's terms.
        """
        return int(self._layout.decode(question).round)

    def take(self, number: int, question: bytes, entry: bytes | None = None) -> None:
        """Open a round with this request, ``entry`` of the public log; errors as :meth:`Model.tell`."""
        self._store.open_round(number, digest_of_question(question), question, entry)
        self._question = question

    def restore(self, number: int) -> None:
        """Read the request of a round from the log."""
        self._question = self._store.question(number) or b""

    def question(self) -> bytes:
        """The coordinator's newest request; empty before the first."""
        return self._question

    def digest(self) -> bytes:
        """SHA-256 of the request's weights, 32 bytes."""
        return digest_of_question(self._question)

    def warm(self, reports: int) -> None:
        """Do nothing: a hub that relays computes nothing."""

    def tell(self, number: int, messages: Sequence[bytes]) -> None:
        """Do nothing: the coordinator collects the messages from the log."""


def digest_of_question(question: bytes) -> bytes:
    """SHA-256 of the weights in a request: what follows its header and its round."""
    return hashlib.sha256(question[5:]).digest()


def learnt_from(messages: Sequence[tuple[int, bytes]], check: Layout[Any] | None) -> list[tuple[int, bytes]]:
    """The messages of a round that the model learns from, with their devices: all but the checks.

    Args:
        messages: Device and message of each.
        check: Layout of a check; None: there are none.
    """
    return [(device, one) for device, one in messages if check is None or one[:1] != check.head]
