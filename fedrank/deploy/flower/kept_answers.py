"""Answers that a node keeps, so that a question is answered once: no noise is drawn anew for a second look.

Where replies have noise, two answers to one question tell more than the run's ε counts. So a node writes each answer
down before it is sent. The same question gets the same bytes again, after a restart too; another question with the same
number gets nothing. The number of a question is its round and what is asked in it (:attr:`Exchange.turn`), so that a
run of R rounds has as many answers as its ε is made for.

A process that is killed before its answer was written has sent nothing; the question is then answered anew.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import json
import logging
import math
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from typing_extensions import override

from fedrank.core.errors import RunError
from fedrank.core.protocol import Protocol
from fedrank.deploy.database import VersionError, create_private, open_database, transaction
from fedrank.deploy.flower.messages import Answer, Question

_log = logging.getLogger("fedrank.flower")

#: SQL that leads from each version of the file to the next; append, and change none that was released.
_STEPS = (
    "CREATE TABLE run (name TEXT PRIMARY KEY, epsilon REAL NOT NULL) STRICT, WITHOUT ROWID;\n"
    "CREATE TABLE answer (run TEXT NOT NULL, turn TEXT NOT NULL, asked TEXT NOT NULL, first INTEGER NOT NULL, "
    "heard BLOB NOT NULL, replies BLOB NOT NULL, PRIMARY KEY (run, turn)) STRICT, WITHOUT ROWID",
)
#: Seconds that a question waits for one that another process of the node is answering.
_PATIENCE = 600.0

#: Hash of a question, and its answer.
Kept = tuple[str, Answer]


class KeptAnswers(abc.ABC):
    """Where a node keeps its answers of one run."""

    @abc.abstractmethod
    def alone(self) -> contextlib.AbstractContextManager[None]:
        """A block in which no other process of the node reads or writes; what was written is kept when it ends."""

    @abc.abstractmethod
    def get(self, turn: str) -> Kept | None:
        """The answer that was given; None if there is none. Only in :meth:`alone`."""

    @abc.abstractmethod
    def put(self, turn: str, kept: Kept) -> None:
        """Keep an answer. Only in :meth:`alone`."""


class AnswersFile(KeptAnswers):
    """Answers of a node's runs in one SQLite file, which outlives its process, and the ε of each run.

    Args:
        path: The file, made when the first question comes; only its owner may read it.
        run: Name of the run.
        epsilon: Tells ε of a record in this run, in nats; called when its first question comes.
        most: Largest sum of ε of a record in all runs; infinite: any.
    """

    def __init__(self, path: Path, run: str, epsilon: Callable[[], float] = lambda: 0.0, most: float = math.inf):
        self.path, self._run, self._epsilon, self._most = Path(path), run, epsilon, most
        self._db: sqlite3.Connection | None = None

    @override
    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        try:
            create_private(self.path)
            self._db = open_database(self.path, _STEPS, busy_seconds=_PATIENCE)
            try:
                with transaction(self._db):
                    self._enter()
                    yield
            finally:
                self._db.close()
        except VersionError as error:
            raise RunError(f"{self.path}: written by a later version of this program. Use that one.") from error
        except (sqlite3.Error, OSError) as error:
            raise RunError(
                f"{self.path}: cannot be used ({error}); without it an answer could be given twice, with other noise. "
                "Make room, or mend its permissions."
            ) from error

    def _enter(self) -> None:
        """Count a run whose first question this is. Raises RunError where its ε is more than the node agrees to."""
        if self._open.execute("SELECT 1 FROM run WHERE name = ?", (self._run,)).fetchone():
            return
        others, spent = self._open.execute("SELECT count(*), coalesce(sum(epsilon), 0.0) FROM run").fetchone()
        epsilon = self._epsilon()
        if not spent + epsilon <= self._most:
            raise RunError(
                f"this run gives a record ε = {epsilon:.4g}, and {others} earlier run(s) at this node gave it "
                f"{spent:.4g}; this node agrees to {self._most:.4g} in all (most-total-epsilon in its --node-config)."
            )
        if others:
            _log.warning("a record has had ε = %.4g in %d earlier run(s); this one adds %.4g", spent, others, epsilon)
        self._open.execute("INSERT INTO run VALUES (?, ?)", (self._run, epsilon))

    @property
    def _open(self) -> sqlite3.Connection:
        assert self._db is not None
        return self._db

    @override
    def get(self, turn: str) -> Kept | None:
        asked = "SELECT asked, first, heard, replies FROM answer WHERE run = ? AND turn = ?"
        found = self._open.execute(asked, (self._run, turn)).fetchone()
        return None if found is None else (found[0], Answer(*found[1:]))

    @override
    def put(self, turn: str, kept: Kept) -> None:
        asked, answer = kept
        row = (self._run, turn, asked, answer.first, answer.heard, answer.replies)
        self._open.execute("INSERT INTO answer VALUES (?, ?, ?, ?, ?, ?)", row)


def answered_once(
    kept: KeptAnswers, protocol: Protocol, question: Question, rounds: int, answer: Callable[[], Answer]
) -> Answer:
    """The answer that was given to this question, or a new one, which is kept before it is returned.

    Args:
        kept: The node's answers of this run.
        protocol: The run's protocol.
        question: The server's question, with a request.
        rounds: Rounds of the run.
        answer: Computes an answer.

    Raises:
        RunError: The run has no such question, or another one was answered in its place.
    """
    if not (0 <= question.exchange < len(protocol.exchanges) and 0 <= question.round < rounds):
        raise RunError(
            f"the run has {rounds} rounds of {len(protocol.exchanges)} exchanges, for which its noise is made; "
            f"exchange {question.exchange} of round {question.round} is none of them."
        )
    exchange = protocol.exchanges[question.exchange]
    if not bool(exchange.due(question.round)):
        raise RunError(f"{exchange.name!r} is not asked in round {question.round}; nothing is answered.")
    turn = f"{question.round}/{exchange.turn or exchange.name}"
    about = [question.exchange, question.request.hex(), question.asked.hex()]
    asked = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    with kept.alone():
        if (before := kept.get(turn)) is None:
            given = answer()
            kept.put(turn, (asked, given))
            return given
    if before[0] != asked:
        raise RunError(
            f"this node has answered {exchange.name!r} of round {question.round} of this run, to another request. A "
            "second answer would have noise of its own and spend ε that is not counted; nothing is answered. A run "
            "from the beginning needs another seed, and its ε adds to that of this one."
        )
    return before[1]
