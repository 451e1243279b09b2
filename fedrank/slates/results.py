"""Results of a run of platforms: intervals over seeds, regret, time to a threshold, the paper's legacy metrics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.metrics.returns import EVERY, WINDOW, max_of_moving_mean, time_to_threshold
from fedrank.slates.baselines import ENGAGEMENT, OPTIMUM, by_measure, interval, measures
from fedrank.slates.build import SlateExperiment

#: The threshold, as a share of the way from random slates to the optimum.
SHARE = 0.5
#: Consecutive evaluations that must reach it, so that none does by luck.
CONSECUTIVE = 2


def about(experiment: SlateExperiment) -> dict[str, Json]:
    """The content of ``slates.json`` before the run, without ``results``."""
    e, world = experiment, experiment.world
    w = e.config.world
    return {
        "platforms": list(e.names),
        "feedback": list(e.protocol.feedback),
        "protocol": e.config.protocol,
        "central": getattr(e.config.slates, "central", False),
        "mode": e.config.slates.mode,
        "faults": list(e.faults),
        "world": {
            "preset": w.preset,
            "candidates": world.candidates,
            "slate": world.slate,
            "platforms": world.platforms,
            "memory_discount": world.memory_discount,
            "sensitivity": world.sensitivity,
            "sensitivities": list(world.sensitivities),
            "drift": world.drift,
            "observation_noise": world.observation_noise,
            "semantics": world.semantics,
            "choice": w.choice,
            "shared_candidates": world.shared_candidates,
            "turns": world.turns,
            "fresh": world.fresh,
            "rounds_per_episode": world.rounds_per_episode,
        },
        "episodes": e.config.rounds // world.rounds_per_episode,
        "evaluation": {"every": e.config.evaluation.every, "episodes": e.config.evaluation.episodes},
        "generated": True,
        "notes": list(e.notes),
    }


def read_baselines(file: Path) -> list[dict[str, Json]]:
    """The content of ``baselines.json``.

    Raises:
        RunError: The file is not one that a run wrote.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["baselines"]
        return [{**one, "runs": np.array(one["runs"], float)} for one in found]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RunError(f"{file}: cannot be read ({error}). Restore it, or run again in another folder.") from error


def results(
    experiment: SlateExperiment,
    metrics: pl.DataFrame,
    episodes: pl.DataFrame,
    known: list[dict[str, Json]],
    copied: dict[str, Json] | None = None,
) -> dict[str, Json]:
    """The results.

    Args:
        experiment: The run.
        metrics: ``metrics.parquet``.
        episodes: ``episodes.parquet``.
        known: :func:`read_baselines`.
        copied: :func:`~fedrank.slates.baselines.copying`; None with a single platform.

    Returns:
        ``test``, the last networks' engagement of a fresh user; ``against``, differences to every baseline, paired by
        run; ``optimum``, that baseline's engagement, ``solution``, the value that was computed for it, and ``regret``
        to it; ``threshold``, users until it was reached; ``legacy``; ``copying``. By measure, with 95 %
        t-intervals over runs.
    """
    names, seeds = experiment.names, experiment.config.all_seeds
    test = metrics.filter(pl.col("split") == "test")
    last = _by_seed(test.filter(pl.col("round") == experiment.config.rounds), measures(names), seeds)
    against = {
        one["name"]: {
            measure: interval(last[measure] - theirs)
            for measure, theirs in by_measure(np.asarray(one["runs"], np.float64), names).items()
        }
        for one in (*known, *([] if copied is None else [copied]))
    }
    best = next((one for one in known if one["name"] == OPTIMUM), None)
    return {
        "test": {measure: interval(values) for measure, values in last.items()},
        "against": against,
        "optimum": None if best is None else {one["measure"]: _ends(one) for one in best["values"]},
        "solution": None if best is None else best["solution"],
        "regret": None if best is None else {ENGAGEMENT: _negative(against[OPTIMUM][ENGAGEMENT])},
        "threshold": _threshold(experiment, test, known),
        "legacy": _legacy(episodes, names, seeds),
        "copying": copied,
    }


def _by_seed(frame: pl.DataFrame, names: tuple[str, ...], seeds: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Measure -> float64 [seeds], of rows that are one a seed and measure."""
    table = {(seed, measure): value for seed, measure, value in frame.select("seed", "measure", "value").iter_rows()}
    return {measure: np.array([table[seed, measure] for seed in seeds]) for measure in names}


def _ends(found: dict[str, Json]) -> dict[str, Json]:
    return {name: found[name] for name in ("value", "low", "high")}


def _negative(found: dict[str, float | None]) -> dict[str, float | None]:
    low, high = found["low"], found["high"]
    return {
        "value": None if found["value"] is None else -found["value"],
        "low": None if high is None else -high,
        "high": None if low is None else -low,
    }


def _threshold(experiment: SlateExperiment, test: pl.DataFrame, known: list[dict[str, Json]]) -> dict[str, Json] | None:
    """Users until the evaluation curve is half-way from chance to the optimum; None without either baseline."""
    levels = {one["name"]: {value["measure"]: value["value"] for value in one["values"]} for one in known}
    if "random" not in levels or OPTIMUM not in levels:
        return None
    length, out = experiment.world.rounds_per_episode, {}
    for measure in measures(experiment.names):
        low, high = levels["random"][measure], levels[OPTIMUM][measure]
        level = low + SHARE * (high - low)
        times = []
        for seed in experiment.config.all_seeds:
            curve = test.filter((pl.col("seed") == seed) & (pl.col("measure") == measure)).sort("round")
            time = time_to_threshold(
                (curve["round"] / length).to_numpy(), curve["value"].to_numpy(), level, min(CONSECUTIVE, len(curve))
            )
            times.append(time if np.isfinite(time) else None)
        out[measure] = {"level": level, "episodes": times}
    return {"share": SHARE, "stay": CONSECUTIVE, "measures": out}


def _legacy(episodes: pl.DataFrame, names: tuple[str, ...], seeds: tuple[int, ...]) -> dict[str, Json]:
    """The publication's "optimal reward" and ETROR of each platform; exploration counts, first rounds do not."""
    out: dict[str, Json] = {"window": WINDOW, "every": EVERY, "first_round": False, "platforms": {}}
    if episodes.is_empty() or episodes["episode"].max() + 1 < WINDOW:  # type: ignore[operator]
        return out
    for name in names:
        mine = episodes.filter(pl.col("platform") == name).sort("episode")
        found = [
            max_of_moving_mean((part["engagement"] - part["first"]).to_numpy())
            for part in (mine.filter(pl.col("seed") == seed) for seed in seeds)
        ]
        out["platforms"][name] = {
            "optimal_reward": interval([float(one.optimal_reward) for one in found]),
            "etror": [int(one.etror) for one in found],
        }
    return out
