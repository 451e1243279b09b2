"""Files of Excel, Stata, SPSS, SAS and Feather hold what the libraries that write them were given."""

import datetime

import numpy as np
import pytest

from fedrank.core.errors import FormatError, MissingDataError
from fedrank.silos.data.files import SUFFIXES, read_columns
from fedrank.silos.studies.codebook import Codebook, Column
from fedrank.silos.studies.table import own_table

pandas, polars, pyreadstat = map(pytest.importorskip, ("pandas", "polars", "pyreadstat"))
NUMBERS = [1.5, np.nan, 1600000000.25, -9.0]
FRAME = pandas.DataFrame({"t": NUMBERS, "sex": ["f", "m", "", "f"], "code": [0.0, 1.0, np.nan, 1.0]})
WRITERS = {
    ".dta": pyreadstat.write_dta,
    ".sav": pyreadstat.write_sav,
    ".por": pyreadstat.write_por,
    ".xpt": pyreadstat.write_xport,
    ".xlsx": lambda frame, path: frame.to_excel(path, index=False),
    ".feather": lambda frame, path: polars.from_pandas(frame, nan_to_null=True).write_ipc(path, compression="lz4"),
}


def test_values_are_read_as_they_were_written(tmp_path):
    book = Codebook(
        study="s", silos=("a",), columns={
            "t": Column(name="t", range=(0.0, 2e9)), "sex": Column(name="sex", levels=("f", "m")),
            "code": Column(name="code", levels=("no", "yes"), codes={"0": "no", "1": "yes"}),
        },
    )  # fmt: skip
    for suffix, write in WRITERS.items():
        path = tmp_path / f"t{suffix}"
        write(FRAME.rename(columns=str.upper) if suffix == ".por" else FRAME, path)
        found = {name.lower(): values for name, values in read_columns(path).items()}
        assert [None if v is None or v != v else v for v in found["t"]] == [1.5, None, 1600000000.25, -9.0], suffix
        assert found["sex"] == ["f", "m", None, "f"] and len(found) == 3, suffix
        if suffix == ".por":  # its names are in capitals
            continue
        (block,) = own_table(path, book, "a").blocks(["t", "sex", "code"])
        np.testing.assert_array_equal(block["t"], [1.5, np.nan, 1600000000.25, np.nan], err_msg=suffix)
        np.testing.assert_array_equal(block["sex"], [0, 1, np.nan, 0], err_msg=suffix)
        np.testing.assert_array_equal(block["code"], [0, 1, np.nan, 1], err_msg=suffix)


def test_a_sheet_with_dates_gaps_and_a_ragged_end(tmp_path):
    import openpyxl

    sheet = openpyxl.Workbook()
    for row in (
        [" age ", "born", None],
        [3, datetime.date(1950, 1, 2), None],
        [None, None, None],
        [4],
        ["x", "y", "z"],
    ):
        sheet.active.append(row)
    sheet.save(tmp_path / "t.xlsx")
    assert read_columns(tmp_path / "t.xlsx") == {"age": [3, 4, "x"], "born": ["1950-01-02T00:00:00", None, "y"]}
    for header in (["a", "a"], ["a", None, "b"], [None]):
        sheet = openpyxl.Workbook()
        sheet.active.append(header)
        sheet.save(tmp_path / "bad.xlsx")
        with pytest.raises(FormatError):
            read_columns(tmp_path / "bad.xlsx")


def test_damaged_files_are_refused(tmp_path):
    for suffix in SUFFIXES:
        with pytest.raises(MissingDataError):
            read_columns(tmp_path / f"none{suffix}")
        (tmp_path / f"bad{suffix}").write_bytes(b"no table at all")
        with pytest.raises(FormatError):
            read_columns(tmp_path / f"bad{suffix}")
