"""Tables as hospitals have them: what looks wrong is named with what mends it, and nothing becomes a feature unseen."""

import numpy as np
import pytest
from short_settings import run_of
from silo_worlds import read_file

from fedrank.cli.main import call
from fedrank.core.errors import DataError
from fedrank.silos.build import build_silos
from fedrank.silos.config import Silos
from fedrank.silos.data.coding import Coding
from fedrank.silos.data.files import read_columns
from fedrank.silos.data.looks import looks_wrong
from fedrank.silos.deployment import read_table


def written(tmp_path, rows=90, separator=",", seed=0, **columns):
    """A table of three silos with an honest column, a label and more columns, which are functions of row and label."""
    rng = np.random.default_rng(seed)
    lines = [separator.join(["silo", "label", "pressure", *columns])]
    for row in range(rows):
        label = int(rng.random() < 0.4)
        cells = [
            "abc"[row % 3],
            label,
            int(rng.normal(120 + 5 * label, 10)),
            *(f(row, label) for f in columns.values()),
        ]
        lines.append(separator.join(map(str, cells)))
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines))
    return path


def said(table, column):
    return [note for note in table.notes if repr(column) in note]


def test_what_looks_wrong_is_named_with_what_mends_it(tmp_path):
    for column, why, mends in [
        (lambda row, label: 5000 + row, "identifier", "--drop odd"),
        (lambda row, label: 2 + 3 * label + row % 2 / 10, "tells the label", "--drop odd"),
        (lambda row, label: -9 if row % 11 == 0 else 40 + row % 30, "is -9 in 9 rows", "--missing -9"),
        (lambda row, label: 999 if row % 11 == 0 else 40 + row % 30, "is 999 in 9 rows", "--missing 999"),
        (lambda row, label: 1e30 if row == 4 else row % 17, "flattens the column", "--drop odd"),
    ]:
        table = read_file(written(tmp_path, odd=column))
        (note,) = said(table, "odd")
        assert why in note and mends in note and not said(table, "pressure")
        if mends.startswith("--missing"):
            mended = read_file(tmp_path / "mine.csv", missing=(mends.split()[1],))
            assert not said(mended, "odd")
            gaps = sum(int(np.isnan(silo.features[:, 1]).sum()) for silo in mended.silos)
            assert gaps == 9


@pytest.mark.parametrize("unknown", ["k.A.", "n/d", "NS/NC"])
def test_a_text_for_an_unknown_value_is_named(unknown, tmp_path):
    file = written(tmp_path, sex=lambda row, label: unknown if row % 11 == 0 else "fm"[row % 2])
    (note,) = said(read_file(file), f"sex={unknown}")
    assert f"--missing {unknown}" in note
    assert read_file(file, missing=(unknown,)).feature_names == ("pressure", "sex=m")


def test_an_outlier_does_not_hide_a_code_for_a_missing_value(tmp_path):
    table = read_file(
        written(tmp_path, odd=lambda row, label: 1e30 if row == 4 else 999 if row % 11 == 0 else 40 + row % 30)
    )
    code, outlier = said(table, "odd")
    assert "is 999 in 9 rows" in code and "1e+30" in outlier


def test_honest_columns_are_left_in_peace():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    x = np.column_stack([
        rng.normal(0, 1, 400), rng.integers(18, 99, 400), rng.integers(0, 2, 400), np.exp(rng.normal(0, 1.5, 400)),
        rng.normal(-50, 40, 400).round(), y + rng.normal(0, 0.6, 400),
    ]).astype(np.float32)  # fmt: skip
    assert looks_wrong(x, y.astype(np.int8), [f"x{k}" for k in range(6)]) == ()


def test_dates_are_refused_by_name_and_may_be_dropped(tmp_path):
    path = written(tmp_path, seen=lambda row, label: f"2024-03-{1 + row % 9:02d}")
    with pytest.raises(DataError, match=r"'seen' holds dates, such as '2024-03-0\d'; leave it out"):
        read_file(path)
    assert read_file(path, drop=("seen",)).feature_names == ("pressure",)


def test_decimal_commas_and_separators_are_recognised(tmp_path):
    for separator in [";", "\t", "|"]:
        path = written(tmp_path, separator=separator, dose=lambda row, label: f"{row % 7},{row % 10}")
        table = read_file(path)
        assert table.feature_names == ("pressure", "dose") and "decimal commas" in said(table, "dose")[0]
        assert table.silos[0].features[:3, 1].tolist() == pytest.approx([0.0, 3.3, 6.6])


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1.204,5", "3,2", "2.001,0", "900,1"], [1204.5, 3.2, 2001.0, 900.1]),
        (["1.204", "3,2"], [1204.0, 3.2]),  # the point stands between thousands, as the comma is the decimal one
        (["1,204.5", "3.2", "1,204,567"], [1204.5, 3.2, 1204567.0]),
        (["\N{MINUS SIGN}3", "2"], [-3.0, 2.0]),
        (["95%", "3 %"], [95.0, 3.0]),
        (["1\N{NARROW NO-BREAK SPACE}204", "3"], [1204.0, 3.0]),
    ],
)
def test_numbers_are_read_where_the_column_allows_one_reading(tmp_path, cells, numbers):
    path = written(tmp_path, separator=";", odd=lambda row, label: cells[row % len(cells)])
    columns = read_columns(path)
    table = read_file(path)
    assert table.feature_names == ("pressure", "odd")
    found = {owner: [] for owner in "abc"}
    for row, owner in enumerate(columns["silo"]):
        found[owner].append(numbers[row % len(cells)])
    for silo in table.silos:
        np.testing.assert_array_equal(silo.features[:, 1], found[silo.name])
    own, _ = read_table(path, Silos())  # a node's reader
    np.testing.assert_array_equal(own.features[:, 0], [numbers[row % len(cells)] for row in range(90)])
    again = Coding().features({"odd": columns["odd"]}, ("odd",))  # that of rows to be scored
    np.testing.assert_array_equal(again[:, 0], own.features[:, 0])


@pytest.mark.parametrize(
    "cells", [["1,000", "2,000"], ["<0.3", "2", "4"], ["95%", "3"], ["1,5", "1.5"], ["3a", "2"], ["unknown", "7", "8"]]
)
def test_numbers_among_text_are_a_question_that_names_column_and_value(tmp_path, cells):
    path = written(tmp_path, separator=";", odd=lambda row, label: cells[row % len(cells)])
    for read in (read_file, lambda path: read_table(path, Silos())):
        with pytest.raises(DataError, match=rf"column 'odd' has .*'{cells[0]}'.*--categorical odd"):
            read(path)
    assert len([n for n in read_file(path, categorical=("odd",)).feature_names if n.startswith("odd=")]) >= 1
    if len(cells) > 2:
        assert "odd" in read_file(path, missing=(cells[0],)).feature_names


def test_of_numbers_with_decimal_commas_the_one_that_is_none_is_named(tmp_path):
    path = written(tmp_path, separator=";", crp=lambda row, label: "<5" if row == 7 else f"{row},{row % 10}")
    with pytest.raises(DataError, match=r"1 of 90 values.*row 8: '<5'\..*--missing '<5'"):
        read_file(path)


@pytest.mark.parametrize("cell", ["03-Mar-2024", "3 March 2024", "Mar 3, 2024", "2024/03/03", "3.3.2024", "03-03-24"])
def test_dates_in_other_forms_are_refused_by_name(tmp_path, cell):
    path = written(tmp_path, separator=";", seen=lambda row, label: cell)
    with pytest.raises(DataError, match="'seen' holds dates"):
        read_file(path)


def test_ids_with_underscores_are_names(tmp_path):
    """Python's float reads the text 1_2 as 12; in a table it is an id, so the column stays one of levels."""
    path = written(tmp_path, bed=lambda row, label: f"1_{row % 3}")
    assert [name for name in read_file(path).feature_names if "bed" in name] == ["bed=1_0", "bed=1_1", "bed=1_2"]


def test_names_that_differ_in_spelling_alone_are_refused(tmp_path):
    path = written(tmp_path, ward=lambda row, label: ("East", "east ", "West")[row % 3] if row > 3 else "West")
    with pytest.raises(DataError, match=r"column 'ward' has the values 'East' and 'east'.*--categorical ward"):
        read_file(path)
    assert read_file(path, categorical=("ward",)).n_features == 4
    path.write_text(path.read_text().replace("\na,", "\nA,", 1))
    with pytest.raises(DataError, match=r"column 'silo' names the silos 'A' and 'a'"):
        read_file(path, drop=("ward",))
    with pytest.raises(DataError, match=r"label 'ill' has the values 'Yes' and 'yes'"):
        read_file(written(tmp_path, ill=lambda row, label: ("yes", "no", "Yes")[row % 3]), label="ill", positive="yes")


def test_a_silo_that_is_too_small_is_left_out_with_a_sentence_and_the_target_is_not(tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text() + "\nd,1,120\nd,0,121")
    settings = {"data": str(path), "seeds": 1, "rounds": 1}
    made = build_silos(run_of("bandit-fedavg", silos=Silos(target="b"), **settings).resolved())
    assert made.names == ("a", "b", "c") and any("Silo d was left out: its 2 rows" in note for note in made.notes)
    with pytest.raises(DataError, match="silo 'd' has 2 rows, too few"):
        build_silos(run_of("bandit-fedavg", silos=Silos(target="d"), **settings).resolved())


def test_own_tables_use_all_rows_and_generated_ones_forty(tmp_path):
    path = written(tmp_path)
    config = run_of("bandit-fedavg", data=str(path), seeds=1, rounds=1).resolved()
    assert (config.silos.train, config.silos.stratified) == (0.6, True)
    arrays = build_silos(config).arrays
    parts = np.sum([np.asarray(part.n) for part in arrays], axis=0)
    assert parts.tolist() == [[30, 30, 30]] and np.asarray(arrays.train.n).tolist() == [[18, 18, 18]]
    generated = run_of("bandit-fedavg", seeds=1, rounds=1).resolved().silos
    assert (generated.train, generated.stratified) == (40.0, False)


def test_a_code_for_a_missing_value_may_be_negative_on_the_command_line(tmp_path, capsys):
    path = written(tmp_path, odd=lambda row, label: -9 if row % 11 == 0 else 40 + row % 30)
    assert call(["data", "check", str(path)]) == 0
    assert "--missing -9" in " ".join(capsys.readouterr().out.split())
    assert call(["data", "check", str(path), "--missing=-9"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "--missing -9" not in out
