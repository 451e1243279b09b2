"""Runs in which silos train over each other's texts: what is measured and written.

Beside what every run leaves (:mod:`fedrank.engine.run_folder`; ``interactions`` are messages here)::

    federation.json   silos, rows, sketches, answers of owners, errors of the counts, notes on the data
    methods.parquet   long form: seed, round, method, silo, scope, split, measure, value (mean over queries)
    crossed.parquet   long form, of the first seed's run: round, exchange (its place), requests, replies
    gate.json         for each seed and silo: whether its validation prefers the federation's ranker, and the gain

Runs are variants times seeds: the protocol, and controls that differ in β, features or labels, in one program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.frame import Frame
from fedrank.core.lazy import jax
from fedrank.core.ledger import Ledger
from fedrank.engine.model import provenance
from fedrank.engine.progress import Listener
from fedrank.engine.run_folder import SCHEMA, RunFolder
from fedrank.engine.runner import Runner
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.texts.build import TextExperiment
from fedrank.texts.config import TextsRun
from fedrank.texts.data.features import NAMES
from fedrank.texts.model import TextModel
from fedrank.texts.report.files import GAIN, SCOPES, VALUES
from fedrank.texts.rows import EXACT, ISOLATED, SetupResults
from fedrank.texts.scores import UNTRAINED, cross_validated, gate, score_all
from fedrank.texts.silo_sketch import FEDERATED
from fedrank.texts.silo_sketch.state import TEST, VALI

#: Splits that are measured.
_SPLITS = {"test": TEST, "vali": VALI}


_CROSSED = {"round": int, "exchange": int, "requests": int, "replies": int}


class TextRunner(Runner):
    """A run of a :class:`TextExperiment`; arguments as :class:`Runner` has them."""

    config: TextsRun
    simulator: Simulator

    unit = "rows"

    def __init__(self, experiment: TextExperiment, home: RunFolder, listener: Listener):
        config, protocol = experiment.config, experiment.protocol
        runs = len(experiment.variants) * config.seeds
        chunk = max(1, config.compute.chunk // runs)
        simulator = Simulator(protocol.trainer, chunk, config.compute.debug, experiment.conditions)
        training = protocol.training
        work = experiment.n_parties * training.steps * (training.batch + training.cross_batch)
        super().__init__(config, home, listener, simulator, work)
        self.experiment, self.data, self.variants = experiment, experiment.texts, experiment.variants
        self.methods: list[Frame] = []
        self.latest = float("nan")  # of the first measure on validation queries, mean over silos and seeds
        self.crossed: list[tuple[int, int, int, int]] = []  # round, exchange, requests, replies, of the first run

    @property
    @override
    def runs(self) -> int:
        return len(self.variants) * len(self.seeds)

    @cached_property
    def setups(self) -> SetupResults:
        """Results of the setups of all seeds."""
        return self.experiment.setup_results(self.listener.stage)

    @override
    def start(self) -> tuple[jax.Array, Any, Any]:
        keys = run_keys(np.tile(self.seeds, len(self.variants)))  # every variant of a seed has that seed's key
        self.setups  # noqa: B018 - run here, with the listener's stages
        parties = self.experiment.parties
        self.shared = parties.shared
        return keys, *self.simulator.start(keys, parties, per_run=True)

    @override
    def note(self, done: int, seen: dict[str, Any]) -> tuple[str, float]:
        crossed = np.asarray(seen["crossed"])[:, 0]  # [rounds, exchanges, 2]
        for number, exchange in np.argwhere(crossed.any(axis=2)).tolist():
            self.crossed.append((done + number, exchange, *crossed[number, exchange].tolist()))
        return next(iter(self.experiment.measures)), self.latest

    @override
    def evaluate(self, states: PyTree, own: PyTree, done: int) -> None:
        if done == 0:  # no silo has trained yet
            return
        values = self.values(states, own)
        part = np.asarray(self.setups.arrays.rows.part)[0]  # [seeds, silos, queries]
        rows = []
        for method, scopes in values.items():
            for scope, measures in scopes.items():
                for measure, table in measures.items():
                    for split, number in _SPLITS.items():
                        for (s, k), mean in np.ndenumerate(_means(table, part == number)):
                            name = self.experiment.names[k]
                            rows.append((int(self.seeds[s]), done, method, name, scope, split, measure, float(mean)))
        frame = Frame.of_rows(rows, VALUES)
        self.methods.append(frame)
        first = next(iter(self.experiment.measures))
        latest = frame.where(method=FEDERATED, scope="own", split="vali", measure=first)["value"]
        self.latest = float(latest.mean()) if len(latest) else float("nan")
        self.frames.append(self._summary(frame, done))

    def values(self, states: PyTree, own: PyTree) -> dict[str, dict[str, dict[str, np.ndarray]]]:
        """Value of every query, by method, scope and measure: float [seeds, silos, queries].

        Args:
            states: Server states of all runs.
            own: What the silos of all runs have for themselves.
        """
        arrays = self.setups.arrays
        names = {given: name for name, given in self.experiment.measures.items()}
        every = score_all(
            self.experiment.protocol.trainer,
            tuple(self.experiment.measures.values()),
            self.simulator.server(states),
            self.shared,
            own,
            tuple(arrays[1:]),
        )
        out: dict[str, dict[str, dict[str, np.ndarray]]] = {}
        places = {variant.features: number for number, variant in reversed([*enumerate(self.variants)])}

        def tables(number: int, model: str, scopes: Iterable[str] = SCOPES) -> dict[str, dict[str, np.ndarray]]:
            these = slice(number * len(self.seeds), (number + 1) * len(self.seeds))
            return {
                scope: {names[name]: table[these] for name, table in every[model][scope].items()} for scope in scopes
            }

        for number, variant in enumerate(self.variants):
            # Alone, a silo has what it learnt by itself, with its own statistics.
            alone = variant.features == ISOLATED
            out[variant.name] = tables(number, "Local" if alone else FEDERATED, ("own", "home") if alone else SCOPES)
        wanted = self.config.evaluation.baselines
        if "local-plus" in wanted:
            out["Local+"] = tables(0, "Local+")
        if "bm25" in wanted:
            at_home = tables(places[ISOLATED], UNTRAINED, ("own", "home"))
            out[UNTRAINED] = {**at_home, **tables(0, UNTRAINED, ("federation",))}
            if EXACT in places:
                out[f"{UNTRAINED}, exact"] = tables(places[EXACT], UNTRAINED, ("federation",))
        return out

    def _summary(self, frame: Frame, done: int) -> Frame:
        """Rows of ``metrics.parquet``: the mean over silos, each silo, gains, and the values of controls."""
        sent = self._sent()
        out: list[tuple] = []

        def add(seed: int, split: str, measure: str, value: float) -> None:
            if np.isfinite(value):
                out.append((seed, done, *sent, None, split, measure, value))

        table: dict[tuple, float] = {}
        for seed, _, method, silo, scope, split, measure, value in frame.tuples():
            table[seed, split, measure + SCOPES[scope], method, silo] = value
        for seed, split, measure, method in dict.fromkeys(key[:4] for key in table):
            per_silo = [table[seed, split, measure, method, name] for name in self.experiment.names]
            mean = float(np.mean(per_silo))
            if method != FEDERATED:
                add(seed, split, f"{measure}, {method}", mean)
                continue
            add(seed, split, measure, mean)
            for name, value in zip(self.experiment.names, per_silo, strict=True):
                add(seed, split, f"{measure} ({name})", value)
            there = measure.replace(SCOPES["federation"], SCOPES["home"])
            local = [table.get((seed, split, there, "Local", name), np.nan) for name in self.experiment.names]
            add(seed, split, measure + GAIN, mean - float(np.mean(local)))
        return Frame.of_rows(out, SCHEMA)

    def _sent(self) -> tuple[int, int]:
        """Messages and bytes that silos have sent in one seed's run so far, setup included."""
        ledger = self._ledger()
        return sum(entry.messages for entry in ledger), ledger.bytes_from("parties")

    def _ledger(self) -> Ledger:
        ledger, exchanges = Ledger(self.setups.ledger), self.experiment.protocol.exchanges
        for number, which, requests, replies in self.crossed:
            exchange = exchanges[which]
            ledger.record(number, exchange.name, exchange.request, sender="server", messages=requests)
            ledger.record(number, exchange.name, exchange.reply, sender="parties", messages=replies)
        return ledger

    @override
    def restore(self, done: int) -> None:
        super().restore(done)
        methods = self.home.read_table("methods.parquet", VALUES)
        self.methods = [methods[methods["round"] <= done]]
        crossed = self.home.read_table("crossed.parquet", _CROSSED)
        self.crossed = crossed[crossed["round"] < done].tuples()

    @override
    def keep(self) -> None:
        super().keep()
        frame = Frame.concat(self.methods) if self.methods else Frame.of_rows([], VALUES)
        self.methods = [frame]
        self.home.table("methods.parquet", frame)
        self.home.table("crossed.parquet", Frame.of_rows(self.crossed, _CROSSED))

    @override
    def write_known(self) -> None:
        e = self.experiment
        self.write_environment()
        self.home.json(
            "model.json",
            {
                "ranker": f"linear, {e.protocol.training.loss}",
                "n_features": len(NAMES),
                "features": list(NAMES),
                "grades": e.protocol.learner.grades,
                "parameters": e.protocol.learner.size,
                "data": e.federations[0].name,
                "generated": e.federations[0].generated,
                "notes": list(e.notes),
            },
        )
        self.home.json("federation.json", self._federation())
        self.home.json("baselines.json", {"baselines": []})

    def _federation(self) -> dict[str, Any]:
        e, setup, o = self.experiment, self.experiment.setup, self.setups
        rows = jax.tree.map(np.asarray, o.arrays.rows)
        first = e.federations[0]
        silos = []
        for k, name in enumerate(e.names):
            part, corpus = rows.part[0, 0, k], first.silos[k]
            silos.append(
                {
                    "name": name,
                    "documents": corpus.n_documents,
                    "queries": {split: int((part == n).sum()) for split, n in (("train", 0), ("vali", 1), ("test", 2))},
                    "rows": int(rows.counts[0, 0, k, 0]),
                    "pairs": int(rows.counts[0, 0, k, 1]),
                }
            )
        noise, error = setup.noise, np.array(o.errors, float)
        return {
            "silos": silos,
            "words": [len(one.words) for one in e.texts[0]],
            "foreign_share": first.foreign_share(),
            "mode": noise.mode,
            "sketch": {"z": setup.shape.z, "w": setup.shape.w, "kind": setup.shape.kind},
            "statistics": {"z": setup.statistics.z, "w": setup.statistics.w},
            "count_error": {"all": error[:, 0].tolist(), "held": error[:, 1].tolist()},
            "true_count": {"all": error[:, 2].tolist(), "held": error[:, 3].tolist()},
            "insider": None if o.insider is None else vars(o.insider),
            "beta": e.protocol.training.beta,
            "generated": first.generated,
            "notes": list(e.notes),
        }

    @override
    def write_crossed(self, done: int) -> None:
        self.write_messages(done, self._ledger(), self.experiment.setup.exchanges)

    @override
    def write_results(self, states: PyTree, own: PyTree, seconds: float, rate: float | None) -> None:
        values = self.values(states, own)
        primary = next(iter(self.experiment.measures))
        part = np.asarray(self.setups.arrays.rows.part)[0]
        found = gate(values, part, primary, self.seeds, self.experiment.names, self._held_out(values))
        self.home.json("gate.json", found)
        self._write_baselines()
        self._write_queries(values, part)
        models = np.asarray(self.simulator.server(states).weights)
        for number, seed in enumerate(self.seeds):
            self.home.model(text_model(self.experiment, models[number], number), int(seed))
        self.write_environment(seconds=round(seconds, 3), rows_per_second=rate)

    def _write_baselines(self) -> None:
        """Values of every other method, mean over silos and seeds."""
        values: dict[str, dict[tuple[str, str], list[float]]] = {}  # method -> (split, measure) -> of silos and seeds
        for _, _, method, _, scope, split, measure, value in self.methods[0].where(round=self.config.rounds).tuples():
            if method != FEDERATED:
                values.setdefault(method, {}).setdefault((split, measure + SCOPES[scope]), []).append(value)
        written = [
            {
                "name": method,
                "notes": [],
                "values": [
                    {"split": split, "measure": measure, "value": float(np.mean(np.array(several, float)))}
                    for (split, measure), several in scores.items()
                ],
            }
            for method, scores in values.items()
        ]
        self.home.json("baselines.json", {"baselines": written})

    def _held_out(self, values: dict[str, Any]) -> dict[str, np.ndarray] | None:
        """Values of queries by rankers that did not learn from them; None where validation queries decide."""
        e, config = self.experiment, self.config
        if not config.evaluation.folds or not any(variant.features == ISOLATED for variant in self.variants):
            return None
        chunk = max(1, config.compute.chunk // (2 * config.seeds))
        made = cross_validated(
            e.protocol.trainer,
            self.setups.arrays,
            list(self.seeds),
            config.rounds,
            config.evaluation.folds,
            next(iter(e.measures.values())),
            Simulator(e.protocol.trainer, chunk, config.compute.debug, e.conditions),
            self.listener.stage,
        )
        return {name: table for name, table in made.items() if name in values}

    def _write_queries(self, values: dict[str, Any], part: np.ndarray) -> None:
        """Values of every test query, mean over the seeds in which it is a test query."""
        primary = next(iter(self.experiment.measures))
        found: dict[str, dict[str, dict[str, list[float]]]] = {}
        for seed, silo, row in np.argwhere(part == TEST).tolist():
            qid = self.setups.queries[seed][silo][row]
            for method, scopes in values.items():
                for scope in SCOPES:
                    if primary in scopes.get(scope, {}):
                        named = found.setdefault(qid, {}).setdefault(method, {})
                        named.setdefault(primary + SCOPES[scope], []).append(scopes[scope][primary][seed, silo, row])
        qids = sorted(found, key=lambda qid: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", qid)])
        about = {"split": ["test"] * len(qids), "qid": qids, "judged": [True] * len(qids)}
        tables = {
            ("learnt" if method == FEDERATED else method): {
                measure: np.array([float(np.mean(found[qid][method][measure])) for qid in qids])
                for measure in found[qids[0]].get(method, {})
            }
            for method in values
        }
        self.home.per_query(about, tables)


def _means(table: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Mean over queries: float [seeds, silos] of [seeds, silos, queries]."""
    count = where.sum(axis=-1)
    return np.where(count > 0, np.where(where, table, 0.0).sum(axis=-1) / np.maximum(count, 1), np.nan)


def text_model(experiment: TextExperiment, weights: Float32[np.ndarray, " size"], number: int) -> TextModel:
    """The model of a finished run, with everything that scoring needs.

    Args:
        experiment: The run.
        weights: The common ranker.
        number: Place of the run's seed among all seeds.
    """
    config, federation = experiment.config, experiment.federations[number]
    about = provenance(
        config,
        data=federation.name,
        generated=federation.generated,
        seed=config.all_seeds[number],
        privacy=experiment.protocol.account(config.rounds, config.delta),
    )
    scales = experiment.setup_results().scales[number]
    return TextModel(
        experiment.protocol.learner,
        weights,
        config.texts,
        {name: (pair[0], pair[1]) for name, pair in zip(experiment.names, scales, strict=True) if pair},
        as_published=experiment.setup.sketch.as_published,
        about=about,
    )
