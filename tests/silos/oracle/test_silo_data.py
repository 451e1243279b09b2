"""Tables of silos: the named ones against counts from elsewhere, files against what was written, generated ones."""

import gzip
import json
import lzma
import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from silo_worlds import read_file
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fedrank.cli.main import call
from fedrank.core.errors import ChecksumError, ConfigError, DataError, FormatError, MissingDataError, UnknownNameError
from fedrank.data import load
from fedrank.data.catalogue import CATALOGUE
from fedrank.data.folders import find
from fedrank.silos.data.files import read_columns
from fedrank.silos.data.reader import ROLES, generate_silos, heart_disease
from fedrank.silos.data.splits import Sizes, split


@pytest.fixture(scope="session")
def tables() -> Path:
    """The folder of the silo data sets, where there is one."""
    root = os.environ.get("FEDRANK_DATA", "")
    if not root or not Path(root, "tabular", "heart-disease-uci").is_dir():
        pytest.skip("the heart-disease files are needed: set FEDRANK_DATA to the folder that holds the real data sets")
    return Path(root)


@pytest.mark.realdata
def test_heart_disease_has_the_rows_and_columns_that_flamby_states(tables):
    """FLamby (Ogier du Terrail et al. 2022), Fed-Heart-Disease: 303, 261, 46, 130 patients with 13 features."""
    table = load("heart-disease", "silos")
    assert table.names == ("cleveland", "hungarian", "switzerland", "va") and not table.generated
    assert [silo.n_rows for silo in table.silos] == [303, 261, 46, 130]
    assert table.n_features == 13 == CATALOGUE.get("heart-disease").features
    assert not any(np.isnan(silo.features).any() for silo in table.silos)
    # The first line of Cleveland's file: 63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0
    first = dict(zip(table.feature_names, table.silos[0].features[0].tolist(), strict=True))
    assert first == pytest.approx(
        {"age": 63, "sex": 1, "cp=2": 0, "cp=3": 0, "cp=4": 0, "trestbps": 145, "chol": 233, "fbs": 1, "restecg=1": 0}
        | {"restecg=2": 1, "thalach": 150, "exang": 0, "oldpeak": 2.3}
    )
    assert any("cholesterol" in note for note in table.notes) and any("77 of 123" in note for note in table.notes)


@pytest.mark.realdata
def test_heart_disease_with_gaps_has_all_patients_and_the_published_number_of_ill_ones(tables):
    """heart-disease.names: patients with a diagnosis above 0 are 139, 106, 115, 149 of 303, 294, 123, 200."""
    table = load("heart-disease", "silos", gaps="impute")
    assert [silo.n_rows for silo in table.silos] == [303, 294, 123, 200]
    assert [silo.positive for silo in table.silos] == [139, 106, 115, 149]
    chol = table.feature_names.index("chol")
    missing = [int(np.isnan(silo.features[:, chol]).sum()) for silo in table.silos]
    assert missing == [0, 23, 123, 56]  # counted with awk: fields that are ? or 0
    arrays = split(table, 0, Sizes(40, 40 / 99))
    assert all(np.isfinite(part.x).all() for part in arrays) and not arrays.test.x[2, :, chol].any()


@pytest.mark.realdata
def test_health_insurance_is_that_of_the_survey(tables):
    """Regions: 2,023, 1,682, 3,075 and 2,022 rows; 1,750 of 8,802 are not insured."""
    table = load("health-insurance", "silos")
    assert dict(zip(table.names, [silo.n_rows for silo in table.silos], strict=True)) == {
        "midwest": 2023,
        "northeast": 1682,
        "south": 3075,
        "west": 2022,
    }
    assert sum(silo.positive for silo in table.silos) == 1750 and table.label == "no health insurance"
    assert table.n_features == 17 == CATALOGUE.get("health-insurance").features
    place = find(CATALOGUE.get("health-insurance")) / "HealthInsurance.csv.xz"
    rows = [line.split(",") for line in lzma.decompress(place.read_bytes()).decode().splitlines()[1:]]
    assert table.n_rows == len(rows)
    south = table.silos[table.index("south")]
    for name, column, value in (("education=phd", 10, "phd"), ("health=yes", 0, "yes"), ("gender=male", 3, "male")):
        expected = [row[column] == value for row in rows if row[8] == "south"]
        np.testing.assert_array_equal(south.features[:, table.feature_names.index(name)], expected)


@pytest.mark.realdata
def test_an_edited_heart_file_is_refused_with_what_was_expected(tables, tmp_path):
    """A copy with its gaps turned into 0 circulates; it has the md5 d44d4913… for Hungarian."""
    own = tmp_path / "heart"
    shutil.copytree(tables / "tabular" / "heart-disease-uci", own)
    assert load("heart-disease", "silos", folder=own).n_rows == 740
    path = own / "processed.hungarian.data"
    path.chmod(0o644)
    text = path.read_bytes()
    path.write_bytes(text.replace(b"\n", b"\r\n"))  # line ends are no edit
    assert load("heart-disease", "silos", folder=own).n_rows == 740
    for damaged in (text.replace(b"?", b"0"), text[:-100], text.replace(b"0\n", b"1\n", 1)):
        path.write_bytes(damaged)
        with pytest.raises(ChecksumError, match=r"hungarian.*expected md5:22e96bee155b5973568101c93b3705f6, got md5:"):
            load("heart-disease", "silos", folder=own)
    path.unlink()
    with pytest.raises(MissingDataError, match=r"no processed.hungarian.data, plain or .* Home: https"):
        load("heart-disease", "silos", folder=own)


def test_the_catalogue_refuses_the_look_alikes_that_circulate():
    """Checksums of the edited Hungarian and Swiss files, as published with them, are not among the accepted."""
    known = [sum for sums in CATALOGUE.get("heart-disease").checksums.values() for sum in sums]
    assert len(known) == 4 and not any(sum.startswith(("md5:d44d4913", "md5:000dfc34")) for sum in known)


def test_a_named_table_that_is_not_here_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRANK_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match=r"(?s)Heart Disease.*Looked for.*heart-disease.*Home: .*va.data"):
        load("heart-disease", "silos")
    with pytest.raises(UnknownNameError, match="Did you mean 'heart-disease'"):
        load("heart-diseases", "silos")
    with pytest.raises(MissingDataError, match="no such file"):
        load("./heart.csv", "silos")
    with pytest.raises(UnknownNameError, match="way with gaps"):
        heart_disease(CATALOGUE.entry("heart-disease"), gaps="keep")


TEXT = """site,age,smoker,kind,flat,ill
b,50,yes,x,1,no
a,41.5,no,y,1,yes
b,?,,z,1,yes
a,NA,yes,x,1,no
a,33,no,,1,yes
"""


def written(tmp_path, text, name="mine.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_csv_file_becomes_silos_with_one_column_a_level(tmp_path):
    table = read_file(written(tmp_path, TEXT), "site", "ill")
    assert table.name == "mine" and table.names == ("a", "b") and table.label == "ill = yes"
    assert table.feature_names == ("age", "smoker=yes", "kind=x", "kind=y", "kind=z")
    nan = np.nan
    np.testing.assert_array_equal(
        table.silos[0].features, [[41.5, 0, 0, 1, 0], [nan, 1, 1, 0, 0], [33, 0, nan, nan, nan]]
    )
    np.testing.assert_array_equal(table.silos[1].features, [[50, 1, 1, 0, 0], [nan, nan, 0, 0, 1]])
    assert table.silos[0].labels.tolist() == [1, 0, 1] and table.silos[1].labels.tolist() == [0, 1]
    assert any("1 column never varied and went: flat" in note for note in table.notes)
    assert load(str(tmp_path / "mine.csv"), "silos", silo="site", label="ill", positive="no").silos[
        1
    ].labels.tolist() == [
        1,
        0,
    ]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_separators_byte_order_marks_and_packing_are_recognised(tmp_path, separator):
    plain = read_file(written(tmp_path, TEXT), "site", "ill")
    other = b"\xef\xbb\xbf" + TEXT.replace(",", separator).replace("\n", "\r\n").encode()
    packed = read_file(written(tmp_path, lzma.compress(other), "other.csv.xz"), "site", "ill")
    assert packed.feature_names == plain.feature_names and packed.names == plain.names
    for a, b in zip(plain.silos, packed.silos, strict=True):
        np.testing.assert_array_equal(a.features, b.features)


def test_parquet_is_read_like_csv(tmp_path):
    frame = pl.DataFrame(
        {
            "site": [10, 9, 10, 9],
            "age": [1.5, None, float("nan"), 2.0],
            "smoker": [True, False, None, True],
            "kind": pl.Series(["x", "y", "z", None], dtype=pl.Categorical),
            "ill": [0, 1, 1, 0],
        }
    )
    frame.write_parquet(tmp_path / "mine.pq")
    table = read_file(tmp_path / "mine.pq", "site", "ill")
    assert table.names == ("9", "10")  # in order of number
    assert table.feature_names == ("age", "smoker=True", "kind=x", "kind=y", "kind=z")
    np.testing.assert_array_equal(table.silos[1].features, np.float32([[1.5, 1, 1, 0, 0], [np.nan, np.nan, 0, 0, 1]]))
    assert table.silos[1].labels.tolist() == [0, 1]
    frame.with_columns(day=pl.date(2020, 1, 1)).write_parquet(tmp_path / "dates.pq")
    with pytest.raises(DataError, match="column 'day' is of type date"):
        read_file(tmp_path / "dates.pq", "site", "ill")
    assert read_file(tmp_path / "dates.pq", "site", "ill", drop=("day",)).n_features == 5
    (tmp_path / "cut.pq").write_bytes((tmp_path / "mine.pq").read_bytes()[:200])
    with pytest.raises(FormatError, match="cut or damaged"):
        read_file(tmp_path / "cut.pq", "site", "ill")


def test_one_class_missing_owners_and_codes_are_told(tmp_path):
    text = "silo,code,x,label\na,1,5,1\na,2,6,1\nb,1,7,0\nb,3,8,1\n,1,9,0\nb,2,9,\n"
    table = read_file(written(tmp_path, text), categorical=("code",))
    assert table.feature_names == ("code=1", "code=2", "code=3", "x")
    notes = " ".join(table.notes)
    assert "2 of 6 rows have no silo or no label" in notes and "All labels of silo a are 1" in notes
    text = "silo,x,label\na,1,mild\na,2,severe\nb,3,none\nb,,none\n"
    table = read_file(written(tmp_path, text), positive="none")
    assert [silo.labels.tolist() for silo in table.silos] == [[0, 0], [1]]
    assert "1 row of silo b had no value at all and went." in table.notes
    assert "Label 1 is label = 'none', label 0 is 'mild' or 'severe'." in table.notes
    same = read_file(written(tmp_path, "silo,x,label\na,1,1\na,2,1.0\nb,3,0\nb,4,0.0\n"))
    assert [silo.labels.tolist() for silo in same.silos] == [[1, 1], [0, 0]]


IDS = "\n".join(f"{'ab'[k % 2]},p{k},{k % 3 % 2}" for k in range(60))
TYPO = "\n".join(f"{'ab'[k % 2]},{k if k != 7 else '7o'},{k % 3 % 2}" for k in range(60))


def test_files_that_cannot_be_used_say_why(tmp_path):
    for text, error, message in [
        ("", FormatError, "the file is empty"),
        ("silo,x,label\n", FormatError, "no rows"),
        ("silo,x,label\na,1,0\na,2\n", FormatError, r"mine.csv:3: expected 3 values as in the first line, got 2"),
        ('silo,x,label\na,1,0\na,"2,1\n', FormatError, r"mine.csv:3: this line cannot be read as CSV"),
        ("silo,x,x\na,1,0\n", FormatError, "two columns are named 'x'"),
        (b"silo,x,label\na,1,0\nb,caf\xe9,1\n", FormatError, r"mine.csv:3: byte 6 of this line is not UTF-8"),
        (b"\x00\x01\x02\x03\n", FormatError, "neither CSV text nor a parquet"),
        (b"PK\x03\x04 and more", FormatError, "zip archive"),
        ("sillo,x,label\na,1,0\n", UnknownNameError, "no column of mine.csv named 'silo'. Did you mean 'sillo'"),
        ("silo,x,labels\na,1,0\n", UnknownNameError, "Did you mean 'labels'"),
        ("silo,x,label\na,1,0\na,2,1\n", DataError, "one silo only, 'a'; a federation needs two"),
        ("silo,x,label\na,1,0\nb,2,0\n", DataError, "one value only, '0'; two are needed"),
        ("silo,x,label\na,1,\nb,2,\n", DataError, "no values; two are needed"),
        ("silo,x,label\na,1,lo\nb,2,mid\nb,2,hi\n", DataError, "has 3 values, 'hi', 'lo', 'mid', where two are needed"),
        ("silo,x,label\na,1,0\nb,-inf,1\n", DataError, "column 'x' has the value '-inf' in row 2, which is no finite"),
        ("silo,x,label\na,1e39,0\nb,1,1\n", DataError, "column 'x' has the value '1e39' in row 1"),
        ("silo,x,label\na,1,0\nb,1,1\n", DataError, "no column varies"),
        ("silo,label\na,1\nb,0\n", DataError, "no column besides"),
        (
            f"silo,id,label\n{IDS}\n",
            DataError,
            r"'id' is text with 60 levels, more than 50. Leave it out \(--drop id\)",
        ),
        (f"silo,age,label\n{TYPO}\n", DataError, "1 of 60 values are no plain numbers, the first in row 8: '7o'"),
    ]:
        with pytest.raises(error, match=message):
            read_file(written(tmp_path, text))


def test_settings_that_do_not_fit_a_file_say_why(tmp_path):
    path = written(tmp_path, TEXT)
    with pytest.raises(DataError, match="never has the value 'maybe' that was to be 1; it has 'no', 'yes'"):
        read_file(path, "site", "ill", positive="maybe")
    with pytest.raises(DataError, match="must be two columns"):
        read_file(path, "ill", "ill")
    with pytest.raises(UnknownNameError, match="Did you mean 'flat'"):
        read_file(path, "site", "ill", drop=("flatt",))
    with pytest.raises(MissingDataError, match="no such file"):
        read_file(tmp_path / "other.csv", "site", "ill")


SEEDS = 40


def test_generated_silos_help_harm_and_do_neither():
    """Logistic regression on 40 rows of the target, and on 40 more of another silo; its AUC on the target's others."""
    gains = {"complementary": [], "neutral": [], "harmful": []}
    for seed in range(SEEDS):
        table = generate_silos(seed=seed)
        train, _, test = split(table, 0, Sizes(40, 40 / 99))

        def value(*silos, train=train, test=test):
            x, y = np.concatenate([train.x[k] for k in silos]), np.concatenate([train.y[k] for k in silos])
            model = LogisticRegression().fit(x, y)
            return roc_auc_score(test.y[0], model.predict_proba(test.x[0])[:, 1])

        alone = value(0)
        for role, gain in gains.items():
            gain.append(value(0, ROLES.index(role)) - alone)
    mean = {role: np.mean(gain) for role, gain in gains.items()}
    error = {role: np.std(gain) / SEEDS**0.5 for role, gain in gains.items()}
    assert mean["complementary"] > 3 * error["complementary"] > 0
    assert mean["harmful"] < -0.15
    assert abs(mean["neutral"]) < 0.02 < mean["complementary"]


def test_generated_silos_depend_on_seed_and_name_only():
    four, many = generate_silos(seed=1, rows=50), generate_silos(silos=100, seed=1, rows=50)
    assert four.generated and four.names == ("hospital-A", "hospital-B", "hospital-C", "hospital-D")
    assert many.n_silos == 100 and many.names[:4] == four.names and len(set(many.names)) == 100
    for a, b in zip(four.silos, many.silos[:4], strict=True):
        np.testing.assert_array_equal(a.features, b.features)
        np.testing.assert_array_equal(a.labels, b.labels)
    assert (generate_silos(seed=2, rows=50).silos[0].features != four.silos[0].features).all()
    assert load("generated", "silos", seed=1, silos=7, rows=9).n_rows == 63
    assert generate_silos(silos=2).names == ("hospital-A", "hospital-B")
    assert many.names[25:28] == ("hospital-Z", "hospital-AA", "hospital-AB") and "hospital-D harmful" in four.notes[1]
    for wrong in ({"silos": 1}, {"rows": 1}, {"features": 7}, {"seed": -1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            generate_silos(**wrong)


def test_a_packed_table_of_nothing_is_refused_as_empty(tmp_path):
    (tmp_path / "own.csv.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(FormatError, match="empty"):
        read_columns(tmp_path / "own.csv.gz")


def test_the_file_of_one_silo_is_checked_with_and_without_its_column(tmp_path, capsys):
    path = written(tmp_path, "silo,x,label\na,1,0\na,2,1\na,4,1\n")
    assert call(["data", "check", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["silos"]["a"]["rows"] == 3
    path = written(tmp_path, "x,label\n1,0\n2,1\n4,1\n", "own.csv")
    assert call(["data", "check", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["silos"]["own"]["rows"] == 3 and "no column 'silo'" in told["notes"][0]
