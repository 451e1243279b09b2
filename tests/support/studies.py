"""Small studies for tests: three silos, a codebook, tables in memory or as CSV files."""

from collections.abc import Mapping

import numpy as np

from fedrank.silos.studies.codebook import Codebook, Column, Question, Rules
from fedrank.silos.studies.node import Node
from fedrank.silos.studies.table import Table

SILOS = ("a", "b", "c")
COLUMNS = {
    "age": Column(name="age", range=(0.0, 110.0)),
    "crp": Column(name="crp", range=(0.1, 100.0), knots=(5.0, 20.0)),
    "sex": Column(name="sex", levels=("f", "m")),
    "stage": Column(name="stage", levels=("1", "2", "3")),
    "ill": Column(name="ill", levels=("no", "yes")),
    "days": Column(name="days", range=(0.0, 365.0), bins=tuple(np.arange(30.0, 365.0, 30.0))),
    "visits": Column(name="visits", range=(0.0, 30.0)),
    "clinic": Column(name="clinic", role="cluster"),
}
NO_RULES = Rules(smallest_cell=1, rows_per_parameter=0.0, events_per_parameter=0.0)


def codebook(*questions: Question, rules: Rules = NO_RULES, **more) -> Codebook:
    return Codebook(study="s", silos=SILOS, columns=COLUMNS, rules=rules, questions=questions, **more)


def rows(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Columns of one silo as a table reads them."""
    rng = np.random.default_rng(seed)
    age, crp = rng.normal(55, 13, n).clip(18, 100), np.exp(rng.normal(1.5, 1, n)).clip(0.1, 100)
    sex, stage = rng.integers(0, 2, n).astype(float), rng.integers(0, 3, n).astype(float)
    eta = -1 + 0.03 * (age - 55) + 0.4 * sex + 0.3 * np.log(crp) + 0.2 * stage
    time = rng.exponential(250 * np.exp(-eta))
    return {
        "age": age, "crp": crp, "sex": sex, "stage": stage,
        "ill": (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float), "days": time.clip(0.01, 365.0),
        "visits": rng.negative_binomial(2, 2 / (2 + np.exp(0.5 + 0.3 * eta)), n).clip(0, 30).astype(float),
        "clinic": rng.integers(0, max(2, n // 8), n).astype(float),
    }  # fmt: skip


def node(book: Codebook, silo: str, columns: Mapping[str, np.ndarray], folder=None, key=None) -> Node:
    return Node(Table(book, silo, lambda names, _: iter([{name: columns[name] for name in names}])), folder, key=key)


def csv(columns: Mapping[str, np.ndarray], path) -> None:
    """Write columns as a silo's file, levels by name."""
    cells = {}
    for name, values in columns.items():
        levels = COLUMNS[name].levels
        cells[name] = ["" if v != v else levels[int(v)] if levels else repr(float(v)) for v in values.tolist()]
    lines = [",".join(cells), *(",".join(row) for row in zip(*cells.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
