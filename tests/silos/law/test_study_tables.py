"""A silo's table through the codebook: each cell is read by itself, whatever the others hold, in double precision."""

import numpy as np
import pytest

from fedrank import Frame
from fedrank.core.errors import DataError, FormatError, MissingDataError, UnknownNameError
from fedrank.silos.studies import table as tables
from fedrank.silos.studies.codebook import Codebook, Column
from fedrank.silos.studies.table import own_table, pooled_tables

COLUMNS = [
    Column(name="t", range=(0.0, 2e9)),
    Column(name="age", range=(0.0, 110.0), missing=("-9", "999")),
    Column(name="sex", levels=("f", "m"), codes={"0": "f", "1": "m", "male": "m"}, missing=("unknown",)),
    Column(name="visit", role="cluster"),
    Column(name="name", role="identifier"),
]
BOOK = Codebook(study="s", silos=("a", "b"), columns={one.name: one for one in COLUMNS})
HEADER = "t,age,sex,visit,name"


def read(path, silo="a", names=("t", "age", "sex", "visit")):
    blocks = list(own_table(path, BOOK, silo).blocks(names))
    return {name: np.concatenate([block[name] for block in blocks]) for name in names}


def written(tmp_path, *lines, header=HEADER):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_cells(tmp_path):
    found = read(written(
        tmp_path, "1600000000.25,41,F,p1,x", "1,-9,1,p2,y", "2,999.0,Male ,p1,", "3,,unknown,,z", "4,111,x,p3,z",
        "5,abc,m,p2,z", '6,"41,5",0,p4,z', "7,NA,NaN,p5,z",
    ))  # fmt: skip
    assert found["t"][0] == 1600000000.25
    np.testing.assert_array_equal(found["age"], [41, *[np.nan] * 5, 41.5, np.nan])
    np.testing.assert_array_equal(found["sex"], [0, 1, 1, np.nan, np.nan, 1, 0, np.nan])
    np.testing.assert_array_equal(found["visit"], [0, 1, 0, np.nan, 2, 1, 3, 4])
    notes = own_table(tmp_path / "t.csv", BOOK, "a").notes()
    assert len(notes) == 3 and sum("'age'" in note for note in notes) == 2


def test_a_cell_is_read_as_if_it_were_alone(tmp_path):
    cells = ["41", "41,5", "1.204,5", "abc", "", "-9", "9e1", "95 %", "<3", "1_0", "0x10", "Infinity", "1e400"]
    together = read(written(tmp_path, *(f'1,"{cell}",m,p,n' for cell in cells)))["age"]
    alone = [read(written(tmp_path, f'1,"{cell}",m,p,n'))["age"][0] for cell in cells]
    np.testing.assert_array_equal(together, alone)


def test_parquet_in_blocks_equals_csv(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    n = 400
    frame = Frame({
        "t": rng.uniform(0, 2e9, n), "age": np.where(rng.random(n) < 0.1, np.nan, np.round(rng.uniform(0, 120, n), 3)),
        "sex": [["f", "m", "male", None][k] for k in rng.integers(0, 4, n)],
        "visit": [f"p{k}" for k in rng.integers(0, 50, n)], "name": ["x"] * n,
        "site": ["ab"[k] for k in rng.integers(0, 2, n)],
    })  # fmt: skip
    (tmp_path / "t.parquet").write_bytes(frame.to_parquet())
    (tmp_path / "t.csv").write_text(frame.to_csv())
    whole = read(tmp_path / "t.csv"), read(tmp_path / "t.csv", "b")
    monkeypatch.setattr(tables, "BLOCK", 7)
    for found in (read(tmp_path / "t.csv"), read(tmp_path / "t.parquet")):
        assert found.keys() == whole[0].keys()
        for name, values in found.items():
            np.testing.assert_allclose(values, whole[0][name], rtol=1e-15, err_msg=name)
    pooled = pooled_tables(tmp_path / "t.parquet", BOOK)
    for silo, alone in zip(pooled, whole, strict=True):
        (block,) = silo.blocks(["t", "age", "sex"])
        for name, values in block.items():
            np.testing.assert_allclose(values, alone[name], rtol=1e-15)


def test_files_that_do_not_fit_are_refused(tmp_path):
    good = written(tmp_path, "1,2,m,p,n")
    with pytest.raises(UnknownNameError):
        own_table(good, BOOK, "c")
    with pytest.raises(MissingDataError):
        own_table(tmp_path / "none.csv", BOOK, "a")
    with pytest.raises(UnknownNameError):
        list(own_table(good, BOOK, "a").blocks(["height"]))
    for lines, header in ((("1,2,m",), "t,age,sex"), ((), ""), (("1,2,3,m,p,n",), HEADER)):
        with pytest.raises((DataError, FormatError)):
            read(written(tmp_path, *lines, header=header))
    with pytest.raises(DataError):
        pooled_tables(written(tmp_path, "1,2,m,p,n,c", header=HEADER + ",site"), BOOK)
    with pytest.raises(DataError):
        pooled_tables(written(tmp_path, "1,2,m,p,n,a", "1,2,m,p,n,A", header=HEADER + ",site"), BOOK)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FormatError):
        read(tmp_path / "t.parquet")
