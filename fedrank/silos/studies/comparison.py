"""One message of each silo, by which another silo finds whose models help it: a question of the model ``compare``.

A silo answers with its summary (:mod:`fedrank.silos.sceptic.summary`) of the design's columns. The results hold the
summaries of all silos; each silo compares the ways to a model by them, on its own rows, which do not leave it
(:func:`compare_at`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError, FormatError
from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.sceptic.learners import Glm, Own
from fedrank.silos.sceptic.summary import Summary, summary_of
from fedrank.silos.studies.codebook import Codebook
from fedrank.silos.studies.formula import Design
from fedrank.silos.studies.protocol import Analysis, Ask, Rows
from fedrank.silos.studies.table import Table


@dataclass(frozen=True, eq=False)
class Comparison:
    """The messages of the silos.

    Attributes:
        told: Silo -> its message.
        design: The design of the question, whose columns are scaled by public ranges.
    """

    told: Mapping[str, Summary]
    design: Design

    def coefficients(self, model: Glm) -> dict[str, float]:
        """Coefficients of a model of the design's columns, in the columns' own units, by name."""
        deviation, mean = model.moments.deviation, model.moments.mean
        slopes = np.where(deviation > 0, model.beta[1:] / np.where(deviation > 0, deviation, 1.0), 0.0)
        scaled = np.append(model.beta[0] - slopes @ mean, slopes)
        return dict(zip(self.design.names, (self.design.units @ scaled).tolist(), strict=True))

    def frame(self) -> Frame:
        """A row for each silo and coefficient of its own model."""
        rows = [
            (silo, one.rows, one.positive, name, value)
            for silo, one in self.told.items()
            for name, value in self.coefficients(one.model).items()
        ]
        return Frame.of_rows(
            rows, {"silo": str, "rows": float, "label_1": float, "coefficient": str, "estimate": float}
        )

    def as_json(self) -> dict[str, Json]:
        """The messages as JSON can hold them."""
        return {"summaries": {silo: one.flat().tolist() for silo, one in self.told.items()}}

    @classmethod
    def of_results(cls, results: Any, question: str, design: Design) -> Comparison:
        """The messages of a study's ``results.json``.

        Args:
            results: Its content.
            question: Name of the question.
            design: The question's design.

        Raises:
            FormatError: The question has no messages there, or they are not of this design.
        """
        try:
            found = next(one for one in results["questions"] if one["question"] == question)
            told = {str(silo): _read(numbers, design) for silo, numbers in found["summaries"].items()}
        except (StopIteration, KeyError, TypeError, ValueError, AttributeError) as cause:
            raise FormatError(f"there are no messages of question {question!r} in these results.") from cause
        return cls(told, design)


def _read(numbers: Any, design: Design) -> Summary:
    return Summary.from_flat(np.asarray(numbers, float), len(design.fields))


def summarise(blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """A silo's answer. How many rows are copies is not told, as it may be few."""
    made = summary_of(_own(list(blocks)), 0, 0)
    return replace(made, twice=0.0, by_chance=0.0).flat()


def gather(design: Design) -> Analysis[Comparison]:
    """The coordinator's part: one ask, and the silos' summaries as a :class:`Comparison`.

    Raises:
        DataError: An answer is no summary of the design's columns.
    """
    answers = yield Ask("summary")
    return Comparison({silo: _read(numbers, design) for silo, numbers in answers.items()}, design)


def compare_at(table: Table, book: Codebook, comparison: Comparison, *, seed: int = 0) -> Any:
    """Compare the ways to a model for a silo, by the messages of the others.

    Args:
        table: The silo's own rows.
        book: The codebook.
        comparison: The messages.
        seed: Draws the folds.

    Returns:
        The :class:`~fedrank.silos.sceptic.compare.Answer`.

    Raises:
        ConfigError: No other silo sent a message.
        DataError: The silo has too few rows of one label.
    """
    from fedrank.silos.sceptic.compare import answer_by_messages

    design, others = comparison.design, {s: one for s, one in comparison.told.items() if s != table.silo}
    if not others:
        raise ConfigError(f"there is no message of another silo than {table.silo}.")
    own = _own([design.rows(block, table.silo)[0] for block in table.blocks(design.columns)], bool(design.cluster))
    silo = Silo(table.silo, own.x, own.y.astype(np.int8), person=own.person)
    label = f"{design.outcome} = {book.column(design.outcome).levels[1]}"
    rows = SiloTable(book.study, (silo,), design.names[1:], label)
    names = [silo for silo in book.silos if silo in others or silo == table.silo]
    return answer_by_messages(rows, names, table.silo, others, seed=seed)


def _own(blocks: list[Rows], has_persons: bool = False) -> Own:
    """Rows without their column of ones; the persons are the clusters."""
    x, y, cluster = (np.concatenate([getattr(one, name) for one in blocks]) for name in ("x", "y", "cluster"))
    return Own(np.ascontiguousarray(x[:, 1:]), y, np.unique(cluster, return_inverse=True)[1] if has_persons else None)
