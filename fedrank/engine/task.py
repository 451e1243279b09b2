"""A task: what the engine has to know about a kind of learning, so that one runner serves all of them.

Ranking, silos, texts and slates are tasks; another package adds one by an entry point of ``fedrank.tasks``.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from fedrank.core import protocol as core
from fedrank.core.errors import ConfigError
from fedrank.data.sources import Reader
from fedrank.engine.config import RunConfig
from fedrank.engine.deployment import Block, HeldParties, NodeSettings, NodeSide, ServerSide, part_of
from fedrank.engine.model import Model
from fedrank.engine.progress import Listener
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.runner import Runner
from fedrank.engine.simulator import Conditions

Config = TypeVar("Config", bound=RunConfig)


@runtime_checkable
class Experiment(Protocol):
    """A configuration with all that it names built: any object with these attributes.

    Attributes:
        config: The configuration, resolved.
        protocol: The protocol.
        parties: All simulated parties; leaves of ``own`` have a leading axis of parties.
        conditions: What happens to replies on their way.
    """

    config: Any
    protocol: Any
    conditions: Conditions

    @property
    def parties(self) -> core.Party:
        """All simulated parties, with the data they share and what each keeps for itself."""
        ...

    @property
    def n_parties(self) -> int:
        """Number of simulated parties."""
        ...

    @property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that the experiment rests on."""
        ...


@dataclass(frozen=True)
class Given:
    """Objects and folders of the caller's in place of what a configuration names.

    Attributes:
        folder: Where data sets are looked for; None: ``FEDRANK_DATA`` or the platform's cache.
        protocol: A protocol instead of the one that ``config.protocol`` names.
        data: Data instead of what the configuration names, in any form that :func:`fedrank.data.load` takes.
        own: Objects by the names of settings that say ``own``, such as ``ranker``.
    """

    folder: str | os.PathLike[str] | None = None
    protocol: Any = None
    data: Any = None
    own: Mapping[str, Any] = field(default_factory=dict)


class Task(abc.ABC, Generic[Config]):
    """A kind of learning, and the way it is run.

    Attributes:
        name: Name of its entry point.
        settings: Settings of a protocol that comes as an object without settings.
        shown: What a finished run shows: a :class:`fedrank.report.run.Shown`.
        runner: Makes the runner of a built experiment in its directory.
        reader: How the task's data is read; None: it makes its data up itself.
        model: Class of its models; None: it does not say how they score.
        takes_own: True if its runs take objects of the caller's own in place of names of settings.
        no_network: Why its runs cannot be carried over a network by requests to nodes; empty: they can.
        simulated: Dotted names of settings that mean something in a simulation only, besides those of every run.
    """

    name: str
    shown: Any
    settings: type[Config]
    runner: Callable[[Any, RunFolder, Listener], Runner]
    reader: Reader[Any] | None = None
    model: type[Model] | None = None
    no_network: str = ""
    takes_own: bool = False
    simulated: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "runner"):
            raise TypeError(f"{cls.__name__} is a task without a runner: an attribute of its class.")

    @abc.abstractmethod
    def build(self, config: Config, given: Given = Given()) -> Experiment:
        """Load the data and set everything up.

        Args:
            config: The configuration, resolved.
            given: What takes the place of what it names.

        Raises:
            FedrankError: The configuration does not fit the protocol or the data, the data is not there, or the task
                takes no object in place of a name.
        """

    def server(self, config: Config, n_features: int = 0) -> ServerSide:
        """The server's side of a run over a network; by default with the run's data, as a simulation.

        Args:
            config: The configuration, resolved.
            n_features: Features of a document or a row where the server has no data; 0: it has the run's data.

        Raises:
            FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
        """
        if n_features:
            raise ConfigError(f"n-features: a server of the task {self.name!r} has the run's data; leave it out.")
        experiment = self.build(config)
        return ServerSide(config, experiment.protocol, experiment.parties, experiment.n_parties)

    def node(self, config: Config, settings: NodeSettings) -> NodeSide:
        """A node's side of a run over a network; by default it holds its block of the simulated parties.

        Args:
            config: The configuration, resolved.
            settings: Settings of the node.

        Raises:
            FedrankError: The run leaves no place for this node, or the data cannot be used.
        """
        if settings.data:
            raise ConfigError(f"data: nodes of the task {self.name!r} hold parts of the run's data; leave it out.")
        experiment = self.build(config, Given(settings.data_folder or None))
        numbers = settings.block(experiment.n_parties)
        held = Block(experiment.protocol, part_of(experiment.parties, numbers), numbers)
        return HeldParties(config, settings, held)

    def device_terms(self, config: Config) -> dict[str, Any]:
        """The terms that real devices behind a hub must have agreed to in order to answer for a run's parties.

        Returns:
            Attributes of :class:`fedrank.deploy.terms.Terms` and their values.

        Raises:
            ConfigError: No devices can.
        """
        raise ConfigError(f"no devices can answer for the parties of {config.protocol!r}; leave gateway out.")

    def values_here(self, config: Config, setting: str) -> list[Any] | None:
        """All values of a setting that the data on this machine allows, for a sweep over ``all``; None: no such list.

        Args:
            config: The other settings.
            setting: Its dotted name.
        """
        return None

    def folder_name(self, config: Config) -> str:
        """Name of a run's directory where none is given: what the run is about, in lower case with dashes."""
        return config.protocol
