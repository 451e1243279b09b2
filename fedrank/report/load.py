"""Read a run directory, once and checked.

What a run left behind is files (``config.toml``, ``resolved.json``, ``environment.json``, ``metrics.parquet``,
``baselines.json``, ``ledger.jsonl``, ``privacy.json``, ``model.json``, ``messages.json``, ``done.json``, and those of
its task). Everything in :mod:`fedrank.report` works on the :class:`~fedrank.report.run.Run` that is read here and on
nothing else, so a page can be made again years later from the files alone. A run that is still going can be read too:
it has no ``done.json``, and whatever is made from it says so.

Every failure names the file and says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fedrank.core.errors import RunError
from fedrank.core.frame import Frame
from fedrank.core.ledger import Ledger
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.trees import Json
from fedrank.engine.methods import task_of
from fedrank.engine.run_folder import SCHEMA, RunFolder
from fedrank.privacy.audit import Audited
from fedrank.report.files import convert_content, existing, json_object, parquet
from fedrank.report.run import Baseline, Run, Shown


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
    return convert_content(file, "a report on privacy", lambda: PrivacyReport.from_json(content)) if content else None


def _load_audit(file: Path) -> Audited | None:
    content = json_object(file, needed=False)
    try:
        return Audited(**content) if content else None
    except TypeError as error:
        raise RunError(f"{file}: not an audit ({error}). Delete it, or audit the run again.") from error


def _metrics(file: Path, shown: Shown) -> Frame:
    frame = parquet(file, SCHEMA)
    if not len(frame):
        raise RunError(f"{file}: no rows yet. The run has not finished its first round; try again later.")
    return shown.defined(frame, file)


def _baselines(file: Path, shown: Shown) -> tuple[Baseline, ...]:
    raw = json_object(file, needed=False)
    what = "'baselines' with a name and 'values' of split, measure and value each"
    return convert_content(file, what, lambda: tuple(_baseline(one, shown) for one in raw["baselines"])) if raw else ()


def _baseline(raw: Mapping[str, Json], shown: Shown) -> Baseline:
    name, values = str(raw["name"]), {(str(v["split"]), str(v["measure"])): float(v["value"]) for v in raw["values"]}
    return Baseline(name, values, tuple(map(str, raw.get("notes", ()))), shown.baseline_label(name))
