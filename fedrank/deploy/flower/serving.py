"""A run on the server: its protocol, its folder, and what is kept there.

::

    config.toml          the resolved configuration
    state-<round>.npz    the server's state before a round; the newest are kept, and the next run goes on from there
    ledger.jsonl         what crossed, one line a question or a bundle of replies; only ever grows
    metrics.jsonl        one line a round: who was heard, what went wrong, how good the model is; of silos: what the
                         server saw, such as what the target said
    privacy.json         what the parties were promised, over all rounds that were asked
    weights/             the model, when the run has ended; of silos the best by the target's word, if there is one, and
                         beside it the last

Where silos have texts, an opening comes first. Its questions stand in the same ledger, as of round 0, and in the first
line of ``metrics.jsonl``; ``messages.json`` and ``model.json`` say what crosses and what is learnt. The state after it
is kept as ``state-00000000.npz``. A server that is stopped before has a new opening the next time, with new keys.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.ledger import Ledger
from fedrank.core.protocol import Exchange
from fedrank.deploy.checkpoints import Checkpoints
from fedrank.deploy.flower.answers import built, refuse_extra_messages, without_shares
from fedrank.deploy.flower.opening_rounds import OpeningRounds, as_rows
from fedrank.deploy.flower.own_table import stand_in
from fedrank.deploy.flower.own_texts import Agreed, agreed
from fedrank.deploy.flower.rounds import HELLO, Log, Network, Rounds, Tally
from fedrank.deploy.flower.settings import FlowerSettings, Scalar, Settings, about, delta_of, read_run, task_of
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.run_folder import RunFolder, described
from fedrank.engine.settings import to_toml
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.ranking.build import Experiment
from fedrank.ranking.evaluate import Evaluator
from fedrank.silos.build import SiloExperiment
from fedrank.texts.data.features import NAMES
from fedrank.texts.silo_sketch import SiloSketch

log = logging.getLogger("fedrank.flower")


def serve(values: Mapping[str, Scalar], network: Network) -> Any:
    """Run what a run's table says, from its last checkpoint or from the start, to the end.

    Args:
        values: The run's table.
        network: What carries questions and answers.

    Returns:
        The server's last state.

    Raises:
        FedrankError: The settings, the data or the folder cannot be used, or too few nodes were heard.
    """
    config, settings = read_run(values)
    experiment = agreed(config) if task_of(config) == "texts" else experiment_of(config, settings.n_features)
    refuse_extra_messages(experiment.protocol)
    if isinstance(experiment, Agreed):
        state = experiment.protocol.init(jax.random.key(config.seed))
    else:
        states, _ = Simulator(experiment.protocol).start(run_keys([config.seed]), experiment.parties)
        state = jax.tree.map(lambda leaf: leaf[0], states)
    home = RunFolder(Path(settings.checkpoint_dir).expanduser().absolute())
    try:
        home.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{home.path}: cannot be made ({error.strerror}); name another checkpoint-dir.") from error
    with home.locked():
        kept = Kept(experiment, config, home, measured=settings.n_features == 0)
        found = kept.checkpoints.newest(state)
        first, state = found or (0, state)
        log.info("%s: %d of %d rounds are done", home.path, first, config.rounds)
        if found is None and isinstance(experiment, Agreed):
            kept.opened(state, _opened(experiment, network, settings, kept))
        elif first == 0:
            kept.begin(state)
        rounds = Rounds(experiment.protocol, experiment.n_parties, network, settings, kept)
        state = rounds.run(state, first, config.rounds)
        _write_weights(home, experiment, config.seed, state)
        log.info("%s: the model is in weights/", home.path)
    return state


def experiment_of(config: Settings, n_features: int = 0) -> Experiment | SiloExperiment:
    """The experiment as a server needs it.

    Args:
        config: The run.
        n_features: Features of a document or a row where the server has no data. It then needs none: which queries or
            rows there are matters to the nodes only. 0: the server has the data that the run names.

    Raises:
        FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
    """
    if task_of(config) == "silos":
        made = stand_in(config, n_features) if n_features else built(config)
        if isinstance(made, SiloExperiment) and made.personalises_one and len(made.targets) > 1:
            raise ConfigError('over a network a run is for one silo; name it: silos-target = "0".')
        return made
    if n_features == 0:
        return built(config)
    with tempfile.TemporaryDirectory() as folder:
        made_up = Path(folder, "stand-in.txt")
        made_up.write_text(f"1 qid:1 {n_features}:1\n", encoding="utf-8")
        return built(
            dataclasses.replace(without_shares(config), data=str(made_up), fold=1, normalise="none", holdout=0.0)
        )


def _opened(experiment: Agreed, network: Network, settings: FlowerSettings, kept: Kept) -> list[Tally]:
    log.info("opening: %d silos agree on keys and show each other what they show", experiment.n_parties)
    _, tallies = OpeningRounds(experiment.setup, experiment.n_parties, network, settings, kept).open()
    return tallies


def _write_weights(home: RunFolder, experiment: Experiment | SiloExperiment | Agreed, seed: int, state: Any) -> None:
    weights = experiment.protocol.weights(state)
    if isinstance(experiment, Agreed):
        home.weights(_Vector(), seed, np.asarray(weights))
        return
    if not isinstance(experiment, SiloExperiment):
        home.weights(experiment.ranker, seed, np.asarray(weights))
        return
    protocol = experiment.protocol
    # What never crosses is the silo's; here it is as a fresh network has it.
    fresh = jax.tree.map(lambda leaf: leaf[experiment.targets[0]], experiment.parties.own)
    best = getattr(state, "best_weights", weights)
    for name, model in (("", best), (f"seed{seed}-last", weights)):
        if np.shape(model) == (protocol.parameters,):  # a method with several models has none that is everybody's
            home.weights(protocol.network, seed, np.asarray(protocol.whole_model(model, fresh)), name)


class _Vector:
    """How a model is kept whose layout is its learner's: as one vector."""

    def tensors(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        return {"weights": weights}


class Kept(Log):
    """Keeps a run in its folder.

    Args:
        experiment: The run.
        config: Its configuration.
        home: Its folder; nobody else writes to it.
        measured: Whether the server has data to measure its model with.
    """

    def __init__(
        self, experiment: Experiment | SiloExperiment | Agreed, config: Settings, home: RunFolder, measured: bool
    ):
        self.checkpoints = Checkpoints(home.path, about(config))
        self._experiment, self._config, self._home = experiment, config, home
        self._evaluator = None
        if measured and isinstance(experiment, Experiment):  # a server has no silo's rows
            self._evaluator = _evaluator(experiment, config)
        for name in ("ledger.jsonl", "metrics.jsonl"):
            _drop_half_a_line(home.path / name)
        write_atomically(home.config, to_toml(config).encode())
        ledger = home.path / "ledger.jsonl"
        before = Ledger.read(ledger) if ledger.exists() else Ledger()
        self._questions = Counter(entry.exchange for entry in before if entry.sender == "server")

    def begin(self, state: Any) -> None:
        """The model before the first round is measured as well."""
        self._measure({"round": 0}, state)

    def opened(self, state: Any, tallies: list[Tally]) -> None:
        """The opening is over; what it was about is written down, and the run goes on from here if it is stopped."""
        protocol = self._experiment.protocol
        assert isinstance(protocol, SiloSketch) and protocol.setup is not None
        learner = protocol.learner
        self._home.json("messages.json", described((*protocol.setup.exchanges, *protocol.exchanges)))
        self._home.json(
            "model.json",
            {
                "ranker": f"linear, {learner.loss}",
                "n_features": learner.features,
                "features": list(NAMES),
                "grades": learner.grades,
                "parameters": learner.size,
            },
        )
        self._measure({"round": 0, "opening": as_rows(tallies)}, state)
        self.checkpoints.save(0, state)
        log.info("opening: done, %.1f s", sum(tally.seconds for tally in tallies))

    def asked(self, round_: int, exchange: Exchange, nodes: int) -> None:
        """One request to each node; its parties share it."""
        entry = Ledger()
        entry.record(round_, exchange.name, exchange.request, sender="server", messages=nodes)
        _append(self._home.path / "ledger.jsonl", entry.text())
        self._questions[exchange.name] += 1
        if isinstance(self._experiment, Agreed) and self._questions.total() == 1:
            self._promise()  # an opening may end before the first round does, with sketches handed out

    def heard(self, round_: int, exchange: Exchange, tally: Tally) -> None:
        """One reply of each party that was heard."""
        entry = Ledger()
        entry.record(round_, exchange.name, exchange.reply, sender="parties", messages=tally.parties)
        _append(self._home.path / "ledger.jsonl", entry.text())

    def done(self, round_: int, state: Any, tallies: list[Tally]) -> None:
        """The state first: a run that goes on may measure a round twice, and must not leave one out."""
        self.checkpoints.save(round_ + 1, state)
        row = {"round": round_ + 1, "exchanges": [tally.as_json() for tally in tallies]}
        if watched := self._experiment.protocol.watch(state):
            row["watched"] = {name: _plain(np.asarray(value).tolist()) for name, value in watched.items()}
        self._measure(row, state)
        most = max(tallies, key=lambda tally: (tally.exchange != HELLO, tally.parties), default=Tally(""))
        log.info(
            "round %d of %d: %d parties of %d nodes, %.1f s", round_ + 1, self._config.rounds, most.parties, most.heard,
            sum(tally.seconds for tally in tallies),
        )  # fmt: skip

    def _measure(self, row: dict[str, Any], state: Any) -> None:
        due = row["round"] % self._config.evaluation.every == 0 or row["round"] == self._config.rounds
        if self._evaluator is not None and due:
            weights = np.asarray(self._experiment.protocol.weights(state))
            row["scores"] = [vars(score) for score in self._evaluator(weights[None])[0]]
        _append(self._home.path / "metrics.jsonl", json.dumps(row) + "\n")
        self._promise()

    def _promise(self) -> None:
        """What was asked counts, whether or not an answer was of use: it may have left its party."""
        if self._questions:
            account = self._experiment.protocol.account(max(self._questions.values()), delta_of(self._config))
            self._home.json("privacy.json", account.as_json())


def _plain(value: Any) -> Any:
    """Lists and numbers; what is not finite is null."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _evaluator(experiment: Experiment, config: Settings) -> Evaluator:
    asked = config.evaluation
    return Evaluator(
        experiment.splits, experiment.ranker, experiment.metric, experiment.users, asked.measures, asked.tie_orders
    )


def _append(path: Path, line: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}); make room, then run again.") from error


def _drop_half_a_line(path: Path) -> None:
    """What a killed process left of its last line is cut off."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)
