"""From a configuration to silos that average models: their rows, their network, their protocol."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.core.protocol import Party
from fedrank.engine.simulator import Conditions
from fedrank.experiments.config import RunConfig
from fedrank.experiments.protocols import PROTOCOLS
from fedrank.silos.bandit_fedavg import BanditFedAvg
from fedrank.silos.bandits.rules import Rule, make_rule
from fedrank.silos.config import SILO_BASELINES
from fedrank.silos.data.load import load_silos
from fedrank.silos.data.splits import SiloArrays, Sizes, pooled, split_many, training_notes, undefined_auc
from fedrank.silos.data.tables import SiloTable
from fedrank.silos.fedfomo import FedFomo
from fedrank.silos.ifca import Ifca
from fedrank.silos.leave_one_out import LeaveOneOut
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork
from fedrank.silos.party import SiloProtocol
from fedrank.silos.personalised import Apfl, Ditto, FedAvg, FineTuned, LocalOnly, Pooled

#: E-value, times the number of silos, at which one is left out for good: a wrong one in 20 runs at most.
_DROPPED = 20.0
#: Clusters where no number is given.
MOST_CLUSTERS = 8

#: What a run can be for: every silo, one after the other.
ALL = "all"


@dataclass(frozen=True, eq=False)
class SiloExperiment:
    """What a configuration of silos names.

    Attributes:
        config: The configuration, resolved.
        table: Every silo's rows.
        arrays: The same, divided and standardised: leading axes [seeds, silos].
        protocol: The protocol, for the first target.
        targets: Numbers of the silos that are measured; a bandit has a run for each.
        notes: What a reader must know about the data.
        undefined: Silos of which AUC does not exist, a sentence each.
        conditions: What happens to replies.
    """

    config: RunConfig
    table: SiloTable = field(repr=False)
    arrays: SiloArrays = field(repr=False)
    protocol: SiloProtocol
    targets: tuple[int, ...]
    notes: tuple[str, ...]
    undefined: tuple[str, ...]
    conditions: Conditions

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the silos."""
        return tuple(self.table.names)

    @property
    def n_parties(self) -> int:
        """How many silos there are."""
        return self.table.n_silos

    @property
    def personalises_one(self) -> bool:
        """Whether a run is for one target; other protocols personalise for all silos at once."""
        return isinstance(self.protocol, BanditFedAvg)

    @property
    def targets_of_runs(self) -> np.ndarray:
        """int32 [runs]: the target of each run; of a protocol that personalises for all, −1 a seed."""
        seeds = len(self.config.all_seeds)
        return (
            np.repeat(self.targets, seeds).astype(np.int32) if self.personalises_one else np.full(seeds, -1, np.int32)
        )

    @property
    def seeds_of_runs(self) -> np.ndarray:
        """int64 [runs]: the seed of each run; targets outside, seeds inside."""
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
        crossing = {"local": "li2021fedbn", "head-local": "arivazhagan2019fedper"}
        keys = (
            PROTOCOLS.entry(self.config.protocol).citation,
            "mcmahan2017fedavg",
            crossing.get(self.config.network.crossing, ""),
            self.table.citation,
            "raj2017discounted" if self.personalises_one and self.config.bandit.gamma < 1 else "",
            "waudbysmith2024betting" if isinstance(self.protocol, LeaveOneOut) else "",
        )
        return tuple(dict.fromkeys(key for key in keys if key))


def build_silos(config: RunConfig, folder: str | os.PathLike[str] | None = None) -> SiloExperiment:
    """Load the rows and set up everything.

    Args:
        config: The configuration, resolved.
        folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.

    Raises:
        FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
    """
    for name in config.evaluation.baselines:
        if name not in SILO_BASELINES:
            raise UnknownNameError("baseline of silos", name, SILO_BASELINES)
    table = load_table(config, folder)
    arrays = split_many(table, config.all_seeds, sizes(config), config.silos.stratified)
    sgd = LocalSgd(
        network=TabularNetwork(table.n_features, config.network.widths, config.network.norm, config.network.momentum),
        epochs=config.network.epochs,
        batch=config.network.batch,
        learning_rate=config.learning_rate,  # type: ignore[arg-type] - resolved
        weight_decay=config.network.weight_decay,
    )
    targets, undefined = _targets(config, table, arrays)
    first, *others = targets
    if config.protocol == "pooled":
        if others:
            raise ConfigError("pooled learns from the rows of all for one silo; name it as silos.target.")
        arrays = pooled(arrays, first)
        table = dataclasses.replace(table, silos=(table.silos[first],))
        first, targets = 0, (0,)
    common = dict(
        sgd=sgd,
        silos=table.n_silos,
        most_rows=arrays.train.x.shape[-2],
        crossing=config.network.crossing,
        measure=config.silos.measure,
    )
    protocol = _PROTOCOLS[config.protocol](config, common, first)
    notes = (*table.notes, *training_notes(arrays, table.names))
    conditions = Conditions(dropout=config.devices.dropout)
    return SiloExperiment(config, table, arrays, protocol, targets, notes, undefined, conditions)


def load_table(config: RunConfig, folder: str | os.PathLike[str] | None = None) -> SiloTable:
    """The silos of a configuration, without those that are excluded, labels turned round where asked."""
    s = config.silos
    table = load_silos(
        config.data,
        folder=folder,
        seed=config.data_seed,
        silos=s.count,
        rows=s.rows,
        gaps=s.gaps,
        silo=s.silo,
        label=s.label,
        positive=s.positive,
        drop=s.drop,
        categorical=s.categorical,
    )
    for name in [table.names[table.index(name)] for name in s.exclude]:  # numbers are those of the whole table
        table = table.without(name)
    return table.with_inverted_labels(s.inverted) if s.inverted else table


def sizes(config: RunConfig) -> Sizes:
    """How many rows go where."""
    s = config.silos
    if s.train >= 1:
        return Sizes(int(s.train), s.vali, "rest")
    return Sizes(s.train, s.vali * (1 - s.train), "rest")


def rule_of(config: RunConfig) -> Rule:
    """The decision rule of a configuration."""
    b = config.bandit
    return make_rule(
        b.rule,
        epsilon=b.epsilon,
        c=b.c,
        alpha=b.alpha,
        gamma=b.gamma,
        threshold=b.threshold,
        initial=b.initial,
        every=b.every,
        chance=b.chance,
        fixed=b.fixed,
    )


def _targets(config: RunConfig, table: SiloTable, arrays: SiloArrays) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Who is personalised for, and who cannot be: AUC needs both classes, in every seed's division."""
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


def _bandit(config: RunConfig, common: dict, target: int) -> BanditFedAvg:
    b = config.bandit
    return BanditFedAvg(
        **common,
        rule=rule_of(config),
        target=target,
        arms=b.arms,
        alone=b.alone,
        clusters=b.clusters or min(MOST_CLUSTERS, common["silos"] - 1),
        delayed=b.delayed,
        against=b.against,
        target_weight=b.target_weight,
        pretrain=b.pretrain,
        probe=b.probe,
        patience=b.patience,
    )


def _leave_one_out(config: RunConfig, common: dict, target: int) -> LeaveOneOut:
    return LeaveOneOut(**common, evidence=config.personal.evidence or _DROPPED * common["silos"])


def _crossing(common: dict, crossing: str) -> dict:
    """The same with what a method is about; another choice of what crosses would be another method."""
    if common["crossing"] not in ("average", crossing):
        raise ConfigError(f"network.crossing = {common['crossing']!r} does not go with this method; leave it out.")
    return {**common, "crossing": crossing}


_PROTOCOLS: dict[str, Callable[[RunConfig, dict, int], SiloProtocol]] = {
    "bandit-fedavg": _bandit,
    "fedavg": lambda config, common, target: FedAvg(**common),
    "fedavg-finetune": lambda config, common, target: FineTuned(**common),
    "fedper": lambda config, common, target: FedAvg(**_crossing(common, "head-local")),
    "fedbn": lambda config, common, target: FedAvg(**_crossing(common, "local")),
    "ditto": lambda config, common, target: Ditto(**common, pull=config.personal.pull),
    "apfl": lambda config, common, target: Apfl(
        **common, share=config.personal.share, adaptive=config.personal.adaptive
    ),
    "fedfomo": lambda config, common, target: FedFomo(
        **common, downloads=config.personal.downloads, epsilon=config.personal.explore
    ),
    "ifca": lambda config, common, target: Ifca(**common, clusters=config.personal.clusters),
    "leave-one-out": _leave_one_out,
    "local-only": lambda config, common, target: LocalOnly(**common),
    "pooled": lambda config, common, target: Pooled(**common),
}
