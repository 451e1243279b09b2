"""The server's loop over rounds and exchanges, independent of what carries its questions.

A question goes to every connected node, or, where a protocol asks some parties only, to the nodes that answer for
them. It is closed when all of them have answered or failed, or when time is up. An answer that is late, damaged or
for other parties is counted and left out; its parties were not heard. What the server is told is in the order of the
parties, so that it does not matter whose answer came first.

**The parties of a node.** A node's number in Flower says nothing about its parties. So each node is asked once which
parties it has, without a model, and a model is sent only to nodes whose parties are asked.

**A setup.** Every party is asked another question, and again while it is not heard. A party answers the same
question with the same bytes (:mod:`fedrank_flower.kept_answers`), so that asking again costs nothing. At the
beginning all parties have to be there. One that is gone for good later is left out, as long as the protocol continues
without it and ``min_available_nodes`` are heard.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64, UInt8
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import FedrankError, RunError, WireError
from fedrank.core.lazy import jit
from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.core.protocol import Exchange, Protocol
from fedrank.core.trees import Json
from fedrank.engine.deployment import NodeSettings
from fedrank.engine.simulator import selective
from fedrank_flower.answers import answer_for
from fedrank_flower.messages import Answer, Question
from fedrank_flower.settings import FlowerSettings, Scalar, read_run


class Holders:
    """The parties that nodes have said they answer for. The first node of a party keeps it while it is connected."""

    def __init__(self):
        self._blocks: dict[int, Int64[np.ndarray, " parties"]] = {}  # in the order in which they came
        self._again: dict[int, float] = {}
        self._columns: bytes | None = None

    def strangers(self, nodes: Iterable[int], now: float) -> list[int]:
        """Nodes to be asked which parties they have: new ones, and ones that were asked in vain long enough ago."""
        return [node for node in nodes if node not in self._blocks and self._again.get(node, now) <= now]

    def in_vain(self, node: int, again: float) -> None:
        """Note that a node gave no usable answer, and is to be asked again at time ``again``."""
        self._again[node] = again

    def alike(self, columns: bytes) -> bool:
        """True if a node's data has the same hash of columns as that of the first node that was heard."""
        if self._columns is None:
            self._columns = columns
        return columns == self._columns

    def introduce(self, node: int, numbers: Int64[np.ndarray, " parties"]) -> bool:
        """Note the parties of a node; returns whether no other node has said to answer for one of them."""
        free = not any(np.isin(numbers, block).any() for block in self._blocks.values())
        self._blocks[node] = numbers
        return free

    def of(self, nodes: Iterable[int]) -> dict[int, Int64[np.ndarray, " _"]]:
        """The connected nodes with distinct parties, and the numbers of their parties, int64 [parties]."""
        there, taken = set(nodes), np.zeros(0, np.int64)
        found = {}
        for node, numbers in self._blocks.items():
            if node in there and not np.isin(numbers, taken).any():
                found[node], taken = numbers, np.union1d(taken, numbers)
        return found


log = logging.getLogger("fedrank.flower")

#: Seconds between two polls for answers, and for nodes while there are too few. Flower's own loop sleeps 3 s.
_POLL, _NODES = 0.2, 1.0
#: Seconds between two log lines about waiting, and until a node that did not introduce itself is asked again.
_WORD, _AGAIN = 60.0, 60.0
#: Name in a tally of the question which parties a node answers for.
HELLO = "hello"


class Came(NamedTuple):
    """An answer or a failure of a node.

    Attributes:
        node: Number of the node.
        record: Values that it sent; None if it failed.
        failure: Reason of the failure, as the node gave it.
    """

    node: int
    record: Any
    failure: str = ""


class Network(abc.ABC):
    """A network that carries questions and answers between a server and its nodes."""

    @abc.abstractmethod
    def nodes(self) -> Sequence[int]:
        """Numbers of the connected nodes."""

    @abc.abstractmethod
    def ask(self, questions: Mapping[int, Question], seconds: float) -> None:
        """Send questions; answers to earlier ones that are still on their way are dropped.

        Args:
            questions: Question of each node.
            seconds: Time after which an answer is of no use.
        """

    @abc.abstractmethod
    def answers(self) -> Iterable[Came]:
        """Answers and failures since the last call; does not wait."""

    def now(self) -> float:
        """Time of a monotonic clock in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        time.sleep(seconds)


@dataclass
class Tally:
    """The results of one question, counted.

    Attributes:
        exchange: Name of the exchange.
        attempt: Number of earlier attempts.
        asked: Nodes that were asked.
        heard: Nodes whose answers count.
        parties: Parties of these nodes that were heard.
        failed: Nodes that answered with an error.
        malformed: Answers that could not be decoded.
        duplicate: Answers for parties of another node, and second answers.
        late: Nodes that had not answered in time.
        seconds: Duration of the question.
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

    def as_json(self) -> dict[str, Json]:
        """The tally as a row of ``metrics.jsonl``."""
        return {**asdict(self), "seconds": round(self.seconds, 3)}


class Log(abc.ABC):
    """Is told what happens in a run, and writes it down."""

    @abc.abstractmethod
    def note_question(self, round_: int, exchange: Exchange, nodes: int) -> None:
        """A question was sent to ``nodes`` nodes."""

    @abc.abstractmethod
    def note_replies(self, round_: int, exchange: Exchange, tally: Tally) -> None:
        """A question was closed, with these results."""

    @abc.abstractmethod
    def done(self, round_: int, state: PyTree, tallies: list[Tally]) -> None:
        """A round is done; ``state`` is the server's state after it."""


class Rounds:
    """The rounds of a server.

    Args:
        protocol: The protocol.
        parties: Parties of the run.
        network: Carries questions and answers.
        settings: Number of nodes that a round needs, and time limits.
        log: Is told what happens.
    """

    def __init__(self, protocol: Protocol, parties: int, network: Network, settings: FlowerSettings, log: Log):
        self._protocol, self._parties = protocol, parties
        self._network, self._settings, self._log = network, settings, log
        self._known: dict[int, int] = {}  # a node -> when it was first heard: who comes first keeps its parties
        self._holders = Holders() if selective(protocol) else None
        self._begun = False

    def run(self, state: PyTree, first: int, rounds: int) -> Any:
        """The server's state after the rounds ``first`` .. ``rounds`` − 1.

        Raises:
            RunError: Too few nodes were heard, as often as the settings allow to ask.
        """
        for number in range(first, rounds):
            tallies: list[Tally] = []
            for index, exchange in enumerate(self._protocol.exchanges):
                if not exchange.due(number):
                    continue
                asked = exchange.asked(state, self._parties)
                asked = None if asked is None else np.asarray(asked, bool)
                if asked is None or asked.any():
                    question = Question(number, index, exchange.request.encode(exchange.ask(state)))
                    replies, arrived = self._until_enough(question, exchange, asked, tallies)
                else:  # as in a simulator: told, though no party was asked
                    replies = exchange.reply.decode_all(self._nothing(exchange.reply).tobytes())
                    arrived = np.zeros(self._parties, bool)
                state = _tell(exchange, state, replies, arrived)
            self._log.done(number, state, tallies)
        return state

    def _until_enough(
        self, question: Question, exchange: Exchange, asked: Bool[np.ndarray, " parties"] | None, tallies: list[Tally]
    ) -> tuple[Any, Bool[np.ndarray, " parties"]]:
        # Where some are asked, the others cannot make up for who is silent: one that is heard will do.
        enough = self._settings.min_available_nodes if asked is None else 1
        for attempt in range(self._settings.round_attempts):
            questions, expected = self._address(question, asked, tallies)
            tally = Tally(exchange.name, attempt)
            rows, arrived = self._one_question(questions, exchange, tally, expected)
            tallies.append(tally)
            self._log.note_replies(question.round, exchange, tally)
            if tally.heard >= enough:
                return exchange.reply.decode_all(rows.tobytes()), arrived
            log.warning(
                "round %d: %d of %d nodes were heard, %d are needed; nothing is learnt from it",
                question.round, tally.heard, tally.asked, enough,
            )  # fmt: skip
        whom = f"fewer than {enough} nodes were heard" if asked is None else f"no party answered {exchange.name!r}"
        raise self._too_few(question.round, whom)

    def _too_few(self, round_: int, whom: str) -> RunError:
        return RunError(
            f"round {round_}: {whom}, {self._settings.round_attempts} times in a row. All rounds before it are kept; "
            "see the nodes' logs, then run again."
        )

    def _address(
        self, question: Question, asked: Bool[np.ndarray, " parties"] | None, tallies: list[Tally]
    ) -> tuple[dict[int, Question], dict[int, Int64[np.ndarray, " _"]]]:
        """The question of each node, and, where only some parties are asked, the parties that it must answer for."""
        if self._holders is None or not self._begun:
            self._wait_for_nodes()  # so that they are asked who they are all at once
        if self._holders is None:
            return dict.fromkeys(self._network.nodes(), question), {}
        # At the beginning nodes are still on their way; later, who is not there is not heard.
        least = self._settings.min_available_nodes if asked is None or not self._begun else 1
        told, greetings = -_WORD, 0
        while True:
            greetings += self._greet(self._holders, question, tallies)
            blocks = self._holders.of(self._network.nodes())
            mine = {node: _everybody(block) if asked is None else asked[block] for node, block in blocks.items()}
            mine = {node: bits for node, bits in mine.items() if bits.any()}
            if mine and len(blocks) >= least:
                self._begun = True
                questions = {node: question.to(bits) for node, bits in mine.items()}
                return questions, {node: blocks[node][bits] for node, bits in mine.items()}
            # Connected nodes that do not say for whom they answer are not waited for without an end.
            if greetings >= self._settings.round_attempts and len(blocks) < least <= len(self._network.nodes()):
                raise self._too_few(question.round, f"fewer than {least} nodes were heard")
            if self._network.now() - told >= _WORD:
                log.info("waiting: %d of %d nodes are there, %d of those needed", len(blocks), least, len(mine))
                told = self._network.now()
            self._network.sleep(_NODES)

    def _greet(self, holders: Holders, question: Question, tallies: list[Tally]) -> bool:
        """Ask new nodes which parties they answer for; returns whether there were any.

        No model is sent, and the ledger does not count it.
        """
        strangers = holders.strangers(self._network.nodes(), self._network.now())
        if not strangers:
            return False
        tally = Tally(HELLO)
        hello = dict.fromkeys(strangers, question.hello())
        said, silent = self._answers(hello, tally, lambda _, answer: (answer.numbers(self._parties), answer.replies))
        for node in strangers:  # not in the order in which their answers came
            if node in said and holders.alike(said[node][1]):
                numbers = said[node][0]
                tally.heard, tally.parties = tally.heard + 1, tally.parties + len(numbers)
                if not holders.introduce(node, numbers):
                    tally.duplicate += 1
                    log.warning("round %d: node %d answers for parties of another node", question.round, node)
                continue
            if node in said:
                tally.malformed += 1
                # Of tables the columns' names differ, of texts how they are cut into words.
                log.warning("round %d: node %d has other columns or words than the first node", question.round, node)
            # Who says nothing at all is not waited for over and over.
            pause = max(_AGAIN, self._settings.round_timeout) if node in silent else _AGAIN
            holders.in_vain(node, self._network.now() + pause)
        tallies.append(tally)
        return True

    def _wait_for_nodes(self) -> None:
        told = -_WORD
        while (there := len(self._network.nodes())) < self._settings.min_available_nodes:
            if self._network.now() - told >= _WORD:
                log.info("waiting: %d of %d nodes are there", there, self._settings.min_available_nodes)
                told = self._network.now()
            self._network.sleep(_NODES)

    def _one_question(
        self,
        questions: Mapping[int, Question],
        exchange: Exchange,
        tally: Tally,
        expected: Mapping[int, Int64[np.ndarray, " _"]],
    ) -> tuple[UInt8[np.ndarray, "parties bytes"], Bool[np.ndarray, " parties"]]:
        """Bytes of all parties' replies, uint8 [parties, bytes], and which parties were heard, bool [parties]."""

        def rows(node: int, answer: Answer) -> tuple[Int64[np.ndarray, " heard"], UInt8[np.ndarray, "heard bytes"]]:
            numbers, replies = answer.rows(exchange.reply, self._parties)
            if node in expected and not np.isin(numbers, expected[node]).all():
                raise WireError(f"an answer for the parties {numbers.tolist()}, not all of which were asked.")
            return numbers, replies

        number = next(iter(questions.values())).round if questions else 0
        self._log.note_question(number, exchange, len(questions))
        read, _ = self._answers(questions, tally, rows)
        return self._in_order(number, exchange.reply, read, tally)

    def _answers(
        self, questions: Mapping[int, Question], tally: Tally, read: Callable[[int, Answer], Any]
    ) -> tuple[dict[int, Any], set[int]]:
        """Ask, and wait for all answers or until time is up; returns the decoded answers, and nodes without one."""
        tally.asked, started = len(questions), self._network.now()
        self._network.ask(questions, self._settings.round_timeout)
        waiting, said = dict(questions), {}
        while waiting and self._network.now() - started < self._settings.round_timeout:
            for came in self._network.answers():
                if came.node not in waiting:
                    tally.duplicate += 1
                    continue
                number = waiting.pop(came.node).round
                try:
                    if came.record is None:
                        tally.failed += 1
                        log.warning("round %d: node %d failed: %.200r", number, came.node, came.failure)
                    else:
                        said[came.node] = read(came.node, Answer.from_record(came.record))
                except WireError as error:
                    tally.malformed += 1
                    log.warning("round %d: node %d: %s", number, came.node, error)
            if waiting:
                self._network.sleep(_POLL)
        tally.late, tally.seconds = len(waiting), self._network.now() - started
        if waiting:
            number, nodes = next(iter(waiting.values())).round, ", ".join(map(str, sorted(waiting)))
            log.warning("round %d: no answer within %.0f s from the nodes %s", number, tally.seconds, nodes)
        return said, set(waiting)

    def _nothing(self, layout: Layout) -> UInt8[np.ndarray, "parties bytes"]:
        """Messages of zeros, uint8 [parties, bytes], which stand for replies of parties that were not heard."""
        rows = np.zeros((self._parties, layout.nbytes), np.uint8)
        rows[:, 0] = WIRE_VERSION << 5 | layout.kind
        return rows

    def _in_order(
        self, round_: int, layout: Layout, read: dict[int, Any], tally: Tally
    ) -> tuple[UInt8[np.ndarray, "parties bytes"], Bool[np.ndarray, " parties"]]:
        rows, arrived = self._nothing(layout), np.zeros(self._parties, bool)
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


def _everybody(block: Int64[np.ndarray, " parties"]) -> Bool[np.ndarray, " parties"]:
    return np.ones(len(block), bool)


def _tell(exchange: Exchange, state: PyTree, replies: PyTree, arrived: Any) -> Any:
    return (
        exchange.tell(state, replies, arrived)
        if exchange.batched
        else _tell_compiled(exchange, state, replies, arrived)
    )


@functools.partial(jit, static_argnums=0)
def _tell_compiled(exchange: Exchange, state: PyTree, replies: PyTree, arrived: Any) -> Any:
    return exchange.tell(state, replies, arrived)


#: Seconds before silos that were not heard are asked again.
_PAUSE = 2.0


class SetupRounds(Rounds):
    """A setup over a network. Each node answers for one party.

    Args:
        setup: The protocol of one round.
        parties: Silos of the run.
        network: What carries questions and answers.
        settings: How many nodes are needed, and how long and how often an answer is waited for.
        log: Is told what happens.
    """

    def __init__(self, setup: Protocol, parties: int, network: Network, settings: FlowerSettings, log: Log):
        # Silos that are not there at the beginning are waited for, all of them.
        super().__init__(setup, parties, network, dataclasses.replace(settings, min_available_nodes=parties), log)
        self._enough = settings.min_available_nodes
        self._silos = Holders()

    def run_once(self) -> tuple[Any, list[Tally]]:
        """Run the setup; returns the server's state after it, and the tallies of its questions.

        Raises:
            RunError: Too few silos were heard, as often as the settings allow to ask.
            FedrankError: The protocol does not continue without a party that is gone.
        """
        state, tallies = self._protocol.init(None), []
        self._wait_for_silos(tallies)
        for index, exchange in enumerate(self._protocol.exchanges):
            asked = exchange.asked(state, self._parties)
            asked = np.ones(self._parties, bool) if asked is None else np.asarray(asked, bool)
            rows, arrived = self._heard(index, exchange, state, asked, tallies)
            state = exchange.tell(state, exchange.reply.decode_all(rows.tobytes()), arrived)
        return state, tallies

    def _wait_for_silos(self, tallies: list[Tally]) -> None:
        self._wait_for_nodes()
        hello = Question(0, 0, b"", setup=True)
        for _ in range(self._settings.round_attempts):
            # All of them anew: who could not answer may have been mended.
            self._silos = self._holders = Holders()
            self._greet(self._silos, hello, tallies)
            there = self._silos.of(self._network.nodes())
            if any(len(block) != 1 for block in there.values()):
                raise RunError("a node answers for several silos; in a setup each silo is one node.")
            if len(there) == self._parties:
                return
            log.warning("%d of %d silos said that they take part", len(there), self._parties)
            self._network.sleep(_PAUSE)
        raise RunError(
            f"{len(there)} of {self._parties} silos said that they take part, {self._settings.round_attempts} times in "
            "a row; a setup needs all of them to begin. Nothing crossed. See the other nodes' logs, then run again."
        )

    def _heard(
        self, index: int, exchange: Exchange, state: PyTree, asked: Bool[np.ndarray, " parties"], tallies: list[Tally]
    ) -> tuple[UInt8[np.ndarray, "parties bytes"], Bool[np.ndarray, " parties"]]:
        """Bytes of all silos' replies, uint8 [silos, bytes], and who was heard, bool [silos]."""
        rows, arrived = self._nothing(exchange.reply), np.zeros(self._parties, bool)
        if not asked.any():
            return rows, arrived
        for attempt in range(self._settings.round_attempts):
            if attempt:
                self._network.sleep(_PAUSE)
                self._greet(self._silos, Question(0, index, b"", setup=True), tallies)
            blocks = self._silos.of(self._network.nodes())
            silos = {node: int(block[0]) for node, block in blocks.items()}
            silos = {node: silo for node, silo in silos.items() if asked[silo] and not arrived[silo]}
            questions = {
                node: Question(0, index, exchange.request.encode(exchange.address(state, silo)), setup=True)
                for node, silo in silos.items()
            }
            tally = Tally(exchange.name, attempt)
            expected = {node: np.array([silo]) for node, silo in silos.items()}
            new, came = self._one_question(questions, exchange, tally, expected)
            rows[came], arrived = new[came], arrived | came
            tallies.append(tally)
            self._log.note_replies(0, exchange, tally)
            if arrived[asked].all():
                break
            missing = np.flatnonzero(asked & ~arrived).tolist()
            log.warning("setup, %s: the silos %s were not heard", exchange.name, missing)
        enough = min(self._enough, int(asked.sum()))  # a question to one silo is answered by one
        if arrived.sum() < enough:
            raise RunError(
                f"setup: {arrived.sum()} of {asked.sum()} silos answered {exchange.name!r}, {enough} are "
                f"needed (min-available-nodes), {self._settings.round_attempts} times in a row. See the nodes' logs; a "
                "new run begins with a new setup."
            )
        return rows, arrived


def as_rows(tallies: list[Tally]) -> list[dict[str, Json]]:
    """The tallies of a setup as rows of ``metrics.jsonl``, without those of greetings."""
    return [tally.as_json() for tally in tallies if tally.exchange != HELLO]


class LocalNetwork(Network):
    """A network of nodes that answer as soon as they are asked.

    Args:
        values: The table of the run.
        nodes: Settings of the nodes; by default two, with random numbers from the run's seed.

    Raises:
        ConfigError: The table cannot be used.
    """

    def __init__(self, values: Mapping[str, Scalar], nodes: Sequence[NodeSettings] = ()):
        self._config, _ = read_run(values)
        self._nodes = tuple(nodes) or tuple(NodeSettings(i, 2, chance="seed") for i in range(2))
        self._came: list[Came] = []

    @override
    def nodes(self) -> Sequence[int]:
        return range(len(self._nodes))

    @override
    def ask(self, questions: Mapping[int, Question], seconds: float) -> None:
        self._came = [self._answer(node, question) for node, question in questions.items()]

    def _answer(self, node: int, question: Question) -> Came:
        try:
            return Came(node, answer_for(self._config, self._nodes[node], question).as_record())
        except FedrankError as error:
            return Came(node, None, str(error))

    @override
    def answers(self) -> Iterable[Came]:
        came, self._came = self._came, []
        return came
