"""A Flower run in one process, for tests: nodes that do right or wrong, a clock that only moves when somebody waits."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.messages import Array, field, message, u4
from fedrank.core.protocol import Exchange, Protocol
from fedrank.engine.deployment import Block, NodeSettings
from fedrank.engine.simulator import Conditions, Simulator, run_keys
from fedrank_flower import settings as flat
from fedrank_flower.answers import Memory, answer_for, answer_of
from fedrank_flower.messages import Question
from fedrank_flower.rounds import Came, Log, Network

CLIENTS = 7


class Nodes(Network):
    """Nodes in this process; a clock that only moves when somebody waits."""

    def __init__(self, behaviours, there=None):
        self.behaviours, self.there, self.clock = behaviours, there, 0.0
        self.questions: list[Question] = []
        self.records: list[dict[str, Any]] = []
        self._came: list[Came] = []

    def nodes(self):
        return self.there(self.clock) if self.there else sorted(self.behaviours)

    def ask(self, questions, seconds):
        self.questions += questions.values()
        self._came = []
        for node, question in reversed(list(questions.items())):  # not in the order that they are told to the server
            for record in self.behaviours[node](question):
                self._came.append(Came(node, record, "" if record else "MissingDataError"))
                self.records.append(record)

    def answers(self):
        came, self._came = self._came, []
        return came

    def now(self):
        return self.clock

    def sleep(self, seconds):
        self.clock += seconds


def table(folder, **settings):
    """A run's table; ``_`` stands for ``-``."""
    values = {"clients": CLIENTS, "num-server-rounds": 3, "checkpoint-dir": str(folder / "kept"), "n-features": 46}
    values |= {name.replace("_", "-"): value for name, value in settings.items()}
    paper = values.get("protocol", "foltr-es") == "foltr-es" and not any(name.startswith("privacy") for name in values)
    return values | ({"privacy-p": 0.9} if paper else {})


def honest(values, partition, partitions, **node):
    """The behaviour of a node that does as it should."""
    config, _ = flat.read_run(values)
    told = NodeSettings(partition, partitions, chance="seed", **node)
    return lambda question: [answer_for(config, told, question).as_record()]


def everybody(values, partitions, first=10, **node):
    return {first + i: honest(values, i, partitions, **node) for i in range(partitions)}


def server_of(values, n_features=0):
    """The server's side of a run."""
    config, _ = flat.read_run(values)
    return flat.task_of(config).server(config, n_features)


def simulated(values, **conditions):
    """Weights after the rounds, and the replies of all rounds, from the simulator."""
    config, _ = flat.read_run(values)
    experiment = flat.task_of(config).build(config)
    simulator = Simulator(experiment.protocol, conditions=Conditions(**conditions), record=True)
    keys = run_keys([config.seed])
    states, own = simulator.start(keys, experiment.parties)
    states, _, seen = simulator.advance(keys, states, experiment.parties.shared, own, 0, config.rounds)
    weights = np.asarray(jax.vmap(experiment.protocol.weights)(states))[0]
    return weights, jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], seen["replies"][0])


def close(state, weights):
    """The size of ES weights after some steps of 0.001 is about that, so only a relative bound says anything."""
    assert np.abs(weights).max() > 0
    np.testing.assert_allclose(np.asarray(state.weights), weights, rtol=1e-5, atol=1e-8)


@message(kind=1)
class Number:
    value: Array = field(u4, "a number")


#: What is sent back, by its kind.
REPLIES = {kind: message(kind=kind)(type(f"Reply{kind}", (Number,), {})) for kind in (2, 3, 4)}


@dataclass(frozen=True)
class Count(Exchange, request=Number):
    """A party adds what it is asked to what it has, and sends it with a random word."""

    kind: int
    name: str = "count"

    @property
    def reply(self):
        return self.layout(REPLIES[self.kind])

    def ask(self, state):
        return Number(state % np.uint32(1000))

    def draw(self, key):
        return jax.random.bits(key, (), jnp.uint32)

    def draw_from_os(self):
        raise AssertionError("not asked for")

    def respond(self, request, party, draws):
        own = party.own + jnp.asarray(request.value, jnp.uint32) + np.uint32(self.kind)
        return party._replace(own=own), self.reply.message(own * np.uint32(7) + draws)

    def tell(self, state, replies, arrived):
        return state * np.uint32(3) + jnp.sum(jnp.where(arrived, replies.value, 0), dtype=jnp.uint32)


@dataclass(frozen=True)
class Counting(Protocol):
    name: str = "counting"
    exchanges = (Count(2), Count(3))

    def init(self, key):
        return jax.random.bits(key, (), jnp.uint32)

    def weights(self, state):
        return state

    def account(self, rounds, delta):
        raise AssertionError("not asked for")


@dataclass(frozen=True)
class Choosy(Count):
    """Asks some parties in some rounds: in every third round nobody, and this exchange is due in some only."""

    often: int = 1

    def due(self, number):
        return number % self.often == 0

    def asked(self, state, parties):
        return ((jnp.arange(parties, dtype=jnp.uint32) + state) % 3 == 0) & ((state >> 3) % 3 > 0)


@dataclass(frozen=True)
class Choosing(Counting):
    """Everybody first, then some, then others."""

    name: str = "choosing"
    exchanges = (Count(2), Choosy(3, "some"), Choosy(4, "again", often=2))


class Remembered(Memory):
    """What parties have, in this process."""

    def __init__(self):
        self.kept: dict[int, Any] = {}

    def before(self, step, like):
        if step == 0:
            self.kept.clear()
        return self.kept[max(k for k in self.kept if k <= step)] if any(k <= step for k in self.kept) else like

    def keep(self, step, own):
        self.kept[step] = own


def holding(protocol, parties, numbers, seed=3):
    """The behaviour of a node that answers for these parties, and what it was asked."""
    own = jax.tree.map(lambda leaf: leaf[numbers.start : numbers.stop], parties.own)
    mine, memory, asked = Block(protocol, parties._replace(own=own), numbers), Remembered(), []

    def behaviour(question):
        asked.append(question)
        return [answer_of(mine, question, seed, 2, "seed", memory).as_record()]

    return behaviour, asked


class Heard(Log):
    """Counts what crosses, and keeps the states."""

    def __init__(self):
        self.requests: list[tuple[int, str, int]] = []
        self.replies: list[tuple[int, str, int]] = []
        self.rounds: list[list[Any]] = []

    def note_question(self, round_, exchange, nodes):
        self.requests.append((round_, exchange.name, nodes))

    def note_replies(self, round_, exchange, tally):
        self.replies.append((round_, exchange.name, tally.parties))

    def done(self, round_, state, tallies):
        self.rounds.append(tallies)
