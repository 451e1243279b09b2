"""``fedrank sweep --search optuna``: a search for settings, its trials in a table, and the best run's results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrank.cli.terminal import headline, print_json, say, table
from fedrank.core.errors import ConfigError
from fedrank.engine.config import RunConfig
from fedrank.engine.progress import Listener
from fedrank_zoo.optuna_search.search import Trial, best, parse_space, run_search


def search_settings(
    config: RunConfig,
    vary: list[str],
    folder: Path,
    *,
    trials: int,
    measure: str,
    minimise: bool,
    listener: Callable[[str], Listener],
    as_json: bool,
) -> Path | None:
    """Search, and print the trials.

    Args:
        config: What the runs have in common.
        vary: Settings with their lists or ranges, as on the command line.
        folder: Gets the runs, ``trials.csv`` and the page ``compare.html``.
        trials: Number of runs in all.
        measure: ``split: measure``; empty: the first of the validation part.
        minimise: Whether less is better.
        listener: Makes the listener of a run from its name.
        as_json: Print JSON.

    Returns:
        Folder of the best run, which is to be shown; None: all is printed as JSON.

    Raises:
        ConfigError: The measure is one of the test part, or something is wrong with a setting.
        UnknownNameError: The runs have no such measure.
    """
    split, _, name = measure.partition(": ") if measure else ("vali", "", "")
    if split not in ("vali", "train", "online") or (measure and not name):
        raise ConfigError(
            f"measure must look like 'vali: nDCG(dcg='exp-log2')@10', of the parts vali, train or online, got "
            f"{measure!r}. Settings "
            "that are chosen by the test part look better than they are."
        )

    from fedrank_zoo.optuna_search.page import measures_of, search_opening, value_of, write_csv, write_search

    how: dict[str, Any] = {"trials": trials, "about": measure, "minimise": minimise, "listener": listener}
    found = run_search(config, parse_space(vary), folder, lambda path: value_of(path, split, name), **how)
    winner = best(found, minimise=minimise)
    called = f"{split}: {name or measures_of(winner.folder, split)[0]}"
    write_csv(folder / "trials.csv", found, called)
    page = write_search(found, called, folder, minimise=minimise)
    sentence = search_opening(found, called, minimise=minimise).sentence
    if as_json:
        _print_json(str(sentence), found, winner, called)
        return None
    keys = list(winner.settings)
    shown = table("trial", *keys, called, numbers=("trial", called), title=f"{len(found)} trials in {folder}")
    for trial in found:
        value = "failed" if trial.value is None else f"{trial.value:.4f}"
        style = "bold" if trial is winner else None
        shown.add_row(str(trial.number), *(f"{trial.settings[key]}" for key in keys), value, style=style)
    say(
        headline(sentence),
        shown,
        *(f"trial {trial.number}: {trial.failed}" for trial in found if trial.failed),
        page=page,
    )
    say(f"Trial {winner.number}:")
    return winner.folder


def _print_json(sentence: str, found: list[Trial], winner: Trial, called: str) -> None:
    from fedrank.report.load import load
    from fedrank.report.tables import to_json

    run = load(winner.folder)
    rows = [{**vars(trial), "folder": str(trial.folder), "settings": dict(trial.settings)} for trial in found]
    final = to_json(run.shown.final(run))["rows"]
    print_json(
        {"sentence": sentence, "measure": called, "trials": rows, "best": rows[found.index(winner)], "final": final}
    )
