"""Where a hub's questions come from: its own learning, or a coordinator that it collects for."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fedrank.deploy.checkpoints import Checkpoints
from fedrank.deploy.hub.learning import learning_of, rebuild
from fedrank.deploy.hub.settings import HubSettings, fingerprint
from fedrank.deploy.hub.store import Store
from fedrank.deploy.terms import Terms

_log = logging.getLogger("fedrank.hub")


class Model(Protocol):
    """What a hub hands out, round by round."""

    def at(self, number: int) -> None:
        """Be where it was before a round of the log; errors as when files are read."""
        ...

    def question(self) -> bytes:
        """What devices are asked."""
        ...

    def digest(self) -> bytes:
        """SHA-256 of the weights in it: 32 bytes."""
        ...

    def warm(self, reports: int) -> None:
        """Get ready for rounds of so many reports."""
        ...

    def tell(self, number: int, messages: Sequence[bytes]) -> None:
        """What a round brought; what follows from it is on the disk when this returns.

        Raises:
            RunError: It cannot be written. To be told again does no harm.
        """
        ...


class OwnModel:
    """The hub learns: every round moves the model.

    Args:
        folder: For the checkpoints.
        store: The log, which makes the model again where checkpoints are missing.
        settings: The hub's.
    """

    def __init__(self, folder: Path, store: Store, settings: HubSettings):
        self._store, self._learning = store, learning_of(settings.protocol())
        self._checkpoints = Checkpoints(folder, fingerprint(settings, store.name))
        self._checkpoints.sweep()
        self._state = self._learning.init()

    def at(self, number: int) -> None:
        """Be where it was before a round: from the newest checkpoint up to there, and the log from there on."""
        # A state beyond the log's round belongs to a round that was not marked as applied: it is made again.
        start, state = next(self._checkpoints.states(self._state, number), (0, self._learning.init()))
        todo = [(n, self._store.reports(n)) for n in range(start, number)]
        if todo:
            _log.warning("no checkpoint of round %d; the model is made again from round %d of the log", number, start)
        self._state = rebuild(self._learning, state, todo)

    def question(self) -> bytes:
        """The protocol's request."""
        return self._learning.request(self._state)

    def digest(self) -> bytes:
        """SHA-256 of the weights."""
        return self._learning.digest(self._state)

    def warm(self, reports: int) -> None:
        """Compile."""
        self._learning.warm(self._state, reports)

    def tell(self, number: int, messages: Sequence[bytes]) -> None:
        """One step of the protocol, and a checkpoint."""
        state = self._learning.tell(self._state, messages)
        self._checkpoints.save(number + 1, state)
        self._state = state


class RelayedModel:
    """A coordinator learns: the hub hands out what it is given, and keeps it in its log.

    Args:
        store: The log.
        terms: What a question looks like.
    """

    def __init__(self, store: Store, terms: Terms):
        self._store, self._layout, self._question = store, terms.request, b""

    def number_of(self, question: bytes) -> int:
        """The round that a question is about.

        Raises:
            WireError: It is no question of this hub's terms.
        """
        return int(self._layout.decode(question).round)

    def take(self, number: int, question: bytes) -> None:
        """Open a round with this question; errors as :meth:`Model.tell`."""
        self._store.open_round(number, digest_of_question(question), question)
        self._question = question

    def at(self, number: int) -> None:
        """Read the question of that round."""
        self._question = self._store.question(number) or b""

    def question(self) -> bytes:
        """The coordinator's; empty before the first."""
        return self._question

    def digest(self) -> bytes:
        """SHA-256 of the weights."""
        return digest_of_question(self._question)

    def warm(self, reports: int) -> None:
        """Nothing to do."""

    def tell(self, number: int, messages: Sequence[bytes]) -> None:
        """Nothing to do: the coordinator collects the messages from the log."""


def digest_of_question(question: bytes) -> bytes:
    """SHA-256 of the weights in a request: what follows its header and its round."""
    return hashlib.sha256(question[5:]).digest()
