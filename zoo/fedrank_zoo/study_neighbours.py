"""Neighbours of a study: what one record of a silo's table changes in the messages of every analysis.

The silo's table and others that differ from it in one record (a value, a rare level, a missing or impossible value, a
row more or less) answer the same asks. The shape of a message, which is all of it but digits and the names of rules,
must be that of the silo's table. Which rule refuses may depend on the record, and that is counted.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from fedrank.core.privacy_report import Unit
from fedrank.privacy.audit import Audit
from fedrank.silos.studies.codebook import Codebook, Column, Question, Rules
from fedrank.silos.studies.coordinator import Coordinator
from fedrank.silos.studies.messages import Answer, Round
from fedrank.silos.studies.node import Node
from fedrank.silos.studies.protocol import Ask
from fedrank.silos.studies.table import own_table

SILOS = ("a", "b", "c")
COLUMNS = {
    "age": Column(name="age", range=(0.0, 110.0)),
    "crp": Column(name="crp", range=(0.1, 100.0), knots=(5.0, 20.0)),
    "sex": Column(name="sex", levels=("f", "m")),
    "stage": Column(name="stage", levels=("1", "2", "3")),
    "ill": Column(name="ill", levels=("no", "yes")),
    "days": Column(name="days", range=(0.0, 365.0), bins=(90.0, 180.0)),
    "visits": Column(name="visits", range=(0.0, 30.0)),
    "clinic": Column(name="clinic", role="cluster"),
}
#: A question of each analysis.
QUESTIONS = (
    Question(name="logistic", formula="ill ~ age + sex * stage + ns(crp, 3)"),
    Question(name="robust", formula="ill ~ age + sex + cluster(clinic)", errors="cluster"),
    Question(name="linear", model="linear", formula="crp ~ age + strata(site)", errors="robust"),
    Question(name="poisson", model="poisson", formula="visits ~ age + sex + offset(log(crp))"),
    Question(name="negative", model="negative-binomial", formula="visits ~ age + sex"),
    Question(name="multinomial", model="multinomial", formula="stage ~ age + sex"),
    Question(name="ordinal", model="ordinal", formula="stage ~ age + sex"),
    Question(name="firth", formula="ill ~ age + sex", firth=True),
    Question(name="cox", model="cox", formula="Surv(days, ill) ~ age + sex", errors="robust"),
    Question(name="cox by site", model="cox", formula="Surv(days, ill) ~ age + strata(site)"),
    Question(name="curves", model="curves", formula="Surv(days, ill) ~ sex"),
    Question(name="two stages", formula="ill ~ age + sex", pool="silos"),
    Question(name="patterns", formula="ill ~ sex + stage", one_round=True),
    Question(name="compare", model="compare", formula="ill ~ age + sex + stage + cluster(clinic)"),
    Question(name="table", model="table", formula="~ age + sex + stage | ill"),
)
#: What the first record's cell of a column becomes: values, missing ones, other levels, values that cannot be.
CHANGES = {
    "age": ("18.5", "", "-3", "old", "1e9"), "sex": ("f", "", "unknown"), "stage": ("3", "4"), "ill": ("yes", ""),
    "crp": ("0.1", "99"), "days": ("0", "365"), "visits": ("30", ""), "clinic": ("999", ""),
}  # fmt: skip
DEFAULT_RULES = Rules()
NO_RULES = Rules(smallest_cell=1, rows_per_parameter=0.0, events_per_parameter=0.0)
#: Rows of the silo, and those of the rarer sex, which are as many as the smallest cell.
_ROWS, _RARE = 120, 5


@dataclass(frozen=True)
class Neighbours:
    """Messages of one silo, from its table and from each that differs in one record.

    Attributes:
        questions: Number of questions.
        shapes: Of each table, its own first, what of its messages depends on no digit, as JSON.
        refusals: Of each table, the rule by which each reply is refused; empty where it is told.
    """

    questions: int
    shapes: tuple[str, ...]
    refusals: tuple[tuple[str, ...], ...]

    @property
    def tables(self) -> int:
        """Number of tables that differ in one record."""
        return len(self.shapes) - 1

    @property
    def replies(self) -> int:
        """Number of replies that each table gives."""
        return len(self.refusals[0])

    @property
    def answers(self) -> int:
        """Number of replies of the silo's own table that are not refused."""
        return sum(not one for one in self.refusals[0])

    @property
    def differences(self) -> int:
        """Number of replies, over all tables, that are refused by another rule than that of the silo's own table."""
        own = self.refusals[0]
        return sum(one != two for other in self.refusals[1:] for one, two in zip(own, other, strict=True))


@cache
def compare_neighbours(rules: Rules = DEFAULT_RULES) -> Neighbours:
    """Ask a silo's table and its neighbours for every message of every analysis.

    Args:
        rules: Rules of disclosure by which they answer.
    """
    book = Codebook(study="neighbours", silos=SILOS, columns=COLUMNS, rules=rules, questions=QUESTIONS)
    with tempfile.TemporaryDirectory() as folder:
        rounds = [Round(book, number, asks) for number, asks in enumerate(_asks(Path(folder)), 1)]
        shapes, refusals = [], []
        for number, text in enumerate(_tables()):
            path = Path(folder) / f"{number}.csv"
            path.write_text(text)
            node = Node(own_table(path, book, "a"))
            answers = [node.answer(one) for one in rounds]
            shapes.append(json.dumps([message_shape(one) for one in answers]))
            refusals.append(tuple(reply.refused for one in answers for reply in one.replies.values()))
    return Neighbours(len(QUESTIONS), tuple(shapes), tuple(refusals))


def message_shape(answer: Answer) -> Any:
    """A message with 0 in place of each number and without the name of a rule."""

    def without(content: Any) -> Any:
        if isinstance(content, dict):
            return {key: "" if key == "refused" else without(value) for key, value in content.items()}
        if isinstance(content, list):
            return [without(one) for one in content]
        return content if isinstance(content, str) else 0

    return without(answer.as_json())


def study_messages(epsilon: float = 0.0, delta: float = 0.0) -> Audit:
    """The shape of a study's messages: their keys, numbers of numbers, and bytes without digits.

    What is promised is that no record changes it, ε = 0, whatever is asked for. That a rule refuses may depend on a
    record; the sentence on the worlds says how often it does.

    Args:
        epsilon: Not used.
        delta: Not used.
    """
    found = compare_neighbours()
    codes = np.unique(found.shapes, return_inverse=True)[1]

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        others = 1 + np.arange(trials) % found.tables
        return codes[others] if world else np.full(trials, codes[0])

    worlds = (
        f"a silo's table, or one of {found.tables} with a record changed, more or less, asked for each message of "
        f"{found.questions} analyses: shapes. Which rule refuses a reply depends on the record too, in "
        f"{found.differences} of {found.tables * found.replies} replies, and is told"
    )
    return Audit("study-messages", Unit.RECORD, worlds, 0.0, sample, trials=2_000)


def _asks(folder: Path) -> list[dict[str, Ask]]:
    """Asks of each kind and size that a study has, as rounds with at most one ask of a question."""
    book = Codebook(study="asks", silos=SILOS, columns=COLUMNS, rules=NO_RULES, questions=QUESTIONS)
    nodes = []
    for number, silo in enumerate(SILOS):
        path = folder / f"{silo}.csv"
        path.write_text("\n".join(_lines(150, number)) + "\n")
        nodes.append(Node(own_table(path, book, silo)))
    made, found = Coordinator(book), {name.name: {} for name in QUESTIONS}
    while (asked := made.open) is not None:
        for name, ask in asked.asks.items():
            found[name][ask.step, str({key: np.shape(value) for key, value in ask.numbers.items()})] = ask
        made.take([one.answer(asked) for one in nodes], asked)
    kinds = {name: list(asks.values()) for name, asks in found.items()}
    most = max(map(len, kinds.values()))
    return [{name: asks[k] for name, asks in kinds.items() if k < len(asks)} for k in range(most)]


def _tables() -> Iterator[str]:
    """A silo's file, then each with one record changed, less or more."""
    header, *lines = _lines(_ROWS, 3, rare=_RARE)
    names = header.split(",")
    changed = [lines, lines[1:], [*lines, lines[0]]]
    for name, values in CHANGES.items():
        for value in values:
            cells = lines[0].split(",")
            cells[names.index(name)] = value
            changed.append([",".join(cells), *lines[1:]])
    return ("\n".join([header, *one]) + "\n" for one in changed)


def _lines(n: int, seed: int, rare: int | None = None) -> list[str]:
    """Lines of a CSV file of generated rows, of which the first ``rare`` are of the second sex."""
    rng = np.random.default_rng(seed)
    age, crp = rng.normal(55, 13, n).clip(18, 100), np.exp(rng.normal(1.5, 1, n)).clip(0.1, 100)
    sex, stage = rng.integers(0, 2, n), rng.integers(0, 3, n)
    if rare is not None:
        sex = (np.arange(n) < rare).astype(int)
    eta = -1 + 0.03 * (age - 55) + 0.4 * sex + 0.3 * np.log(crp) + 0.2 * stage
    ill = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
    if rare is not None:
        ill[:rare] = 0
    columns = {
        "age": map(repr, age.tolist()), "crp": map(repr, crp.tolist()), "sex": np.array(["f", "m"])[sex],
        "stage": map(str, stage + 1), "ill": np.array(["no", "yes"])[ill],
        "days": map(repr, rng.exponential(250 * np.exp(-eta)).clip(0.01, 365.0).tolist()),
        "visits": map(str, rng.negative_binomial(2, 2 / (2 + np.exp(0.5 + 0.3 * eta)), n).clip(0, 30)),
        "clinic": map(str, rng.integers(0, max(2, n // 8), n)),
    }  # fmt: skip
    return [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
