"""Findings that the thesis states in words, each as a number with its interval, and what the thesis prints.

A finding is about differences: the thesis's data is not public, and its levels cannot be met on other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedrank.core.trees import Json
from fedrank.report.statistics import Estimate, mean_interval
from fedrank.report.tables import Column, Table
from fedrank_zoo.reproduce.study import Study, expected_value, read_paper


@dataclass(frozen=True)
class Finding:
    """A statement of the thesis beside a number of ours.

    Attributes:
        figure: Where it stands, such as ``"Figure 16"``.
        says: The statement.
        quantity: What is measured.
        measured: The number with its interval, or its value in each experiment.
        sign: 1 or −1 where the statement says that the number is above or below 0; 0 where it says that there is
            little difference.
    """

    figure: str
    says: str
    quantity: str
    measured: Estimate | Sequence[float]
    sign: int

    @property
    def estimate(self) -> Estimate:
        """The number with its interval over experiments."""
        return self.measured if isinstance(self.measured, Estimate) else mean_interval(list(map(float, self.measured)))

    @property
    def verdict(self) -> str:
        """``"yes"`` or ``"no"`` where the interval decides, else that it does not.

        >>> Finding("Figure 1", "more", "a", Estimate(0.2, 0.1, 10), 1).verdict
        'yes'
        >>> Finding("Figure 1", "more", "a", Estimate(-0.2, 0.1, 10), 1).verdict
        'no'
        >>> Finding("Figure 1", "more", "a", Estimate(0.2, 0.3, 10), 1).verdict
        'not told apart'
        """
        found = self.estimate
        if found.half is None:
            return "too few experiments"
        if self.sign == 0:
            return "no difference found" if abs(found.mean) <= found.half else "no"
        if abs(found.mean) <= found.half:
            return "not told apart"
        return "yes" if self.sign * found.mean > 0 else "no"


def findings_table(title: str, findings: Sequence[Finding], notes: Sequence[str] = ()) -> Table:
    """Every finding with its number and its verdict."""
    rows: list[dict[str, Json]] = [
        {"figure": f.figure, "says": f.says, "quantity": f.quantity, "ours": f.estimate, "stands": f.verdict}
        for f in findings
    ]
    columns = (
        Column("figure", "figure"),
        Column("says", "the thesis says"),
        Column("quantity", "measured here"),
        Column("ours", "ours", numeric=True, signed=True),
        Column("stands", "stands here"),
    )
    kept = ("± is half of a 95 % interval over experiments; the intervals are not corrected for their number.",)
    return Table(title, columns, tuple(rows), (*kept, *notes))


def printed_value(study: Study, where: dict[str, Json], split: str, measure: str) -> Json:
    """The number that the thesis prints, from ``expected.json``; None if it prints none."""
    entry = expected_value(read_paper(str(study.path.parent)), study, where, split, measure)
    return None if entry is None else entry["value"]
