"""Read a run directory, once and checked.

What a run left behind is files (``config.toml``, ``resolved.json``, ``environment.json``, ``metrics.parquet``,
``baselines.json``, ``ledger.jsonl``, ``privacy.json``, ``model.json``, ``messages.json``, ``done.json``, and those of
its task). Everything in :mod:`fedrank.report` works on the :class:`~fedrank.report.run.Run` that is read here and on
nothing else, so a page can be made again years later from the files alone. A run that is still going can be read too:
it has no ``done.json``, and whatever is made from it says so.

Every failure names the file and says what to do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import DataError, RunError
from fedrank.core.frame import Frame, type_of
from fedrank.core.ledger import Ledger
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.trees import Json
from fedrank.engine.methods import task_of
from fedrank.engine.run_folder import RunFolder
from fedrank.privacy.audit import Audited
from fedrank.report.run import COLUMNS, Baseline, Run, Shown


def existing(file: Path) -> Path:
    """The file, if it is there.

    Raises:
        RunError: It is missing.
    """
    if not file.exists():
        raise RunError(
            f"{file}: missing. A run directory must have {file.name}; if the run was interrupted, 'fedrank run' on its "
            "configuration resumes it."
        )
    return file


def json_object(file: Path, *, needed: bool = True) -> dict[str, Json]:
    """The JSON object in a file; an empty one if the file is missing and not needed.

    Raises:
        RunError: The file is missing, cut, or holds something else.
    """
    if not needed and not file.exists():
        return {}
    try:
        value = json.loads(existing(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{file}: not valid JSON ({error}): cut or edited. Run again to restore it.") from error
    if not isinstance(value, dict):
        raise RunError(f"{file}: must hold a JSON object, got {type(value).__name__}. Run again to restore it.")
    return value


#: What a column of a run's table holds -> the types that it may have.
_KINDS = {"integer": (int,), "number": (int, float), "text": (str,), "yes or no": (bool,)}


def parquet(file: Path, columns: Mapping[str, str]) -> Frame:
    """A table with these columns and no others; numbers are floats.

    Args:
        file: Which file.
        columns: By name, what each holds: ``"integer"``, ``"number"``, ``"text"`` or ``"yes or no"``.

    Raises:
        RunError: The file is missing, cut, or of another schema.
    """
    try:
        table = Frame.from_parquet(existing(file).read_bytes())
    except (DataError, OSError) as error:
        raise RunError(f"{file}: not readable as parquet ({error}). Run again to restore it.") from error
    if missing := [name for name in columns if name not in table]:
        raise RunError(
            f"{file}: column {missing[0]!r} is missing, got {', '.join(table.columns)}. "
            "The file is of another version of "
            "fedrank: make the report with that version, or run again."
        )
    for name, kind in columns.items():
        if (found := type_of(table[name])) not in _KINDS[kind]:
            raise RunError(
                f"{file}: column {name!r} must hold {kind} values, got {found.__name__}. Run again to restore it."
            )
    numbers = {name: table[name].astype(np.float64) for name, kind in columns.items() if kind == "number"}
    return table.select(columns).with_columns(numbers)


def convert_content(file: Path, what: str, make: Callable[[], Any]) -> Any:
    """Convert a file's content by ``make``; an error of ``make`` becomes one that names the file.

    Args:
        file: Which file.
        what: What it must hold, for the error.
        make: Fails with a KeyError, TypeError, ValueError or AttributeError where the content has another shape.

    Raises:
        RunError: The content has another shape.
    """
    try:
        return make()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{file}: must hold {what}; this one does not ({type(error).__name__}: {error}). Run again to restore it."
        ) from error


def load(folder: str | os.PathLike[str]) -> Run:
    """Read a run directory.

    Args:
        folder: The directory that ``fedrank run`` wrote.

    Raises:
        RunError: The directory or a file in it is missing, cut, or of another schema; says which file and what to do.
        UnknownNameError: The run's task is in no installed package.
    """
    path = Path(folder)
    if not path.is_dir():
        raise RunError(f"{path}: no such run directory. Give the directory that 'fedrank run' wrote.")
    finished = (path / "done.json").exists()
    existing(path / "config.toml")
    config = RunFolder(path).settings()
    environment = json_object(existing(path / "environment.json"))
    shown: Shown = task_of(str(config.get("protocol")), environment.get("task")).shown
    ledger_file = path / "ledger.jsonl"
    details = shown.read(path, config, finished=finished)
    return Run(
        path=path,
        config=config,
        environment=environment,
        metrics=_metrics(existing(path / "metrics.parquet"), shown),
        finished=finished,
        baselines=_baselines(path / "baselines.json", shown),
        ledger=Ledger.read(existing(ledger_file)) if finished or ledger_file.exists() else None,
        privacy=_privacy(path / "privacy.json", finished),
        audited=_load_audit(path / "audit.json"),
        model=json_object(path / "model.json", needed=finished) or None,
        messages=json_object(path / "messages.json", needed=False),
        shown=shown,
        details=details,
    )


def _privacy(file: Path, needed: bool) -> PrivacyReport | None:
    content = json_object(file, needed=needed)
    try:
        return PrivacyReport.from_json(content) if content else None
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{file}: not a report on privacy ({error!r}). Run again to restore it.") from error


def _load_audit(file: Path) -> Audited | None:
    content = json_object(file, needed=False)
    try:
        return Audited(**content) if content else None
    except TypeError as error:
        raise RunError(f"{file}: not an audit ({error}). Delete it, or audit the run again.") from error


def _metrics(file: Path, shown: Shown) -> Frame:
    frame = parquet(file, COLUMNS)
    if not len(frame):
        raise RunError(f"{file}: no rows yet. The run has not finished its first round; try again later.")
    return shown.defined(frame, file)


def _baselines(file: Path, shown: Shown) -> tuple[Baseline, ...]:
    raw = json_object(file, needed=False)
    if not raw:
        return ()
    try:
        return tuple(
            Baseline(
                str(one["name"]),
                {(str(v["split"]), str(v["measure"])): float(v["value"]) for v in one["values"]},
                tuple(map(str, one.get("notes", ()))),
                shown.baseline_label(str(one["name"])),
            )
            for one in raw["baselines"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{file}: must hold 'baselines' with a name and 'values' of split, measure and value each; this one does "
            f"not ({type(error).__name__}: {error}). Run again to restore it."
        ) from error
