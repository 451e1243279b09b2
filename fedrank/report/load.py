"""A run directory, read once and checked.

What a run left behind is files (``config.toml``, ``environment.json``, ``metrics.parquet``, ``baselines.json``,
``ledger.jsonl``, ``privacy.json``, ``model.json``, ``messages.json``, ``done.json``; of silos also ``silos.json``,
``arms.parquet`` and ``evidence.json``, see :mod:`fedrank.silos.report.files`; of silos with texts ``federation.json``,
``methods.parquet`` and ``gate.json``, see :mod:`fedrank.texts.report.files`; of platforms ``slates.json``, see
:mod:`fedrank.slates.report.files`). Everything in :mod:`fedrank.report` works on the :class:`Run` that is read here
and on nothing else, so a page can be made again years later from the files alone. A run that is still going can be
read too: it has no ``done.json``, and whatever is made from it says so.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from fedrank.core.errors import RunError
from fedrank.core.ledger import Ledger
from fedrank.report.files import existing, json_object, parquet
from fedrank.silos.report.files import Silos, read_silos
from fedrank.slates.report.files import POLICIES, SlateRun, read_slates
from fedrank.texts.report.files import METHODS, TextRun, read_texts

#: Columns of ``metrics.parquet`` and what each may hold.
COLUMNS = {
    "seed": "integer",
    "round": "integer",
    "interactions": "integer",
    "bytes_up": "integer",
    "epsilon": "number",
    "split": "text",
    "measure": "text",
    "value": "number",
}

#: Baselines of runs over silos, and how figures and tables call them.
OF_SILOS = {"alone": "target alone", "everyone": "everyone (federated averaging)"}


@dataclass(frozen=True)
class Baseline:
    """A ranker trained on labels, a model trained with other silos, or a fixed policy: a mark to compare with.

    Attributes:
        name: Such as ``"MSE"``.
        values: By (split, measure).
        notes: What a reader should know about it.
    """

    name: str
    values: Mapping[tuple[str, str], float]
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        plain = self.name if self.name in (*METHODS, *POLICIES) else f"{self.name} (labels)"
        return OF_SILOS.get(self.name, plain)


@dataclass(frozen=True, eq=False)
class Run:
    """What a run directory holds.

    Attributes:
        path: The directory.
        config: The resolved configuration, nested as in ``config.toml``.
        environment: Versions, machine, times, command.
        metrics: Long form, columns as :data:`COLUMNS`; ``interactions`` and ``bytes_up`` are cumulative over all
            parties.
        finished: Whether the run came to its end.
        baselines: Label-trained rankers; figures show the first.
        ledger: What crossed in the run of one seed, or None if the run has not written it yet.
        privacy: What the accountant says, or None if the run has not written it yet.
        model: Ranker, number of features and so on, or None if the run has not written it yet.
        messages: Fields of each message type (rows of :meth:`fedrank.core.messages.Layout.describe`), by type; may be
            empty.
        silos: Who took part and who helped whom, of a protocol between silos with tables; None for others.
        texts: Who took part and what every method reached, of a protocol between silos with texts; None for others.
        slates: Who took part and what fixed policies come to, of platforms that share users; None for others.
    """

    path: Path
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    metrics: pl.DataFrame
    finished: bool
    baselines: tuple[Baseline, ...] = ()
    ledger: Ledger | None = None
    privacy: Mapping[str, Any] | None = None
    model: Mapping[str, Any] | None = None
    messages: Mapping[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    silos: Silos | None = None
    texts: TextRun | None = None
    slates: SlateRun | None = None

    @property
    def between_silos(self) -> bool:
        """Whether organisations take part, rather than devices or one service."""
        return self.silos is not None or self.texts is not None

    @property
    def name(self) -> str:
        """The configured name, or the directory's."""
        return str(self.setting("name") or self.path.resolve().name)

    @property
    def baseline(self) -> Baseline | None:
        """The first label-trained ranker, or None if the run has none."""
        return self.baselines[0] if self.baselines else None

    @property
    def seeds(self) -> list[int]:
        """Seeds that have metrics, ascending."""
        return self.metrics["seed"].unique().sort().to_list()

    def setting(self, key: str, default: Any = None) -> Any:
        """A value of the configuration by dotted key, such as ``"privacy.p"``; ``default`` if there is none."""
        value: Any = self.config
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return default
            value = value[part]
        return value


def load(folder: str | os.PathLike[str]) -> Run:
    """Read a run directory.

    Args:
        folder: The directory that ``fedrank run`` wrote.

    Raises:
        RunError: The directory or a file in it is missing, cut, or of another schema; says which file and what to do.
    """
    path = Path(folder)
    if not path.is_dir():
        raise RunError(f"{path}: no such run directory. Give the directory that 'fedrank run' wrote.")
    finished = (path / "done.json").exists()
    config_file = existing(path / "config.toml")
    try:
        config = tomllib.loads(config_file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{config_file}: not valid TOML ({error}). Restore the file, or run again.") from error
    ledger_file = path / "ledger.jsonl"
    silos = read_silos(path, finished=finished, expected=config.get("protocol") == "bandit-fedavg")
    environment = json_object(existing(path / "environment.json"))
    metrics = _metrics(existing(path / "metrics.parquet"), undefined=silos is not None)
    evaluation = config.get("evaluation")
    measures = evaluation.get("measures") if isinstance(evaluation, Mapping) else None
    texts = read_texts(
        path,
        finished=finished,
        expected=config.get("protocol") == "silo-sketch",
        measures=[str(name) for name in measures] if isinstance(measures, list) else [],
    )
    return Run(
        path=path,
        config=config,
        environment=environment,
        metrics=metrics,
        finished=finished,
        baselines=_baselines(path / "baselines.json"),
        ledger=Ledger.read(existing(ledger_file)) if finished or ledger_file.exists() else None,
        privacy=json_object(path / "privacy.json", needed=finished) or None,
        model=json_object(path / "model.json", needed=finished) or None,
        messages=json_object(path / "messages.json", needed=False),
        silos=silos,
        texts=texts,
        slates=read_slates(path, config, finished=finished),
    )


def _metrics(file: Path, *, undefined: bool) -> pl.DataFrame:
    frame = parquet(file, COLUMNS, nullable=("epsilon",))
    if frame.is_empty():
        raise RunError(f"{file}: no rows yet. The run has not finished its first round; try again later.")
    frame = frame.with_columns(pl.col("epsilon").cast(pl.Float64), pl.col("value").cast(pl.Float64))
    # An AUC of rows of one class is no number: it is left out, and silos.json says why.
    defined = frame.filter(pl.col("value").is_finite()) if undefined else frame
    if defined.is_empty():
        raise RunError(f"{file}: no AUC is defined: the target's rows to judge by have one label only. Choose another.")
    return defined


def _baselines(file: Path) -> tuple[Baseline, ...]:
    raw = json_object(file, needed=False)
    if not raw:
        return ()
    try:
        return tuple(
            Baseline(
                str(one["name"]),
                {(str(v["split"]), str(v["measure"])): float(v["value"]) for v in one["values"]},
                tuple(map(str, one.get("notes", ()))),
            )
            for one in raw["baselines"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{file}: must hold 'baselines' with a name and 'values' of split, measure and value each; this one does "
            f"not ({type(error).__name__}: {error}). Run again to restore it."
        ) from error
