"""Unlearning devices: what is left of them in a model after each of several methods of removing them.

*Retraining* runs the whole experiment without them and is what the other methods are measured against. *Fine-tuning*
goes on from the model as it is with the others alone. *Replay* tells the server its log again without the forgotten
devices' messages, which takes seconds. It takes out what they said, not what they had a part in: later messages of the
others answer models that the forgotten had helped to make. Where devices send weights there are *FedEraser* and
*projected gradient ascent* beside these (:mod:`fedrank.ranking.unlearning.weights`).

The distance between two models means little by itself; the distance between two retrainings that differ in nothing but
their seed is the measure of it. Distances count every direction alike. What is asked is about one, the way from the
retrained model to the model as trained: ``influence`` says how much of that way is left.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Protocol
from fedrank.engine.attackers import draw_attackers
from fedrank.engine.progress import Listener
from fedrank.engine.replay import replay
from fedrank.engine.simulator import Conditions, Simulator, run_keys
from fedrank.ranking.attacks import inverted_user
from fedrank.ranking.build import Experiment, build, user_for
from fedrank.ranking.config import DeviceRun
from fedrank.ranking.evaluate import Evaluator
from fedrank.ranking.unlearning.weights import Eraser, Logged, projected_ascent, replayed_updates, run_federaser

#: Rounds in which the forgotten devices undo what they learnt, of projected gradient ascent.
ASCENT = 5
#: Rounds between those that FedEraser keeps.
INTERVALS = (1, 5)


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
        self.protocol: Any = experiment.protocol  # of one of the two methods that unlearn() takes
        self.parties = experiment.parties
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
        """Results of all methods."""
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
        for interval in INTERVALS:
            known = (self.keys, begun, self.parties, log, ~self.gone, Eraser(interval), self.chunk)
            erase = functools.partial(run_federaser, self.protocol, *known)
            (models, rounds), seconds = _time_second_run(erase)
            which = "every round" if interval == 1 else f"one round of {interval}"
            found.append(_Left(f"FedEraser, {which}", models, seconds, rounds, rounds * stay))

        self.listener.stage("Projected gradient ascent")
        args = (trained, self.parties, log, self.gone, self.rounds, ASCENT, self.chunk)
        states, seconds = _time_second_run(functools.partial(projected_ascent, self.protocol, self.keys, *args))
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
