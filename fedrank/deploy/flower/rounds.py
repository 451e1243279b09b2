"""The server's loop over rounds and exchanges, whatever carries its questions.

A question goes to every node that is there. It is closed when all of them have answered or failed, or when time is up.
An answer that is late, damaged or somebody else's is counted and left out; its parties were not heard. What the server
is told is in the order of the parties, so that it does not matter whose answer came first.
"""

from __future__ import annotations

import abc
import functools
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from fedrank.core.errors import RunError, WireError
from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.core.protocol import Exchange, Protocol
from fedrank.deploy.flower.messages import Answer, Question
from fedrank.deploy.flower.settings import FlowerSettings

log = logging.getLogger("fedrank.flower")

#: Seconds between two looks for answers, and for nodes while there are too few. Flower's own loop sleeps 3 s.
_POLL, _NODES = 0.2, 1.0
#: Seconds between two words about waiting.
_WORD = 60.0


class Came(NamedTuple):
    """Something that came back from a node.

    Attributes:
        node: Number of the node.
        record: What it sent; None if it failed.
        failure: Why it failed, in the node's words.
    """

    node: int
    record: Any
    failure: str = ""


class Network(abc.ABC):
    """What carries questions and answers."""

    @abc.abstractmethod
    def nodes(self) -> Sequence[int]:
        """Numbers of the nodes that are there."""

    @abc.abstractmethod
    def ask(self, question: Question, nodes: Sequence[int], seconds: float) -> None:
        """Send a question; what is still on its way to an earlier one is forgotten.

        Args:
            question: What is asked.
            nodes: Who is asked.
            seconds: How long an answer is of use.
        """

    @abc.abstractmethod
    def answers(self) -> Iterable[Came]:
        """What has come since the last call; does not wait."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass
class Tally:
    """What became of one question.

    Attributes:
        exchange: Name of the exchange.
        attempt: How often it was asked before.
        asked: Nodes that were asked.
        heard: Nodes whose answers count.
        parties: Parties among them.
        failed: Nodes that could not answer.
        malformed: Answers that could not be read.
        duplicate: Answers for parties of another node, and second answers.
        late: Nodes that had not answered when time was up.
        seconds: From the question to its end.
    """

    exchange: str
    attempt: int = 0
    asked: int = 0
    heard: int = 0
    parties: int = 0
    failed: int = 0
    malformed: int = 0
    duplicate: int = 0
    late: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The tally as it stands in ``metrics.jsonl``."""
        return {**asdict(self), "seconds": round(self.seconds, 3)}


class Log(abc.ABC):
    """Hears what happens in a run, and keeps it."""

    @abc.abstractmethod
    def asked(self, round_: int, exchange: Exchange, nodes: int) -> None:
        """A question went out to so many nodes."""

    @abc.abstractmethod
    def heard(self, round_: int, exchange: Exchange, tally: Tally) -> None:
        """A question was closed."""

    @abc.abstractmethod
    def done(self, round_: int, state: Any, tallies: list[Tally]) -> None:
        """A round is done; ``state`` is the one after it."""


class Rounds:
    """A server's rounds.

    Args:
        protocol: The protocol.
        parties: Parties of the run.
        network: What carries questions and answers.
        settings: How many nodes a round needs, and how long it waits.
        log: Hears what happens.
    """

    def __init__(self, protocol: Protocol, parties: int, network: Network, settings: FlowerSettings, log: Log):
        self._protocol, self._parties = protocol, parties
        self._network, self._settings, self._log = network, settings, log
        self._known: dict[int, int] = {}  # a node -> when it was first heard: who comes first keeps its parties

    def run(self, state: Any, first: int, rounds: int) -> Any:
        """The server's state after the rounds ``first`` .. ``rounds`` − 1.

        Raises:
            RunError: Too few nodes were heard, as often as the settings allow to ask.
        """
        for number in range(first, rounds):
            tallies: list[Tally] = []
            for index, exchange in enumerate(self._protocol.exchanges):
                question = Question(number, index, exchange.request.encode(exchange.ask(state)))
                replies, arrived = self._until_enough(question, exchange, tallies)
                state = _told(exchange, state, replies, arrived)
            self._log.done(number, state, tallies)
        return state

    def _until_enough(self, question: Question, exchange: Exchange, tallies: list[Tally]) -> tuple[Any, np.ndarray]:
        for attempt in range(self._settings.round_attempts):
            self._wait_for_nodes()
            tally = Tally(exchange.name, attempt)
            rows, arrived = self._one_question(question, exchange, tally)
            tallies.append(tally)
            self._log.heard(question.round, exchange, tally)
            if tally.heard >= self._settings.min_available_nodes:
                return exchange.reply.decode_all(rows.tobytes()), arrived
            log.warning(
                "round %d: %d of %d nodes were heard, %d are needed; nothing is learnt from it",
                question.round, tally.heard, tally.asked, self._settings.min_available_nodes,
            )  # fmt: skip
        raise RunError(
            f"round {question.round}: fewer than {self._settings.min_available_nodes} nodes were heard, "
            f"{self._settings.round_attempts} times in a row. All rounds before it are kept; see the nodes' logs, then "
            "run again."
        )

    def _wait_for_nodes(self) -> None:
        told = -_WORD
        while (there := len(self._network.nodes())) < self._settings.min_available_nodes:
            if self._network.now() - told >= _WORD:
                log.info("waiting: %d of %d nodes are there", there, self._settings.min_available_nodes)
                told = self._network.now()
            self._network.sleep(_NODES)

    def _one_question(self, question: Question, exchange: Exchange, tally: Tally) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of all parties' replies, uint8 [parties, bytes], and whose they are, bool [parties]."""
        nodes = list(self._network.nodes())
        tally.asked, started = len(nodes), self._network.now()
        self._log.asked(question.round, exchange, len(nodes))
        self._network.ask(question, nodes, self._settings.round_timeout)
        waiting, read = set(nodes), {}
        while waiting and self._network.now() - started < self._settings.round_timeout:
            for came in self._network.answers():
                if came.node not in waiting:
                    tally.duplicate += 1
                    continue
                waiting.remove(came.node)
                try:
                    if came.record is None:
                        tally.failed += 1
                        log.warning("round %d: node %d failed: %.200r", question.round, came.node, came.failure)
                    else:
                        read[came.node] = Answer.from_record(came.record).rows(exchange.reply, self._parties)
                except WireError as error:
                    tally.malformed += 1
                    log.warning("round %d: node %d: %s", question.round, came.node, error)
            if waiting:
                self._network.sleep(_POLL)
        tally.late, tally.seconds = len(waiting), self._network.now() - started
        return self._in_order(question.round, exchange.reply, read, tally)

    def _in_order(self, round_: int, layout: Layout, read: dict[int, Any], tally: Tally):
        rows = np.zeros((self._parties, layout.nbytes), np.uint8)
        rows[:, 0] = WIRE_VERSION << 5 | layout.kind  # of parties that were not heard: nothing but zeros
        arrived = np.zeros(self._parties, bool)
        newest = len(self._known)
        for node in sorted(read, key=lambda node: (self._known.get(node, newest), node)):
            numbers, replies = read[node]
            if arrived[numbers].any():
                tally.duplicate += 1
                log.warning("round %d: node %d answers for parties of another node", round_, node)
                continue
            rows[numbers], arrived[numbers] = replies, True
            self._known.setdefault(node, len(self._known))
            tally.heard += 1
        tally.parties = int(arrived.sum())
        return rows, arrived


@functools.partial(jax.jit, static_argnums=0)
def _told(exchange: Exchange, state: Any, replies: Any, arrived: Any) -> Any:
    return exchange.tell(state, replies, arrived)
