"""Result of a run, in Python: numbers as data frames, messages, privacy report, models, the page."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from fedrank.core.errors import RunError
from fedrank.core.frame import Frame
from fedrank.core.ledger import Ledger
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.trees import Json
from fedrank.engine.model import Model, models_of_run, read_model, read_model_of_run
from fedrank.report.html import Html, h
from fedrank.report.load import load
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, Interval


class Result:
    """Results of a run, read from its folder when they are asked for.

    In a notebook it shows itself: the sentence, the chart and the final values of its page.

    Args:
        folder: The run's folder.
        own: Object of the caller's own that the run was made with and that models need, such as a ranker.
    """

    def __init__(self, folder: str | os.PathLike[str], *, own: Any = None):
        self.path = Path(folder)
        self._own = own
        self._folder: tempfile.TemporaryDirectory | None = None

    @classmethod
    def of_temporary(cls, parent: tempfile.TemporaryDirectory, folder: Path, *, own: Any = None) -> Result:
        """A result whose folder goes when nothing refers to the result any more; :meth:`save` keeps it."""
        result = cls(folder, own=own)
        result._folder = parent  # it removes itself
        weakref.finalize(result, parent.cleanup)
        return result

    @functools.cached_property
    def run(self) -> Run:
        """Everything that the folder holds.

        Raises:
            RunError: The folder holds no run, or a file of it is damaged.
        """
        return load(self.path)

    @property
    def metrics(self) -> Frame:
        """Curves in long form: seed, round, interactions, bytes_up, epsilon, split, measure, value."""
        return self.run.metrics

    @property
    def final(self) -> Frame:
        """Values after the last round beside the baselines: the final table of the page as a frame.

        Columns are named as on the page, but for ``learnt``, the method's own value. An estimate is followed by a
        column with half its 95 % interval over seeds, such as ``learnt ±``; an interval that need not be symmetric by
        two, ``low`` and ``high``.
        """
        table = self.run.shown.final(self.run)
        names = {column.key: "learnt" if column.key == "ranker" else column.title for column in table.columns}
        return Frame.of_dicts(_flat(row, names) for row in table.rows)

    @property
    def ledger(self) -> Ledger:
        """The ledger of messages between the parties and the server in the run of one seed.

        Raises:
            RunError: The run has not written it yet.
        """
        if self.run.ledger is None:
            raise RunError(f"{self.path}: has no ledger yet; it is written with the first checkpoint.")
        return self.run.ledger

    @property
    def privacy(self) -> PrivacyReport:
        """The privacy report: what is promised and what is not.

        Raises:
            RunError: The run has not written it yet.
        """
        if self.run.privacy is None:
            raise RunError(f"{self.path}: has no privacy report yet; it is written with the first checkpoint.")
        return self.run.privacy

    @property
    def seeds(self) -> list[int]:
        """The seeds that have metrics, ascending; each is one repetition of the experiment with its own model."""
        return self.run.seeds

    def model(self, seed: int | None = None, party: str | None = None) -> Model:
        """A trained model.

        Args:
            seed: Its seed; by default the first.
            party: Name of the party, where each has its own model or its own way to prepare inputs.

        Raises:
            ModelError: There is no such model; says which there are.
            UnknownNameError: There is no such party.
        """
        return read_model_of_run(self.path, seed, party, self._own)

    def models(self, seed: int | None = None) -> dict[str, Model]:
        """The trained models of a seed by the names of the parties that have them; one named ``""`` if all share it.

        Args:
            seed: The seed; by default the first.

        Raises:
            ModelError: There are none; says of which seeds there are.
        """
        found = [read_model(file, self._own) for file in models_of_run(self.path, seed).values()]
        return {str(model.about.get("party", "")): model for model in found}

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the page.

        Args:
            path: Its file; by default ``report.html`` in the run's folder.

        Returns:
            The file.
        """
        from fedrank.report.page import write_page

        return write_page(self.run, None if path is None else Path(path))

    def plot(self) -> Any:
        """The first chart of the page; a notebook draws it, :func:`fedrank.report.figures.save` writes a file."""
        charts = self.run.shown.charts(self.run)
        if not charts:
            raise RunError(f"{self.path}: has nothing to draw yet.")
        return next(iter(charts.values()))

    def save(self, folder: str | os.PathLike[str]) -> Result:
        """Copy the run's folder, such as one that would go with this object.

        Returns:
            The result in its new place.

        Raises:
            RunError: There is something at that place already, or it cannot be written.
        """
        target = Path(folder)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise RunError(f"{target}: is not empty. Choose another folder.")
        try:
            shutil.copytree(self.path, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))
        except OSError as error:
            raise RunError(f"{target}: cannot be written ({error}).") from error
        return Result(target, own=self._own)

    def __repr__(self) -> str:
        return f"<Result of {self.run.config.get('protocol')}: {self.path}>"

    def _repr_html_(self) -> str:
        """The result as a notebook shows it: the sentence and the chart that its page opens with, the final values."""
        run = self.run
        charts = run.shown.charts(run)
        opening = run.shown.page(run, charts).opening
        drawn = charts.get(opening.chart)
        style = resources.files("fedrank.report").joinpath("notebook.css").read_text(encoding="utf-8")
        return h(
            "div",
            h("style", Html(style)),
            h("p", run.shown.headline(run), class_="about"),
            h("p", opening.sentence),
            None if drawn is None else drawn.inline(opening.description),
            run.shown.final(run),
            class_="fedrank-result",
        )


def _flat(row: Mapping[str, Json], names: Mapping[str, str]) -> dict[str, Json]:
    """A row of a table with numbers in place of estimates; names are those of its columns."""
    out: dict[str, Json] = {}
    for key, name in names.items():
        value = row.get(key)
        if isinstance(value, Estimate):
            out |= {name: value.mean, f"{name} ±": value.half}
        elif isinstance(value, Interval):
            out |= {name: value.mean, f"{name} low": value.low, f"{name} high": value.high}
        else:
            out[name] = value if isinstance(value, str | int | float | bool | None) else str(value)
    return out
