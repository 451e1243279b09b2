"""A run as a reader sees it, and what its task shows of it.

:class:`Run` is what the files of a run directory say. :class:`Shown` is how a task speaks about its runs: what parties
are called, which further files it leaves, which tables, figures and sentences a page has. Everything else in
:mod:`fedrank.report` works on these two and asks for no particular task.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fedrank.core.frame import Frame
from fedrank.core.ledger import Ledger
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.trees import Json
from fedrank.privacy.audit import Audited
from fedrank.report import wording
from fedrank.report.charts import Chart
from fedrank.report.claims import Opening
from fedrank.report.html import Html


@dataclass(frozen=True)
class Baseline:
    """A ranker trained on labels, a model trained with other silos, or a fixed policy: a mark to compare with.

    Attributes:
        name: Such as ``"MSE"``.
        values: By (split, measure).
        notes: What a reader should know about it.
        label: How figures and tables call it.
    """

    name: str
    values: Mapping[tuple[str, str], float]
    notes: tuple[str, ...]
    label: str


@dataclass(frozen=True, eq=False)
class Run:
    """The content of a run directory.

    Attributes:
        path: The directory.
        config: The resolved configuration, nested as in ``config.toml``.
        environment: Versions, machine, times, command.
        metrics: Long form, columns as :data:`fedrank.engine.run_folder.SCHEMA`; ``interactions`` and ``bytes_up`` are
            cumulative over all parties.
        finished: Whether the run came to its end.
        baselines: Label-trained rankers; figures show the first.
        ledger: What crossed in the run of one seed, or None if the run has not written it yet.
        privacy: What is promised, or None if the run has not written it yet.
        audited: What an attack showed of what is promised, or None if there was none.
        model: Ranker, number of features and so on, or None if the run has not written it yet.
        messages: Fields of each message type (rows of :meth:`fedrank.core.messages.Layout.describe`), by type; may be
            empty.
        shown: What the run's task shows of it.
        details: What the task's own files hold, as ``shown.read`` returns it; None if there are none.
    """

    path: Path
    config: Mapping[str, Json]
    environment: Mapping[str, Json]
    metrics: Frame
    finished: bool
    baselines: tuple[Baseline, ...] = ()
    ledger: Ledger | None = None
    privacy: PrivacyReport | None = None
    audited: Audited | None = None
    model: Mapping[str, Json] | None = None
    messages: Mapping[str, list[Mapping[str, Json]]] = field(default_factory=dict)
    shown: Shown = field(kw_only=True)
    details: Any = None

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
        return self.metrics.unique("seed")

    @property
    def last_round(self) -> int:
        """The last round of which every seed has a value."""
        return min(int(rows["round"].max()) for _, rows in self.metrics.groups("seed"))

    def measures(self, *splits: str) -> list[str]:
        """Measures that the run has of any of these splits, the most telling first."""
        return wording.order_measures(self.metrics.where(split=splits)["measure"])

    def setting(self, key: str, default: Any = None) -> Any:
        """A value of the configuration by dotted key, such as ``"privacy.p"``; ``default`` if there is none."""
        value: Any = self.config
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return default
            value = value[part]
        return value


@dataclass(frozen=True)
class Section:
    """A section of a page, which is folded until a reader opens it; one without content is left out.

    Attributes:
        anchor: Its anchor: lower-case letters.
        title: Its heading.
        content: Markup, or text that is escaped; None is left out.
    """

    anchor: str
    title: str
    content: tuple[Any, ...]

    @property
    def has_content(self) -> bool:
        """True if there is anything in it."""
        return any(part is not None for part in self.content)


@dataclass(frozen=True)
class Page:
    """A run's page as data.

    Attributes:
        opening: Title, sentence, chart and numbers.
        caveats: What a reader must know beside every number.
        sections: In order.
        warning: What must be seen before anything is decided, or None.
    """

    opening: Opening
    caveats: tuple[str, ...]
    sections: tuple[Section | None, ...]
    warning: Html | None = None


@dataclass(frozen=True)
class Line:
    """A line on a terminal.

    Attributes:
        text: The line.
        warning: Whether it is a warning, which is set in red.
    """

    text: str
    warning: bool = False


#: Titles of axes where what is counted are messages.
MESSAGE_AXES = {
    "interactions": "messages so far, in both directions (one seed)",
    "bytes": "MB sent by all {many} (one seed)",
}


class Shown(abc.ABC):
    """The report of a task's runs. One object serves all runs of a task.

    Attributes:
        party: What a party is called: one, and several.
        person: Name of a person whose data a party holds.
        digits: Decimals of measures.
        counted: What the column ``interactions`` of the metrics counts.
        over: What curves of several runs are drawn over: ``interactions``, ``round`` or ``users``.
        learnt: Title of the column with the protocol's own values.
        spread_baselines: Whether baselines were trained with the run's seeds, so that they have their own spread
            and a difference to their mean has no interval.
        baseline_names: Baselines that were not trained on labels, and what they are called; None: their own names.
        generated_words: The caveat of a run on generated data.
        generated_sentence: A sentence for running text: the data was generated, and what that means for the numbers.
        comparison_notes: Notes below a comparison of such runs.
        axis_titles: Titles of axes that are others than usual, by axis; ``{many}`` stands for the parties.
        reads_every_ledger_line: Whether the table of the ledger, one row a message type, is shown.
        replicates: Dotted names of the settings of data that make runs replicates of one another, such as folds, over
            which values may be averaged.
    """

    party: tuple[str, str] = ("party", "parties")
    person: str = "user"
    digits: int = 4
    counted: str = "interactions"
    over: str = "interactions"
    learnt: str = "over seeds"
    spread_baselines: bool = False
    baseline_names: ClassVar[Mapping[str, str] | None] = None
    generated_words: str = "Generated data: no real collection"
    generated_sentence: str = "The data is generated: the numbers say nothing about real people."
    comparison_notes: tuple[str, ...] = ()
    axis_titles: ClassVar[Mapping[str, str]] = {}
    reads_every_ledger_line: bool = True
    replicates: tuple[str, ...] = ("data_seed",)

    # ------------------------------------------------------------------------------------------------ a run's files

    def read(self, folder: Path, config: Mapping[str, Json], *, finished: bool) -> Any:
        """Load the task's own files of a run.

        Args:
            folder: The run's directory.
            config: Its configuration.
            finished: Whether the run came to its end, so that all files have to be there.

        Raises:
            RunError: A file is missing or damaged.
        """
        return None

    def defined(self, metrics: Frame, file: Path) -> Frame:
        """The rows of ``metrics.parquet`` whose value is a number.

        Raises:
            RunError: There are none.
        """
        return metrics

    def baseline_label(self, name: str) -> str:
        """The name of a baseline of ``baselines.json`` in figures and tables."""
        return name if self.baseline_names is None else self.baseline_names.get(name, f"{name} (labels)")

    # ------------------------------------------------------------------------------------------------- a run in words

    def parties_of(self, run: Run) -> tuple[str, str]:
        """The names of one party of this run and of several."""
        return self.party

    def recipients(self, run: Run) -> str:
        """The recipients of what the server sends, for tables."""
        return f"every {self.parties_of(run)[0]}"

    def subject(self, run: Run) -> str:
        """The users whose values the run's measures are, such as ``"navigational users"``; empty: no kind is named."""
        return ""

    def headline(self, run: Run) -> str:
        """The run in one line: protocol, data and what else tells it from others."""
        parts = (run.setting("protocol"), run.setting("data"), self.subject(run))
        return " · ".join(str(part) for part in parts if part and not isinstance(part, Mapping))

    def generated(self, run: Run) -> bool:
        """True if the data was generated rather than collected."""
        if getattr(run.details, "generated", False):
            return True
        if run.environment.get("generated") is not None:
            return bool(run.environment["generated"])
        return str(run.setting("data")).startswith("generated")

    def caveats(self, run: Run) -> list[str]:
        """Caveats that a reader of any number of this run must know, besides those of every task."""
        part = run.setting("devices.dropout")
        return [f"{part:.0%} of the replies do not arrive".replace("%", " %", 1)] if part else []

    def more_caveats(self, run: Run) -> list[str]:
        """Caveats that follow the one about generated data."""
        return []

    def notes(self, run: Run) -> list[str]:
        """Notes of the environment that are caveats."""
        return [str(note) for note in run.environment.get("notes") or ()]

    def done_rounds(self, run: Run) -> int:
        """Rounds that every seed has done."""
        # A number that is undefined has no row, and not every round is evaluated.
        return int(run.setting("rounds", 0)) if run.finished else run.last_round

    def nothing_crossed(self, run: Run) -> list[str]:
        """Sentences of a run with an empty ledger, where it is empty on purpose."""
        return []

    def ledger_words(self, run: Run) -> list[str] | None:
        """The messages that crossed, in sentences; None for the usual ones (every party takes part each round)."""
        return None

    def crossed_title(self, run: Run) -> str | None:
        """Title of the section on what crossed where nothing is federated and words are all there is; else None."""
        return None

    def baseline_notes(self, run: Run) -> list[str]:
        """Notes below the final values about the baselines, or about there being none."""
        return []

    # ------------------------------------------------------------------------------------------------------- measures

    def summarised(self, run: Run, measure: str) -> bool:
        """True if a measure is of the run as a whole: not of one party, nor of a method it is compared with."""
        return True

    def telling(self, run: Run, split: str, measure: str) -> bool:
        """True if a comparison on a terminal shows the measure."""
        return split == "test"

    def drawn_measures(self, run: Run, ordered: Sequence[str]) -> list[str]:
        """The measures that a comparison draws.

        Args:
            run: The run.
            ordered: All its offline measures, the most telling first.
        """
        return list(ordered[:1])

    def qualified(self, run: Run, split: str, measure: str) -> str:
        """A measure's name with whose it is, for a table in which that differs from run to run."""
        return measure

    def same_question(self, run: Run) -> str:
        """Data and users in words: runs of which this is equal may be drawn in one figure."""
        return f"{run.setting('data')}"

    def data_settings(self, run: Run) -> list[str]:
        """Dotted names of the settings that decide on what is measured: the data, its division, the generated users.

        Runs that differ in one of them answer different questions, so no difference is taken between them.
        """
        return ["data"]

    def lines(self, runs: Mapping[str, Run], split: str, measure: str) -> dict[str, float]:
        """Values of the first of several runs to be drawn as dashed lines, by what is written on them."""
        return {}

    def rounds_in_unit(self, run: Run) -> float:
        """Rounds in one unit of the axis ``users``."""
        return 1.0

    # ----------------------------------------------------------------------------------------------------- comparisons

    def privacy_table(self, runs: Mapping[str, Run]) -> Any:
        """Table of the ε that several runs spend (:class:`~fedrank.report.tables.Table`); None where a page says it."""
        return None

    # --------------------------------------------------------------------------------------------------- page, terminal

    @abc.abstractmethod
    def opening(self, run: Run) -> Opening:
        """The first sentence and numbers of the page and of the terminal."""

    @abc.abstractmethod
    def charts(self, run: Run) -> dict[str, Chart]:
        """All figures of the page by name, which is also that of its file: letters, digits and hyphens."""

    @abc.abstractmethod
    def page(self, run: Run, charts: Mapping[str, Chart]) -> Page:
        """The page; ``charts`` as :meth:`charts` returns them."""

    @abc.abstractmethod
    def final(self, run: Run) -> Any:
        """The final values: a :class:`~fedrank.report.tables.Table`."""

    def terminal(self, run: Run) -> list[Any] | None:
        """Content for a terminal: :class:`Line` objects, and tables with the keys of the columns that fit.

        Returns:
            ``Line`` or ``(table, keys)``, in order; None for the final values and nothing else.
        """
        return None

    def terminal_after(self, run: Run) -> list[Any]:
        """Content for a terminal after the caveats; as :meth:`terminal`."""
        return []

    def for_machines(self, run: Run) -> dict[str, Json]:
        """Values that ``--json`` adds to the final values, by key."""
        return {}
