"""Codebooks of studies: what is refused, what the hash depends on, and what a draft guesses."""

import dataclasses

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError, UnknownNameError
from fedrank.silos.studies.codebook import Codebook, Column, Question, Rules, codebook_toml, read_codebook
from fedrank.silos.studies.table import draft_codebook

COLUMNS = {
    "age": Column(name="age", range=(0.0, 110.0), unit="years", missing=("-9",)),
    "sex": Column(name="sex", levels=("f", "m"), codes={"0": "f", "1": "m"}),
    "days": Column(name="days", range=(0.0, 900.0), bins=(30.0, 90.0, 365.0)),
    "patient": Column(name="patient", role="cluster"),
}
BOOK = Codebook(
    study="s", silos=("a", "b"), columns=COLUMNS, rules=Rules(smallest_cell=7),
    questions=(Question(name="q", formula="sex ~ age", errors="robust", tests=("age",)),), correction="bonferroni",
)  # fmt: skip


def test_a_codebook_is_read_back_from_its_file(tmp_path):
    file = tmp_path / "codebook.toml"
    file.write_text(codebook_toml(BOOK, {"age": "is it public?"}))
    assert "is it public?" in file.read_text()
    read = read_codebook(file)
    assert read == BOOK and read.sha == BOOK.sha and Codebook.from_json(BOOK.as_json()) == BOOK


def test_the_hash_depends_on_content_alone(tmp_path):
    file = tmp_path / "codebook.toml"
    file.write_text("# another comment\n\n" + codebook_toml(BOOK))
    assert read_codebook(file).sha == BOOK.sha
    changed = [
        dataclasses.replace(BOOK, study="t"),
        dataclasses.replace(BOOK, silos=("b", "a")),
        dataclasses.replace(BOOK, rules=Rules(smallest_cell=8)),
        dataclasses.replace(BOOK, level=0.9),
        dataclasses.replace(BOOK, columns={**COLUMNS, "age": Column(name="age", range=(0.0, 111.0))}),
        dataclasses.replace(BOOK, questions=()),
    ]
    assert len({one.sha for one in (BOOK, *changed)}) == len(changed) + 1


def test_columns_that_cannot_be_are_refused():
    for about in (
        {}, {"range": (0.0, 1.0), "levels": ("a", "b")}, {"range": (1.0, 0.0)}, {"range": (0.0, np.inf)},
        {"range": (0.0,)}, {"levels": ("a",)}, {"levels": ("a", "a")}, {"levels": ("a", "")}, {"role": "key"},
        {"levels": ("a", "b"), "codes": {"1": "c"}}, {"levels": ("a", "b"), "bins": (1.0,)},
        {"range": (0.0, 9.0), "bins": (3.0, 2.0)}, {"range": (0.0, 9.0), "knots": (10.0,)},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            Column(name="x", **about)


def test_plans_and_rules_that_cannot_be_are_refused():
    for about in ({"formula": ""}, {"model": "probit"}, {"errors": "jackknife"}, {"pool": "some"}, {"ties": "exact"}):
        with pytest.raises(ConfigError):
            Question(**{"name": "q", "formula": "a ~ b", **about})
    with pytest.raises(ConfigError):
        Question(name="q", formula="a ~ b", model="linear", firth=True)
    for about in ({"penalty": -1.0}, {"penalty": 1.0, "model": "cox"}, {"penalty": 1.0, "errors": "robust"}):
        with pytest.raises(ConfigError):
            Question(**{"name": "q", "formula": "a ~ b", **about})
    for about in ({"smallest_cell": 0}, {"smallest_cell": 10_000}, {"fewest_silos": 0}, {"rows_per_parameter": -1.0}):
        with pytest.raises(ConfigError):
            Rules(**about)
    question = Question(name="q", formula="a ~ b")
    for about in (
        {"silos": ()}, {"silos": ("a", "a")}, {"silos": ("",)}, {"level": 1.0}, {"correction": "fdr"},
        {"site": "age"}, {"questions": (question, question)},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            dataclasses.replace(BOOK, **about)
    with pytest.raises(UnknownNameError):
        BOOK.column("aeg")
    with pytest.raises(UnknownNameError):
        BOOK.question("r")


def test_files_that_are_no_codebook_are_refused(tmp_path):
    with pytest.raises(MissingDataError):
        read_codebook(tmp_path / "none.toml")
    good = codebook_toml(BOOK)
    for text in (
        "", "a = [", good.replace("version = 1", "version = 9"), good.replace("[rules]", "[rule]"),
        good.replace("smallest_cell", "smallest"),
        good.replace("smallest_cell = 7", "smallest_cell = true"),
        good.replace("smallest_cell = 7", 'smallest_cell = "7"'),
        good.replace("exact_times = false", "exact_times = 0"), good.replace("range", "rnage"),
        good.replace('study = "s"', ""),
        good.replace("range = [0.0, 110.0]", 'range = ["0", "110"]'), good.replace('unit = "years"', "unit = 3"),
        good.replace('levels = ["f", "m"]', 'levels = "fm"'), good.replace("[columns.age]", "[columns]\nage = 3\n[x]"),
        good.replace('unit = "years"', 'unit = "years"\ncodes = 0'),
    ):  # fmt: skip
        (tmp_path / "c.toml").write_text(text)
        with pytest.raises(FormatError):
            read_codebook(tmp_path / "c.toml")


def test_a_draft_guesses_types_levels_and_wider_ranges(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["site,id,age,sex,smoker,stage,born,note"]
    for k in range(60):
        age = "" if k == 3 else f"{rng.uniform(21, 78):.1f}"
        lines.append(f"{'ab'[k % 2]},{1000 + k},{age},{'fm'[k % 2]},{k % 2},{k % 3},19{k + 20}-01-02,text {k}")
    file = tmp_path / "t.csv"
    file.write_text("\n".join(lines))
    made, notes, alone = draft_codebook(file, study="s", categorical=("stage",), identifiers=("id",))
    kinds = {name: one.role or ("range" if one.range else "levels") for name, one in made.columns.items()}
    expected = {"id": "identifier", "age": "range", "sex": "levels", "smoker": "levels", "stage": "levels"}
    assert kinds == {**expected, "born": "identifier", "note": "identifier"} and made.silos == ("a", "b")
    assert made.columns["stage"].levels == ("0", "1", "2") and set(notes) == set(made.columns)
    assert alone == []
    low, high = made.columns["age"].range
    assert low <= 21 and high >= 78 and low % 5 == high % 5 == 0
    with pytest.raises(DataError):
        draft_codebook(file, study="s", site="hospital")


def test_a_draft_takes_a_value_that_looks_like_a_code_for_a_missing_one(tmp_path):
    rng = np.random.default_rng(0)
    crp = np.where(np.arange(60) % 20 == 3, -9.0, rng.uniform(1, 80, 60).round(1))
    file = tmp_path / "north.csv"
    ages = ["k.A." if k == 7 else f"{age:.1f}" for k, age in enumerate(rng.uniform(20, 90, 60))]
    file.write_text("crp,age\n" + "".join(f"{a},{b}\n" for a, b in zip(crp, ages, strict=True)))
    made, notes, _ = draft_codebook(file, study="s", silos=("a", "b"))
    assert made.columns["crp"].missing == ("-9",) and made.columns["crp"].range[0] >= 0 and "-9" in notes["crp"]
    assert made.columns["age"].missing == ("k.A.",) and made.columns["age"].range[1] <= 100


def test_a_draft_for_a_question_refuses_columns_that_are_no_term_and_counts_repeated_persons(tmp_path):
    lines = [
        f"{'ab'[k % 2]},{k // 2 if k < 4 else k},{'<5' if k == 9 else f'{k / 7:.1f}'},{('M', 'm', 'f')[k % 3]},{k % 2}"
        for k in range(60)
    ]
    file = tmp_path / "t.csv"
    file.write_text("\n".join(["site,id,crp,sex,ill", *lines]))

    def draft(terms: str, **more):
        return draft_codebook(file, study="s", questions=[Question(name="q", formula=f"ill ~ {terms}")], **more)

    with pytest.raises(DataError, match="crp"):
        draft("crp")
    with pytest.raises(DataError, match="'M' and 'm'"):
        draft("sex")
    assert draft("sex", categorical=("sex",))[0].columns["sex"].levels == ("M", "f", "m")
    made, _, alone = draft("crp", missing=("<5",), identifiers=("id",))
    assert made.columns["crp"].range and len(alone) == 1 and " 2, in 4 rows" in alone[0]
    assert "beside text" in draft_codebook(file, study="s")[1]["crp"]
    assert draft("crp + cluster(id)", missing=("<5",))[2] == []
