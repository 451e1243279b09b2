"""One cell: an ordinary run whose directory is thrown away once its values are read, or a ranker trained on labels."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import FedrankError
from fedrank.core.frame import Frame
from fedrank.core.privacy_report import PrivacyReport, Unit
from fedrank.core.trees import Json
from fedrank.engine.run import build, run_experiment
from fedrank.engine.run_folder import RunFolder, bytes_up
from fedrank.engine.settings import from_dict, with_setting
from fedrank.metrics.online import REWARDS
from fedrank.ranking.baselines import baselines
from fedrank.ranking.build import splits_of, user_for
from fedrank.ranking.config import DeviceRun, RankingRun
from fedrank.ranking.data.splits import Splits
from fedrank.ranking.evaluate import Measurement
from fedrank.ranking.run import OWN_RANKERS
from fedrank_zoo.leaderboard.grid import CHOOSING, MEASURE

#: Measures of a cell.
MEASURES = (MEASURE, "RR@10")
#: Why there is no value at a budget of bytes where one service has all clicks.
NO_MESSAGES = "nothing is federated: queries, results and clicks are at the service, in no messages to count"


def compute(about: dict[str, Json]) -> dict[str, Json]:
    """The result of a cell, from what it is about (see :meth:`fedrank_zoo.leaderboard.grid.Grid.cells`)."""
    started = time.process_time()
    try:
        found = _labels(about) if "labels" in about else _method(about)
    except FedrankError as error:  # the method, or the data, refuses it: a row that says why
        found = {"why": str(error).splitlines()[0]}
    return {**found, "cpu_seconds": round(time.process_time() - started, 2)}


def _method(about: dict[str, Json]) -> dict[str, Json]:
    config, budgets = from_dict(about["settings"]), about["budgets"]
    experiment = build(config)
    config, chosen = _with_best_step(config, about.get("steps", {}), experiment.splits)
    rounds = max(1, budgets["interactions"] // experiment.interactions)
    if rounds < config.rounds or (rounds > config.rounds and getattr(config, "population", None) is None):
        config = with_setting(config, "rounds", rounds)  # a population stays: all its devices have taken part by then
    within = _run(config, experiment.splits)
    if not isinstance(config, DeviceRun):
        return chosen | {"budgets": {"interactions": within | {"bytes": None}, "bytes": {"why": NO_MESSAGES}}}
    a_round = experiment.n_parties * bytes_up(experiment.protocol, experiment.n_parties)
    rounds = min(config.rounds, budgets["bytes"] // a_round)
    if rounds == 0:
        sent: dict[str, Json] = {"why": f"one round sends {a_round:,} bytes, more than the budget"}
    elif rounds == config.rounds:
        sent = within
    else:
        sent = _run(with_setting(config, "rounds", rounds), experiment.splits)
    return chosen | {"budgets": {"interactions": within, "bytes": sent}}


def _with_best_step(config: Any, steps: dict[str, Any], splits: Splits) -> tuple[Any, dict[str, Json]]:
    """The settings with the step size that is best on queries which do not judge, and what was tried.

    Those are the validation queries where others judge, else the training queries. Each step size has one run of the
    whole budget, with one seed that judges nothing.
    """
    if not steps:
        return config, {}
    ((name, values),) = steps.items()
    by = "vali" if splits.vali is not None and judged_by(splits) != "vali" else "train"
    tried: dict[str, Json] = {}
    seed = config.seed + CHOOSING
    for value in values:
        one = dataclasses.replace(with_setting(config, name, value), seeds=1, seed=seed).resolved()
        with tempfile.TemporaryDirectory() as folder:
            metrics = RunFolder(run_experiment(one, Path(folder) / "run")).read_metrics()
        measured = metrics.where(split=by, round=one.rounds)
        found = _by_seed(measured.where(measure=MEASURE + OWN_RANKERS)) or _by_seed(measured.where(measure=MEASURE))
        tried[f"{value:g}"] = found[str(seed)]
    best = max(tried, key=lambda value: tried[value])
    return with_setting(config, name, float(best)), {"step": float(best), "tried": tried, "chosen_by": by}


def _run(config: RankingRun, splits: Splits) -> dict[str, Json]:
    """The values of a run, of each seed; those of its final rankers query by query, the mean over seeds."""
    config = with_setting(config, "evaluation.every", min(config.evaluation.every, config.rounds))
    part = judged_by(splits)
    with tempfile.TemporaryDirectory() as folder:
        home = run_experiment(config, Path(folder) / "run")
        metrics = RunFolder(home).read_metrics()
        queries = Frame.from_parquet((home / "per_query.parquet").read_bytes())
        privacy = PrivacyReport.from_json(_json(home / "privacy.json"))
    expected = f"expected {config.reward} ({config.clicks})"
    # Where each device has its own ranker, that is what its user gets; the server's is for newcomers.
    whose, ranker = (OWN_RANKERS, "own rankers") if (queries["ranker"] == "own rankers").any() else ("", "learnt")
    last = metrics.where(split=part, round=config.rounds)
    values = {m: _by_seed(last.where(measure=m + whose)) for m in (*MEASURES, expected)}
    values["online"] = _by_seed(metrics.where(split="online", measure=MEASURE))
    curve = metrics.where(split=part, measure=MEASURE + whose).groups("round")
    mine = queries.where(ranker=ranker, split=part, measure=MEASURE)
    epsilon = privacy.epsilon(Unit.USER)
    return {
        "part": part,
        "rounds": config.rounds,
        "interactions": int(last["interactions"].max(initial=0)),
        "bytes": int(last["bytes_up"].max(initial=0)),
        "epsilon": None if np.isinf(epsilon) else float(epsilon),
        "values": {"expected" if m == expected else m: v for m, v in values.items()},
        "queries": dict(zip(_unique(mine["qid"].tolist()), mine["value"].tolist(), strict=True)),
        "curve": [
            (round_, int(rows["interactions"][0]), int(rows["bytes_up"][0]), float(rows["value"].mean()))
            for (round_,), rows in curve
        ],
    }


def _labels(about: dict[str, Json]) -> dict[str, Json]:
    config = from_dict({"protocol": "foltr-es", **about["part"]})
    splits = splits_of(config)
    part = judged_by(splits)
    metric = REWARDS.get(config.reward)(config.depth)
    users = tuple(user_for(name, splits, config.depth) for name in about["clicks"])
    ties = config.evaluation.tie_orders
    (one,) = baselines((about["labels"],), splits, metric, users, MEASURES, ties)
    about_queries = Frame(Measurement(splits, None, (), (MEASURE,)).queries)
    here, trained = about_queries["split"] == part, about_queries["split"] == "train"
    values = {measure: float(row[here].mean()) for measure, row in one.per_query.items()}
    # A ranker that does not learn shows its users the same lists from the first interaction to the last.
    values["online"] = float(one.per_query[MEASURE][trained].mean())
    qids = _unique(about_queries["qid"][here].tolist())
    return {
        "part": part,
        "values": values,
        "queries": dict(zip(qids, one.per_query[MEASURE][here].tolist(), strict=True)),
        "notes": [*one.notes, *([_STOPPED] if part == "vali" and about["labels"] == "LambdaMART" else [])],
    }  # fmt: skip


_STOPPED = "LambdaMART was stopped by the validation queries, which are also those it is judged by where no others are"


def judged_by(splits: Splits) -> str:
    """The part that rankers are judged by: the test part, or the validation part where there is no other.

    Without a test part the step size is chosen on training queries, so that validation queries are unseen as well.
    """
    return "test" if splits.test is not None else "vali"


def _by_seed(frame: Frame) -> dict[str, float]:
    return {str(seed): value for seed, value in frame.means("seed").items()}


def _unique(qids: list[Any]) -> list[str]:
    """Query ids, the second of a name with a number: a set may hold a query several times."""
    seen: dict[str, int] = {}
    out = []
    for qid in map(str, qids):
        seen[qid] = seen.get(qid, 0) + 1
        out.append(qid if seen[qid] == 1 else f"{qid} ({seen[qid]})")
    return out


def _json(path: Path) -> Any:
    import json

    return json.loads(path.read_text(encoding="utf-8"))
