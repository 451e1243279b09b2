"""A node's part: the answers of its parties to one question.

A node is one silo, or a gateway of many devices: it answers for a block of the run's parties, with the very keys that a
simulator gives them. Flower starts a new process for each message, so that everything here is loaded anew each time,
and what a party remembers has to be put somewhere (:class:`Memory`).
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.errors import ConfigError, WireError
from fedrank.core.messages import Layout
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.core.rng import party_key
from fedrank.data.catalogue import CATALOGUE
from fedrank.data.catalogue_silos import SILO_CATALOGUE
from fedrank.data.places import GENERATED
from fedrank.deploy.checkpoints import Checkpoints
from fedrank.deploy.flower.messages import Answer, Question
from fedrank.deploy.flower.own_table import hash_of, own_rows, refuse_undefined, stand_in
from fedrank.deploy.flower.settings import NodeSettings, Settings, about, block, delta_of, task_of
from fedrank.experiments.build import build
from fedrank.ranking.build import Experiment
from fedrank.silos.build import SiloExperiment
from fedrank.silos.data.load import GENERATED as SILOS_GENERATED
from fedrank.slates.build import SlateExperiment
from fedrank.texts.build import TextExperiment

#: Rounds back to which a server may go, and finds the parties as they were.
ROUNDS_KEPT = 3


class Memory(abc.ABC):
    """Where a node keeps what its parties have for themselves, between one question and the next.

    Questions are numbered through: step = round · exchanges + exchange.
    """

    @abc.abstractmethod
    def before(self, step: int, like: Any) -> Any:
        """What the parties had when the step was reached; ``like``, the parties as they begin, where nothing is kept.

        Args:
            step: Number of the question.
            like: Pytree of arrays [parties, ...].
        """

    @abc.abstractmethod
    def keep(self, step: int, own: Any) -> None:
        """Keep what they have before this step."""


class FolderMemory(Memory):
    """A folder of the node, which outlasts its process. A server that goes back some rounds finds the parties there.

    Args:
        folder: The node's folder for all runs.
        config: The run.
        numbers: The parties.
        exchanges: Questions of a round.
    """

    def __init__(self, folder: Path, config: Settings, numbers: range, exchanges: int = 1):
        of = {"run": about(config), "parties": [numbers.start, numbers.stop]}
        name = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]
        # As many rounds as a server keeps, however many questions a round has.
        self._files = Checkpoints(folder / name, of, ROUNDS_KEPT * exchanges)

    def before(self, step: int, like: Any) -> Any:
        """As :meth:`Memory.before`; the first question of a run begins with nothing."""
        if step == 0:
            shutil.rmtree(self._files.folder, ignore_errors=True)
        return next((own for _, own in self._files.states(like, before=step)), like)

    def keep(self, step: int, own: Any) -> None:
        """As :meth:`Memory.keep`; raises RunError where the folder cannot be written."""
        self._files.save(step, own)


def without_shares(config: Settings) -> Settings:
    """The same protocol where it does not matter who holds which queries."""
    default = type(config)(protocol=config.protocol)
    same = ("share", "queries_per_client", "topics", "labels_per_client")
    return dataclasses.replace(config, **{name: getattr(default, name) for name in same if hasattr(config, name)})


def built(config: Settings, folder: str | None = None) -> Experiment | SiloExperiment:
    """The experiment of a run whose parties hold no texts: :mod:`fedrank.deploy.flower.own_texts` has those that do."""
    made = build(config, folder)
    assert not isinstance(made, TextExperiment | SlateExperiment)  # nor do platforms run through Flower
    return made


class Block(NamedTuple):
    """The parties that a node answers for.

    Attributes:
        protocol: The run's protocol.
        parties: They; leaves of ``own`` are [parties, ...].
        numbers: Their numbers in the run.
        columns: A hash of what their columns are called; empty where the run says what the data is.
    """

    protocol: Protocol
    parties: Party
    numbers: range
    columns: bytes = b""


@functools.lru_cache(maxsize=4)
def block_of(config: Settings, node: NodeSettings) -> Block:
    """The parties that a node answers for.

    The run's data is dealt out among all parties of the run, a node's own data among its own parties.

    Raises:
        ConfigError: The run names a path: a server has no say in which files a node reads. Or there are more nodes than
            parties, or the protocol is not carried.
        DataError: The data is not there or cannot be used.
    """
    where = node.data_folder or None
    if task_of(config) == "silos":
        return _silos(config, node, where)
    if not node.data and config.data.lower() not in (GENERATED, *CATALOGUE.names()):
        raise ConfigError(
            f"data = {config.data!r} is no set of the catalogue, and a run does not say which files a node reads. "
            "Start the SuperNode with its own: --node-config 'data=\"/its/own/queries.txt\"'."
        )
    whole = built(without_shares(dataclasses.replace(config, data=node.data)) if node.data else config, where)
    refuse_extra_messages(whole.protocol)
    numbers = block(whole.n_parties, node.partition_id, node.num_partitions)
    if node.data:
        mine = dataclasses.replace(config, data=node.data)
        if len(numbers) < whole.n_parties:  # rules of the server may need more parties than one node has
            mine = dataclasses.replace(mine, clients=len(numbers), aggregate="mean", byzantine=None)
        return Block(whole.protocol, built(mine, where).parties, numbers)
    own = jax.tree.map(lambda leaf: leaf[numbers.start : numbers.stop], whole.parties.own)
    return Block(whole.protocol, Party(whole.parties.shared, own), numbers)


def _silos(config: Settings, node: NodeSettings, where: str | None) -> Block:
    """A silo with its own table; or silos of a known set, of which a node then has everybody's rows: for tests."""
    known = config.data.lower() in (SILOS_GENERATED, *SILO_CATALOGUE.names())
    if known == bool(node.data):
        raise ConfigError(
            f"the run's data is {config.data!r}, "
            + ("which leaves no place for this node's own table." if known else "and this node has no table.")
            + ' A run in which silos have tables of their own says data = "own"; their SuperNodes are started with '
            "--node-config 'data=\"/its/own/table.csv\"'."
        )
    if not node.data:
        whole = built(config, where)
        numbers = block(whole.n_parties, node.partition_id, node.num_partitions)
        own = jax.tree.map(lambda leaf: leaf[numbers.start : numbers.stop], whole.parties.own)
        return Block(whole.protocol, Party(whole.parties.shared, own), numbers)
    if node.num_partitions != config.silos.count:
        raise ConfigError(
            f"the run has {config.silos.count} silos (silos-count), this node is one of {node.num_partitions} "
            "(num-partitions). Where silos have tables of their own, each is one node."
        )
    arrays, names = own_rows(Path(node.data).expanduser(), config)
    whole = stand_in(config, len(names))
    protocol = dataclasses.replace(whole.protocol, most_rows=arrays.train.x.shape[-2])
    numbers = range(node.partition_id, node.partition_id + 1)
    if getattr(protocol, "target", None) == node.partition_id and protocol.measure == "auc":
        refuse_undefined(arrays, "of the target")
    own = jax.tree.map(lambda leaf: leaf[numbers.start : numbers.stop], whole.parties.own)
    zero = np.zeros(1, np.int32)  # the only rows there are
    parties = Party(jax.tree.map(jnp.asarray, arrays), own._replace(number=zero, split=zero))
    return Block(protocol, parties, numbers, hash_of(names))


def answer_for(config: Settings, node: NodeSettings, question: Question, memory: Memory | None = None) -> Answer:
    """What a node sends back; needs no Flower.

    Args:
        config: The run.
        node: Which parties, their data and where their chance comes from.
        question: What the server asked.
        memory: Where the parties' own state is kept; None: ``state_dir`` of the node, if there is one.

    Raises:
        FedrankError: The question does not fit the run, or the data is not there.
    """
    mine = block_of(config, node)
    _agree(mine.protocol, config, node)
    if memory is None and node.state_dir:
        exchanges = len(mine.protocol.exchanges)
        memory = FolderMemory(Path(node.state_dir).expanduser(), config, mine.numbers, exchanges)
    return answer_of(mine, question, config.seed, config.compute.chunk, node.chance, memory)


def answer_of(
    mine: Block, question: Question, seed: int, chunk: int, chance: str, memory: Memory | None = None
) -> Answer:
    """:func:`answer_for` of parties that are at hand.

    Args:
        mine: The parties that answer.
        question: What the server asked; without a request the answer says who is there.
        seed: The run's seed.
        chunk: Parties that answer at once; bounds the memory and changes nothing else.
        chance: ``"seed"``: as in a simulator. ``"os"``: from the operating system.
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
    some = parties if asked.all() else parties._replace(own=jax.tree.map(lambda leaf: leaf[who], parties.own))
    own, replies = _answers(protocol, question, some, np.asarray(numbers)[who], seed, chunk, chance)
    if not asked.all():  # who was not asked did nothing
        own = jax.tree.map(lambda old, new: _with(np.array(old), who, new), parties.own, own)
    if memory is not None:
        memory.keep(step + 1, own)
    return pack(protocol.exchanges[question.exchange].reply, replies, numbers, asked)


def _with(rows: np.ndarray, who: np.ndarray, new: np.ndarray) -> np.ndarray:
    rows[who] = new
    return rows


def _agree(protocol: Protocol, config: Settings, node: NodeSettings) -> None:
    """Refuse a run that promises this node's parties less than those who run the node ask for."""
    if node.most_epsilon < 0:
        return
    promised = protocol.account(1, delta_of(config)).epsilon_round
    if not promised <= node.most_epsilon:
        raise ConfigError(
            f"a round of this run has ε = {promised:.4g}; this node agrees to {node.most_epsilon:.4g} (most-epsilon)."
        )


def refuse_extra_messages(protocol: Protocol) -> None:
    """Raise ConfigError for a protocol that needs more than requests and replies, such as a secure sum, or nothing."""
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
    protocol: Protocol, question: Question, parties: Party, numbers: np.ndarray, seed: int, chunk: int, chance: str
) -> tuple[Any, Any]:
    """What the parties have for themselves now, and their replies: arrays [parties, ...] of the host."""
    exchange = protocol.exchanges[question.exchange]
    request, key = exchange.request.decode(question.request), jax.random.key(seed)
    several = len(protocol.exchanges) > 1
    parts = []
    for start in range(0, len(numbers), chunk):
        own = jax.tree.map(lambda leaf, start=start: leaf[start : start + chunk], parties.own)
        if chance == "seed":
            which = numbers[start : start + chunk].astype(np.uint32)
            draws = _drawn(exchange, several, key, np.uint32(question.round), which, np.uint32(question.exchange))
        else:
            each = [exchange.draw_from_os() for _ in numbers[start : start + chunk]]
            draws = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *each)
        parts.append(jax.device_get(_responded(exchange, request, parties.shared, own, draws)))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _drawn(exchange: Exchange, several: bool, key: Any, round_: Any, numbers: Any, index: Any) -> Any:
    def draw(number):
        # As in a simulator: where there are several exchanges, a party has a key of its own for each.
        mine = party_key(key, round_, number)
        return exchange.draw(jax.random.fold_in(mine, index) if several else mine)

    return jax.vmap(draw)(numbers)


@functools.partial(jax.jit, static_argnums=0)
def _responded(exchange: Exchange, request: Any, shared: Any, own: Any, draws: Any) -> tuple[Any, Any]:
    def respond(own, draws):
        party, reply = exchange.respond(request, Party(shared, own), draws)
        return party.own, reply

    return jax.vmap(respond)(own, draws)


def pack(layout: Layout, replies: Any, numbers: range, asked: np.ndarray | None = None) -> Answer:
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
        each = [_encoded(layout, jax.tree.map(lambda leaf, i=i: leaf[i], replies)) for i in range(len(who))]
        heard[who] = [one is not None for one in each]
        if not heard.any():
            raise
        return Answer.of(numbers.start, heard, b"".join(one for one in each if one is not None))


def _encoded(layout: Layout, reply: Any) -> bytes | None:
    try:
        return layout.encode(reply)
    except WireError:
        return None
