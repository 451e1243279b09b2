"""A node's side: the answers of its parties to one question.

A node is one silo, or a gateway of many devices: it answers for a block of the run's parties, with the random keys that
a simulator gives them. Flower starts a new process for each message, so that everything here is loaded anew each time,
and what a party remembers is kept in files or by Flower (:class:`NodeState`).
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64, Shaped
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, RunError, WireError
from fedrank.core.lazy import jax, jit, require_jax
from fedrank.core.messages import Layout
from fedrank.core.native import map_arrays
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.core.rng import party_key
from fedrank.core.streams import fold_words, run_words
from fedrank.deploy.checkpoints import Checkpoints
from fedrank.engine.config import RunConfig
from fedrank.engine.deployment import Block, NodeSettings, NodeSide
from fedrank_flower.kept_answers import (
    AnswersFile,
    FileStore,
    KeptAnswers,
    NoStore,
    Remembered,
    Store,
    Whose,
    answered_once,
    setup_answer,
)
from fedrank_flower.messages import Answer, Question
from fedrank_flower.settings import about, task_of

#: File of a node in which it counts the setups, of all runs, in which it showed something.
SHOWN = "setups-shown"
#: File of a node with its answers in runs in which each question is answered once.
ANSWERS = "answers.sqlite"
#: Number of rounds that a server may go back and still find the parties' state of that time.
ROUNDS_KEPT = 3


class Memory(abc.ABC):
    """Store of a node's parties' own state between requests.

    Requests are numbered: step = round · exchanges + exchange.
    """

    @abc.abstractmethod
    def before(self, step: int, like: PyTree) -> Any:
        """The parties' own state before a step; ``like``, their initial state, where nothing is kept.

        Args:
            step: Number of the request.
            like: Pytree of arrays [parties, ...].
        """

    @abc.abstractmethod
    def keep(self, step: int, own: PyTree) -> None:
        """Keep the parties' own state before this step."""


class FolderMemory(Memory):
    """A folder of the node, which outlives its process, with the states of the last few rounds.

    Args:
        folder: The node's folder for all runs.
        config: Settings of the run.
        numbers: Numbers of the parties.
        exchanges: Number of exchanges of a round.
        begins: Whether the first request of a run forgets what is left of an earlier one with the same settings.
        content: Hash of the parties' own data; states that were made of other data are refused. Empty: not known.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        numbers: range,
        exchanges: int = 1,
        *,
        begins: bool = True,
        content: str = "",
    ):
        self._begins = begins
        of = {"run": about(config), "parties": [numbers.start, numbers.stop]}
        name = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]
        made_of = {**of, "content": content} if content else of
        # As many rounds as a server keeps, however many questions a round has.
        self._files = Checkpoints(folder / name, made_of, ROUNDS_KEPT * exchanges)
        self.folder = self._files.folder

    @override
    def before(self, step: int, like: PyTree) -> Any:
        if step == 0 and self._begins:  # the first request of a run starts from nothing
            shutil.rmtree(self._files.folder, ignore_errors=True)
        return next((own for _, own in self._files.states(like, before=step)), like)

    @override
    def keep(self, step: int, own: PyTree) -> None:
        self._files.save(step, own)


@functools.lru_cache(maxsize=4)
def node_of(config: RunConfig, settings: NodeSettings) -> NodeSide:
    """A node's side of a run, as its task makes it; the newest few are cached.

    Raises:
        FedrankError: The run leaves no place for this node, or the data cannot be used.
    """
    side = task_of(config).node(config, settings)
    check_protocol(side.protocol)
    if settings.data and not side.content:
        side.content = _content_of(Path(settings.data).expanduser())
    return side


def _content_of(path: Path) -> str:
    """A hash of a file, or of all files of a folder with their names."""
    made = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with open(file, "rb") as opened:
                made.update(f"{file.relative_to(path)}\0{hashlib.file_digest(opened, 'sha256').hexdigest()}\n".encode())
    return made.hexdigest()


def _refuse_other_data(side: NodeSide, question: Question, store: Store) -> None:
    """Refuse to go on with a run whose first answers were of other data.

    Args:
        side: The node's side of the run.
        question: The server's question.
        store: Where the hash of the run's data is kept; a run that begins replaces it.

    Raises:
        RunError: The node's data has changed since the run began.
    """
    if not side.content:
        return
    first = not (question.round or question.exchange)
    begins = first and (side.setup is None or question.setup or not question.request)
    known = None if begins else store.read()
    if known is None:
        store.write(side.content.encode())
    elif known.decode() != side.content:
        raise RunError(
            f"the data has changed since this run began ({side.settings.data or 'of the run'}), and what this node "
            "keeps of the run is of the data of that time. Put that back, or begin the run anew."
        )


@dataclasses.dataclass(frozen=True)
class NodeState:
    """Stores of what a node's parties remember between requests.

    Attributes:
        memory: The parties' own state; None: it is not kept.
        setup: What a party remembers of the run's setup.
        shown: The count of setups, of all runs, in which a party showed something.
        answers: Answers of a run in which each question is answered once; None: there are none.
        data: The hash of the data that the run began with.
    """

    memory: Memory | None
    setup: Store
    shown: Store
    answers: KeptAnswers | None = None
    data: Store = dataclasses.field(default_factory=NoStore)


def state_in_folder(config: RunConfig, side: NodeSide) -> NodeState:
    """The state of a node in its ``state_dir``, or nowhere if it has none.

    Raises:
        RunError: There is a setup, and the node has no ``state_dir``.
    """
    if not side.settings.state_dir:
        if side.setup is not None:
            raise RunError("a silo has to remember this run's setup; give the node a state-dir.")
        return NodeState(None, NoStore(), NoStore())
    folder, number = Path(side.settings.state_dir).expanduser(), side.numbers.start
    belongs_to = {"run": about(config), "silo": number}
    name = hashlib.sha256(json.dumps(belongs_to, sort_keys=True).encode()).hexdigest()[:16]
    exchanges, once = len(side.protocol.exchanges), config.bound_to_rounds
    memory = FolderMemory(folder, config, side.numbers, exchanges, begins=not once, content=side.content)
    source = str(Path(side.settings.data).expanduser().resolve()) if side.settings.data else ""
    whose = Whose(number, source, side.content, memory.folder)
    made = AnswersFile(folder / ANSWERS, name, side.epsilon_of_run, side.settings.most_in_all, whose) if once else None
    setup, data = FileStore(folder / f"setup-{name}.npz"), FileStore(folder / f"data-{name}")
    return NodeState(memory, setup, FileStore(folder / SHOWN), made, data)


def answer_for(config: RunConfig, settings: NodeSettings, question: Question, state: NodeState | None = None) -> Answer:
    """A node's answer to a question; needs no Flower.

    Args:
        config: The run, resolved.
        settings: Settings of the node.
        question: The server's question.
        state: Where the node keeps what its parties remember; None: in its ``state_dir``.

    Raises:
        FedrankError: The run leaves no place for this node, or promises less than the node asks for; the question does
            not fit the run, or is out of turn; or the data cannot be used.
    """
    side = node_of(config, settings)
    side.refuse_unprotected()
    side.refuse_uncounted()
    if state is None:
        state = state_in_folder(config, side)
    counted = settings.chance == "os" or settings.most_total_epsilon >= 0
    if config.bound_to_rounds and state.answers is None and counted:
        raise RunError(
            "the ε of this run counts each question once, so that a node has to remember its answers; give it a "
            "state-dir."
        )
    if state.memory is not None and state.answers is None:  # kept answers know their data themselves
        _refuse_other_data(side, question, state.data)
    if side.setup is not None:
        number = side.numbers.start
        if not question.request:
            if question.setup:  # data that cannot be used is reported before anything is sent
                side.setup.party()
            return Answer.of(number, np.ones(1, bool), side.columns)
        if question.setup:
            return setup_answer(side.setup, number, question, state.setup, state.shown)
        remembered = Remembered.unpack(state.setup.read()).own
    else:
        remembered = {}
    block = side.block(remembered)

    def new() -> Answer:
        return answer_of(block, question, config.seed, config.compute.chunk, settings.chance, state.memory)

    if question.request and state.answers is not None:
        question.whom(len(side.numbers))  # a question to other parties takes no turn
        answer = answered_once(state.answers, side.protocol, question, config.rounds, new)
    else:
        answer = new()
    last = len(side.protocol.exchanges) - 1
    if question.request and (question.round, question.exchange) == (config.rounds - 1, last):
        step = question.round * (last + 1) + question.exchange
        own = block.parties.own if state.memory is None else state.memory.before(step, block.parties.own)
        side.finished(remembered, own, question.request)
    return answer


def answer_of(
    mine: Block, question: Question, seed: int, chunk: int, chance: str, memory: Memory | None = None
) -> Answer:
    """The answer of given parties.

    Args:
        mine: The parties that answer.
        question: The server's question; without a request the answer says which parties there are.
        seed: The run's seed.
        chunk: Number of parties that answer at once; bounds the memory used and changes nothing else.
        chance: Source of random numbers: ``"seed"``, as in a simulator, or ``"os"``, the operating system.
        memory: Where the parties' own state is kept; None: nowhere.
    """
    protocol, parties, numbers, columns = mine
    if not (0 <= question.exchange < len(protocol.exchanges) and 0 <= question.round < 2**32):
        raise WireError(f"the run has no exchange {question.exchange} in a round {question.round}.")
    step = question.round * len(protocol.exchanges) + question.exchange
    asked = question.whom(len(numbers))
    if memory is not None:  # before a hello, too: where a run begins, it forgets what is left of another
        parties = parties._replace(own=memory.before(step, parties.own))
    if not question.request:
        return Answer.of(numbers.start, asked, columns)
    who = np.flatnonzero(asked)
    some = parties if asked.all() else parties._replace(own=map_arrays(lambda leaf: leaf[who], parties.own))
    own, replies = _answers(protocol, question, some, np.asarray(numbers)[who], seed, chunk, chance)
    if not asked.all():  # who was not asked did nothing
        own = map_arrays(lambda old, new: _with(np.array(old), who, new), parties.own, own)
    if memory is not None:
        memory.keep(step + 1, own)
    return pack(protocol.exchanges[question.exchange].reply, replies, numbers, asked)


def _with(
    rows: Shaped[np.ndarray, "parties ..."], who: Int64[np.ndarray, " asked"], new: Shaped[np.ndarray, "asked ..."]
) -> Shaped[np.ndarray, "parties ..."]:
    rows[who] = new
    return rows


def check_protocol(protocol: Protocol) -> None:
    """Refuse what does not run on Flower, or not here.

    Raises:
        ConfigError: The protocol sends more than requests and replies, such as a secure sum, or nothing.
        MissingExtraError: It needs JAX, which is not installed.
    """
    if not all(exchange.batched for exchange in protocol.exchanges):
        require_jax(f"{protocol.name} on Flower")
    for exchange in protocol.exchanges:
        if exchange.silent:
            raise ConfigError(f"in {protocol.name} nothing crosses; there is nothing to serve.")
        if exchange.extra_messages(2):
            raise ConfigError(
                f"{exchange.name!r} of {protocol.name} needs more to cross than requests and replies (a secure sum's "
                "keys and shares), which the Flower adapter does not carry. Leave privacy-secure-sum and "
                "privacy-epsilon out, or take foltr-es."
            )


def _answers(
    protocol: Protocol,
    question: Question,
    parties: Party,
    numbers: Int64[np.ndarray, " parties"],
    seed: int,
    chunk: int,
    chance: str,
) -> tuple[Any, Any]:
    """The parties' own state after an exchange, and their replies: NumPy arrays [parties, ...]."""
    exchange = protocol.exchanges[question.exchange]
    request = exchange.request.decode(question.request)
    several = len(protocol.exchanges) > 1
    parts = []
    for start in range(0, len(numbers), chunk):
        own = map_arrays(lambda leaf, start=start: leaf[start : start + chunk], parties.own)
        if chance == "seed" and exchange.batched:
            which = numbers[start : start + chunk]
            words = np.broadcast_to(fold_words(run_words([seed]), question.round), (len(which), 2))
            words = fold_words(words, which, question.exchange) if several else fold_words(words, which)
            draws = exchange.draw(words)  # type: ignore[arg-type] - words of keys, as a batched exchange takes them
        elif chance == "seed":
            which, key = numbers[start : start + chunk].astype(np.uint32), jax.random.key(seed)
            draws = _drawn(exchange, several, key, np.uint32(question.round), which, np.uint32(question.exchange))
        else:
            each = [exchange.draw_from_os() for _ in numbers[start : start + chunk]]
            draws = map_arrays(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *each)
        if exchange.batched:
            asked = [request] * len(numbers[start : start + chunk])
            each = map_arrays(lambda *leaves: np.stack(leaves), *asked)
            party, reply = exchange.respond(each, Party(parties.shared, own), draws)
            parts.append((party.own, reply))
        else:
            parts.append(jax.device_get(_respond(exchange, request, parties.shared, own, draws)))
    return map_arrays(lambda *leaves: np.concatenate(leaves), *parts)


@functools.partial(jit, static_argnums=(0, 1))
def _drawn(exchange: Exchange, several: bool, key: Any, round_: Any, numbers: Any, index: Any) -> Any:
    def draw(number):
        # As in a simulator: where there are several exchanges, a party has another key for each.
        mine = party_key(key, round_, number)
        return exchange.draw(jax.random.fold_in(mine, index) if several else mine)

    return jax.vmap(draw)(numbers)


@functools.partial(jit, static_argnums=0)
def _respond(exchange: Exchange, request: PyTree, shared: PyTree, own: PyTree, draws: PyTree) -> tuple[Any, Any]:
    def respond(own, draws):
        party, reply = exchange.respond(request, Party(shared, own), draws)
        return party.own, reply

    return jax.vmap(respond)(own, draws)


def pack(layout: Layout, replies: PyTree, numbers: range, asked: Bool[np.ndarray, " parties"] | None = None) -> Answer:
    """The replies as bytes; one that cannot be sent, such as weights that are not finite, is left out.

    Args:
        layout: Of one reply.
        replies: Leaves [parties that were asked, ...].
        numbers: The parties.
        asked: Which of them were asked, bool [parties]; None: all.

    Raises:
        WireError: None of the replies can be sent.
    """
    heard = np.ones(len(numbers), bool) if asked is None else asked.copy()
    who = np.flatnonzero(heard)
    try:
        return Answer.of(numbers.start, heard, layout.encode_all(replies, (len(who),)))
    except WireError:
        each = [_encode(layout, map_arrays(lambda leaf, i=i: leaf[i], replies)) for i in range(len(who))]
        heard[who] = [one is not None for one in each]
        if not heard.any():
            raise
        return Answer.of(numbers.start, heard, b"".join(one for one in each if one is not None))


def _encode(layout: Layout, reply: Any) -> bytes | None:
    try:
        return layout.encode(reply)
    except WireError:
        return None
