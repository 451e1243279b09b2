"""A run over a network: the inputs of its server, and the answers of its nodes.

A node is a machine of one party, or of several: it answers for a block of the run's parties. A wing says by
:meth:`fedrank.engine.task.Task.server` and :meth:`~fedrank.engine.task.Task.node` what is special about its parties,
such as their own data; by default nodes hold the parties that a simulation of the run has.
"""

from __future__ import annotations

import abc
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.lazy import jax
from fedrank.core.native import map_arrays
from fedrank.core.privacy_report import DELTA, Unit
from fedrank.core.protocol import Party, Protocol
from fedrank.core.trees import Json
from fedrank.engine.config import RunConfig
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.simulator import Simulator, run_keys

#: Sources of a party's random numbers.
CHANCES = ("os", "seed")
#: Bytes of the hash that nodes compare what they must have in common by.
_HASH = 8


@dataclass(frozen=True)
class NodeSettings:
    """Settings of a node, given by those who run it; a run cannot change them.

    Attributes:
        partition_id: Number of the node's block of the run's parties, from 0.
        num_partitions: Number of blocks.
        data: File or folder of the node's own data (queries, a table, texts) instead of the data that the run names.
        data_folder: Folder in which known data sets are looked for; empty: ``FEDRANK_DATA`` or the platform's cache.
        state_dir: Folder in which the state of the node's parties outlives its process; empty: Flower keeps it.
        chance: ``"os"``: random numbers that protect people come from the operating system. ``"seed"``: they come from
            the run's seed, as in a simulator, so that a run can be repeated; they hide nothing from those who know it.
        most_epsilon: Largest ε of one round that this node's parties agree to; infinite: any, also none at all; below
            0: what the task asks for (:attr:`NodeSide.agrees_to`).
        most_run_epsilon: The same of all rounds of a run together, for one party.
        most_total_epsilon: The same of all runs together that use this ``state_dir``, which need an ε that counts all
            of their rounds; others are refused. δ adds up as well. Below 0: any.
        most_sketch_epsilon: Largest ε of one occurrence of a word in what a silo with texts shows others; below 0: any,
            but with its own texts an infinite one only if this setting is ``inf``.
        most_setups: Number of times that a silo with its own texts may hand out sketches, in all runs together
            that use this ``state_dir``; ε is spent each time.
        gateway: URL of a hub that collects, whose real devices answer instead of simulated ones.
        gateway_token: File with that hub's admin token.
        gateway_seconds: Seconds after which a round of that hub is closed with the reports that have come.

    Raises:
        ConfigError: A setting is missing, of the wrong type or out of range.
    """

    partition_id: int
    num_partitions: int
    data: str = ""
    data_folder: str = ""
    state_dir: str = ""
    chance: str = "os"
    most_epsilon: float = -1.0
    most_run_epsilon: float = -1.0
    most_total_epsilon: float = -1.0
    most_sketch_epsilon: float = -1.0
    most_setups: int = 1
    gateway: str = ""
    gateway_token: str = ""
    gateway_seconds: float = 300.0

    def __post_init__(self):
        if bool(self.gateway) != bool(self.gateway_token) or not 0 < self.gateway_seconds < 1e7:
            raise ConfigError(
                "a gateway needs gateway and gateway-token, the hub's address and the file of its admin token, and "
                f"gateway-seconds above 0; got {self.gateway!r}, {self.gateway_token!r}, {self.gateway_seconds}."
            )
        if not 0 <= self.partition_id < self.num_partitions:
            raise ConfigError(
                f"partition-id must be in 0..num-partitions − 1, got {self.partition_id} of {self.num_partitions}."
            )
        if self.chance not in CHANCES:
            raise UnknownNameError("source of chance", self.chance, CHANCES)

    @property
    def most_in_all(self) -> float:
        """:attr:`most_total_epsilon`, infinite where there is none."""
        return self.most_total_epsilon if self.most_total_epsilon >= 0 else math.inf

    def block(self, parties: int) -> range:
        """Numbers of the parties that the node answers for; errors as :func:`block`."""
        return block(parties, self.partition_id, self.num_partitions)


def block(parties: int, partition: int, partitions: int) -> range:
    """Numbers of the parties in a block: blocks follow one another, and their sizes differ by one party at most.

    Args:
        parties: Number of parties of the run.
        partition: Number of the block, from 0.
        partitions: Number of blocks.

    Raises:
        ConfigError: The block is empty.

    >>> [list(block(5, i, 2)) for i in (0, 1)]
    [[0, 1], [2, 3, 4]]
    """
    numbers = range(parties * partition // partitions, parties * (partition + 1) // partitions)
    if not numbers:
        raise ConfigError(
            f"partition {partition} of {partitions} is empty: the run has {parties} parties (clients); use fewer nodes."
        )
    return numbers


def hash_of(names: Sequence[str]) -> bytes:
    """A hash of names, 8 bytes, by which nodes are compared: equal for equal names in the same order."""
    return hashlib.sha256("\n".join(names).encode()).digest()[:_HASH]


class Block(NamedTuple):
    """The parties that a node answers for.

    Attributes:
        protocol: The run's protocol.
        parties: The parties; leaves of ``own`` are [parties, ...].
        numbers: Numbers of the parties in the run.
        columns: Hash of what all nodes must have in common, such as the names of columns; empty where the run
            determines it.
    """

    protocol: Protocol
    parties: Party
    numbers: range
    columns: bytes = b""


def part_of(parties: Party, numbers: range) -> Party:
    """Some of a run's parties: leaves of ``own`` are [parties, ...]."""
    return parties._replace(own=map_arrays(lambda leaf: leaf[numbers.start : numbers.stop], parties.own))


class ServerSide:
    """The server's side of a run over a network.

    Args:
        config: Settings of the run, resolved.
        protocol: The protocol.
        parties: Parties of the run, or stand-ins of the same shapes: what they hold is not used.
        n_parties: Number of parties.
        setup: Protocol of one round that comes before the first round; None: there is none.
    """

    def __init__(
        self,
        config: RunConfig,
        protocol: Protocol,
        parties: Party | None,
        n_parties: int,
        setup: Protocol | None = None,
    ):
        self.config, self.protocol, self.parties = config, protocol, parties
        self.n_parties, self.setup = n_parties, setup

    def state(self) -> PyTree:
        """The server's state before the first round."""
        if self.parties is None:
            return self.protocol.init(jax.random.key(self.config.seed))
        states, _ = Simulator(self.protocol).start(run_keys([self.config.seed]), self.parties)
        return jax.tree.map(lambda leaf: leaf[0], states)

    def scores(self, weights: np.ndarray) -> list[dict[str, Json]] | None:
        """Measures of a model, float32 [parameters], as rows of ``metrics.jsonl``; None: the server has no data."""
        return None

    def write_models(self, home: RunFolder, state: PyTree) -> None:
        """Write the models of the last state to ``weights/``: by default one tensor named ``weights``."""
        home.tensors({"weights": np.asarray(self.protocol.weights(state))}, self.config.seed)

    def write_setup(self, home: RunFolder, state: PyTree) -> None:
        """Write what the setup has found, from the server's state after it; by default nothing."""

    def write_descriptions(self, home: RunFolder) -> None:
        """Write what crosses and what is learnt, once the setup is over; by default nothing."""


class SetupSide(abc.ABC):
    """A node's part in the setup of a run: one party, which is asked one exchange after the other, each once.

    Attributes:
        protocol: The setup, of one round.
        max_shown: Number of setups, of all runs, in which the party may show something; may be infinite.
        first_shown: Index of the first exchange whose reply shows something with its own noise.
    """

    protocol: Protocol
    max_shown: float
    first_shown: int

    @abc.abstractmethod
    def party(self) -> Party:
        """The party before the setup; raises FedrankError where its data cannot be used."""

    @abc.abstractmethod
    def draws(self, exchange: int) -> PyTree:
        """The source that an exchange draws from; None: the operating system."""

    @abc.abstractmethod
    def keeps(self, name: str) -> bool:
        """True if the party needs an array of its state, by name, when the setup is over."""

    def answered(self, exchange: int, reply: bytes) -> None:  # noqa: B027 - optional
        """Called with every reply before it is sent; by default does nothing."""


class NodeSide(abc.ABC):
    """A node's side of a run over a network.

    Args:
        config: Settings of the run, resolved.
        settings: Settings of the node.
        protocol: The protocol.
        numbers: Numbers of the parties that the node answers for.
        columns: As of :class:`Block`.
    """

    #: The node's part in the setup; None: there is none.
    setup: SetupSide | None = None
    #: Largest ε of one round, and of a party's whole run, that the parties agree to where those who run the node say
    #: nothing; infinite: any.
    agrees_to: tuple[float, float] = (math.inf, math.inf)
    #: Hash of the parties' own data as the run uses it, which must not change during a run; empty: not known.
    content: str = ""

    def __init__(
        self, config: RunConfig, settings: NodeSettings, protocol: Protocol, numbers: range, columns: bytes = b""
    ):
        self.config, self.settings, self.protocol = config, settings, protocol
        self.numbers, self.columns = numbers, columns

    def epsilon_of_run(self) -> float:
        """ε of all rounds of the run: of all that a user does or, at a silo, of one record; infinite where none is.

        A server that announces a larger δ than is usual would make any ε small: it is that at a usual δ.
        """
        report = self.protocol.account(self.config.rounds, min(self.config.delta, DELTA))
        return min(report.epsilon(Unit.USER), report.epsilon(Unit.RECORD))

    def refuse_unprotected(self) -> None:
        """Refuse a run that promises this node's parties less than the node's settings ask for.

        Raises:
            ConfigError: ε of a round, or of all of them, is larger than the node allows.
        """
        given = self.settings.most_epsilon, self.settings.most_run_epsilon
        for said, asked, name in zip(given, self.agrees_to, ("most-epsilon", "most-run-epsilon"), strict=True):
            if (most := said if said >= 0 else asked) == math.inf:
                continue
            if name == "most-epsilon":
                report = self.protocol.account(1, min(self.config.delta, DELTA))
                # Of a silo's records the first round costs most: silos train before it.
                what, promised = "a round", min(report.epsilon_round, report.epsilon(Unit.RECORD))
            else:
                what, promised = f"a party's {self.config.rounds} rounds", self.epsilon_of_run()
            if not promised <= most:
                raise ConfigError(
                    f"{what} of this run: ε = {promised:.4g}; this node agrees to {most:.4g} ({name} in its "
                    "--node-config; inf agrees to any)."
                )

    def refuse_uncounted(self) -> None:
        """Refuse a run whose ε cannot be counted towards ``most_total_epsilon``, where the node has one.

        Raises:
            ConfigError: The run has no ε for all of its rounds, or a larger one.
        """
        if (most := self.settings.most_in_all) == math.inf:
            return
        epsilon = self.epsilon_of_run() if self.config.bound_to_rounds else math.inf
        if not epsilon <= most:
            raise ConfigError(
                f"this run's rounds have ε = {epsilon:.4g} together (inf: nothing bounds it); this node agrees to "
                f"{most:.4g} in all its runs (most-total-epsilon in its --node-config)."
            )

    @abc.abstractmethod
    def block(self, remembered: dict[str, np.ndarray]) -> Block:
        """The parties that answer at this node.

        Args:
            remembered: What the setup has left with the party, by name; empty without a setup.
        """

    def finished(self, remembered: dict[str, np.ndarray], own: PyTree, request: bytes) -> None:  # noqa: B027 - optional
        """Called after the last reply of a run; by default does nothing.

        Args:
            remembered: As of :meth:`block`.
            own: The parties' own state before the last request.
            request: The last request's bytes.
        """


class HeldParties(NodeSide):
    """A node that holds its parties from the start; arguments as of :class:`NodeSide`.

    Args:
        config: Settings of the run, resolved.
        settings: Settings of the node.
        held: The parties.
    """

    def __init__(self, config: RunConfig, settings: NodeSettings, held: Block):
        super().__init__(config, settings, held.protocol, held.numbers, held.columns)
        self._held = held

    @override
    def block(self, remembered: dict[str, np.ndarray]) -> Block:
        return self._held
