"""Comparisons by messages: they give what all rows at one place give. Rows of one person stay together."""

import json

import numpy as np
import pytest
from silo_worlds import read_file

from fedrank.cli.main import main
from fedrank.core.errors import DataError
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.sceptic.auc import auc
from fedrank.silos.sceptic.compare import answer
from fedrank.silos.sceptic.learners import Own, folds
from fedrank.silos.sceptic.summary import Summary, fit_with, length
from fedrank.silos.studies.codebook import Codebook, Column, Question, Rules, codebook_toml
from fedrank.silos.studies.comparison import compare_at
from fedrank.silos.studies.coordinator import run_study
from fedrank.silos.studies.node import Node
from fedrank.silos.studies.results import results_of
from fedrank.silos.studies.table import own_table

SILOS = {"north": 60, "south": 120, "west": 90}
BOOK = Codebook(
    study="made", silos=tuple(SILOS), rules=Rules(smallest_cell=1, events_per_parameter=0.0),
    columns={
        "id": Column(name="id", role="cluster"), "age": Column(name="age", range=(0.0, 120.0)),
        "crp": Column(name="crp", range=(0.0, 200.0)), "ill": Column(name="ill", levels=("no", "yes")),
    },
    questions=(Question(name="whose", model="compare", formula="ill ~ age + crp + cluster(id)"),),
)  # fmt: skip


def rows(rng, n):
    x = np.column_stack([rng.normal(60, 10, n), rng.exponential(10, n)])
    y = rng.random(n) < 1 / (1 + np.exp(6 - 0.1 * x[:, 0]))
    return Own(x, y.astype(float), np.arange(n) // 2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("study"), np.random.default_rng(1)
    silos = {name: rows(rng, n) for name, n in SILOS.items()}
    silos["west"] = Own(silos["west"].x, 1 - silos["west"].y, silos["west"].person)
    for name, own in silos.items():
        lines = [f"p{p},{float(a)!r},{float(c)!r},{'yes' if y else 'no'}" for (a, c), y, p in zip(*own, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["id,age,crp,ill", *lines]) + "\n")
    (folder / "book.toml").write_text(codebook_toml(BOOK))
    return folder, silos


def run(*flags):
    """Exit status of a command."""
    with pytest.raises(SystemExit) as end:
        main(["silos", "compare", *map(str, flags)])
    return end.value.code


def studied(folder):
    nodes = [Node(own_table(folder / f"{name}.csv", BOOK, name)) for name in SILOS]
    return run_study(BOOK, lambda asked: [node.answer(asked) for node in nodes])


def test_messages_and_own_rows_give_what_all_rows_at_one_place_give(files):
    folder, silos = files
    made = studied(folder)
    (one,) = results_of(made)
    assert one.progress.rounds == 1 and one.progress.numbers == 3 * length(2)
    found = compare_at(own_table(folder / "north.csv", BOOK, "north"), BOOK, one.progress.result)
    parts = tuple(Silo(name, own.x, own.y.astype(np.int8), person=own.person) for name, own in silos.items())
    ways = [row.way for row in found.rows if row.way != "recommended"]
    expected = answer(SiloTable("made", parts, ("age", "crp"), "ill"), "north", ways=ways)
    assert [alarm.kind for alarm in found.probes.alarms] == [alarm.kind for alarm in expected.probes.alarms]
    assert "inverted" in [alarm.kind for alarm in found.probes.alarms if alarm.silo == 2]
    for mine, theirs in zip(found.verdicts, expected.verdicts, strict=True):
        assert mine.word == theirs.word
    assert found.auc.value == pytest.approx(expected.auc.value, abs=0.02)


def test_the_command_writes_a_model_in_the_columns_units(files, tmp_path, capsys):
    folder, silos = files
    from fedrank.silos.report.study import write_results

    write_results(studied(folder), tmp_path / "results")
    out = tmp_path / "north.json"
    flags = ["--target", "north", "--messages", str(tmp_path / "results" / "results.json"), "--out", str(out)]
    assert run(folder / "north.csv", *flags, "--codebook", folder / "book.toml") == 0
    made = json.loads(out.read_text())
    b, own = made["coefficients"], silos["north"]
    scores = b["(Intercept)"] + own.x @ [b["age"], b["crp"]]
    assert auc(scores, own.y).value > 0.6 and made["answers"][0]["rows"] == SILOS
    assert run(folder / "north.csv", *flags) != 0
    other = tmp_path / "other.toml"
    other.write_text((folder / "book.toml").read_text().replace("0.95", "0.9"))
    assert run(folder / "north.csv", *flags, "--codebook", other) != 0
    assert "is not of this codebook" in capsys.readouterr().err


def test_a_message_crosses_whole_and_gives_the_model_of_both_silos_rows():
    rng = np.random.default_rng(2)
    first, second = rows(rng, 80), rows(rng, 3000)
    told = Summary.of(second, 1.0)
    again = Summary.from_flat(told.flat(), 2)
    np.testing.assert_array_equal(again.flat(), told.flat())
    both = Own(np.concatenate([first.x, second.x]), np.concatenate([first.y, second.y]))
    from fedrank.silos.sceptic.learners import fit_alone

    whole, by_message = fit_alone(both, 1.0), fit_with(first, [told], 1.0)
    np.testing.assert_allclose(by_message.moments.deviation, whole.moments.deviation, rtol=1e-12)
    np.testing.assert_allclose(by_message.beta, whole.beta, atol=2e-3)
    facts, unlimited = told.flat(), told.flat()
    unlimited[4 + 3 * 2 + 3 + 4] *= -1  # the information about the intercept
    facts[1] = facts[0] + 1  # more rows of label 1 than rows
    for bad in (told.flat()[:-1], np.full(length(2), np.nan), -told.flat(), unlimited, facts):
        with pytest.raises(DataError):
            Summary.from_flat(bad, 2)


def test_rows_of_one_person_stay_in_one_fold_and_are_no_further_evidence():
    rng = np.random.default_rng(3)
    one = rows(rng, 70)._replace(person=None)
    thrice = Own(np.repeat(one.x, 3, axis=0) + rng.normal(0, 1e-9, (210, 2)), np.repeat(one.y, 3), np.arange(210) // 3)
    fold = folds(thrice, 5, rng)
    assert all(len(set(fold[thrice.person == p])) == 1 for p in range(70))
    assert thrice.rarer == one.rarer
    scores = one.x[:, 0]
    by_person, plain = thrice.auc(np.repeat(scores, 3)), one.auc(scores)
    assert by_person.value == pytest.approx(plain.value)
    # The same deviations, of which n - 1 are free among three times as many.
    assert by_person.error == pytest.approx(plain.error, rel=0.02)
    assert thrice._replace(person=None).auc(np.repeat(scores, 3)).error == pytest.approx(plain.error / 3**0.5, rel=0.02)


def test_visits_that_no_column_names_are_told_of(tmp_path):
    rng, lines = np.random.default_rng(4), ["silo,id,female,born,weight,label"]
    for person in range(120):
        female, born = rng.integers(0, 2), rng.integers(1930, 1990)
        lines += [
            f"{'ab'[person % 2]},{person},{female},{born},{rng.normal(70, 9):.1f},{rng.integers(0, 2)}"
            for _ in range(3)
        ]
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines) + "\n")
    assert any("--person id" in note for note in read_file(path).notes)
    named = read_file(path, person="id")
    assert "id" not in named.feature_names and not any("person" in note for note in named.notes)
    assert [len(set(silo.person.tolist())) for silo in named.silos] == [60, 60]
