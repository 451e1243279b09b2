"""From a configuration to silos that average models: their rows, their network, their protocol."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.core.protocol import Party, Protocol
from fedrank.data import load
from fedrank.engine.attackers import Conditions
from fedrank.silos.config import ALL, SILO_BASELINES, SiloRun
from fedrank.silos.data.reader import SiloReader
from fedrank.silos.data.splits import SiloArrays, Sizes, Standards, split_many, training_notes, undefined_auc
from fedrank.silos.data.tables import SiloTable
from fedrank.silos.party import Held, Parts, SiloProtocol

#: Range of a column of generated data.
_GENERATED_RANGE = (-3.0, 3.0)


@dataclass(frozen=True, eq=False)
class SiloExperiment:
    """Everything that a configuration of silos names, built.

    Attributes:
        config: The configuration, resolved.
        table: Rows of every silo.
        arrays: The same, divided and standardised: leading axes [seeds, silos].
        protocol: The protocol, for the first target.
        targets: Numbers of the silos that are measured; a bandit has a run for each.
        notes: What a reader must know about the data.
        undefined: A sentence for each silo whose AUC does not exist.
        conditions: What happens to replies.
    """

    config: SiloRun
    table: SiloTable = field(repr=False)
    arrays: SiloArrays = field(repr=False)
    protocol: Any
    targets: tuple[int, ...]
    notes: tuple[str, ...]
    undefined: tuple[str, ...]
    conditions: Conditions

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the silos, in order."""
        return tuple(self.table.names)

    @property
    def n_parties(self) -> int:
        """Number of simulated silos."""
        return self.table.n_silos

    @property
    def personalises_one(self) -> bool:
        """True if a run is for one target; other protocols personalise for all silos at once."""
        return self.protocol.for_one_target

    @property
    def targets_of_runs(self) -> Int[np.ndarray, " runs"]:
        """The target of each run; −1 where a run is for all silos."""
        seeds = len(self.config.all_seeds)
        return (
            np.repeat(self.targets, seeds).astype(np.int32) if self.personalises_one else np.full(seeds, -1, np.int32)
        )

    @property
    def seeds_of_runs(self) -> Int[np.ndarray, " runs"]:
        """The seed of each run; runs are ordered by target, then by seed."""
        times = len(self.targets) if self.personalises_one else 1
        return np.tile(self.config.all_seeds, times)

    @cached_property
    def parties(self) -> Party:
        """All silos with the first seed's division of rows: leaves of ``own`` are [silos, ...]."""
        return self.protocol.parties(self.arrays)

    def parties_of_runs(self) -> Party:
        """The same for all runs: leaves of ``own`` are [runs, silos, ...]."""
        return self.protocol.parties(self.arrays, self.seeds_of_runs - self.config.seed)

    @property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that this experiment rests on."""
        return tuple(dict.fromkeys(key for key in (*self.protocol.citations, self.table.citation) if key))


def build_silos(
    config: SiloRun,
    folder: str | os.PathLike[str] | None = None,
    *,
    protocol: Protocol | None = None,
    data: Any = None,
) -> SiloExperiment:
    """Load the rows and set up everything.

    Args:
        config: The configuration, resolved.
        folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.
        protocol: A protocol of the caller's own, instead of the one that the configuration names.
        data: Rows of the caller's own, instead of those that the configuration names, in any form that
            :func:`fedrank.data.load` takes.

    Raises:
        FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
    """
    for name in config.evaluation.baselines:
        if name not in SILO_BASELINES:
            raise UnknownNameError("baseline of silos", name, SILO_BASELINES, plug_ins=True)
    method = config.method if protocol is None else protocol
    if not isinstance(method, SiloProtocol):
        raise ConfigError(
            f"a protocol of silos must be a fedrank.silos.party.SiloProtocol, got {type(method).__name__}."
        )
    if method.sgd is None:  # settings alone, of which the configuration has the newest
        method = config.method
    table = load_table(config, folder, data)
    table = _large_enough(table, config)
    public = public_standards(config, table.feature_names)
    arrays = split_many(table, config.all_seeds, sizes(config), config.silos.stratified, public)
    targets, undefined = _targets(config, table, arrays)
    table, arrays, targets = method.hold(Held(table, arrays, targets))
    if method.sgd is None:
        parts = Parts(
            config,
            n_features=table.n_features,
            silos=table.n_silos,
            rows=arrays.train.n,
            most_rows=arrays.train.x.shape[-2],
            target=targets[0],
        )
        method = method.bind(parts)
    notes = [*table.notes, *training_notes(arrays, table.names)]
    if (privacy := config.record_privacy) is not None and method.sgd.draws_noise:
        notes.append(
            f"What crosses has noise: ε = {privacy.epsilon:g} of a record. Networks that train alone have none, as "
            "they stay where they are, nor have the simple baselines. A simulation takes columns and levels from the "
            "rows of all silos; where each silo has its own table they are agreed on before."
        )
    conditions = Conditions.of(config.devices)
    return SiloExperiment(config, table, arrays, method, targets, tuple(notes), undefined, conditions)


def public_standards(config: SiloRun, names: Sequence[str]) -> Standards | None:
    """Mean and deviation of columns by their public ranges, where a record has an ε; else None.

    Means of rows would depend on every record, and so would, by them, the gradient of every other one.

    Args:
        config: The run.
        names: Names of the columns.

    Raises:
        FedrankError: A column has no range, or one is of no column.
    """
    if (privacy := config.record_privacy) is None:
        return None
    from fedrank.silos.records.ranges import parse_ranges, standards_of

    given = parse_ranges(privacy.ranges)
    if config.data.lower() == "generated":
        given = dict.fromkeys(names, _GENERATED_RANGE) | given
    return standards_of(names, given)


def load_table(config: SiloRun, folder: str | os.PathLike[str] | None = None, data: Any = None) -> SiloTable:
    """The silos of a configuration, or of ``data``, without those that are excluded, with inverted labels if so set."""
    s = config.silos
    reader = SiloReader(settings=s, seed=config.data_seed)
    table = load(config.data if data is None else data, reader, folder=folder)
    for name in [table.names[table.index(name)] for name in s.exclude]:  # numbers are those of the whole table
        table = table.without(name)
    return table.with_inverted_labels(s.inverted) if s.inverted else table


def _large_enough(table: SiloTable, config: SiloRun) -> SiloTable:
    """The table without silos that have too few rows for their parts, with a note; never without the target.

    Where fewer than two would be left the table stays as it is, and dividing it says what is wrong.
    """
    asked = config.silos.target
    if asked.isdecimal() and asked not in table.names:
        return table  # numbers of silos would be others
    kept = {0 if asked == "" else table.index(asked)} if asked != ALL or ALL in table.names else set()
    small = []
    for number, silo in enumerate(table.silos):
        try:
            sizes(config).of(silo.n_rows, silo.name)
        except DataError:
            small.append(number)
    if not small or kept & set(small) or table.n_silos - len(small) < 2:
        return table
    names = [table.names[number] for number in small]
    said = tuple(
        f"Silo {name} was left out: its {table.silos[number].n_rows} rows are too few to train, choose and judge."
        for number, name in zip(small, names, strict=True)
    )
    left = tuple(silo for number, silo in enumerate(table.silos) if number not in small)
    return dataclasses.replace(table, silos=left, notes=(*table.notes, *said))


def sizes(config: SiloRun) -> Sizes:
    """Number of rows of each silo in each part."""
    s = config.silos
    if s.train is None:
        raise ConfigError("silos.train is open; sizes are those of a configuration that is resolved.")
    if s.train >= 1:
        return Sizes(int(s.train), s.vali)
    return Sizes(s.train, s.vali * (1 - s.train))


def _targets(config: SiloRun, table: SiloTable, arrays: SiloArrays) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Silos to personalise for, and sentences about those that cannot be: AUC needs both classes, for every seed."""
    asked = config.silos.target
    undefined = {} if config.silos.measure != "auc" else {u.silo: u.text for u in undefined_auc(arrays, table.names)}
    if asked == ALL and ALL not in table.names:
        targets = tuple(number for number in range(table.n_silos) if number not in undefined)
        if not targets:
            raise DataError(f"no silo can be judged by AUC: {' '.join(undefined.values())}")
        return targets, tuple(undefined.values())
    target = 0 if asked == "" else table.index(asked)
    if target in undefined:
        raise DataError(
            f"{undefined[target]} Choose another target, more rows (silos.train, silos.vali), silos.stratified, or "
            "silos.measure = 'log-loss'."
        )
    return (target,), tuple(undefined.values())
