"""Runs in which platforms share users: what they measure and write.

Beside what every run leaves (:mod:`fedrank.engine.run_folder`; ``interactions`` are slates here)::

    slates.json       platforms, world, faults that are on, the optimum, and at the end the results
    stays.json        by policy: mean share of kale of what is clicked [platform][round], mean satisfaction [round];
                      this run's, as "run", at the end
    episodes.parquet  long form: seed, episode, round, platform, engagement, first (that of the episode's first round)
    crossed.parquet   long form, of the first run: round, exchange (its place), requests, replies

Runs have as many rounds as others have messages: ``ledger.jsonl`` has one line for all rounds from one evaluation to
the next, under the number of the first. What crosses depends on the round only, so that the first run speaks for all.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.frame import Frame
from fedrank.core.lazy import jit
from fedrank.core.ledger import Ledger
from fedrank.core.native import map_trees
from fedrank.core.protocol import Party
from fedrank.core.registry import class_name
from fedrank.core.trees import Json
from fedrank.engine.model import provenance
from fedrank.engine.progress import Listener
from fedrank.engine.rounds import Rounds
from fedrank.engine.run_folder import SCHEMA, RunFolder
from fedrank.engine.runner import Runner
from fedrank.engine.settings import as_dict
from fedrank.engine.simulator import Simulator
from fedrank.slates.build import SlateExperiment
from fedrank.slates.config import SlatesRun
from fedrank.slates.fedslate import NetworkPlatforms
from fedrank.slates.model import SlateModel, SumModel
from fedrank.slates.protocol import PlatformProtocol
from fedrank.slates.report.files import COPYING, ENGAGEMENT, GREEDY, OURS
from fedrank.slates.results import about as described_world
from fedrank.slates.results import baselines, by_measure, fresh_users, read_baselines, results, row_of_policy, stay_json
from fedrank.slates.sums import SummedSlates
from fedrank.slates.sums.stays import StayRounds
from fedrank.slates.sums.trial import verdict_json
from fedrank.slates.world.policies import Copying, Played, StayKeys, play_together
from fedrank.slates.world.satisfaction import Satisfaction

EPISODES = {
    "seed": int,
    "episode": int,
    "round": int,
    "platform": str,
    "engagement": float,
    "first": float,
}
_CROSSED = {"round": int, "exchange": int, "requests": int, "replies": int}
#: Episodes that had not ended yet when a checkpoint was written.
_UNFINISHED = "checkpoint/unfinished.parquet"


@functools.partial(jit, quick=True, static_argnums=(0, 1))
def _evaluate(
    protocol: PlatformProtocol,
    world: Satisfaction,
    states: PyTree,
    own: PyTree,
    keys: StayKeys,
    copying: Bool[Array, ""],
) -> Played:
    """Outcome for fresh users without exploration; arguments as of :meth:`PlatformProtocol.evaluate`."""
    return protocol.evaluate(world, states, own, keys, copying)


class SlateRunner(Runner):
    """A run of a :class:`SlateExperiment`; arguments as :class:`Runner` has them."""

    config: SlatesRun
    unit = "slates"
    shared = None
    per_call = 5000  # they are learnt from at once, and take longer than other interactions

    def __init__(self, experiment: SlateExperiment, home: RunFolder, listener: Listener):
        config, k = experiment.config, experiment.n_parties
        chunk = max(k, config.compute.chunk // config.seeds)
        if experiment.together and not config.compute.debug:
            simulator: Rounds = StayRounds(experiment.protocol)  # type: ignore[arg-type] - it is one
        else:
            simulator = Simulator(experiment.protocol, chunk, config.compute.debug)
        super().__init__(config, home, listener, simulator, k)
        self.experiment, self.data, self.keys = experiment, experiment.world, simulator.keys(config.all_seeds)
        self.users = fresh_users(config.all_seeds, config.evaluation.episodes, experiment.world.rounds_per_episode)
        self.episodes: list[Frame] = []
        self.done, self.finished = 0, np.zeros(self.runs, np.int64)  # rounds, and episodes that have ended
        self.length = np.zeros(self.runs, np.int64)  # rounds of the current episodes so far
        self.unfinished = np.zeros((2, self.runs, k))  # engagement in them, and in their first rounds
        self.kept: list[Frame] = []
        self.crossed: list[np.ndarray] = []  # of the first run: int32 [rounds, exchanges, 2]
        self.sent = 0  # bytes that platforms of a run have sent
        self.latest = float("nan")
        self.judged: tuple[int, Any] = (-1, None)  # rounds, and what the policy after them brought

    @property
    @override
    def code(self) -> list[str]:
        learner = getattr(self.experiment.protocol, "learner", None)
        return [*super().code, *([] if learner is None else [class_name(type(learner))])]

    def start(self) -> tuple[PyTree, Any, Any]:
        """As :meth:`Runner.start`; each run has its first networks."""
        simulator = self.simulator
        if not isinstance(simulator, Simulator):
            return self.keys, *simulator.begin(self.keys, Party(None, None))

        def first(keys: Any) -> tuple[Any, Any]:
            return simulator.start(keys, self.experiment.first_parties(keys), per_run=True)

        # One program instead of one for each operation.
        return self.keys, *(jit(first, quick=True) if simulator.protocol.quick else first)(self.keys)

    def _step(self) -> int:
        # In NumPy, the more users at once, the quicker.
        return self.config.evaluation.every if self.simulator.backend == "numpy" else super()._step()

    # -- training ------------------------------------------------------------------------------------------------

    def note(self, done: int, seen: dict[str, Any]) -> tuple[str, float]:
        """Keep what crossed, and the engagement of the users who left."""
        engagement = np.asarray(seen["world"]["engagement"], np.float64)  # [rounds, runs, K]
        over = np.asarray(seen["world"]["over"])  # [rounds, runs]
        sent = self.sent + np.cumsum(self._note_crossed(seen, len(over)))
        self.done, self.sent = done + len(over), int(sent[-1])
        rows: list[tuple] = []
        for run in range(self.runs):
            for first, last in self._episodes_in(over[:, run]):
                self._add(run, engagement[first : last + 1, run])
                if over[last, run]:
                    rows.append((run, self.finished[run], last, *self.unfinished[:, run].copy()))
                    self.finished[run] += 1
                    self.length[run], self.unfinished[:, run] = 0, 0.0
        if rows:
            self._note_episodes(done, rows, sent)
        return ENGAGEMENT, self.latest

    @staticmethod
    def _episodes_in(over: np.ndarray) -> list[tuple[int, int]]:
        """First and last round of each episode in some rounds; the last episode may go on after them."""
        ends = np.flatnonzero(over).tolist()
        if not ends or ends[-1] != len(over) - 1:
            ends.append(len(over) - 1)
        return list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))

    def _add(self, run: int, engagement: np.ndarray) -> None:
        """Add rounds [rounds, K] to the episode of the user who is there."""
        if not self.length[run]:
            self.unfinished[1, run] = engagement[0]
        self.length[run] += len(engagement)
        self.unfinished[0, run] += engagement.sum(axis=0)

    def _note_episodes(self, done: int, rows: list[tuple], sent: np.ndarray) -> None:
        runs, episodes, last, total, first = (np.array(column) for column in zip(*rows, strict=True))
        seeds, rounds = np.asarray(self.seeds)[runs], done + last + 1
        names = self.experiment.names
        for place, name in enumerate(names):
            self.episodes.append(
                Frame(
                    {
                        "seed": seeds,
                        "episode": episodes,
                        "round": rounds,
                        "platform": name,
                        "engagement": total[:, place],
                        "first": first[:, place],
                    },
                    schema=EPISODES,
                )
            )
        self.latest = float(total.sum(axis=1).mean())
        for measure, values in by_measure(total, names).items():
            self.frames.append(self._rows(seeds, rounds, sent[last], "online", measure, values))

    def _rows(self, seeds: Any, rounds: Any, sent: Any, split: str, measure: str, values: np.ndarray) -> Frame:
        """Rows of ``metrics.parquet``, one for each value."""
        each = self.epsilon
        columns = {
            "seed": seeds,
            "round": rounds,
            "interactions": np.asarray(rounds) * self.experiment.n_parties,
            "bytes_up": sent,
            "epsilon": math.nan if each is None else np.asarray(rounds) * each,
            "split": split,
            "measure": measure,
            "value": values,
        }
        return Frame(columns, SCHEMA)

    @functools.cached_property
    def epsilon(self) -> float | None:
        """ε of a round; None without a guarantee."""
        found = self.experiment.protocol.account(1, self.config.delta).epsilon_round
        return found if np.isfinite(found) else None

    def _note_crossed(self, seen: dict[str, Any], rounds: int) -> np.ndarray:
        """Keep what crossed in the first run; returns the bytes that its platforms sent, int64 [rounds]."""
        exchanges = self.experiment.protocol.exchanges
        all_heard = np.full((rounds, 1, len(exchanges), 2), self.experiment.n_parties, np.int32)
        mine = np.asarray(seen.get("crossed", all_heard))[:, 0]
        self.crossed.append(mine)
        return mine[..., 1].astype(np.int64) @ self._up

    @functools.cached_property
    def _up(self) -> np.ndarray:
        """Bytes that a platform sends with a reply of each exchange, int64 [exchanges]."""
        k = self.experiment.n_parties
        return np.array(
            [
                exchange.reply.nbytes
                + sum(layout.nbytes for _, who, layout in exchange.extra_messages(k) if who == "parties")
                for exchange in self.experiment.protocol.exchanges
            ],
            np.int64,
        )

    # -- evaluation ----------------------------------------------------------------------------------------------

    def evaluate(self, states: PyTree, own: PyTree, done: int) -> None:
        """Measure the mean engagement of fresh users without exploration, always the same users."""
        before, found = self.judged
        if before < 0 or self.experiment.protocol.changing(before, done):
            found = self._play_fresh(states, own)
        self.judged = done, found
        means = np.asarray(self.judged[1].engagement, np.float64).mean(axis=1)
        for measure, values in by_measure(means, self.experiment.names).items():
            rounds = np.full(self.runs, done)
            self.frames.append(self._rows(np.asarray(self.seeds), rounds, self.sent, "test", measure, values))

    def _play_fresh(self, states: PyTree, own: PyTree, *, copying: bool = False, greedy: bool = False) -> Played:
        e, server = self.experiment, self.simulator.server(states)
        if self.simulator.backend == "numpy":
            of_users = map_trees(lambda leaf: leaf[:, None], own)
            mine: Any = e.protocol.policy(server, of_users)
            if greedy:
                mine = replace(mine, own=of_users._replace(verdict=np.zeros_like(of_users.verdict)), greedy=True)
            policy = Copying(e.world, mine, e.protocol.feedback.index(True), copying)
            return play_together(e.world, policy, self.users)
        return _evaluate(e.protocol, e.world, server, own, self.users, np.bool_(copying))

    # -- going on ------------------------------------------------------------------------------------------------

    def restore(self, done: int) -> None:
        """As :meth:`Runner.restore`; also reads finished and unfinished episodes and what crossed."""
        super().restore(done)
        self.done = done
        episodes = self.home.read_table("episodes.parquet", EPISODES)
        self.episodes = [episodes[episodes["round"] <= done]]
        for run, seed in enumerate(self.seeds):
            mine = self.episodes[0].where(seed=seed)
            self.finished[run] = len(mine.unique("episode"))
            self.length[run] = done - mine["round"].max(initial=0)
        self.kept = [self.home.read_table(_UNFINISHED, EPISODES).where(round=done)]
        place = {name: number for number, name in enumerate(self.experiment.names)}
        for seed, _, _, platform, engagement, first in self.kept[0].tuples():
            self.unfinished[:, self.seeds.index(seed), place[platform]] = engagement, first
        table = self.home.read_table("crossed.parquet", _CROSSED)
        table = table[table["round"] < done]
        crossed = np.zeros((done, len(self._up), 2), np.int32)
        crossed[table["round"], table["exchange"]] = np.stack([table["requests"], table["replies"]], axis=1)
        self.crossed = [crossed]
        self.sent = int((crossed[..., 1].astype(np.int64) @ self._up).sum())

    def keep(self) -> None:
        """As :meth:`Runner.keep`; also writes what :meth:`restore` reads."""
        super().keep()
        self.episodes = [Frame.concat(self.episodes) if self.episodes else Frame.of_rows([], EPISODES)]
        self.home.table("episodes.parquet", self.episodes[0])
        crossed = self._all_crossed()
        rounds, exchanges = np.nonzero(crossed.any(axis=2))
        counts = crossed[rounds, exchanges].astype(np.int64)
        columns = {"round": rounds, "exchange": exchanges, "requests": counts[:, 0], "replies": counts[:, 1]}
        self.home.table("crossed.parquet", Frame(columns, _CROSSED))
        names, rows = self.experiment.names, []
        for run, seed in enumerate(self.seeds):
            for place, name in enumerate(names):
                total, first = self.unfinished[:, run, place].tolist()
                rows.append((seed, int(self.finished[run]), self.done, name, total, first))
        # A run that is killed before the checkpoint is written resumes from the one before: its rows are kept as well.
        self.kept = [*self.kept[-1:], Frame.of_rows(rows, EPISODES)]
        self.home.table(_UNFINISHED, Frame.concat(self.kept))

    def _all_crossed(self) -> np.ndarray:
        empty = np.zeros((0, len(self._up), 2), np.int32)
        self.crossed = [np.concatenate(self.crossed or [empty])]
        return self.crossed[0]

    # -- files ---------------------------------------------------------------------------------------------------

    def write_known(self) -> None:
        """Write the networks' sizes, the platforms and their users, and the baselines."""
        e, c = self.experiment, self.config
        self.write_environment()
        self.home.json(
            "model.json",
            {
                **e.protocol.describe(),
                "data": f"Choc and Kale ({c.world.preset})",
                "generated": True,
                "notes": list(e.notes),
            },
        )
        wanted = c.evaluation.baselines
        if wanted:
            self.listener.stage("Fixed policies, to compare with")
        tested = e.protocol.count_learnt_from(c.rounds // e.world.rounds_per_episode)
        found = baselines(e.world, wanted, self.users, c.seed, c.all_seeds, e.protocol.feedback, tested)
        self.home.json("baselines.json", {"baselines": [baseline.as_json(e.names) for baseline in found]})
        self.home.json("stays.json", {baseline.name: stay_json(baseline.played, e.names) for baseline in found})
        self.home.json("slates.json", described_world(e))

    def write_crossed(self, done: int) -> None:
        """Write the ledger of the first run and the privacy account."""
        exchanges = self.experiment.protocol.exchanges
        ledger, crossed, every = Ledger(), self._all_crossed()[:done], self.config.evaluation.every
        for first in range(0, done, every):
            counts = crossed[first : first + every].sum(axis=0, dtype=np.int64)
            for exchange, (requests, replies) in zip(exchanges, counts.tolist(), strict=True):
                if requests:
                    ledger.record(first, exchange.name, exchange.request, sender="server", messages=requests)
                if replies:
                    ledger.record(first, exchange.name, exchange.reply, sender="parties", messages=replies)
                    for step, sender, layout in exchange.extra_messages(self.experiment.n_parties):
                        ledger.record(first, step, layout, sender=sender, messages=replies)
        self.write_messages(done, ledger)

    def write_results(self, states: PyTree, own: PyTree, seconds: float, rate: float | None) -> None:
        """Write networks, results and speed."""
        e = self.experiment
        known = read_baselines(self.home.path / "baselines.json")
        made = {}
        if e.n_parties > 1:
            made[COPYING] = row_of_policy(self._play_fresh(states, own, copying=True), e)
        if isinstance(self.simulator, StayRounds):
            made[GREEDY] = row_of_policy(self._play_fresh(states, own, greedy=True), e, GREEDY)
        found = {**results(e, self.metrics(), known, made), **self._trials(states)}
        self.home.json("slates.json", {**described_world(e), "results": found})
        self._write_stay(states, own)
        self._write_models(states, own)
        self.write_environment(
            seconds=round(seconds, 3),
            slates_per_second=rate,
            episodes_per_second=None if rate is None else rate / (self.work * e.world.rounds_per_episode),
        )

    def _trials(self, states: PyTree) -> dict[str, Json]:
        """Verdicts of the trials of all runs; empty without a trial."""
        protocol = self.experiment.protocol
        if not (isinstance(protocol, SummedSlates) and protocol.learner.trial):
            return {}
        server, found = self.simulator.server(states), []
        for run in range(self.runs):
            state = map_trees(lambda leaf, run=run: np.asarray(leaf)[run], server)
            found.append({**verdict_json(protocol.verdict(state)), "informs": bool(state.model.any())})
        return {"trial": found}

    def _write_stay(self, states: PyTree, own: PyTree) -> None:
        """Add to ``stays.json`` when the run serves what; runs together, as they have as many fresh users each."""
        file, (done, ours) = self.home.path / "stays.json", self.judged
        if done != self.done:
            ours = self._play_fresh(states, own)
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        together = map_trees(lambda leaf: np.mean(np.asarray(leaf), axis=0), ours)
        self.home.json("stays.json", {**kept, OURS: stay_json(together, self.experiment.names)})

    def _write_models(self, states: PyTree, own: PyTree) -> None:
        protocol, names = self.experiment.protocol, self.experiment.names
        joint = np.asarray(protocol.weights(self.simulator.server(states)), np.float32)
        tensors = {kind: np.asarray(values) for kind, values in protocol.platform_tensors(own).items()}
        for run, seed in enumerate(self.seeds):
            if protocol.scores:
                mine = {
                    kind: {name: np.asarray(values[run, place], np.float32) for place, name in enumerate(names)}
                    for kind, values in tensors.items()
                }
                self.home.model(slate_model(self.experiment, joint[run], mine["platform"], mine["choice"], seed), seed)
                continue
            more = {
                f"{kind} {name}": values[run, place]
                for kind, values in tensors.items()
                for place, name in enumerate(names)
            }
            if isinstance(protocol, SummedSlates) and self.config.own is None:
                about = origin(self.experiment, seed)
                model = SumModel(protocol.learner, joint[run], names, more, as_dict(self.config), about)
                self.home.model(model, seed)
            else:  # a learner that came as an object is in no file
                self.home.tensors({"federated": joint[run], **more}, seed)


def origin(experiment: SlateExperiment, seed: int) -> dict[str, Json]:
    """The origin of the model of a finished run of a seed."""
    config = experiment.config
    return provenance(
        config,
        data=f"Choc and Kale ({config.world.preset})",
        generated=True,
        seed=seed,
        privacy=experiment.protocol.account(config.rounds, config.delta),
    )


def slate_model(
    experiment: SlateExperiment,
    federated: Float32[np.ndarray, " parameters"],
    platforms: dict[str, np.ndarray],
    choices: dict[str, np.ndarray],
    seed: int,
) -> SlateModel:
    """The model of a finished run of a seed; arguments as of :class:`SlateModel`."""
    config, protocol = experiment.config, experiment.protocol
    assert isinstance(protocol, NetworkPlatforms)
    about = origin(experiment, seed)
    return SlateModel(protocol.slates, federated, platforms, choices, as_dict(config), about, type(protocol.learner))
