"""Result files of a run of silos with texts besides its metrics: the silos, the methods' values, the gate's decisions.

``federation.json`` describes the silos and how they see each other's documents, ``methods.parquet`` has the values of
each method for each silo, ``gate.json`` says which silos adopt the federation's ranker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from fedrank.core.errors import FedrankError, RunError
from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.engine.settings import defaults
from fedrank.report.files import Undefinable, convert, convert_content, json_object, object_of, parquet

#: Columns of ``methods.parquet`` and their types.
VALUES = {
    "seed": int,
    "round": int,
    "method": str,
    "silo": str,
    "scope": str,
    "split": str,
    "measure": str,
    "value": float,
}

#: The method whose run this is, and those that it is compared with, in the order in which they are shown.
FEDERATED, BM25, LOCAL, LOCAL_PLUS, GLOBAL, EXACT, POOLED, BM25_EXACT = METHODS = (
    "CS-F-LTR", "BM25", "Local", "Local+", "Global (β = 0)", "exact features", "pooled data", "BM25, exact",
)  # fmt: skip

#: Sets of documents that are ranked, and how measures over them end in ``metrics.parquet`` and ``per_query.parquet``.
SCOPES = {"own": "", "federation": ", all documents", "home": ", all documents, searched at home"}

#: How the difference to :data:`LOCAL` ends in ``metrics.parquet``; of a search, to Local's search at home.
GAIN = ": gain over Local"

#: A measure of the paper that is a cost: 1 is best, larger is worse.
COST = "MAP-JOS"


#: A document is readable where more than this part of its words is read that a guess would not name; a text is found
#: where the area under the curve is above this, 0.5 being chance.
READABLE, FOUND = 0.05, 0.6


@dataclass(frozen=True)
class InsiderReads:
    """Words that the first silo reads of the second's documents.

    Attributes:
        share: Mean part of a document's words that it reads and that a guess does not name.
        low: Lower end of a 99 % interval.
        high: Upper end.
        precision: Part of the words that it names that are right.
        documents: Number of documents that it tried to read.
        found: Area under the curve of its test whether a text is among the second's documents; None in runs that did
            not make it.
        found_low: Lower end of a 99 % interval.
        found_high: Upper end.
        texts: Number of texts that it looked for; half of them are there.
    """

    share: Undefinable
    low: Undefinable
    high: Undefinable
    precision: float = math.nan
    documents: int = 0
    found: float | None = None
    found_low: float = math.nan
    found_high: float = math.nan
    texts: int = 0

    @property
    def readable(self) -> bool:
        """True if documents count as readable: it reads more than the part :data:`READABLE` of their words."""
        return self.share > READABLE

    @property
    def finds(self) -> bool:
        """True if its test tells texts that are there from others: the area under its curve is above :data:`FOUND`."""
        return self.found is not None and self.found > FOUND


@dataclass(frozen=True)
class Queries:
    """Numbers of a silo's judged queries by part."""

    train: int
    vali: int
    test: int


@dataclass(frozen=True)
class Cells:
    """Size of a sketch: ``z`` rows of ``w`` cells."""

    z: int
    w: int


@dataclass(frozen=True)
class DocumentCells(Cells):
    """Size and ``kind`` of a document's sketch."""

    kind: str


@dataclass(frozen=True)
class TextSilo:
    """One silo.

    Attributes:
        name: Name of the silo.
        documents: Number of its documents.
        queries: Numbers of its judged queries.
        rows: Number of labelled own (query, document) pairs that it trains on.
        pairs: Number of unlabelled (own query, foreign document) pairs that it trains on.
        words: Number of different words of its queries; None in runs of earlier versions.
    """

    name: str
    documents: int
    queries: Queries
    rows: int
    pairs: int
    words: int | None = None


@dataclass(frozen=True)
class Decision:
    """Decision of a silo about the federation's ranker in one seed.

    Attributes:
        seed: Seed of the run.
        silo: Name of the silo.
        vali: Gain of the federation's ranker over the silo's own best, mean over its held-out queries.
        test: The same over its test queries.
        adopted: Whether the silo adopts the federation's ranker.
        kept: Gain on test queries with the gate: ``test``, or 0 where the silo does not adopt.
        against: The silo's own best on held-out queries: :data:`LOCAL` or :data:`BM25`.
        held: Queries that decided; None in runs of earlier versions.
    """

    seed: int
    silo: str
    vali: Undefinable
    test: Undefinable
    adopted: bool
    kept: Undefinable
    against: str = LOCAL
    held: int | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class TextRun:
    """Details of a run that only runs of silos with texts have.

    Attributes:
        silos: The silos, in the order of their numbers.
        methods: Columns as :data:`VALUES`, finite values only.
        measure: Measure of the gate and of the headline; the first measure of the configuration.
        decisions: Decisions of the gate; empty before the run wrote it, and without a local ranker to compare with.
        mode: One of :data:`fedrank.texts.config.MODES`, or that of a method from elsewhere.
        sketch: Size and kind of a document's sketches.
        statistics: Size of the sketches of document frequencies.
        errors: Mean absolute error of the first silo's counts of the second's documents, by seed: over ``all`` pairs of
            a word and a document, and over those whose document has the word (``held``).
        counts: Mean true counts, likewise; empty if the run did not write them.
        foreign_share: Share of the relevant pairs whose document another silo has, or None.
        beta: β, weight of cross pairs.
        generated: Whether the data was generated rather than collected.
        notes: What a reader should know about the data.
        insider: What another silo reads of a document; None in runs that did not measure it.
    """

    silos: tuple[TextSilo, ...]
    methods: Frame
    measure: str
    decisions: tuple[Decision, ...]
    mode: str
    sketch: DocumentCells
    statistics: Cells
    errors: Mapping[str, tuple[float, ...]]
    counts: Mapping[str, tuple[float, ...]]
    foreign_share: float | None = None
    beta: float
    generated: bool = False
    notes: tuple[str, ...] = ()
    insider: InsiderReads | None = None

    @property
    def protects(self) -> bool:
        """True if noise bounds what silos learn of each other's documents."""
        return self.mode == "publish-once"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the silos, in the order of their numbers."""
        return tuple(silo.name for silo in self.silos)

    @property
    def ordered_methods(self) -> list[str]:
        """Methods that the run has, :data:`METHODS` first and in their order."""
        there = self.methods.unique("method")
        return [*(m for m in METHODS if m in there), *(m for m in there if m not in METHODS)]

    def measures(self, scope: str) -> list[str]:
        """Measures of a scope, the one that decides first, then in the order of the run."""
        there = dict.fromkeys(self.methods.where(scope=scope)["measure"])
        return sorted(there, key=lambda name: name != self.measure)

    @property
    def search_measure(self) -> str | None:
        """The measure that is shown of searches of the whole federation; None if the run has none."""
        return next(iter(self.measures("federation")), None)

    def measure_of(self, scope: str) -> str | None:
        """The measure that is shown of a scope; None if the run has none."""
        return self.measure if scope == "own" else self.search_measure

    def values(
        self, method: str, measure: str, *, scope: str = "own", split: str = "test", silo: str | None = None
    ) -> dict[int, float]:
        """Value of each seed at the last evaluation that all seeds have reached.

        Args:
            method: Name of the method, such as :data:`FEDERATED`.
            measure: Name of the measure, such as ``"nDCG(dcg='exp-log2')@10"``.
            scope: One of :data:`SCOPES`.
            split: ``"test"`` or ``"vali"``.
            silo: Name of a silo; None for the mean over silos.

        Returns:
            By seed, ascending; empty if there are no such rows.
        """
        whose = {} if silo is None else {"silo": silo}
        rows = self.methods.where(round=self.last, method=method, measure=measure, scope=scope, split=split, **whose)
        return rows.means("seed")

    def baseline_values(self, split: str, named: str) -> dict[str, float]:
        """Values without training together, by their label in a figure.

        BM25, Local and Local+ on own documents; of a search, BM25 in all documents, and BM25 and Local at home.

        Args:
            split: ``"test"`` or ``"vali"``.
            named: A measure as in ``metrics.parquet``.
        """
        whole = SCOPES["federation"]
        measure = named.removesuffix(whole)
        own = ((BM25, "own"), (LOCAL, "own"), (LOCAL_PLUS, "own"))
        found = {}
        for method, scope in own if measure == named else ((BM25, "federation"), (BM25, "home"), (LOCAL, "home")):
            values = self.values(method, measure, scope=scope, split=split)
            if values:
                label = f"{method} at home" if scope == "home" else method
                found[label] = math.fsum(values.values()) / len(values)
        return found

    def is_headline(self, measure: str) -> bool:
        """True if a measure of ``metrics.parquet`` is the headline's, on own documents or in a search."""
        whole = [name + SCOPES["federation"] for name in (self.search_measure,) if name]
        return measure.removesuffix(GAIN) in (self.measure, *whole)

    @property
    def last(self) -> int:
        """The last round in which all seeds were evaluated."""
        return min(int(rows["round"].max()) for _, rows in self.methods.groups("seed"))


def read_texts(folder: Path, protocol: str, *, finished: bool, measures: list[str]) -> TextRun:
    """Read what a run of silos with texts wrote.

    Args:
        folder: The run directory.
        protocol: Name of its protocol.
        finished: Whether the run came to its end: then nothing may be missing.
        measures: The configuration's, in its order; the first one decides.

    Raises:
        RunError: A file is missing, cut, or of another schema; says which file and what to do.
    """
    file = folder / "federation.json"
    raw = json_object(file)
    _check_mode(file, raw.get("mode"), protocol)
    methods = _methods(folder / "methods.parquet", measures)
    gate_file = folder / "gate.json"
    gate = json_object(gate_file, needed=finished)
    what = "'decisions', each with seed, silo, vali, test, adopted and kept"
    decisions = convert_content(
        gate_file, what, lambda: convert(tuple[Decision, ...], gate["decisions"]) if gate else ()
    )
    ordered = [str(gate["measure"])] if gate.get("measure") else [m for m in measures if m in set(methods["measure"])]
    what = "'silos', 'mode', 'sketch', 'statistics', 'count_error' and 'beta' as fedrank writes them"
    made = convert_content(
        file, what, lambda: _made(raw, methods, ordered[0] if ordered else methods["measure"][0], decisions)
    )
    strange = sorted({*methods.unique("silo"), *(one.silo for one in decisions)} - set(made.names))
    if strange:
        raise RunError(
            f"{folder}: {strange[0]!r} is in methods.parquet or gate.json and not in federation.json "
            f"({', '.join(made.names)}): files of two runs. Run again to restore them."
        )
    return made


def _check_mode(file: Path, mode: Json, protocol: str) -> None:
    try:
        modes = getattr(getattr(defaults(protocol).method, "sketch", None), "modes", None)
    except FedrankError:  # an object of the caller's own
        modes = None
    # Earlier versions had "paper" in a protocol that has it no more; its files are the same.
    if modes is not None and mode not in (*modes, "paper"):
        raise RunError(
            f"{file}: mode must be one of {', '.join(modes)}, got {mode!r}, which this version does not have. "
            "Make the report with the version that made the run, or run again with one of these."
        )


def _methods(file: Path, measures: list[str]) -> Frame:
    frame = parquet(file, VALUES)
    frame = frame[np.isfinite(frame["value"])]
    if not len(frame.where(method=FEDERATED, scope="own")):
        raise RunError(f"{file}: has no values of {FEDERATED} on own documents. Run again to restore it.")
    unknown = sorted(set(frame["scope"]) - set(SCOPES))
    if unknown:
        raise RunError(
            f"{file}: scope must be one of {', '.join(SCOPES)}, got {unknown[0]!r}. The file is of another version of "
            "fedrank: make the report with that version, or run again."
        )
    order = {name: i for i, name in enumerate(measures)}
    return frame[np.argsort([order.get(name, len(order)) for name in frame["measure"].tolist()], kind="stable")]


def _made(raw: Mapping[str, Json], methods: Frame, measure: str, decisions: tuple[Decision, ...]) -> TextRun:
    silos = zip(raw["silos"], raw.get("words") or [None] * len(raw["silos"]), strict=True)
    if unknown := sorted(set(raw.get("insider") or ()) - {one.name for one in fields(InsiderReads)}):
        raise TypeError(f"insider has no {unknown[0]}")
    return object_of(
        TextRun,
        raw,
        silos=tuple(object_of(TextSilo, one, words=convert(int | None, words)) for one, words in silos),
        methods=methods,
        measure=measure,
        decisions=decisions,
        errors=_by_seed(raw["count_error"]),
        counts=_by_seed(raw.get("true_count") or {}),
    )


def _by_seed(raw: Mapping[str, Json]) -> dict[str, tuple[float, ...]]:
    """Finite numbers only: no count has an error where no document of another silo holds a word."""
    numbers = {str(k): [float(v) for v in values if v is not None] for k, values in raw.items()}
    return {name: tuple(v for v in values if math.isfinite(v)) for name, values in numbers.items()}
