"""Unlearning devices: what is left of them in a model after each of several methods of removing them.

*Replay* tells the server its log again without the forgotten devices' messages, which takes seconds where a message is
a seed and two numbers. It takes out what they said, not what they had a part in: later rewards of the others were
measured on models that the forgotten had helped to make. *Retraining* runs the whole experiment without them and is
what the other methods are measured against. *Fine-tuning* goes on from the model as it is with the others alone.

The distance between two models means little by itself; the distance between two retrainings that differ in nothing but
their seed is the measure of it.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Protocol
from fedrank.engine.attackers import draw_attackers
from fedrank.engine.progress import Listener
from fedrank.engine.replay import replay
from fedrank.engine.simulator import Conditions, Simulator, run_keys
from fedrank.ranking.build import Experiment, build
from fedrank.ranking.config import FoltrESConfig, RankingConfig
from fedrank.ranking.evaluate import Evaluator


@dataclass(frozen=True)
class UnlearningMethod:
    """What one method of unlearning left.

    Attributes:
        name: Such as ``"replay"``.
        distance: float64 [seeds], ‖θ − θ of retraining‖ over the mean distance of two retrainings' seeds.
        values: (split, measure) -> float64 [seeds].
        seconds: Of all seeds together, compilation left out.
    """

    name: str
    distance: Float[np.ndarray, "seeds"]
    values: dict[tuple[str, str], Float[np.ndarray, "seeds"]]
    seconds: float


def unlearn(config: RankingConfig, share: float, tune: int, listener: Listener | None = None) -> list[UnlearningMethod]:
    """Train with all devices, then remove some of them by each method.

    Args:
        config: FOLtR-ES. If devices attack, these are the ones to forget.
        share: Share of the devices to forget, in (0, 1); where devices attack it must be theirs.
        tune: Rounds of fine-tuning.
        listener: Is told which stage has begun.

    Returns:
        The model as trained, and what each method left, all compared with retraining.

    Raises:
        ConfigError: Another protocol, fewer than two seeds, or no device to forget or to keep.
    """
    listener = listener or Listener()
    if not isinstance(config, FoltrESConfig):
        raise ConfigError(f"forgetting replays a log of seeds and sums, which {config.protocol!r} does not have.")
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
        return _methods(experiment, gone, tune, listener)
    finally:
        listener.done()


def _methods(experiment: Experiment, gone: np.ndarray, tune: int, listener: Listener) -> list[UnlearningMethod]:
    protocol, config, parties = experiment.protocol, experiment.config, experiment.parties
    keys = run_keys(config.all_seeds)
    chunk = max(1, config.compute.chunk // config.seeds)
    without = dataclasses.replace(experiment.conditions, attack=None, attackers=(), absent=tuple(map(bool, gone)))

    def train(conditions: Conditions, states: PyTree, first: int, rounds: int, record: bool = False):
        simulator = Simulator(protocol, chunk, conditions=conditions, record=record)
        begun, own = simulator.start(keys, parties)
        before = begun if states is None else states

        def run():
            return simulator.advance(keys, before, parties.shared, own, first, rounds)

        jax.block_until_ready(run())  # compiles
        start = time.perf_counter()
        out = jax.block_until_ready(run())
        return begun, out[0], out[2], time.perf_counter() - start

    listener.stage("Training with everybody")
    begun, trained, seen, full_seconds = train(experiment.conditions, None, 0, config.rounds, record=True)
    listener.stage("Replaying the log")
    kept = np.asarray(seen["arrived"]) & ~gone
    jax.block_until_ready(replay(protocol, begun, seen["replies"], kept))
    start = time.perf_counter()
    replayed = jax.block_until_ready(replay(protocol, begun, seen["replies"], kept))
    replay_seconds = time.perf_counter() - start
    listener.stage("Retraining")
    _, retrained, _, retrain_seconds = train(without, None, 0, config.rounds)
    listener.stage("Fine-tuning")
    _, tuned, _, tune_seconds = train(without, trained, config.rounds, tune)

    listener.stage("Evaluating")
    asked = config.evaluation
    evaluator = Evaluator(
        experiment.splits, experiment.ranker, experiment.metric, experiment.users, asked.measures, asked.tie_orders
    )
    target = _weights(protocol, retrained)
    apart = [np.linalg.norm(a - b) for i, a in enumerate(target) for b in target[i + 1 :]]
    methods = []
    for name, states, seconds in (
        ("as trained", trained, full_seconds),
        ("replay", replayed, replay_seconds),
        (f"fine-tuning, {tune} rounds", tuned, tune_seconds),
        ("retraining", retrained, retrain_seconds),
    ):
        weights = _weights(protocol, states)
        values: dict[tuple[str, str], list[float]] = {}
        for scores in evaluator(weights.astype(np.float32)):
            for score in scores:
                values.setdefault((score.split, score.measure), []).append(score.value)
        distance = np.linalg.norm(weights - target, axis=1) / max(float(np.mean(apart)), 1e-30)
        methods.append(UnlearningMethod(name, distance, {k: np.asarray(v) for k, v in values.items()}, seconds))
    return methods


def _weights(protocol: Protocol, states: PyTree) -> Float[np.ndarray, "seeds parameters"]:
    return np.asarray(jax.vmap(protocol.weights)(states), np.float64)
