"""Table 1 of silos equals what NumPy says of all rows, and no count that is too small can be worked out."""

import numpy as np
import pytest

from fedrank.silos.studies.codebook import Codebook, Column, Question, Rules
from fedrank.silos.studies.coordinator import run_study
from fedrank.silos.studies.node import Node
from fedrank.silos.studies.table import Table
from fedrank.silos.studies.table_one import QUANTILES, _find_ends, _find_hidden

SILOS = ("a", "b", "c")


def study(rows, rules, formula="~ age + stage | arm", bins=()):
    columns = {
        "age": Column(name="age", range=(0.0, 110.0), bins=bins),
        "stage": Column(name="stage", levels=("1", "2", "3")),
        "arm": Column(name="arm", levels=("control", "treated")),
    }
    question = Question(name="one", model="table", formula=formula)
    book = Codebook(study="s", silos=SILOS, columns=columns, rules=rules, questions=(question,))

    def table(silo, part):
        return Table(book, silo, lambda names, _: iter([{name: part[name] for name in names}]))

    nodes = [Node(table(silo, part)) for silo, part in zip(SILOS, rows, strict=True)]
    made = run_study(book, lambda asked: [node.answer(asked) for node in nodes])
    return made.progress["one"]


def parts(rng, sizes=(60, 90, 200)):
    out = []
    for n in sizes:
        age = rng.normal(55, 12, n).clip(0, 110)
        age[rng.random(n) < 0.1] = np.nan
        stage = rng.choice([0.0, 1, 2, np.nan], n, p=[0.5, 0.3, 0.15, 0.05])
        out.append({"age": age, "stage": stage, "arm": rng.integers(0, 2, n).astype(float)})
    return out


def test_numbers_are_those_of_all_rows():
    rows = parts(np.random.default_rng(1))
    bins = tuple(np.linspace(1.0, 110.0, 110))
    found = study(rows, Rules(smallest_cell=1), bins=bins)
    assert found.rounds == 1 and found.rows == dict(zip(SILOS, (60, 90, 200), strict=True))
    whole = {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}
    for silo, part in {**dict(zip(SILOS, rows, strict=True)), "": whole}.items():
        for g, group in enumerate(("control", "treated")):
            own = part["arm"] == g
            age, stage = (part[name][own] for name in ("age", "stage"))
            cells = {c.column: c for c in found.result.cells if (c.silo, c.group) == (silo, group)}
            known = age[~np.isnan(age)]
            got = cells["age"]
            assert (got.known, got.missing) == (len(known), np.isnan(age).sum())
            assert got.mean == pytest.approx(known.mean(), rel=1e-12)
            assert got.deviation == pytest.approx(known.std(ddof=1), rel=1e-12)
            np.testing.assert_allclose(got.quantiles, np.quantile(known, QUANTILES), atol=1.0)
            counts = {str(k + 1): int((stage == k).sum()) for k in range(3)}
            assert cells["stage"].counts == counts and cells["stage"].missing == np.isnan(stage).sum()


def test_no_small_count_is_told_or_follows():
    rng = np.random.default_rng(2)
    least = 5
    for _ in range(300):
        counts = rng.integers(0, 12, (rng.integers(1, 4), rng.integers(2, 6)))
        hidden = _find_hidden(counts.astype(float), least)
        shown = counts[~hidden]
        assert ((shown == 0) | (shown >= least)).all()
        # Totals of groups, and of levels over several groups, are known: one hidden cell alone would follow from them.
        for own, lost in [
            *zip(counts, hidden, strict=True),
            *(zip(counts.T, hidden.T, strict=True) if len(counts) > 1 else ()),
        ]:
            assert lost.sum() != 1 or (own[~lost] == 0).all()
        bins = rng.integers(0, 8, (rng.integers(1, 4), 12))
        bins = bins[bins.sum(axis=1) >= least]
        told = _find_ends(bins.astype(float), least)
        steps = np.diff(np.cumsum(bins, axis=1)[:, told], axis=1, prepend=0)
        assert ((steps == 0) | (steps >= least)).all() and told[-1]


def test_the_length_of_an_answer_is_that_of_the_codebook():
    rng = np.random.default_rng(3)
    lengths = set()
    for sizes in ((60, 90, 200), (7, 60, 90), (200, 90, 60)):
        found = study(parts(rng, sizes), Rules())
        lengths.add(found.numbers)
    assert len(lengths) == 1


def test_a_silo_of_few_rows_is_left_out_and_named():
    found = study(parts(np.random.default_rng(4), (3, 90, 200)), Rules())
    assert set(found.left) == {"a"} and set(found.rows) == {"b", "c"} and found.numbers > 0
    assert {cell.silo for cell in found.result.cells} == {"b", "c", ""}
