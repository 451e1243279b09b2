"""Messages with a record's ε of tables that differ in one record: one shape, or one refusal, whatever it holds."""

import json

import numpy as np
import pytest
from neighbour_tables import tables  # noqa: F401 - a fixture

from fedrank.cli.data import LabelledColumns
from fedrank.cli.main import call
from fedrank.silos.records.ranges import parse_ranges
from fedrank_zoo.noisy_statistics.command import Public, _as_agreed
from fedrank_zoo.noisy_statistics.messages import Message, read_message
from fedrank_zoo.noisy_statistics.ranges import as_each, parsed_levels, public_rows, ranges_of
from fedrank_zoo.noisy_statistics.releases import noise_of, release_sums

FLAGS = ["--range", "age=18:110", "hiv=0:1", "--levels", "sex=f,m", "ward=A,B,C"]


def send(path, out, flags, *more):
    base = ["silos", "send", str(path), "--of", "north", "--label", "ill", "--epsilon", "1", "--out", str(out)]
    return call([*base, *flags, *more])


def test_what_a_silo_sends_has_one_shape_for_all_neighbours(tables, tmp_path, capsys):
    made = {}
    for name, path in tables.items():
        out = path.with_suffix(".json")
        assert send(path, out, [*FLAGS, "--positive", "1"]) == 0, (name, capsys.readouterr().err)
        made[name] = json.loads(out.read_text())
        assert str(path) not in out.read_text() and "note" not in out.read_text()
        assert "note for this silo alone" not in capsys.readouterr().out
    shapes = {
        json.dumps({key: len(value) if key in ("first", "second") else value for key, value in one.items()})
        for one in made.values()
    }
    assert len(shapes) == 1
    assert [column for column, *_ in made["an empty one"]["columns"]] == [
        "age", "sex=m", "ward=A", "ward=B", "ward=C", "hiv",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "flags",
    [
        FLAGS,  # which label counts is not said
        ["--positive", "1", "--range", "age=18:110"],
        ["--positive", "1", "--range", "age=18:110", "hiv=0:1", "--levels", "sex=f,m"],
    ],
)
def test_what_is_not_declared_is_refused_in_one_way_for_all_neighbours(tables, capsys, flags):
    said = set()
    for path in tables.values():
        assert send(path, path.with_suffix(".json"), flags) == 1
        said.add(capsys.readouterr().err)
        assert not path.with_suffix(".json").exists()
    assert len(said) == 1


def coded(path):
    """Rows of a table in its public columns."""
    from fedrank.silos.data.files import read_columns

    ranges = ranges_of(
        ("age", "sex", "ward", "hiv"),
        parse_ranges(["age=18:110", "hiv=0:1"]),
        None,
        parsed_levels(["sex=f,m", "ward=A,B,C"]),
    )
    return ranges, public_rows(read_columns(path), ranges, silo="silo", of="north", label="ill", positive="1")


class Silent(np.random.Generator):
    """A generator without noise."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def normal(self, loc=0.0, scale=1.0, size=None):
        return np.zeros(() if size is None else size)


def test_a_record_changes_its_own_row_alone_and_no_sum_by_more_than_the_noise_is_made_for(tables):
    ranges, base = coded(tables["an ordinary one"])
    for name, path in tables.items():
        found = coded(path)[1].own
        others = np.arange(40) != 7
        np.testing.assert_array_equal(found.x[others], base.own.x[others], err_msg=name)
        np.testing.assert_array_equal(found.y[others], base.own.y[others], err_msg=name)
        sums = [release_sums(own.x, own.y, ranges, 1.0, 1e-6, Silent()) for own in (found, base.own)]
        upper = np.triu_indices(len(ranges.names) + 1)
        weight = np.where(upper[0] == upper[1], np.sqrt(2.0), 1.0)
        flat = [np.append(one.first / one.sigma_first, one.second[upper] / weight / one.sigma_second) for one in sums]
        assert np.linalg.norm(flat[0] - flat[1]) ** 2 / 2 <= noise_of(ranges, 1.0, 1e-6).rho, name
    assert coded(tables["an empty one"])[1].own.y[7] == 0.5
    comma = coded(tables["a decimal comma"])[1].own.x[7]
    assert comma[0] == 1204.5 and comma[-1] == 0.5, "each cell is read by itself"
    notes = coded(tables["a level that no other has"])[1].notes
    assert len(notes) == 2 and all(note.startswith("1 values of") for note in notes)


def test_of_a_record_without_a_silo_nothing_is_in_any_silos_message(tmp_path):
    """North has two records, south one; of the fourth the silo is missing, whatever else it holds."""
    from fedrank.silos.data.files import read_columns

    ranges = ranges_of(("age",), parse_ranges(["age=0:100"]))
    for record in ("100,1,", "0,0,", ",,"):
        path = tmp_path / "all.csv"
        path.write_text(f"age,ill,silo\n25,1,north\n75,0,north\n50,1,south\n{record}\n")
        for of, ages, ill in (("north", [25, 75, np.nan], [1, 0, 0.5]), ("south", [50, np.nan], [1, 0.5])):
            made = public_rows(read_columns(path), ranges, silo="silo", of=of, label="ill", positive="1").own
            np.testing.assert_array_equal(made.x[:, 0], ages)
            np.testing.assert_array_equal(made.y, ill)


def test_names_of_columns_do_not_move_the_terminal(tmp_path, capsys):
    name = "age\x1b[2J\x9b31m"
    path, out = tmp_path / "own.csv", tmp_path / "own.json"
    path.write_text(f"{name},ill\n50,1\n200,0\nold,1\n", encoding="utf-8")
    command = ["silos", "send", str(path), "--of", "north", "--label", "ill", "--positive", "1", "--epsilon", "1"]
    assert call([*command, "--range", f"{name}=0:100", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert not set("\x1b\x9b") & set(said.out + said.err)
    assert said.err.count("age\\x1b[2J\\x9b31m") == 2  # one value outside, one that is no number


def test_no_second_book_counts_the_records_of_a_table_by_another_column_of_silos(tmp_path, capsys):
    path = tmp_path / "all.csv"
    rows = "".join(f"{age},{age % 2},{'ns'[age % 2]},{'AB'[age // 50]}\n" for age in range(20, 80))
    path.write_text("age,ill,silo,ward\n" + rows)

    def sent(number, of, *flags):
        command = ["silos", "send", str(path), "--of", of, "--label", "ill", "--positive", "1", "--epsilon", "1"]
        return call([*command, "--range", "age=0:100", "--out", str(tmp_path / f"{number}.json"), *flags])

    assert [sent(1, "n", "--drop", "ward"), sent(2, "s", "--drop", "ward")] == [0, 0], capsys.readouterr().err
    for of, column, drop in (("all", "nosuch", ("silo", "ward")), ("A", "ward", ("silo",))):
        assert sent(3, of, "--silo", column, "--drop", *drop) == 1 and "two books" in capsys.readouterr().err
    books = {book.name: json.loads(book.read_text()) for book in tmp_path.glob("*.sent.json")}
    assert sorted(books) == ["all.csv.n.sent.json", "all.csv.s.sent.json"]
    # A book of before columns were written down, of all rows as one silo's.
    (tmp_path / "all.csv.sent.json").write_text(json.dumps([{"rho": 0.1}]))
    assert sent(4, "n", "--drop", "ward") == 1 and not (tmp_path / "4.json").exists()


@pytest.mark.slow
def test_a_hospital_uses_messages_with_a_file_of_its_own(tables, tmp_path, capsys):
    path, out = tables["a level that no other has"], tmp_path / "north.json"
    ranges, made = coded(path)
    Message("north", "ill = 1", ranges, 4.0, 1e-6, release_sums(made.own.x, made.own.y, ranges, 4.0, 1e-6)).write(out)
    assert read_message(out).ranges.levels == {"sex": ("f", "m"), "ward": ("A", "B", "C")}
    own = tmp_path / "own.csv"
    with_silo = path.read_text()
    own.write_text("\n".join(line.rpartition(",")[0] for line in with_silo.splitlines()))
    for file in (path, own):
        command = ["silos", "private", str(file), "--messages", str(out), "--label", "ill", "--positive", "1", "--json"]
        assert call(command) == 0, capsys.readouterr().err
        assert json.loads(capsys.readouterr().out)["rows"] == 40
    assert send(own, tmp_path / "own.json", [*FLAGS, "--positive", "1"]) == 0
    assert send(own, tmp_path / "two.json", [*FLAGS, "--positive", "1", "--limit", "1.2"]) == 1, "one book a file"


def test_levels_compare_by_value_and_by_themselves():
    assert as_each(["1", "1.0", " x", None, True]) == ["1", "1", " x", None, "True"]


CODEBOOK = """
format = "fedrank-codebook"
version = 1
study = "s"
silos = ["north", "south"]
site = "silo"
[columns]
age = {range = [18.0, 110.0]}
sex = {levels = ["f", "m"]}
ward = {levels = ["A", "B", "C"]}
hiv = {range = [0.0, 1.0]}
ill = {levels = ["no", "yes"], codes = {0 = "no", 1 = "yes"}}
"""


def test_with_a_codebook_columns_ranges_and_levels_are_its_own(tables, tmp_path, capsys):
    (tmp_path / "codebook.toml").write_text(CODEBOOK)
    agreed = ["--codebook", str(tmp_path / "codebook.toml")]
    path = next(iter(tables.values()))
    assert send(path, tmp_path / "flags.json", [*FLAGS, "--positive", "1"]) == 0
    expected = json.loads((tmp_path / "flags.json").read_text())
    for number, other in enumerate(tables.values()):
        out = tmp_path / f"agreed-{number}.json"
        assert send(other, out, agreed) == 0, capsys.readouterr().err
        found = json.loads(out.read_text())
        assert found["label"] == "ill = yes" and found["rows"] == expected["rows"] == 40
        for key in ("levels", "clip", "sigma_first", "sigma_second"):
            assert found[key] == expected[key]
        assert sorted(found["columns"]) == sorted(expected["columns"])
    header, *lines = path.read_text().splitlines()
    more = tmp_path / "more.csv"  # a column that the codebook does not have is not read
    more.write_text("\n".join([f"{header},extra", *(f"{line},{k}" for k, line in enumerate(lines))]) + "\n")
    assert send(more, tmp_path / "more.json", agreed) == 0
    less = tmp_path / "less.csv"
    less.write_text("\n".join(line.partition(",")[2] for line in (header, *lines)) + "\n")
    base = ["silos", "send", "--epsilon", "1", "--out", str(tmp_path / "none.json"), *agreed]
    for file, of, label, more_flags in (
        (less, "north", "ill", []), (path, "north", "ill", ["--range", "age=0:1"]), (path, "west", "ill", []),
        (path, "north", "age", []), (path, "north", "nosuch", []),
    ):  # fmt: skip
        assert call([*base, str(file), "--of", of, "--label", label, *more_flags]) == 1
    assert not (tmp_path / "none.json").exists()


def test_codes_and_missing_values_are_the_codebooks(tmp_path):
    book = CODEBOOK.replace("[18.0, 110.0]}", '[18.0, 110.0], missing = ["-9"]}')
    (tmp_path / "codebook.toml").write_text(book)
    cells = {"age": ["50", "-9"], "sex": ["f", "m"], "ward": ["A", "Z"], "hiv": ["0", "1"], "ill": ["1", "2"]}
    public = Public(codebook=tmp_path / "codebook.toml")
    columns, meaning = _as_agreed(cells, LabelledColumns(label="ill"), public, ["north"])
    made = public_rows(
        columns, public.of(list(cells)[:4]), silo=meaning.silo, of="north", label="ill", positive=meaning.positive
    )
    # age, sex=m, ward=A, ward=B, ward=C, hiv
    np.testing.assert_array_equal(made.own.x, [[50, 0, 1, 0, 0, 0], [np.nan, 1, np.nan, np.nan, np.nan, 1]])
    np.testing.assert_array_equal(made.own.y, [1.0, 0.5])
