"""Worst-case ε of one interaction under randomised response: Table 2 of the paper."""

from __future__ import annotations

from fedrank.core.trees import Json
from fedrank.engine.progress import Listener
from fedrank.engine.study import Study
from fedrank.ranking.privacy_table import table2
from fedrank.report.tables import Column, Table


def privacy_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Table 2 of Kharitonov 2019: worst-case ε of one interaction, ours beside the printed one.

    It is computed, not run: ``fraction`` and ``listener`` are not used.

    Returns:
        The table, and no figures.
    """
    rows = [
        {
            "user": row.user,
            "p": f"{row.p:g}",
            "ours": f"{row.epsilon:.2f}",
            "paper": f"{row.paper:.2f}",
            "bound": f"{row.bound:.2f}",
        }
        for row in table2()
    ]
    columns = (
        Column("user", "click model"),
        Column("p", "p", numeric=True),
        Column("ours", "ours", numeric=True),
        Column("paper", "paper", numeric=True),
        Column("bound", "any clicks, equation (10)", numeric=True),
    )
    met = sum(row["ours"] == row["paper"] for row in rows)
    notes = (f"{met} of {len(rows)} numbers are met to two decimals.",)
    return (Table(study.title, columns, tuple(rows), notes, (met, len(rows))),), {}
