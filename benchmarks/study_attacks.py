"""What an asker learns from the answers of a study: attacks on 200 random small studies, with the rules and without.

    python -m benchmarks.study_attacks               # a quarter of an hour

Results go to ``benchmarks/study_attacks.json``. Each attack reads messages of one hospital's node alone. A study counts
where there is something to find, and as found where the attacker's number is exactly right:

* ``margin``: a count below the smallest cell in Table 1 by group, from the told cells, the sizes of the groups and a
  model's counts of levels;
* ``product``: a count below the smallest cell of three columns' levels, from the sums of squares and products;
* ``patterns``: the counts of all patterns of three columns' levels, one of them small, from the rounds of a logistic
  model;
* ``missing``: the sums of fewer rows than the smallest cell, from four questions over columns with missing values;
* ``bins``: a count below the smallest cell between the ends of bins of two codebooks;
* ``one row``, by model: the value of one row, from coefficients that the asker chose;
* ``equations``: rows, whole numbers of age with outcomes, or of age and a score, from sums at coefficients that the
  asker chose (``points`` of them; 0: those of an honest analysis; ``two stages``: from the hospital's own estimates and
  their covariance): the share of rows that is found, and in how many studies all are.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.optimize import linprog, nnls
from threadpoolctl import threadpool_limits

from fedrank.silos.studies import node
from fedrank.silos.studies.codebook import Codebook, Column, Question, Rules
from fedrank.silos.studies.coordinator import Coordinator
from fedrank.silos.studies.families import Logistic
from fedrank.silos.studies.messages import Reply, Round
from fedrank.silos.studies.node import Node
from fedrank.silos.studies.protocol import Ask
from fedrank.silos.studies.questions import prepare
from fedrank.silos.studies.table import Table

RESULTS = Path(__file__).with_suffix(".json")
SILOS = ("a", "b", "c")
LEAST = 5
ON, OFF = Rules(), Rules(smallest_cell=1, rows_per_parameter=0.0, events_per_parameter=0.0)
COLUMNS = {
    "age": Column(name="age", range=(0.0, 110.0)),
    "score": Column(name="score", range=(0.0, 10.0)),
    "days": Column(name="days", range=(0.0, 365.0), bins=(180.0,)),
    "visits": Column(name="visits", range=(0.0, 50.0)),
    "sex": Column(name="sex", levels=("f", "m")),
    "stage": Column(name="stage", levels=("1", "2", "3")),
    "arm": Column(name="arm", levels=("control", "treated")),
    "ill": Column(name="ill", levels=("no", "yes")),
}
Columns = dict[str, np.ndarray]


def rows(rng: np.random.Generator, n: int) -> Columns:
    """One hospital's columns: some levels are rare, ages and scores are whole numbers."""
    stage = rng.choice(3, n, p=[0.6, 0.3, 0.1]).astype(float)
    age = np.round(rng.normal(60, 14, n).clip(18, 100))
    risk = 1 / (1 + np.exp(-(-0.5 + 0.03 * (age - 60) + 0.3 * stage)))
    return {
        "age": age, "score": rng.integers(0, 11, n).astype(float), "stage": stage,
        "days": rng.exponential(200, n).clip(1, 365),
        "visits": rng.poisson(np.exp(0.5 + risk)).clip(0, 50).astype(float),
        "sex": rng.integers(0, 2, n).astype(float), "arm": (rng.random(n) < 0.3).astype(float),
        "ill": (rng.random(n) < risk).astype(float),
    }  # fmt: skip


class Asked:
    """One hospital's node under the rules of a codebook, and what an asker gets from it."""

    def __init__(
        self, part: Columns, rules: Rules, *questions: Question, before: Node | None = None, **columns: Column
    ):
        self.book = Codebook(
            study="attack", silos=SILOS, columns={**COLUMNS, **columns}, rules=rules, questions=questions
        )
        table = Table(self.book, "a", lambda names, _: iter([{name: part[name] for name in names}]))
        self.node = Node(table)
        if before is not None:  # the same hospital, which remembers what it answered
            self.node._used = before._used

    def first(self) -> dict[str, Reply]:
        """Replies to the first round."""
        asked = Coordinator(self.book).open
        assert asked is not None
        answer = self.node.answer(asked)
        return dict(answer.replies)

    def sums(self, question: str, **numbers: Any) -> Reply:
        """Reply to an ask for sums."""
        given = prepare(self.book.question(question), self.book).steps["sums"]
        known = {name: np.asarray(value, float) for name, value in given.items() if value is not None}
        ask = Ask("sums", {**known, **{name: np.asarray(value, float) for name, value in numbers.items()}})
        return self.node.answer(Round(self.book, 1, {question: ask})).replies[question]


def margin(rng: np.random.Generator, rules: Rules) -> bool | None:
    """A hidden cell of Table 1 from margins, as the one whole number that it can be."""
    part = rows(rng, int(rng.integers(80, 160)))
    truth = np.array([[((part["arm"] == g) & (part["stage"] == k)).sum() for k in range(3)] for g in range(2)])
    if not ((truth > 0) & (truth < LEAST)).any():
        return None
    table = Question(name="table", model="table", formula="~ sex + stage | arm")
    model = Question(name="model", model="linear", formula="age ~ stage")
    told = Asked(part, rules, table, model).first()
    left, right = [], []
    if told["table"].refused:
        return False
    groups = told["table"].numbers.reshape(2, -1)  # missing, f, m, missing, stages
    cells = groups[:, 4:]
    for g, k in product(range(2), range(3)):
        if np.isfinite(cells[g, k]):
            left.append(np.eye(6)[3 * g + k])
            right.append(cells[g, k])
    for g in range(2):
        if np.isfinite(groups[g, 1:3]).all():
            left.append(np.repeat(np.eye(2)[g], 3))
            right.append(groups[g, 1:3].sum())
    if not told["model"].refused:
        n, _, _, *x = told["model"].numbers[:6]  # rows, weights, exposure, sums of the columns
        levels = np.array([n - x[1] - x[2], x[1], x[2]])
        left += list(np.hstack([np.eye(3), np.eye(3)]))
        right += levels.tolist()
    if not left:
        return False
    for g, k in zip(*np.nonzero((truth > 0) & (truth < LEAST)), strict=True):
        ends = [linprog(s * np.eye(6)[3 * g + k], A_eq=np.array(left), b_eq=right).x for s in (1, -1)]
        low, high = (round(float(end[3 * g + k]), 6) for end in ends)
        if np.ceil(low) == np.floor(high) == truth[g, k]:
            return True
    return False


def product_of_levels(rng: np.random.Generator, rules: Rules) -> bool | None:
    """A count of three levels from Σ xx' of an interaction and a third column."""
    part = rows(rng, int(rng.integers(80, 160)))
    columns = [part["sex"] == 1, part["stage"] == 2, part["arm"] == 1]
    truth = int(np.all(columns, axis=0).sum())
    if not 0 < truth < LEAST:
        return None
    question = Question(name="q", model="linear", formula="score ~ age + sex * stage + arm")
    asked = Asked(part, rules, question)
    reply = asked.first()["q"]
    if reply.refused:
        return False
    names = prepare(question, asked.book).design.names
    p = len(names)
    gram = np.zeros((p, p))
    gram[np.triu_indices(p)] = reply.numbers[3 + p : 3 + p + p * (p + 1) // 2]
    place = sorted((names.index("sex=m:stage=3"), names.index("arm=treated")))
    found = gram[place[0], place[1]]
    return round(float(found)) == truth


def patterns(rng: np.random.Generator, rules: Rules) -> bool | None:
    """Counts of patterns from a logistic model's rounds, which are linear in them: non-negative least squares."""
    part = rows(rng, int(rng.integers(80, 160)))
    grid = np.array(list(product(range(2), range(3), range(2), range(2))), float)
    names = ("sex", "stage", "arm", "ill")
    place = (np.stack([part[name] for name in names], axis=1)[:, None] == grid).all(axis=2)
    truth = place.sum(axis=0).reshape(-1, 2).sum(axis=1)  # outcomes of a pattern enter by their sums alone
    if not ((truth > 0) & (truth < LEAST)).any():
        return None
    asked = Asked(part, rules, Question(name="q", formula="ill ~ sex + stage + arm"))
    x = np.column_stack([np.ones(len(grid)), grid[:, 0], grid[:, 1] == 1, grid[:, 1] == 2, grid[:, 2]]).astype(float)
    left, right = _equations(asked, x, grid[:, 3], [rng.normal(size=5) for _ in range(8)])
    if not len(right):
        return False
    return bool((np.round(_solve(left, right).reshape(-1, 2).sum(axis=1)) == truth).all())


def missing(rng: np.random.Generator, rules: Rules) -> bool | None:
    """Sums of the rows that lack two columns, from four questions."""
    part = rows(rng, int(rng.integers(80, 160)))
    n = len(part["age"])
    both, own, other = int(rng.integers(1, LEAST)), int(rng.integers(5, 15)), int(rng.integers(5, 15))
    part["visits"][: both + own] = np.nan
    part["score"][:both], part["score"][n - other :] = np.nan, np.nan
    formulas = ("age", "age + visits", "age + score", "age + visits + score")
    questions = [Question(name=str(k), formula=f"ill ~ {one}") for k, one in enumerate(formulas)]
    told = Asked(part, dataclasses.replace(rules, same_rows=False), *questions).first()
    if any(one.refused for one in told.values()):
        return False
    ages = [told[str(k)].numbers[4] for k in range(4)]  # Σ of the scaled age: rows, weights, exposure, ones, age
    found = ages[0] - ages[1] - ages[2] + ages[3]
    return bool(abs(found - ((part["age"][:both] - 55) / 55).sum()) < 1e-6)


def bins(rng: np.random.Generator, rules: Rules) -> bool | None:
    """A count of two neighbouring ages, from Table 1 of two codebooks."""
    part = rows(rng, int(rng.integers(80, 160)))
    end = float(rng.integers(50, 70))
    truth = int(((part["age"] > end) & (part["age"] <= end + 1)).sum())
    if not 0 < truth < LEAST:
        return None
    question, before, found = Question(name="t", model="table", formula="~ age + sex"), None, []
    for last in (end, end + 1):
        about = dataclasses.replace(COLUMNS["age"], bins=(last,))
        asked = Asked(part, rules, question, before=before, age=about)
        reply, before = asked.first()["t"], asked.node
        found.append(np.nan if reply.refused else reply.numbers[4])
    return bool(found[1] - found[0] == truth)


#: For each model the formula, the coefficients at which one row weighs, given a place of the scaled age, and where
#: weights, weights times age and times its square stand in the answer.
ONE_ROW: dict[str, tuple[str, Callable[[float], list[float]], tuple[int, int, int]]] = {
    "logistic": ("ill ~ age", lambda v: [-1e3 * v, 1e3], (3, 4, 5)),
    "poisson": ("visits ~ age", lambda v: [200 - 300 * v, 300.0], (3, 4, 5)),
    "negative-binomial": ("visits ~ age", lambda v: [20 - 180 * v, 180.0, 40.0], (4, 5, 7)),
    "multinomial": ("stage ~ age", lambda v: [-1e3 * v, 1e3, -1e6, 0.0], (5, 6, 9)),
    "ordinal": ("stage ~ age", lambda v: [2e3 * v, 2e3 * v + 1e6, 2e3], (4, 6, 9)),
    "cox": ("Surv(days, ill) ~ age", lambda v: [290 * v], (2, 3, 4)),
}
#: What an asker has of an analysis in two stages in place of sums at coefficients.
TWO_STAGES = "two stages"
#: Difference of scaled ages, half a year or less, below which two are one.
_CLOSE = 5e-3


def one_row(model: str) -> Callable[[np.random.Generator, Rules], bool | None]:
    """An attack on one model: the age of one row, where the weighted variance says that one alone weighs."""

    def attack(rng: np.random.Generator, rules: Rules) -> bool | None:
        part = rows(rng, int(rng.integers(80, 160)))
        part["age"] = part["age"] + np.round(rng.random(len(part["age"])), 3)
        formula, at, places = ONE_ROW[model]
        asked = Asked(part, rules, Question(name="q", model=model, formula=formula))
        # Without an intercept a design is not moved.
        scaled = part["age"] / 110 if model in ("ordinal", "cox") else (part["age"] - 55) / 55
        for place in np.linspace(-0.6, 1, 50):
            theta = np.array(at(float(place)))
            reply = asked.sums("q", theta=theta if model == "cox" else theta[None])
            weight, first, second = np.abs(reply.numbers[list(places)])
            claimed = weight > 0 and second / weight - (first / weight) ** 2 < _CLOSE**2
            if claimed and np.abs(first / weight - np.abs(scaled)).min() < _CLOSE:
                return True
        return False

    return attack


def _own_points(part: Columns, asked: Asked) -> list[np.ndarray]:
    """The coefficients at which an analysis of this hospital's rows asks for sums."""
    rules = dataclasses.replace(OFF, fewest_silos=1)
    made, found = Coordinator(dataclasses.replace(asked.book, rules=rules)), []
    own = Asked(part, rules, *asked.book.questions).node
    while (opened := made.open) is not None:
        found += list(opened.asks["q"].numbers.get("theta", ()))
        made.take([own.answer(opened)], opened)
    return found


def _equations(asked: Asked, x: np.ndarray, y: np.ndarray, thetas: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Sums at coefficients as equations about the number of rows of each possible kind."""
    left, right, family = [], [], Logistic()
    i, j = np.triu_indices(x.shape[1])
    for theta in thetas:
        reply = asked.sums("q", theta=theta[None])
        if reply.refused:
            continue
        value, slope, curvature = family.terms(x @ theta, y)
        left.append(np.vstack([value, slope * x.T, curvature * (x[:, i] * x[:, j]).T]))
        right.append(reply.numbers)
    if not left:
        return np.zeros((0, len(x))), np.zeros(0)
    return np.vstack(left), np.concatenate(right)


def _of_two_stages(asked: Asked, x: np.ndarray, y: np.ndarray, half: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """A hospital's fit as equations: rows, a gradient of 0 and the information at its estimates.

    Estimates are in the columns' units, the columns of x are (value − half) / half.
    """
    reply, p = asked.first()["q"], x.shape[1]
    if reply.refused or not np.isfinite(reply.numbers).all():
        return np.zeros((0, len(x))), np.zeros(0)
    above = np.triu_indices(p)
    theta, covariance = reply.numbers[1 : 1 + p], np.zeros((p, p))
    covariance[above] = reply.numbers[1 + p : 1 + p + len(above[0])]
    by = np.diag([1.0, *half])
    by[0, 1:] = half
    theta = by @ theta
    information = np.linalg.inv(by @ (covariance + np.triu(covariance, 1).T) @ by.T)
    _, slope, curvature = Logistic().terms(x @ theta, y)
    left = np.vstack([np.ones(len(x)), slope * x.T, curvature * (x[:, above[0]] * x[:, above[1]]).T])
    return left, np.concatenate([reply.numbers[:1], np.zeros(p), information[above]])


def _solve(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    scale = np.abs(left).max(axis=1) + 1e-12
    try:
        return nnls(left / scale[:, None], right / scale, maxiter=20 * left.shape[1])[0]
    except RuntimeError:  # it did not come to an end
        return np.zeros(left.shape[1])


def equations(columns: tuple[str, ...], n: int, points: int | str) -> Callable[[np.random.Generator, Rules], float]:
    """Share of the rows that are recovered from sums at a number of coefficients that the asker chose."""
    sides = {"age": np.arange(18, 101.0), "score": np.arange(0, 11.0)}
    grid = np.array(list(product(*(sides[name] for name in columns), (0.0, 1.0))))
    half = {"age": 55.0, "score": 5.0}
    x = np.column_stack([np.ones(len(grid)), *((grid[:, k] - half[c]) / half[c] for k, c in enumerate(columns))])

    def attack(rng: np.random.Generator, rules: Rules) -> float:
        part = rows(rng, n)
        formula, pool = f"ill ~ {' + '.join(columns)}", "silos" if points == TWO_STAGES else "rows"
        asked = Asked(part, rules, Question(name="q", formula=formula, pool=pool))
        if isinstance(points, str):
            left, right = _of_two_stages(asked, x, grid[:, -1], [half[c] for c in columns])
        else:
            thetas = [rng.normal(size=x.shape[1]) * np.array([2.0, *[8.0] * len(columns)]) for _ in range(points)]
            left, right = _equations(asked, x, grid[:, -1], thetas or _own_points(part, asked))
        if not len(right):
            return 0.0
        place = (np.stack([part[name] for name in (*columns, "ill")], axis=1)[:, None] == grid).all(axis=2)
        truth = place.sum(axis=0)
        return float(np.minimum(np.round(_solve(left, right)), truth).sum() / n)

    return attack


@contextmanager
def _without_rules() -> Iterator[None]:
    """Nodes that refuse nothing."""
    nothing = {"broken_rule": lambda *_: ""}, {"_differs": lambda *_: ""}
    with mock.patch.multiple(node._Guard, **nothing[0]), mock.patch.multiple(Node, **nothing[1]):
        yield


def measure(attack: Callable[[np.random.Generator, Rules], bool | None], studies: int) -> dict[str, Any]:
    """Number of studies with something to find, and of those where it is found, without the rules and with them."""
    out: dict[str, Any] = {}
    for name, rules in (("without rules", OFF), ("with rules", ON)):
        found = []
        with _without_rules() if rules is OFF else nullcontext():
            for seed in range(100 * studies):
                result = attack(np.random.default_rng([seed, 7]), rules)
                found += [] if result is None else [result]
                if len(found) == studies:
                    break
        out["studies"] = len(found)
        out[name] = int(sum(found))
    return out


def main() -> None:
    """Parse arguments, attack, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=200)
    asked = parser.parse_args()
    attacks = {
        "margin": margin, "product": product_of_levels, "patterns": patterns, "missing": missing, "bins": bins,
        **{f"one row, {model}": one_row(model) for model in ONE_ROW},
    }  # fmt: skip
    results: dict[str, Any] = {"attacks": {}, "equations": []}
    with threadpool_limits(1):
        for name, attack in attacks.items():
            results["attacks"][name] = measure(attack, asked.studies)
            print(name, results["attacks"][name], flush=True)
        for columns, n, points in (
            *product((("age",),), (10, 20, 40), (TWO_STAGES, 0, 1, 3, 9, 27)),
            *product((("age", "score"),), (20, 40), (TWO_STAGES, 0, 3, 9, 27)),
        ):  # fmt: skip
            few = max(asked.studies // 10, 2)
            one: dict[str, Any] = {"columns": columns, "rows": n, "points": points, "studies": few}
            solve = equations(columns, n, points)
            for name, rules in (("without rules", OFF), ("with rules", ON)):
                with _without_rules() if rules is OFF else nullcontext():
                    found = [solve(np.random.default_rng([seed, 11]), rules) for seed in range(few)]
                one[name] = {"share": round(float(np.mean(found)), 3), "all": int(sum(share == 1 for share in found))}
            results["equations"].append(one)
            print(one, flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
