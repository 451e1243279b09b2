"""Searching for good settings with Optuna instead of running every combination of a grid.

Each trial is a run in its own directory. Settings are drawn from lists or ranges; a function of the finished run's
directory says how good it is. Everything is kept in the search's folder: started again, a search goes on, also with a
run that was stopped half-way, until the number of trials is reached.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrank.core.errors import ConfigError, FedrankError, RunError
from fedrank.core.lazy import require
from fedrank.core.trees import Json
from fedrank.engine.config import RunConfig
from fedrank.engine.progress import Listener
from fedrank.engine.run import resume_experiment, run_experiment
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.settings import as_dict, with_setting
from fedrank.engine.variations import parse_vary

_RANGE = re.compile(r"([^=]+)=([-+.\deE]+)\.\.([-+.\deE]+?)(:log)?")


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, both included; whole numbers where both ends are.

    Attributes:
        low: Lower end.
        high: Upper end.
        log: Whether ratios count rather than differences.
    """

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Trial:
    """One run of a search.

    Attributes:
        number: From 0.
        settings: By dotted name.
        value: What the objective said; None of a run that failed.
        folder: The run's directory.
        failed: Why there is no run; empty if there is one.
    """

    number: int
    settings: Mapping[str, Json]
    value: float | None
    folder: Path
    failed: str = ""


def parse_space(texts: list[str]) -> dict[str, Range | list[Any]]:
    """``["sigma=0.001..0.1:log", "ranker=linear,mlp"]`` to a range and a list, by dotted name.

    Raises:
        ConfigError: Not of this form, a setting named twice, or an empty range.
    """
    out: dict[str, Range | list[Any]] = {}
    for text in texts:
        found = _RANGE.fullmatch(text)
        parsed = parse_vary([text]) if found is None else {found.group(1): _range(found, text)}
        for key, values in parsed.items():
            if key in out:
                raise ConfigError(f"--vary names {key!r} twice; give all its values in one list or range.")
            out[key] = values
    return out


def _range(found: re.Match[str], text: str) -> Range:
    try:
        low, high = (int(end) if re.fullmatch(r"[-+]?\d+", end) else float(end) for end in found.group(2, 3))
    except ValueError as error:
        raise ConfigError(f"--vary {text}: the ends of a range must be numbers.") from error
    if type(low) is not type(high):
        low, high = float(low), float(high)
    if not low < high or (found.group(4) and low <= 0):
        raise ConfigError(f"--vary {text}: a range must ascend, and a logarithmic one begin above 0.")
    return Range(low, high, bool(found.group(4)))


def run_search(
    config: RunConfig,
    space: Mapping[str, Range | list[Any]],
    folder: str | os.PathLike[str],
    objective: Callable[[Path], float],
    *,
    trials: int,
    about: str = "",
    minimise: bool = False,
    listener: Callable[[str], Listener] = lambda name: Listener(),
) -> list[Trial]:
    """Run trials until there are ``trials`` of them; settings that are refused count as a trial that failed.

    Args:
        config: What the runs have in common; its seed is that of the search.
        space: By dotted name, a range or a list.
        folder: Gets ``search.db`` and a directory a trial.
        objective: How good a finished run is, from its directory.
        trials: Number of trials in all, those of earlier calls included.
        about: What the objective measures; a search goes on with the same only.
        minimise: Whether less is better.
        listener: Makes the listener of a run from its name.

    Returns:
        All trials, in order.

    Raises:
        MissingExtraError: Optuna is not installed.
        ConfigError: No settings to vary, no trials, or a setting that is not known.
        RunError: The folder holds a search of something else.
    """
    require("optuna", "A search", "optuna")
    import optuna  # pyright: ignore[reportMissingImports]

    if not space or trials < 1:
        raise ConfigError(f"a search needs a setting to vary and a trial at least; got {len(space)} and {trials}.")
    for key, values in space.items():
        with_setting(config, key, values.low if isinstance(values, Range) else values[0])
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=f"sqlite:///{(home / 'search.db').resolve()}",
        study_name="fedrank",
        sampler=optuna.samplers.TPESampler(seed=config.seed),
        direction="minimize" if minimise else "maximize",
        load_if_exists=True,
    )
    asked = json.dumps([as_dict(config), {k: _plain(v) for k, v in space.items()}, about, minimise], sort_keys=True)
    if study.user_attrs.setdefault("asked", asked) != asked:
        raise RunError(f"{home}: holds a search of something else. Choose another folder with --out.")
    study.set_user_attr("asked", asked)
    states = optuna.trial.TrialState
    if study.trials:
        study.sampler.reseed_rng()  # else a search that goes on would draw what it drew before
    while True:
        open_ = [one for one in study.trials if one.state == states.RUNNING]
        if not open_ and len(study.trials) >= trials:
            break
        # A trial that is open is one whose process was stopped: its settings are drawn, and its run goes on.
        trial = optuna.trial.Trial(study, open_[0]._trial_id) if open_ else study.ask()
        settings = {key: _drawn(trial, key, values) for key, values in space.items()}
        trial.set_user_attr("settings", json.dumps(settings))
        name = _name(trial.number)
        try:
            changed = config
            for key, value in settings.items():
                changed = with_setting(changed, key, value)
            place = RunFolder(home / name)
            if place.config.exists():
                resume_experiment(place.path, listener=listener(name))
            else:
                run_experiment(changed, place.path, listener=listener(name))
        except FedrankError as error:
            trial.set_user_attr("failed", str(error))
            study.tell(trial.number, state=states.FAIL)
            continue
        study.tell(trial.number, objective(place.path))
    return [_trial(one, home) for one in study.trials]


def best(trials: list[Trial], *, minimise: bool = False) -> Trial:
    """The trial with the best value.

    Raises:
        RunError: All failed; says why the first did.
    """
    found = [trial for trial in trials if trial.value is not None]
    if not found:
        raise RunError(f"all {len(trials)} trials failed; the first: {trials[0].failed}")
    return (min if minimise else max)(found, key=lambda trial: trial.value or 0.0)


def _name(number: int) -> str:
    return f"trial-{number:04d}"


def _plain(values: Range | list[Any]) -> Any:
    return vars(values) if isinstance(values, Range) else values


def _drawn(trial: Any, key: str, values: Range | list[Any]) -> Any:
    """The value of a setting in a trial; a trial that is open has its values already and draws nothing."""
    if not isinstance(values, Range):
        # Optuna keeps numbers and text only, so what is chosen is the place in the list.
        return values[trial.suggest_categorical(key, list(range(len(values))))]
    if isinstance(values.low, int) and isinstance(values.high, int):
        return trial.suggest_int(key, values.low, values.high, log=values.log)
    return trial.suggest_float(key, values.low, values.high, log=values.log)


def _trial(one: Any, home: Path) -> Trial:
    settings = json.loads(one.user_attrs["settings"])
    return Trial(one.number, settings, one.value, home / _name(one.number), one.user_attrs.get("failed", ""))
