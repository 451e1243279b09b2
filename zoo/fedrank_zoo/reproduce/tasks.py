"""What the page of a study needs to know of the runs of a task, besides what every report knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from fedrank.core.trees import flat
from fedrank.engine.methods import task_of
from fedrank.report.files import parquet
from fedrank.report.run import Run
from fedrank.silos.report.files import CROSSED
from fedrank_zoo.reproduce.study import Paper, Study


def _moved(run: Run) -> Float64[np.ndarray, " rounds"]:
    entries = list(run.ledger or ())
    moved = np.zeros(1 + max((entry.round for entry in entries), default=-1))
    for entry in entries:
        moved[entry.round] += entry.bytes
    return np.cumsum(moved)


def _moved_by_silos(run: Run) -> Float64[np.ndarray, " rounds"]:
    """Of silos, some of which are asked in a round."""
    sizes = {(e.exchange, e.sender): e.bytes_each for e in run.ledger or ()}
    if not sizes:
        return np.zeros(0)
    frame = parquet(run.path / "crossed.parquet", CROSSED)
    down, up = (
        np.array([sizes.get((exchange, sender), 0) for exchange in frame["exchange"].tolist()], float)
        for sender in ("server", "parties")
    )
    moved = frame["requests"] * down + frame["replies"] * up
    _, rounds = np.unique(frame["round"], return_inverse=True)
    return np.cumsum(np.bincount(rounds, moved)) / len(run.seeds)


def _moved_by_platforms(run: Run) -> Float64[np.ndarray, " rounds"]:
    """Of platforms: a line of their ledger is of all rounds from one evaluation to the next."""
    entries = list(run.ledger or ())
    if not entries:
        return np.zeros(0)
    starts = [*sorted({entry.round for entry in entries}), run.shown.done_rounds(run)]
    moved = [sum(entry.bytes for entry in entries if entry.round == start) for start in starts[:-1]]
    return np.cumsum(np.repeat(np.divide(moved, np.diff(starts)), np.diff(starts)))


@dataclass(frozen=True)
class StudiedTask:
    """A task in studies.

    Attributes:
        baselines_depend_on: Dotted names of the settings that a run's baselines depend on; in all others, theirs is one
            row of a study. Empty where baselines are measures of the run, with their own seeds.
        trained_on: The data that a run's baselines were made for, in words, where runs of a study differ in it.
        bytes_moved: Bytes that have moved after each round of a run, in both directions, in the mean over seeds.
        notes: Notes below a study's table.
        evaluated_every_round: Whether every round has values of the models; else those of the last evaluation count.
    """

    baselines_depend_on: Callable[[Run], list[str]] = lambda run: ["data"]
    trained_on: Callable[[Run], str] = lambda run: str(run.setting("data"))
    bytes_moved: Callable[[Run], Float64[np.ndarray, " rounds"]] = _moved
    notes: Callable[[Paper, Study], list[str]] = lambda paper, study: []
    evaluated_every_round: bool = False


def _notes_on_queries(paper: Paper, study: Study) -> list[str]:
    return ["All queries count unless a measure says (judged): those with a relevant document."]


def _notes_on_engagement(paper: Paper, study: Study) -> list[str]:
    out = ["engagement: of a user's stay, without a discount; test: fresh users, without exploration."]
    if any((e["study"], e["split"]) == (study.name, "test") for e in paper.values):
        out.append(
            "The paper's number is another quantity: the largest mean of 100 users in a row while learning (of random "
            "slates, the mean of all users). It lies above the truth, and a policy that never changes has it, too."
        )
    return out


_ON_RANKING = ("data", "fold", "divide", "data_seed", "holdout", "normalise", "clicks")
_TASKS = {
    "ranking": StudiedTask(lambda run: list(_ON_RANKING), notes=_notes_on_queries),
    "silos": StudiedTask(lambda run: ["data", "data_seed"], bytes_moved=_moved_by_silos, evaluated_every_round=True),
    "texts": StudiedTask(lambda run: [], notes=_notes_on_queries),
    "slates": StudiedTask(
        lambda run: [key for key, _ in flat(run.config) if key.startswith("world.")],
        lambda run: run.shown.subject(run),
        _moved_by_platforms,
        _notes_on_engagement,
    ),
}


def studied_task(run: Run) -> StudiedTask:
    """The task of a run.

    A task of another package says what its studies need in an attribute ``studied`` of its ``shown``, a
    :class:`StudiedTask`; without one it has no notes, and baselines that depend on the data alone.
    """
    if (own := getattr(run.shown, "studied", None)) is not None:
        return own
    task = task_of(str(run.setting("protocol")), str(run.environment.get("task") or "") or None)
    return _TASKS.get(task.name, StudiedTask())
