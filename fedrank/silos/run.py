"""Runs in which silos average models: what is measured and written.

Beside the files of every run (:mod:`fedrank.engine.run_folder`; ``interactions`` are messages here)::

    silos.json       names, targets, arms, rows, notes for the reader
    arms.parquet     long form: seed, target, round, arm, code, played, explored, increment, estimate
    crossed.parquet  long form: seed, target, round, exchange, requests, replies
    evidence.json    who helped whom, of each target (see :mod:`fedrank.silos.evidence`)
    first_look.json  who helps and who harms, from one division, of each target (where ``silos.first_look``)
    sceptic.json     simple baselines, on the same rows (see :mod:`fedrank.silos.evidence`)
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.frame import Frame
from fedrank.core.ledger import Ledger
from fedrank.core.native import map_trees
from fedrank.core.trees import Json
from fedrank.engine.model import provenance
from fedrank.engine.native import NativeSimulator
from fedrank.engine.progress import Listener
from fedrank.engine.run_folder import SCHEMA, RunFolder
from fedrank.engine.runner import Runner
from fedrank.silos.bandits import rules as sets
from fedrank.silos.baselines import SiloBaseline, run_baselines
from fedrank.silos.build import SiloExperiment, public_standards, sizes
from fedrank.silos.config import ALL, SiloRun
from fedrank.silos.data.splits import standards
from fedrank.silos.evidence import against, evidence, sceptics_rows, with_differences
from fedrank.silos.model import SiloModel
from fedrank.silos.party import CROSSINGS
from fedrank.silos.report.files import ARMS, CROSSED
from fedrank.silos.rounds import SiloEvaluator, begin_runs, models_of_runs

#: Suffix of a measure's name for each model of :meth:`SiloProtocol.models`.
MODELS = {"last": "", "best": ", best so far", "refit": ", refit"}

#: Share of rounds without any observation up to which no note is written; late rewards are missing in the first.
_SILENT = 0.1


class SiloRunner(Runner):
    """A run of a :class:`SiloExperiment`; arguments as :class:`Runner` has them."""

    config: SiloRun

    def __init__(self, experiment: SiloExperiment, home: RunFolder, listener: Listener):
        config = experiment.config
        runs = len(experiment.targets_of_runs)
        compute, chunk = config.compute, max(1, config.compute.chunk // runs)
        parties = experiment.parties_of_runs()
        rounds = NativeSimulator(experiment.protocol, parties, chunk, experiment.conditions, compute.debug)
        super().__init__(config, home, listener, rounds, int(np.sum(np.asarray(experiment.arrays.train.n)[0])))
        self.experiment, self.data, self.parties = experiment, experiment.table, parties
        self.shared = parties.shared  # the rows of all silos, divided for every seed
        # The silos that each run is measured for: its target, or all targets where a run is for all silos.
        own = experiment.targets_of_runs
        self.measured_for = own[:, None] if experiment.personalises_one else np.tile(experiment.targets, (runs, 1))
        divisions = experiment.seeds_of_runs - config.seed
        self.evaluator = SiloEvaluator(experiment.protocol, experiment.arrays, divisions, self.measured_for)
        self.arms: list[Frame] = []
        self.crossed: list[Frame] = []
        self.messages = np.zeros((runs, 2), np.int64)  # by run: number of messages, and bytes that silos sent
        self.probe: np.ndarray | None = None
        self.baselines: list[SiloBaseline] | None = None

    @property
    def runs(self) -> int:
        """Number of runs: targets times seeds."""
        return len(self.experiment.targets_of_runs)

    def start(self) -> tuple[PyTree, PyTree, PyTree]:
        """As :meth:`Runner.start`; all targets of a seed have that seed's key."""
        if self.config.silos.first_look:
            from fedrank.silos.first_look import first_looks

            looks = first_looks(self.experiment)
            self.home.json("first_look.json", looks)
            for said in (said for look in looks.values() for said in look["warnings"]):
                self.listener.stage(f"Look at this first: {said}")
        e = self.experiment
        return *begin_runs(e.protocol, e.seeds_of_runs, e.targets_of_runs), self.parties.own

    def _names(self, run: int) -> tuple[int, str]:
        target = self.experiment.targets_of_runs[run]
        return int(self.experiment.seeds_of_runs[run]), self.experiment.names[target] if target >= 0 else ""

    @override
    def note(self, done: int, seen: dict[str, Any]) -> tuple[str, float]:
        exchanges, watched = self.experiment.protocol.exchanges, seen.get("watched", {})
        everybody = (1, self.runs, len(exchanges), 2)
        crossed = seen.get("crossed", np.full(everybody, self.experiment.n_parties))
        up = np.array([exchange.reply.nbytes for exchange in exchanges])
        shown = "round", float(done + len(crossed))
        for i, row in enumerate(np.asarray(crossed)):
            self.messages[:, 0] += row.sum(axis=(1, 2))
            self.messages[:, 1] += row[..., 1] @ up
            self.crossed.append(
                Frame.of_rows(
                    (
                        (*self._names(run), done + i, exchange.name, int(requests), int(replies))
                        for run in range(self.runs)
                        for exchange, (requests, replies) in zip(exchanges, row[run], strict=True)
                        if requests or replies
                    ),
                    CROSSED,
                )
            )
            if self.experiment.personalises_one:
                now = {name: np.asarray(values)[i] for name, values in watched.items()}
                self._note_arms(done + i, now, live=row.any(axis=(1, 2)))
                played = np.take_along_axis(now["increments"], now["arm"][:, None], axis=1)[:, 0]
                self.frames.append(self._rows(done + i + 1, "online", {"increment": played[:, None]}))
                shown = "increment", float(np.nanmean(played)) if np.isfinite(played).any() else float("nan")
        return shown

    def _note_arms(self, round_: int, now: dict[str, np.ndarray], live: np.ndarray) -> None:
        for run in range(self.runs):
            # A run that has stopped asks no silo, and plays nothing.
            played = (np.arange(now["members"].shape[1]) == now["arm"][run]) & live[run]
            arms = zip(now["members"][run], played, now["increments"][run], now["estimates"][run], strict=True)
            common, explored = (*self._names(run), round_), bool(now["explored"][run])
            self.arms.append(
                Frame.of_rows(
                    (
                        (*common, arm, sets.code(row), bool(here), explored, float(increment), float(estimate))
                        for arm, (row, here, increment, estimate) in enumerate(arms)
                    ),
                    ARMS,
                )
            )
        self.probe = now.get("probe", self.probe)

    def _rows(self, round_: int, split: str, values: dict[str, np.ndarray]) -> Frame:
        """Rows of ``metrics.parquet`` from values [runs, targets] by measure; only finite values are kept."""
        several = self.config.silos.target == ALL
        out = []
        for measure, runs in values.items():
            for run, row in enumerate(np.asarray(runs, float)):
                for target, value in zip(self.measured_for[run], row, strict=False):
                    if np.isfinite(value):
                        name = f"{measure} ({self.experiment.names[target]})" if several else measure
                        seed = int(self.experiment.seeds_of_runs[run])
                        sent = self.messages[run]
                        out.append((seed, round_, int(sent[0]), int(sent[1]), None, split, name, float(value)))
        return Frame.of_rows(out, SCHEMA)

    def _models(self, states: PyTree, own: PyTree) -> dict[str, np.ndarray]:
        """:func:`models_of_runs` of this run's states."""
        return models_of_runs(self.experiment.protocol, states, self.shared, own, self.measured_for)

    def performances(self, states: PyTree, own: PyTree) -> dict[str, Float[np.ndarray, "runs targets"]]:
        """The performance of the models of all runs for their targets, as :class:`SiloEvaluator` has them."""
        return self.evaluator(self._models(states, own))

    @override
    def evaluate(self, states: PyTree, own: PyTree, done: int) -> None:
        measure = self._measure
        sign = -1.0 if measure == "log-loss" else 1.0
        for key, values in self.performances(states, own).items():
            part, name = key.split(": ")
            if (part, name) == ("vali", "refit"):  # it was fitted to these rows
                continue
            self.frames.append(self._rows(done, part, {measure + MODELS.get(name, f", {name}"): sign * values}))

    @property
    def _measure(self) -> str:
        return {"auc": "AUC", "log-loss": "log-loss"}[self.experiment.protocol.measure]

    def restore(self, done: int) -> None:
        """As :meth:`Runner.restore`; arms and messages, too."""
        super().restore(done)
        arms, crossed = (self.home.read_table(f"{n}.parquet", s) for n, s in (("arms", ARMS), ("crossed", CROSSED)))
        self.arms, self.crossed = [arms[arms["round"] < done]], [crossed[crossed["round"] < done]]
        self.messages = self._count_messages()

    def _count_messages(self) -> Int[np.ndarray, "runs 2"]:
        """Number of messages, and of bytes that silos sent, of every run so far, from ``crossed``."""
        up = {exchange.name: exchange.reply.nbytes for exchange in self.experiment.protocol.exchanges}
        out = np.zeros((self.runs, 2), np.int64)
        places = {self._names(run): run for run in range(self.runs)}
        for seed, target, _, exchange, requests, replies in Frame.concat(self.crossed).tuples():
            out[places[seed, target]] += requests + replies, replies * up[exchange]
        return out

    def keep(self) -> None:
        """As :meth:`Runner.keep`; arms and messages, too."""
        super().keep()
        for name, schema, parts in (("arms", ARMS, self.arms), ("crossed", CROSSED, self.crossed)):
            frame = Frame.concat(parts) if parts else Frame.of_rows([], schema)
            parts[:] = [frame]
            self.home.table(f"{name}.parquet", frame)

    @override
    def write_known(self) -> None:
        e, c = self.experiment, self.config
        network = e.protocol.net
        self.write_environment()
        self.home.json(
            "model.json",
            {
                "network": f"{network.n_features}-{'-'.join(map(str, network.widths))}-2, {network.norm} norm",
                "n_features": network.n_features,
                "parameters": network.size,
                "crossing_parameters": e.protocol.parameters,
                "data": e.table.name,
                "generated": e.table.generated,
                "notes": list(e.notes),
                "features": list(e.table.feature_names),
            },
        )
        first = map_trees(lambda leaf: np.asarray(leaf)[0], e.arrays)
        self.home.json(
            "silos.json",
            {
                "silos": list(e.names),
                "targets": [e.names[target] for target in e.targets],
                "label": e.table.label,
                "rule": e.protocol.rule_name,
                "arms": self._arm_names() if e.personalises_one else {},
                "rows": {
                    silo.name: {
                        **{part: int(getattr(first, part).n[i]) for part in ("train", "vali", "test")},
                        "positive": silo.positive / silo.n_rows,
                    }
                    for i, silo in enumerate(e.table.silos)
                },
                "generated": e.table.generated,
                "inverted": c.silos.inverted or None,
                "notes": list(e.notes),
                "undefined": list(e.undefined),
            },
        )
        if c.evaluation.baselines:
            self.listener.stage("Training alone and with all silos, to compare with")
        self.baselines = run_baselines(e, c.evaluation.baselines)
        self.home.json(
            "baselines.json", {"baselines": [baseline.as_json(self._measure) for baseline in self.baselines]}
        )

    def _arm_names(self) -> dict[str, list[dict[str, Json]]]:
        e = self.experiment
        if e.protocol.bandit.arms == "clusters":  # they are told by what the silos send
            return {}
        return {
            e.names[target]: [
                {"code": sets.code(row), "name": sets.name(row, e.names, target), "members": row.tolist()}
                for row in np.asarray(sets.members_of(e.protocol.table, target, e.n_parties))
            ]
            for target in e.targets
        }

    @override
    def write_crossed(self, done: int) -> None:
        # The ledger is of the first run; crossed.parquet has all.
        exchanges = {exchange.name: exchange for exchange in self.experiment.protocol.exchanges}
        ledger = Ledger()
        seed, target = self._names(0)
        frame = Frame.concat(self.crossed) if self.crossed else Frame.of_rows([], CROSSED)
        mine = frame.where(seed=seed, target=target)
        for _, _, round_, name, requests, replies in mine.tuples():
            exchange = exchanges[name]
            ledger.record(round_, name, exchange.request, sender="server", messages=requests)
            ledger.record(round_, name, exchange.reply, sender="parties", messages=replies)
        self.write_messages(done, ledger)

    @override
    def write_results(self, states: PyTree, own: PyTree, seconds: float, rate: float | None) -> None:
        e = self.experiment
        # Of a run that goes on they are trained again: baselines.json has their means only.
        known = run_baselines(e, self.config.evaluation.baselines) if self.baselines is None else self.baselines
        final = self.performances(states, own)
        if self.config.evaluation.sceptic:
            self.listener.stage("Fitting simple baselines")
            self.home.json("sceptic.json", with_differences(e, final, sceptics_rows(e)))
        report = evidence(e, self.arms[0], self.probe) if e.personalises_one else {}
        for target, differences in against(e, final, known).items():
            report.setdefault(target, {})["against"] = differences
        self.home.json("evidence.json", report)
        self._write_models(states, own)
        notes: list[Json] = [*e.undefined, *self._silent_rounds()]
        self.write_environment(seconds=round(seconds, 3), rows_per_second=rate, notes=notes)

    def _silent_rounds(self) -> list[str]:
        """A note where nothing could be compared in many rounds although no silo dropped out."""
        frame = self.arms[0] if self.arms else None
        if frame is None or not len(frame) or self.config.devices.dropout:
            return []
        rounds = [rows for _, rows in frame.groups("seed", "target", "round")]
        silent = sum(rows["played"].any() and bool(np.isnan(rows["increment"]).all()) for rows in rounds)
        share = silent / len(rounds)
        if share <= _SILENT:
            return []
        return [
            f"In {share:.0%} of the rounds nothing could be compared: training diverged (a lower learning_rate helps), "
            "or what models are judged by is undefined"
        ]

    def _write_models(self, states: PyTree, own: PyTree) -> None:
        """Write the model that each target would keep: fitted to all rows, else best on validation rows, else last."""
        models = self._models(states, own)
        kept = next(name for name in ("refit", "best", "last") if name in models)
        e = self.experiment
        for run in range(self.runs):
            seed = int(e.seeds_of_runs[run])
            for i, target in enumerate(self.measured_for[run].tolist()):
                # A name comes from the user's file and must not lead out of the folder.
                slug = re.sub(r"[^a-z0-9]+", "-", e.names[target].lower()).strip("-")
                name = f"{target}-{slug}-seed{seed}" if len(e.targets) > 1 else ""
                self.home.model(silo_model(e, models[kept][run, i], seed, target), seed, name)


def silo_model(
    experiment: SiloExperiment,
    weights: Float32[np.ndarray, " size"],
    seed: int,
    target: int,
) -> SiloModel:
    """The model of a finished run for a silo, with everything that scoring needs.

    Args:
        experiment: The run.
        weights: The network's numbers, as the silo uses them.
        seed: Seed of the run.
        target: Number of the silo.
    """
    e, c, network = experiment, experiment.config, experiment.protocol.net
    # Of pooled rows, too: the target's own rows are standardised by the target's own training rows.
    public = public_standards(c, e.table.feature_names)
    mean, deviation = standards(e.table, seed, sizes(c), c.silos.stratified, target) if public is None else public
    recalibrated = CROSSINGS[e.protocol.crossing].recalibrates
    about = provenance(
        c,
        data=e.table.name,
        generated=e.table.generated,
        seed=seed,
        privacy=e.protocol.account(c.rounds, c.delta),
    )
    return SiloModel(
        network=network,
        weights=weights,
        mean=mean,
        deviation=deviation,
        statistics=weights[network.trainable :] if recalibrated else None,
        names=e.table.feature_names,
        coding=e.table.coding,
        label=e.table.label,
        tells_standards=e.protocol.tells_standards,
        about={**about, "party": e.names[target]},
    )
