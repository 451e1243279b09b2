"""Unlearning devices: what is left of them in a model after each of several methods of removing them.

*Retraining* runs the whole experiment without them and is what the other methods are measured against. *Fine-tuning*
goes on from the model as it is with the others alone. *Replay* tells the server its log again without the forgotten
devices' messages, which takes seconds. It takes out what they said, not what they had a part in: later messages of the
others answer models that the forgotten had helped to make. Where devices send weights there are *FedEraser* and
*projected gradient ascent* beside these.

The distance between two models means little by itself; the distance between two retrainings that differ in nothing but
their seed is the measure of it. Distances count every direction alike. What is asked is about one, the way from the
retrained model to the model as trained: ``influence`` says how much of that way is left.

A server that averages weights may keep what devices sent. With θₜ the model of round t and wᵢₜ what device i made of
it, its update is uᵢₜ = wᵢₜ − θₜ, and aᵢ its number of interactions. For the devices R that stay::

    replay      θ' = θ₀ + Σₜ Σ_R aᵢ uᵢₜ / Σ_R aᵢ
    FedEraser   of every Δth round t:  each device of R learns from θ' for a part r of its interactions: ûᵢ
                θ' ← θ' + Σ_R aᵢ ‖uᵢₜ‖ ûᵢ/‖ûᵢ‖ / Σ_R aᵢ
    ascent      θ' = the mean of what R sent last; radius = a third of the mean distance of θ' to random models
                the devices F to forget learn from θ' in some rounds, and the server goes the other way:
                θ' ← θ' − Σ_F aᵢ uᵢ / Σ_F aᵢ, pulled back to the ball around where it began

Replay needs no device; FedEraser and ascent need devices to answer again, with what their users do now: past
interactions of an online learner cannot be had a second time. Ascent needs those who leave.

Source:
    Liu, Ma, Yang, Wang, Liu: *FedEraser*, IWQoS 2021, Equations (3) and (4). Halimi, Kadhe, Rawat, Baracaldo:
    *Federated Unlearning: How to Efficiently Erase a Client in FL?*, 2022 (arXiv 2207.05521), Algorithm 1, where one
    client ascends by itself. For federated online learning to rank: Wang, Liu, Zuccon, ECIR 2024; Tao et al., SIGIR
    2025.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party, Protocol
from fedrank.core.trees import Json
from fedrank.engine.attackers import draw_attackers
from fedrank.engine.progress import Listener
from fedrank.engine.settings import from_dict
from fedrank.engine.simulator import Conditions, Simulator, run_keys
from fedrank.engine.variations import read_sweep
from fedrank.ranking.build import Experiment, build, user_for
from fedrank.ranking.clicks.cascade import inverted_user
from fedrank.ranking.config import DeviceRun
from fedrank.ranking.evaluate import Evaluator
from fedrank.ranking.foltr_pdgd import FoltrPDGD
from fedrank.report import describe
from fedrank.report.statistics import mean_interval
from fedrank.report.tables import Column, Table
from fedrank_zoo.reproduce.study import Study, named_measure, shorten_run

#: Rounds in which the forgotten devices undo what they learnt, of projected gradient ascent.
ASCENT = 5
#: Rounds between those that FedEraser keeps.
INTERVALS = (1, 5)
#: The ball of projected ascent: its radius as a part of the mean distance to random models, and their number.
_PART, _RANDOM = 1 / 3, 10


def unlearning_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Results of forgetting, a table for each case of the study.

    The study's ``settings`` hold ``share`` of the devices to forget and ``tune``, the rounds of fine-tuning.

    Returns:
        The tables, and no figures.
    """
    base, _, cases = read_sweep(study.path)
    out = []
    for case in cases or ({"name": study.title},):
        config = from_dict({**base, **{k: v for k, v in case.items() if k != "name"}})
        if fraction < 1:
            config = shorten_run(config, fraction)
        ways = unlearn(config, float(study.settings["share"]), int(study.settings["tune"]), listener)
        measures = [(split, named_measure(pattern, config)) for split, pattern in study.measures]
        target = next(way for way in ways if way.name == "retraining")
        rows = [
            {
                "way": way.name,
                **{
                    f"m{i}": mean_interval(way.values[key].tolist())
                    for i, key in enumerate(measures)
                    if key in way.values
                },
                **{
                    f"d{i}": mean_interval((way.values[key] - target.values[key]).tolist())
                    for i, key in enumerate(measures)
                    if key in way.values
                },
                "distance": mean_interval(way.distance.tolist()),
                "cosine": mean_interval(way.cosine.tolist()),
                "influence": mean_interval(way.influence.tolist()),
                "wish": mean_interval(way.wish.tolist()),
                "rounds": str(way.rounds),
                "crossed": f"{way.crossed:.2f}",
                "seconds": f"{way.seconds:.2f}",
            }
            for way in ways
        ]
        columns = [Column("way", "way")]
        for i, (split, measure) in enumerate(measures):
            columns.append(Column(f"m{i}", f"{measure}, {describe.SPLIT_NAMES[split]}", numeric=True))
            columns.append(Column(f"d{i}", "difference to retraining", numeric=True, signed=True))
        columns += [
            Column("distance", "distance to retraining", numeric=True),
            Column("cosine", "cosine to retraining", numeric=True),
            Column("influence", "influence that is left", numeric=True),
            Column("wish", "what poisoners want", numeric=True),
            Column("rounds", "rounds", numeric=True),
            Column("crossed", "MB that cross", numeric=True),
            Column("seconds", "seconds", numeric=True),
        ]
        notes = [
            f"{float(study.settings['share']):.0%} of {config.clients:,} devices are forgotten after {config.rounds} "
            f"rounds; {config.seeds} seeds together take the seconds shown, compilation left out.",
            "Distance: of the weights, in mean distances between two retrainings with different seeds.",
            "Influence: how much is left of the way from the retrained model to the one as trained, 1 for all. The "
            "last row shows the effect of chance: no device is forgotten.",
            "What poisoners want: the expected metric of a user who wants the worst documents, on training queries.",
            "± is half of a 95 % Student t interval over seeds.",
        ]
        out.append(Table(case["name"], tuple(columns), tuple(rows), tuple(notes)))
    return tuple(out), {}


@dataclass(frozen=True)
class UnlearningMethod:
    """Result of one method of unlearning.

    Attributes:
        name: Such as ``"replay"``.
        distance: float64 [seeds], ‖θ − θ of retraining‖ over the mean distance of two retrainings' seeds.
        cosine: float64 [seeds], of the angle to the retrained model: a linear ranker ranks by direction alone.
        values: (split, measure) -> float64 [seeds].
        seconds: Of all seeds together, compilation left out.
        influence: float64 [seeds], ⟨θ − θᵣ, θₜ − θᵣ⟩ / ‖θₜ − θᵣ‖² with θᵣ retrained and θₜ as trained: 1 where all of
            the forgotten devices' influence is left, 0 where none is.
        wish: float64 [seeds], expected metric of a user who wants the opposite of the perfect one, on the training
            queries: what devices with poisoned clicks work for.
        rounds: Rounds in which devices have to answer again.
        crossed: Megabytes that cross in these, of all devices, in both directions.
    """

    name: str
    distance: Float[np.ndarray, "seeds"]
    cosine: Float[np.ndarray, "seeds"]
    values: dict[tuple[str, str], Float[np.ndarray, "seeds"]]
    seconds: float
    influence: Float[np.ndarray, "seeds"]
    wish: Float[np.ndarray, "seeds"]
    rounds: int
    crossed: float


def unlearn(config: DeviceRun, share: float, tune: int, listener: Listener | None = None) -> list[UnlearningMethod]:
    """Train with all devices, then remove some of them by each method.

    Args:
        config: FOLtR-ES, or FPDGD whose server sees weights. If devices attack, these are the ones to forget.
        share: Share of the devices to forget, in (0, 1); where devices attack it must be theirs.
        tune: Rounds of fine-tuning.
        listener: Is told which stage has begun.

    Returns:
        The model as trained, and what each method left, all compared with retraining, which is the last but one; the
        last is retraining with another seed, for what chance does to the numbers.

    Raises:
        ConfigError: Another protocol, fewer than two seeds, or no device to forget or to keep.
    """
    listener = listener or Listener()
    if config.protocol not in ("foltr-es", "foltr-pdgd"):
        raise ConfigError(f"forgetting replays a log of seeds and sums or of weights; {config.protocol!r} has neither.")
    of_weights = config.protocol == "foltr-pdgd"
    if of_weights and not (config.method.privacy.in_the_clear and config.method.aggregate == "mean"):
        raise ConfigError(
            "forgetting weights needs a log of each device's weights: set privacy.name = 'clear', aggregate = 'mean'."
        )
    if config.seeds < 2:
        raise ConfigError("forgetting is measured against other seeds: it needs at least 2.")
    if config.devices.late:
        raise ConfigError("forgetting knows no late replies; set devices.late = 0.")
    if config.attack.share not in (0, share):
        raise ConfigError(
            f"{config.attack.share} of the devices attack, but {share} are to be forgotten; make them equal."
        )
    listener.stage("Loading the data")
    experiment = build(config)
    gone = np.asarray(draw_attackers(config.clients, share, config.data_seed))
    if gone.all() or not gone.any():
        raise ConfigError(f"{int(gone.sum())} of {config.clients} devices would be forgotten; some must go, some stay.")
    try:
        return _Unlearning(experiment, gone, tune, listener).methods()
    finally:
        listener.done()


@dataclass(frozen=True)
class _Left:
    """The models that a method left, and what it took: seconds, rounds, and the devices that answered, in sum."""

    name: str
    weights: Float[np.ndarray, "seeds parameters"]
    seconds: float
    rounds: int = 0
    answers: int = 0


class _Unlearning:
    """One comparison; arguments as of :func:`unlearn`, ``gone`` bool [parties] says who is forgotten."""

    def __init__(self, experiment: Experiment, gone: Bool[np.ndarray, " parties"], tune: int, listener: Listener):
        self.experiment, self.gone, self.tune, self.listener = experiment, gone, tune, listener
        self.protocol, self.parties = experiment.protocol, experiment.parties
        config = experiment.config
        self.keys, self.rounds = run_keys(config.all_seeds), config.rounds
        self.chunk = max(1, config.compute.chunk // config.seeds)
        self.without = self._only(~gone)

    def _only(self, there: Bool[np.ndarray, " parties"]) -> Conditions:
        """Conditions under which only these devices are heard and none attacks."""
        absent = tuple(map(bool, ~there))
        return dataclasses.replace(self.experiment.conditions, attack=None, attackers=(), absent=absent)

    def _train(
        self, conditions: Conditions, states: PyTree, first: int, rounds: int, record: bool = False
    ) -> tuple[PyTree, PyTree, dict[str, Any], float]:
        simulator = Simulator(self.protocol, self.chunk, conditions=conditions, record=record)
        begun, own = simulator.start(self.keys, self.parties)
        before = begun if states is None else states
        (states, _, seen), seconds = _time_second_run(
            lambda: simulator.advance(self.keys, before, self.parties.shared, own, first, rounds)
        )
        return begun, states, seen, seconds

    def _fine_tune(self, name: str, states: PyTree, seconds: float = 0.0, rounds: int = 0, answers: int = 0) -> _Left:
        """Fine-tune these states on the remaining devices; ``seconds`` is the time spent before."""
        _, tuned, _, more = self._train(self.without, states, self.rounds, self.tune)
        answered = answers + self.tune * int((~self.gone).sum())
        return _Left(name, weights_of(self.protocol, tuned), seconds + more, rounds + self.tune, answered)

    def methods(self) -> list[UnlearningMethod]:
        """One result for each method of forgetting, in the order of the table."""
        devices, stay = len(self.gone), int((~self.gone).sum())
        self.listener.stage("Training with all devices")
        begun, trained, seen, full = self._train(self.experiment.conditions, None, 0, self.rounds, record=True)
        arrived = np.asarray(seen["arrived"])
        left = [
            _Left("as trained", weights_of(self.protocol, trained), full, self.rounds, self.rounds * devices),
        ]
        self.listener.stage("Replaying the log")
        if self.experiment.config.protocol == "foltr-es":
            kept = arrived & ~self.gone
            states, seconds = _time_second_run(lambda: replay(self.protocol, begun, seen["replies"], kept))
            left.append(_Left("replay", weights_of(self.protocol, states), seconds))
        else:
            left += self._of_weights(begun, trained, seen["replies"][0], arrived)
        self.listener.stage("Fine-tuning")
        left.append(self._fine_tune(f"fine-tuning, {self.tune} rounds", trained))
        self.listener.stage("Retraining")
        _, retrained, _, seconds = self._train(self.without, None, 0, self.rounds)
        target = weights_of(self.protocol, retrained)
        left.append(_Left("retraining", target, seconds, self.rounds, self.rounds * stay))
        other = np.roll(target, 1, axis=0)
        left.append(_Left("retraining, another seed", other, seconds, self.rounds, self.rounds * stay))
        self.listener.stage("Evaluating")
        return self._evaluate(left, target)

    def _of_weights(
        self, begun: PyTree, trained: PyTree, replies: Any, arrived: Bool[np.ndarray, "..."]
    ) -> list[_Left]:
        """Results of replay, FedEraser and projected gradient ascent for devices that send weights."""
        log = Logged.of(weights_of(self.protocol, begun), replies, arrived)
        stay = int((~self.gone).sum())
        start = time.perf_counter()
        replayed = replayed_updates(log, ~self.gone)
        found = [_Left("replay", replayed, time.perf_counter() - start)]

        self.listener.stage("FedEraser")
        protocol = self.protocol
        assert isinstance(protocol, FoltrPDGD)  # that of the settings
        for interval in INTERVALS:
            erase = functools.partial(
                run_federaser, protocol, self.keys, begun, self.parties, log, ~self.gone, Eraser(interval), self.chunk
            )
            (models, rounds), seconds = _time_second_run(erase)
            which = "every round" if interval == 1 else f"one round of {interval}"
            found.append(_Left(f"FedEraser, {which}", models, seconds, rounds, rounds * stay))

        self.listener.stage("Projected gradient ascent")
        args = (trained, self.parties, log, self.gone, self.rounds, ASCENT, self.chunk)
        states, seconds = _time_second_run(functools.partial(projected_ascent, protocol, self.keys, *args))
        found.append(
            self._fine_tune(
                f"gradient ascent, {ASCENT} rounds, and fine-tuning, {self.tune}",
                states,
                seconds,
                ASCENT,
                ASCENT * int(self.gone.sum()),
            )
        )
        return found

    def _evaluate(self, left: list[_Left], target: Float[np.ndarray, "seeds parameters"]) -> list[UnlearningMethod]:
        e = self.experiment
        asked, config = e.config.evaluation, e.config
        evaluator = Evaluator(e.splits, e.ranker, e.metric, e.users, asked.measures, asked.tie_orders)
        poisoned = inverted_user(user_for("perfect", e.splits, config.depth))
        wishes = Evaluator(e.splits, e.ranker, e.metric, (poisoned,), (), asked.tie_orders)
        apart = [np.linalg.norm(a - b) for i, a in enumerate(target) for b in target[i + 1 :]]
        way, lengths = left[0].weights - target, np.linalg.norm(target, axis=1)
        (exchange,) = self.protocol.exchanges
        a_device = exchange.request.nbytes + exchange.reply.nbytes
        methods = []
        for one in left:
            values: dict[tuple[str, str], list[float]] = {}
            for scores in evaluator(one.weights.astype(np.float32)):
                for score in scores:
                    values.setdefault((score.split, score.measure), []).append(score.value)
            wish = [next(s.value for s in scores if s.split == "train") for scores in wishes(one.weights)]
            moved = one.weights - target
            both = lengths * np.linalg.norm(one.weights, axis=1)
            methods.append(
                UnlearningMethod(
                    one.name,
                    np.linalg.norm(moved, axis=1) / max(float(np.mean(apart)), 1e-30),
                    np.sum(one.weights * target, axis=1) / np.maximum(both, 1e-30),
                    {key: np.asarray(row) for key, row in values.items()},
                    one.seconds,
                    np.sum(moved * way, axis=1) / np.maximum(np.sum(way * way, axis=1), 1e-30),
                    np.asarray(wish),
                    one.rounds,
                    one.answers * a_device / 1e6,
                )
            )
        return methods


def _time_second_run(run: Callable[[], Any]) -> tuple[Any, float]:
    """Result of a function, and the seconds of its second call, for which everything is compiled."""
    jax.block_until_ready(run())
    start = time.perf_counter()
    return jax.block_until_ready(run()), time.perf_counter() - start


def weights_of(protocol: Protocol, states: PyTree) -> Float[np.ndarray, "seeds parameters"]:
    """The models of several runs' states."""
    return np.asarray(jax.vmap(protocol.weights)(states), np.float64)


def replay(protocol: Protocol, states: PyTree, replies: tuple[PyTree, ...], arrived: Bool[AnyArray, "..."]) -> PyTree:
    """States after all rounds of a log.

    Args:
        protocol: The protocol.
        states: States before the first round, with leading axis [runs].
        replies: Of each exchange, with leading axes [rounds, runs, parties], as a
            :class:`~fedrank.engine.simulator.Simulator` records them.
        arrived: bool, broadcasts against [rounds, runs, parties]: which replies count, of those that arrived.

    Returns:
        States with leading axis [runs].
    """
    shape = jax.tree.leaves(replies)[0].shape[:3]
    return _replay(protocol, states, replies, jnp.broadcast_to(jnp.asarray(arrived), shape))


def _replay_(protocol, states, replies, arrived):
    def tell(state, told, heard):
        for exchange, of_exchange in zip(protocol.exchanges, told, strict=True):
            state = exchange.tell(state, of_exchange, heard)
        return state

    def step(states, log):
        return jax.vmap(tell)(states, *log), None

    return jax.lax.scan(step, states, (replies, arrived))[0]


_replay = jax.jit(_replay_, static_argnums=0)


class Logged(NamedTuple):
    """A server's log of a run.

    Attributes:
        start: float64 [seeds, n], the model before the first round.
        updates: float64 [rounds, seeds, parties, n], how each device changed the model; 0 where it was not heard.
        amounts: float64 [rounds, seeds, parties], interactions behind it; 0 where it was not heard.
        last: float64 [seeds, parties, n], what each device sent last.
    """

    start: Float[np.ndarray, "seeds n"]
    updates: Float[np.ndarray, "rounds seeds parties n"]
    amounts: Float[np.ndarray, "rounds seeds parties"]
    last: Float[np.ndarray, "seeds parties n"]

    @classmethod
    def of(
        cls, start: Float[np.ndarray, "seeds n"], replies: Any, arrived: Bool[np.ndarray, "rounds seeds parties"]
    ) -> Logged:
        """The log of a run from its replies, :class:`~fedrank.ranking.mechanisms.weights.WeightsReply`."""
        sent = np.asarray(replies.weights, np.float64)
        heard = arrived & np.isfinite(sent).all(axis=-1)
        sent = np.where(heard[..., None], sent, 0.0)
        amounts = np.where(heard, np.asarray(replies.interactions, np.float64), 0.0)
        updates, model = np.empty_like(sent), start
        for t, weights in enumerate(sent):
            updates[t] = np.where(heard[t][..., None], weights - model[:, None], 0.0)
            model = model + mean_of(updates[t], amounts[t])
        return cls(start, updates, amounts, sent[-1])


def mean_of(
    updates: Float[np.ndarray, "seeds parties n"], amounts: Float[np.ndarray, "seeds parties"]
) -> Float[np.ndarray, "seeds n"]:
    """Σᵢ aᵢ uᵢ / Σᵢ aᵢ over devices i, float64 [seeds, n]; 0 if all aᵢ are 0."""
    total = np.maximum(amounts.sum(axis=1), 1e-30)
    return np.einsum("sp,spn->sn", amounts, updates) / total[:, None]


def replayed_updates(log: Logged, stay: Bool[np.ndarray, " parties"]) -> Float[np.ndarray, "seeds n"]:
    """The model of those who stay: the start, and the mean of their updates of each round."""
    model = log.start
    for updates, amounts in zip(log.updates, log.amounts, strict=True):
        model = model + mean_of(updates, amounts * stay)
    return model


@dataclass(frozen=True)
class Eraser:
    """Settings of FedEraser.

    Attributes:
        interval: Δ, rounds between those that are kept; the paper has 1, 2, 5 and 10.
        part: r, part of the interactions of a round that a device makes anew; the paper's 0.5.
    """

    interval: int = 5
    part: float = 0.5


def _once(
    protocol: FoltrPDGD, chunk: int, keys: Any, states: PyTree, parties: Party, interactions: int, number: int
) -> Float[np.ndarray, "seeds parties n"]:
    """Change of each device to the models of these states by a number of interactions: float64 [seeds, parties, n]."""
    fewer = dataclasses.replace(protocol, interactions=interactions)
    own = parties.own._replace(amount=np.minimum(np.asarray(parties.own.amount), interactions))
    simulator = Simulator(fewer, chunk, conditions=Conditions(), record=True)
    _, all_own = simulator.start(keys, Party(parties.shared, own))
    _, _, seen = simulator.advance(keys, states, parties.shared, all_own, number, 1)
    sent = np.asarray(seen["replies"][0].weights, np.float64)[0]
    return sent - np.asarray(states.weights, np.float64)[:, None]


def run_federaser(
    protocol: FoltrPDGD,
    keys: Any,
    begun: PyTree,
    parties: Party,
    log: Logged,
    stay: Bool[np.ndarray, " parties"],
    how: Eraser,
    chunk: int,
) -> tuple[Float[np.ndarray, "seeds n"], int]:
    """FedEraser: updates of some rounds keep their lengths and get the directions that they have without the others.

    Args:
        protocol: The protocol.
        keys: Keys of the runs.
        begun: States before the first round.
        parties: All devices.
        log: What the server kept.
        stay: bool [parties].
        how: Settings.
        chunk: Devices that answer at once.

    Returns:
        The models, float64 [seeds, n], and the number of rounds in which devices answered.
    """
    model, rounds = log.start, range(0, len(log.updates), how.interval)
    interactions = max(1, math.ceil(how.part * protocol.interactions))
    for t in rounds:
        states = begun._replace(weights=jnp.asarray(model, jnp.float32), round=jnp.full(len(model), t, jnp.uint32))
        # Other rounds' randomness: the same interactions cannot be had again.
        anew = _once(protocol, chunk, keys, states, parties, interactions, t + len(log.updates))
        model = model + mean_of(calibrate_updates(log.updates[t], anew), log.amounts[t] * stay)
    return model, len(rounds)


def calibrate_updates(
    stored: Float[np.ndarray, "*devices n"], anew: Float[np.ndarray, "*devices n"]
) -> Float[np.ndarray, "*devices n"]:
    """‖u‖ û/‖û‖: the length of the update that was kept along the one that was made anew; 0 where that is 0."""
    length = np.linalg.norm(anew, axis=-1, keepdims=True)
    return np.linalg.norm(stored, axis=-1, keepdims=True) * anew / np.where(length > 0, length, 1.0)


def projected_ascent(
    protocol: FoltrPDGD,
    keys: Any,
    trained: PyTree,
    parties: Party,
    log: Logged,
    gone: Bool[np.ndarray, " parties"],
    first: int,
    rounds: int,
    chunk: int,
) -> PyTree:
    """The states after the forgotten devices have undone what they learn, near the model of the others.

    Args:
        protocol: The protocol.
        keys: Keys of the runs.
        trained: States after training.
        parties: All devices.
        log: What the server kept.
        gone: bool [parties]: who is forgotten.
        first: Number of the first of these rounds.
        rounds: How many.
        chunk: Devices that answer at once.
    """
    centre = mean_of(log.last, log.amounts[-1] * ~gone)
    model, radius = centre, ball(centre)
    for number in range(first, first + rounds):
        states = trained._replace(
            weights=jnp.asarray(model, jnp.float32), round=jnp.full(len(model), number, jnp.uint32)
        )
        changes = _once(protocol, chunk, keys, states, parties, protocol.interactions, number)
        amounts = np.broadcast_to(np.asarray(parties.own.amount, np.float64) * gone, changes.shape[:2])
        model = project_onto_ball(model - mean_of(changes, amounts), centre, radius)
    return trained._replace(weights=jnp.asarray(model, jnp.float32))


def ball(centre: Float[np.ndarray, "seeds n"]) -> Float[np.ndarray, " seeds"]:
    """A third of the mean distance to random models, normal ones that are as long as the model on average."""
    n = centre.shape[1]
    normal = np.random.Generator(np.random.PCG64(0)).standard_normal((_RANDOM, n)) / math.sqrt(n)
    length = np.linalg.norm(centre, axis=1)
    apart = centre[:, None] - length[:, None, None] * normal[None]
    return _PART * np.linalg.norm(apart, axis=2).mean(axis=1)


def project_onto_ball(
    model: Float[np.ndarray, "seeds n"], centre: Float[np.ndarray, "seeds n"], radius: Float[np.ndarray, " seeds"]
) -> Float[np.ndarray, "seeds n"]:
    """The nearest point of the ball around the centre."""
    away = model - centre
    length = np.linalg.norm(away, axis=1)
    return centre + away * np.minimum(1.0, radius / np.where(length > 0, length, 1.0))[:, None]
