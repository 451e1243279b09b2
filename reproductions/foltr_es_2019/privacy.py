"""Table 2 of the paper: the exact ε of a metric under a click model.

Randomised response promises ε = log(p (n − 1) / (1 − p)) whatever people do. If people click by a known
model, the randomness of clicks protects them further, and the ε of one interaction can be computed: over all pairs of
result lists and all reports, the largest log ratio of the report's probabilities (the paper's equation 9). The paper
does so for MaxRR and all 3⁵ placements of three labels in a list of length 5.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json
from fedrank.engine.progress import Listener
from fedrank.metrics.online import REWARDS, OnlineMetric
from fedrank.privacy.randomised_response import epsilon, worst_case_epsilon
from fedrank.ranking.clicks.cascade import cascade, pattern_probabilities
from fedrank.report.tables import Column, Table
from fedrank_zoo.reproduce.study import Study

#: Most label lists that are enumerated: 4,096 lists × 1,024 patterns are 16 MB.
_MOST_LISTS = 4_096

#: Table 2 as printed: ε by click model, for each p. The perfect user meets the bound of equation (10).
PAPER_P = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
PAPER_TABLE = {
    "perfect": (0.51, 1.61, 2.71, 3.81, 4.55, 6.20),
    "navigational": (0.47, 1.52, 2.58, 3.65, 4.39, 6.00),
    "informational": (0.28, 1.00, 1.70, 2.56, 3.13, 4.39),
}


@dataclass(frozen=True)
class Row:
    """One cell of Table 2.

    Attributes:
        user: Name of the click model.
        p: Probability of the truth.
        epsilon: What we compute, in nats.
        paper: What the paper prints, to two decimals.
        bound: ε of randomised response alone (equation 10).
    """

    user: str
    p: float
    epsilon: float
    paper: float
    bound: float


def value_distributions(user_name: str, grades: int, metric: OnlineMetric) -> np.ndarray:
    """The distribution of a metric under every placement of labels in a list as long as the metric's depth.

    Args:
        user_name: Name of a click model.
        grades: Number of relevance grades; labels are 0 .. grades − 1.
        metric: The metric.

    Returns:
        float64 [grades ** depth, n]; rows sum to 1 (to single precision).

    Raises:
        ConfigError: More than 4,096 lists.
    """
    if grades**metric.depth > _MOST_LISTS:
        raise ConfigError(
            f"{grades} grades in {metric.depth} places make {grades**metric.depth:,} lists; at most "
            f"{_MOST_LISTS:,} are enumerated. Choose a smaller depth: the paper's Table 2 uses 5."
        )
    labels = np.array(list(itertools.product(range(grades), repeat=metric.depth)), np.int32)
    user = cascade(user_name, grades, metric.depth)
    patterns = np.asarray(pattern_probabilities(user, labels, np.ones(labels.shape, bool)), np.float64)
    values = np.zeros((metric.n, patterns.shape[0]))
    np.add.at(values, metric.index, patterns.T)
    return values.T


def table2() -> list[Row]:
    """Table 2 of the paper, ours beside the printed one: MaxRR, three grades, lists of length 5, so n = 6."""
    metric = REWARDS.get("MaxRR")(5)
    rows = []
    for user, printed in PAPER_TABLE.items():
        distributions = value_distributions(user, 3, metric)
        for p, paper in zip(PAPER_P, printed, strict=True):
            rows.append(Row(user, p, worst_case_epsilon(distributions, p), paper, epsilon(p, metric.n)))
    return rows


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
