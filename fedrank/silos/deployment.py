"""Silos over a network: a server without rows, and nodes that are one silo with a table of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import DELTA
from fedrank.core.protocol import Party
from fedrank.core.trees import Json
from fedrank.data.sources import is_known
from fedrank.engine.deployment import Block, HeldParties, NodeSettings, ServerSide, hash_of, part_of
from fedrank.engine.model import provenance
from fedrank.engine.run_folder import RunFolder
from fedrank.silos.build import SiloExperiment, build_silos
from fedrank.silos.config import SilosConfig
from fedrank.silos.model import SiloModel
from fedrank.silos.own_table import own_rows, refuse_undefined, stand_in


class SilosServer(ServerSide):
    """The server of a run of silos; it has no silo's rows to measure models with.

    Args:
        config: Settings of the run, resolved.
        experiment: The run, with the rows of a known set or of a stand-in.
    """

    config: SilosConfig

    def __init__(self, config: SilosConfig, experiment: SiloExperiment):
        super().__init__(config, experiment.protocol, experiment.parties, experiment.n_parties)
        self._experiment = experiment

    @override
    def write_models(self, home: RunFolder, state: PyTree) -> None:
        experiment, protocol, seed = self._experiment, self._experiment.protocol, self.config.seed
        # Weights that are not sent are the silo's own; here they are those of a fresh network.
        fresh = jax.tree.map(lambda leaf: leaf[experiment.targets[0]], experiment.parties.own)
        weights = protocol.weights(state)
        best = getattr(state, "best_weights", weights)
        for name, model in (("", best), (f"seed{seed}-last", weights)):
            if np.shape(model) == (protocol.parameters,):  # a method with several models has none for all silos
                numbers = np.asarray(protocol.whole_model(model, fresh), np.float32)
                home.model(self._model(numbers, int(state.round)), seed, name)

    def _model(self, weights: Float32[np.ndarray, " size"], rounds: int) -> SiloModel:
        """A model without mean and deviation of its inputs, which each silo has of its own rows."""
        experiment, config = self._experiment, self.config
        table, known = experiment.table, is_known(config.data, config.task)
        about = provenance(
            config,
            data=config.data,
            generated=known and table.generated,
            seed=config.seed,
            rounds=rounds,
            privacy=experiment.protocol.account(rounds, DELTA),
        )
        # Silos that have tables of their own do not tell the server the names of their columns.
        described: dict[str, Json] = (
            {"names": table.feature_names, "coding": table.coding, "label": table.label} if known else {}
        )
        return SiloModel(experiment.protocol.network, weights, **described, about=about)


def silos_server(config: SilosConfig, n_features: int = 0) -> SilosServer:
    """The server's side of a run.

    Args:
        config: The run, resolved.
        n_features: Features of a row where each silo has a table of its own; 0: the server has the run's known set.

    Raises:
        FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
    """
    made = stand_in(config, n_features) if n_features else build_silos(config)
    if made.personalises_one and len(made.targets) > 1:
        raise ConfigError('over a network a run is for one silo; name it: silos-target = "0".')
    return SilosServer(config, made)


def silos_node(config: SilosConfig, settings: NodeSettings) -> HeldParties:
    """A silo with its own table; or silos of a known set, of which a node then has everybody's rows: for tests.

    Raises:
        ConfigError: The run leaves no place for this node.
        DataError: The table cannot be used.
    """
    known = is_known(config.data, config.task)
    if known == bool(settings.data):
        raise ConfigError(
            f"the run's data is {config.data!r}, "
            + ("which leaves no place for this node's own table." if known else "and this node has no table.")
            + ' A run in which silos have tables of their own says data = "own"; their SuperNodes are started with '
            "--node-config 'data=\"/its/own/table.csv\"'."
        )
    if not settings.data:
        whole = build_silos(config, settings.data_folder or None)
        numbers = settings.block(whole.n_parties)
        return HeldParties(config, settings, Block(whole.protocol, part_of(whole.parties, numbers), numbers))
    number = settings.partition_id
    if settings.num_partitions != config.silos.count:
        raise ConfigError(
            f"the run has {config.silos.count} silos (silos-count), this node is one of {settings.num_partitions} "
            "(num-partitions). Where silos have tables of their own, each is one node."
        )
    arrays, names = own_rows(Path(settings.data).expanduser(), config)
    whole = stand_in(config, len(names))
    protocol = dataclasses.replace(whole.protocol, most_rows=arrays.train.x.shape[-2])
    if getattr(protocol, "target", None) == number and protocol.measure == "auc":
        refuse_undefined(arrays, "of the target")
    own = jax.tree.map(lambda leaf: leaf[number : number + 1], whole.parties.own)
    zero = np.zeros(1, np.int32)  # the only rows there are
    parties = Party(jax.tree.map(jnp.asarray, arrays), own._replace(number=zero, split=zero))
    return HeldParties(config, settings, Block(protocol, parties, range(number, number + 1), hash_of(names)))
