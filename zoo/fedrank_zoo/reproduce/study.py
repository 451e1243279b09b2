"""Studies: the tables and figures of a paper as sweeps, with what the paper printed.

A folder under ``reproductions`` is one paper. ``expected.json`` holds its name, its citation and its numbers; every
``.toml`` file is one table or figure: a sweep (:mod:`fedrank.engine.variations`) with a table ``[study]`` that
says how it is to be shown::

    [study]
    title = "Figure 1: antithetic halves"
    measures = ["online: MaxRR", "test: nDCG(dcg='exp-log2')@10"]
    curves = ["online: MaxRR"]
    panels = ["clicks"]              # one figure a value; what else varies is a line
    pool = ["fold"]                  # averaged over
    against = { antithetic = false } # differences to this

Braces in a measure, as in ``"train: expected MaxRR ({clicks})"``, stand for the setting of that run.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from fedrank.core.errors import ConfigError, MissingDataError, UnknownNameError
from fedrank.core.trees import Json
from fedrank.engine.config import RunConfig
from fedrank.engine.progress import Listener
from fedrank.engine.settings import from_dict, named_in_errors, read_toml, with_setting
from fedrank.engine.sweep import run_sweep
from fedrank.engine.variations import ALL, Variation, read_sweep, variations

Config = TypeVar("Config", bound=RunConfig)


@dataclass(frozen=True)
class Study:
    """One table or figure.

    Attributes:
        name: The file's name.
        title: Headline.
        path: The file.
        program: What computes the tables of a study that is no sweep: a function's dotted name, as
            ``package.module:function``, called as :attr:`program_function` says; empty: a sweep.
        text: What it shows, for a reader.
        found: What came out where it differs, in words.
        measures: (split, measure) of the table's rows.
        curves: (split, measure) that are drawn over the rounds.
        panels: Settings with a figure for each value.
        pool: Settings that are averaged over.
        against: Settings of what differences are taken to.
        settings: Further settings of what ``program`` computes.
        tables: What makes further tables of a sweep's runs: a function's dotted name, called as :attr:`more_tables`
            says; empty: nothing.
        all_of: Settings that take all values which the data on this machine allows.
    """

    name: str
    title: str
    path: Path
    program: str = ""
    text: str = ""
    found: str = ""
    measures: tuple[tuple[str, str], ...] = ()
    curves: tuple[tuple[str, str], ...] = ()
    panels: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()
    against: dict[str, Json] = field(default_factory=dict)
    settings: dict[str, Json] = field(default_factory=dict)
    tables: str = ""
    all_of: tuple[str, ...] = ()

    @property
    def program_function(self) -> Callable[[Study, float, Listener], tuple[tuple[Any, ...], dict[str, Json]]] | None:
        """The function that ``program`` names: of a study, a fraction of its rounds and a listener; None: a sweep.

        It returns tables (:class:`fedrank.report.tables.Table`) and figures by name.

        Raises:
            ConfigError: There is no such function.
        """
        return self._function("program", self.program)

    @property
    def more_tables(self) -> Callable[[Paper, Study, Sequence[tuple[str, Variation, Any]]], list[Any]] | None:
        """The function that ``tables`` names: of the paper, the study, and label, variation and run of each run.

        It returns tables (:class:`fedrank.report.tables.Table`).

        Raises:
            ConfigError: There is no such function.
        """
        return self._function("tables", self.tables)

    def _function(self, key: str, named: str) -> Callable[..., Any] | None:
        if not named:
            return None
        try:
            module, _, name = named.partition(":")
            beside = module.endswith(".py")
            resolved = getattr(load_file(self.path.parent / module), name) if beside else None
            function = resolved if beside else pkgutil.resolve_name(named)
        except (ImportError, AttributeError, ValueError, OSError) as error:
            raise ConfigError(
                f"{self.path}: {key}: no function {named!r} ({error}). Name one as package.module:function, "
                "or as file.py:function of a file in the study's folder."
            ) from error
        if not callable(function):
            raise ConfigError(f"{self.path}: {key}: {named!r} is not a function.")
        return function


def load_file(path: Path) -> ModuleType:
    """The module of a Python file that is in no package, such as a reproduction's own code."""
    name = f"fedrank_study_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Paper:
    """One paper.

    Attributes:
        name: Such as ``"foltr-es"``.
        title: Headline of its page.
        citation: Key in the bibliography.
        folder: Where its files are.
        studies: Tables and figures, in the order of the paper.
        values: What it printed: ``study``, ``where``, ``split``, ``measure``, ``value``, ``source``.
    """

    name: str
    title: str
    citation: str
    folder: Path
    studies: tuple[Study, ...]
    values: tuple[dict[str, Json], ...]


def papers_folder() -> Path:
    """Folder of the reproductions: in the package where it was installed, at the root of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "reproductions"
    return installed if installed.is_dir() else package.parents[1] / "reproductions"


def papers(folder: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """Folders of all papers by name.

    Raises:
        MissingDataError: The papers did not come with this package.
    """
    place = Path(folder or papers_folder())
    found = sorted(place.glob("*/expected.json"))
    if folder is None and not found:
        raise MissingDataError("no reproduction is here: install fedrank-zoo from a clone, or name a folder.", place)
    return {_object(path)["name"]: path.parent for path in found}


def read_paper(name: str, folder: str | os.PathLike[str] | None = None) -> Paper:
    """A paper by name, or by its folder's path.

    Raises:
        UnknownNameError: There is no such paper.
        ConfigError: A file of it is not of the form described above.
    """
    known = papers(folder)
    home = known.get(name) or (Path(name) if (Path(name) / "expected.json").exists() else None)
    if home is None:
        raise UnknownNameError("reproduction", name, list(known))
    about = _object(home / "expected.json")
    if missing := {"name", "title", "citation", "studies", "values"} - set(about):
        raise ConfigError(f"{home / 'expected.json'}: {', '.join(sorted(missing))} must be there as well.")
    studies = tuple(read_study(home / f"{stem}.toml") for stem in about["studies"])
    return Paper(about["name"], about["title"], about["citation"], home, studies, tuple(about["values"]))


def read_study(path: Path) -> Study:
    """One table or figure.

    Raises:
        ConfigError: No such file, or a key or a measure that is not known.
    """
    shown = read_toml(path).get("study")
    if not isinstance(shown, dict) or "title" not in shown:
        raise ConfigError(f"{path}: needs a table [study] with a title.")
    allowed = {f.name for f in fields(Study)} - {"name", "path", "all_of"}
    for key in shown:
        if key not in allowed:
            raise UnknownNameError(f"key of [study] in {path}", key, sorted(allowed))
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in shown.items()}
    for key in ("measures", "curves"):
        values[key] = tuple(_measure(text, path) for text in shown.get(key, ()))
    _, vary, _ = read_sweep(path)
    values["all_of"] = tuple(key for key, listed in vary.items() if listed == [ALL])
    return Study(name=path.stem, path=path, **values)  # type: ignore[arg-type] - keys are checked above


def plan_runs(study: Study, fraction: float = 1.0) -> list[Variation]:
    """The runs of a study.

    Args:
        study: A sweep.
        fraction: Part of the rounds and of the seeds that are run, in (0, 1], as :func:`shorten_run` takes it.

    Raises:
        ConfigError: A setting is wrong, or the fraction out of range.
    """
    if not 0 < fraction <= 1:
        raise ConfigError(f"fraction must be in (0, 1], got {fraction}.")
    base, vary, cases = read_sweep(study.path)
    with named_in_errors(study.path):
        todo = variations(from_dict(base), vary, cases)
    if fraction == 1:
        return todo
    return [Variation(v.name, shorten_run(v.config, fraction), v.where) for v in todo]


def run_study(
    study: Study, folder: Path, fraction: float, listener: Callable[[str], Listener]
) -> list[tuple[Variation, Path]]:
    """Run what has not finished yet; each run has a directory below ``folder``."""
    todo = plan_runs(study, fraction)
    return list(zip(todo, run_sweep(todo, folder, listener=listener), strict=True))


def named_measure(measure: str, config: RunConfig) -> str:
    """A measure's name in the run of this configuration: its braces filled in."""
    return re.sub(r"\{(\w+)\}", lambda match: str(getattr(config, match.group(1))), measure)


def expected_value(
    paper: Paper, study: Study, where: dict[str, Json], split: str, measure: str
) -> dict[str, Json] | None:
    """The value that the paper printed for such runs: the entry all of whose ``where`` holds, or None.

    Args:
        paper: The paper.
        study: Which table or figure.
        where: What the runs differ in from others of the study.
        split: Such as ``"test"``.
        measure: As in the study, braces and all.
    """
    for entry in paper.values:
        same = (entry["study"], entry["split"], entry["measure"]) == (study.name, split, measure)
        if same and all(where.get(key) == value for key, value in entry["where"].items()):
            return entry
    return None


def shorten_run(config: Config, fraction: float) -> Config:
    """A configuration with a part of its rounds and seeds, for a quick look.

    Args:
        config: The configuration.
        fraction: The part, in (0, 1]: at least one round, and two seeds where there are as many, so that intervals can
            be shown.
    """
    rounds = max(1, math.ceil(config.rounds * fraction))
    shorter = with_setting(config, "rounds", rounds)
    fewer = with_setting(shorter, "seeds", min(config.seeds, max(2, math.ceil(config.seeds * fraction))))
    return with_setting(fewer, "evaluation.every", min(config.evaluation.every, rounds))


def _measure(text: str, path: Path) -> tuple[str, str]:
    split, colon, measure = str(text).partition(": ")
    if not colon or split not in ("online", "total", "train", "vali", "test"):
        raise ConfigError(f"{path}: a measure must look like 'test: nDCG(dcg='exp-log2')@10', got {text!r}.")
    return split, measure


def _object(path: Path) -> dict[str, Json]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON ({error}).") from error
