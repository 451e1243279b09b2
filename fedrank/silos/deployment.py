"""Silos over a network: a server without rows, and nodes that are one silo with a table of its own."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.native import mapped
from fedrank.core.protocol import Party
from fedrank.core.rng import INIT
from fedrank.core.streams import folded, run_words
from fedrank.core.trees import Json
from fedrank.data.sources import is_known
from fedrank.engine.deployment import (
    Block,
    HeldParties,
    NodeSettings,
    ServerSide,
    SetupSide,
    delta_of,
    hash_of,
    part_of,
)
from fedrank.engine.model import provenance
from fedrank.engine.run_folder import RunFolder
from fedrank.silos.build import SiloExperiment, build_silos, public_standards
from fedrank.silos.config import SilosConfig
from fedrank.silos.data.coding import Coding
from fedrank.silos.first_look import FirstLook
from fedrank.silos.first_look.simulated import look_of
from fedrank.silos.model import SiloModel
from fedrank.silos.own_table import own_rows, read_table, refuse_undefined, stand_in
from fedrank.silos.private_sgd import PrivateSgd
from fedrank.silos.records.ranges import parsed
from fedrank.silos.sceptic.rows import Own, rows_of

_log = logging.getLogger("fedrank.silos")


class SilosServer(ServerSide):
    """The server of a run of silos; it has no silo's rows to measure models with.

    Args:
        config: Settings of the run, resolved.
        experiment: The run, with the rows of a known set or of a stand-in.
    """

    config: SilosConfig

    def __init__(self, config: SilosConfig, experiment: SiloExperiment):
        look = look_of(config, experiment) if config.silos.first_look else None
        super().__init__(config, experiment.protocol, experiment.parties, experiment.n_parties, look)
        self._experiment = experiment

    @override
    def state(self) -> PyTree:
        words = folded(run_words([self.config.seed])[0], INIT)
        return self.protocol.init(words)

    @override
    def write_setup(self, home: RunFolder, state: PyTree) -> None:
        looked = state.looked.named(self._experiment.names)
        home.json("first_look.json", {looked["target"]: looked})
        for said in looked["warnings"]:
            _log.warning("look at this first: %s", said)

    @override
    def write_models(self, home: RunFolder, state: PyTree) -> None:
        experiment, protocol, seed = self._experiment, self._experiment.protocol, self.config.seed
        # Weights that are not sent are the silo's own; here they are those of a fresh network.
        fresh = experiment.parties.own.model[experiment.targets[0]]
        weights = protocol.weights(state)
        best = getattr(state, "best_weights", weights)
        for name, model in (("", best), (f"seed{seed}-last", weights)):
            if np.shape(model) == (protocol.parameters,):  # a method with several models has none for all silos
                numbers = np.asarray(protocol.whole_model(model, fresh), np.float32)
                home.model(self._model(numbers, int(state.round)), seed, name)

    def _model(self, weights: Float32[np.ndarray, " size"], rounds: int) -> SiloModel:
        """A model of what the server knows of its inputs.

        With a record's ε they are scaled by public ranges, which the model keeps; else each silo has mean and deviation
        of its own rows, and the model none.
        """
        experiment, config = self._experiment, self.config
        table, known = experiment.table, is_known(config.data, config.task)
        about = provenance(
            config,
            data=config.data,
            generated=known and table.generated,
            seed=config.seed,
            rounds=rounds,
            privacy=experiment.protocol.account(rounds, delta_of(config)),
        )
        # Silos that have tables of their own do not tell the server the names of their columns.
        described: dict[str, Json] = (
            {"names": table.feature_names, "coding": table.coding, "label": table.label} if known else {}
        )
        if config.record_privacy is not None:
            described |= _by_ranges(config, table.feature_names if known else ())
        return SiloModel(experiment.protocol.network, weights, **described, about=about)


def _by_ranges(config: SilosConfig, names: Sequence[str]) -> dict[str, Any]:
    """What a model of a run with a record's ε knows of its inputs, as arguments of :class:`SiloModel`.

    Args:
        config: The run.
        names: Names of the columns of a known set; empty: silos have tables of their own, whose columns the ranges
            name.
    """
    own: dict[str, Any] = {}
    if not names:
        names = sorted(parsed(config.record_privacy.ranges)) if config.record_privacy else ()
        coding = Coding(label=config.silos.label, positive=config.silos.positive or "1")
        own = {"names": tuple(names), "coding": coding, "label": f"{coding.label} = {coding.positive}"}
    public = public_standards(config, names)
    assert public is not None  # there is privacy
    return {**own, "mean": public[0], "deviation": public[1]}


def _refuse_unknown_columns(config: SilosConfig, n_features: int) -> None:
    """Refuse ranges that do not name every column of the silos' tables, as the model must know them all.

    Raises:
        ConfigError: Says how many there are.
    """
    if config.record_privacy is None:
        return
    ranges = parsed(config.record_privacy.ranges)
    if len(ranges) != n_features:
        raise ConfigError(
            f"privacy-ranges are of {len(ranges)} columns, and rows have {n_features} features (n-features). Where "
            "each silo has its own table, the ranges tell the model its columns: give one of each, of a column of 0 "
            "and 1 as well, such as sex_m=0:1."
        )


def silos_server(config: SilosConfig, n_features: int = 0) -> SilosServer:
    """The server's side of a run.

    Args:
        config: The run, resolved.
        n_features: Features of a row where each silo has a table of its own; 0: the server has the run's known set.

    Raises:
        FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
    """
    if n_features:
        _refuse_unknown_columns(config, n_features)
    made = stand_in(config, n_features) if n_features else build_silos(config)
    if made.personalises_one and len(made.targets) > 1:
        raise ConfigError('over a network a run is for one silo; name it: silos-target = "0".')
    return SilosServer(config, made)


class LookSide(SetupSide):
    """A silo's part in the first look.

    Args:
        look: The protocol.
        number: The silo's number.
        own: All of its rows.
    """

    # The sums have no noise: to send them once more tells nothing new.
    max_shown, first_shown = math.inf, 10**6

    def __init__(self, look: FirstLook, number: int, own: Own):
        self.protocol = self._look = look
        self._number, self._own = number, own

    @override
    def party(self) -> Party:
        return self._look.party(self._own, self._number)

    @override
    def draws(self, exchange: int) -> PyTree:
        return None

    @override
    def keeps(self, name: str) -> bool:
        return name == "number"


class SiloHeld(HeldParties):
    """A node of one silo that takes part in a first look; arguments as of :class:`HeldParties`, and all its rows."""

    def __init__(self, config: SilosConfig, settings: NodeSettings, held: Block, look: FirstLook, own: Own):
        super().__init__(config, settings, held)
        self.setup = LookSide(look, held.numbers.start, own)


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
        held = Block(whole.protocol, part_of(whole.parties, numbers), numbers)
        if not config.silos.first_look:
            return HeldParties(config, settings, held)
        if len(numbers) != 1:
            raise ConfigError("silos-first-look: each silo is one node; start as many SuperNodes as there are silos.")
        return SiloHeld(config, settings, held, look_of(config, whole), rows_of(whole.table)[numbers.start])
    number = settings.partition_id
    if settings.num_partitions != config.silos.count:
        raise ConfigError(
            f"the run has {config.silos.count} silos (silos-count), this node is one of {settings.num_partitions} "
            "(num-partitions). Where silos have tables of their own, each is one node."
        )
    arrays, names = own_rows(Path(settings.data).expanduser(), config)
    whole = stand_in(config, len(names))
    protocol = dataclasses.replace(whole.protocol, most_rows=arrays.train.x.shape[-2])
    if isinstance(sgd := protocol.sgd, PrivateSgd):
        protocol = dataclasses.replace(
            protocol, sgd=dataclasses.replace(sgd, elsewhere=False).for_rows({protocol.most_rows})
        )
    judged = getattr(protocol, "target", None) == number and protocol.measure == "auc"
    if judged and config.record_privacy is None:  # with an ε a refusal would tell of a record's label
        refuse_undefined(arrays, "of the target")
    own = mapped(lambda leaf: leaf[number : number + 1], whole.parties.own)
    zero = np.zeros(1, np.int32)  # the only rows there are
    parties = Party(arrays, own._replace(number=zero, split=zero))
    held = Block(protocol, parties, range(number, number + 1), hash_of(names))
    if config.silos.first_look:
        silo, _ = read_table(Path(settings.data).expanduser(), config.silos)
        rows = Own(silo.features.astype(float), silo.labels.astype(float))
        side = SiloHeld(config, settings, held, look_of(config, whole), rows)
    else:
        side = HeldParties(config, settings, held)
    side.content = hash_of([np.asarray(leaf).tobytes().hex() for rows in arrays for leaf in rows]).hex()
    return side
