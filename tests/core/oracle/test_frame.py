"""Frames against polars, which reads and writes the same files."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrank.core.errors import DataError
from fedrank.core.frame import Frame, missing_in, to_list, type_of

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
ROWS = st.lists(
    st.tuples(
        st.integers(-3, 3),
        st.one_of(st.none(), st.floats(allow_nan=False, width=32)),
        st.sampled_from("abc"),
        st.booleans(),
        TEXT,
    ),
    max_size=12,
)
SCHEMA = {"i": int, "f": float, "s": str, "b": bool, "t": str}
POLARS = {"i": pl.Int64, "f": pl.Float64, "s": pl.String, "b": pl.Boolean, "t": pl.String}


def both(rows):
    return Frame.of_rows(rows, SCHEMA), pl.DataFrame(rows, schema=POLARS, orient="row")


@given(ROWS)
@settings(max_examples=60, deadline=None)
def test_it_selects_sorts_groups_and_writes_as_polars_does(rows):
    mine, theirs = both(rows)
    assert mine.tuples() == theirs.rows() and mine.dicts() == theirs.to_dicts() and len(mine) == len(rows)
    assert mine.where(s="a", b=True).tuples() == theirs.filter((pl.col("s") == "a") & pl.col("b")).rows()
    assert mine.where(s=("a", "c")).tuples() == theirs.filter(pl.col("s").is_in(["a", "c"])).rows()
    assert mine.sort("s", "i").tuples() == theirs.sort("s", "i", maintain_order=True).rows()
    assert mine.unique("i") == theirs["i"].unique().sort().to_list()
    by = ["s", "i"]
    parts = theirs.sort(by, maintain_order=True).partition_by(by, as_dict=True, maintain_order=True)
    assert [(key, part.tuples()) for key, part in mine.groups(*by)] == [(k, p.rows()) for k, p in parts.items()]
    means = mine.means("s", "i")
    assert means == pytest.approx(dict(theirs.group_by("s").agg(pl.col("i").mean()).iter_rows()))
    assert pl.DataFrame(mine).equals(theirs)
    assert Frame.from_parquet(mine.to_parquet()) == mine
    assert Frame.concat([mine, mine[:2]]).tuples() == pl.concat([theirs, theirs.head(2)]).rows()


def test_files_of_either_are_read_by_the_other(tmp_path):
    mine, theirs = both([(1, None, "a", True, "é"), (2, 0.5, "b", False, "")])
    theirs.write_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(mine.to_parquet())
    assert Frame.from_parquet((tmp_path / "a.parquet").read_bytes()) == mine
    assert pl.read_parquet(tmp_path / "b.parquet").equals(theirs)
    (tmp_path / "c.csv").write_text(mine.to_csv())
    assert pl.read_csv(tmp_path / "c.csv").with_columns(pl.col("t").fill_null("")).equals(theirs)
    read = Frame.from_csv(mine.to_csv().encode())
    assert read.select("ifsb") == mine.select("ifsb") and read.schema["f"] is float
    times = Frame.from_csv(b"time,x\n2020-01-01 10:00:00,1\n,2\n")
    assert times.schema == {"time": str, "x": int} and missing_in(times["time"]).tolist() == [False, True]


def test_types_are_those_of_the_values():
    frame = Frame({"whole": [1, 2], "gaps": [1, None], "text": ["x", None], "said": "z", "none": [None, None]})
    assert frame.schema == {"whole": int, "gaps": int, "text": str, "said": str, "none": float}
    assert to_list(frame["gaps"]) == [1, None] and math.isnan(Frame({"x": [1.0, None]})["x"][1])
    assert type_of(np.array([1, "x"], object)) is object
    assert Frame.of_dicts([{"a": 1}, {"b": "x"}]).tuples() == [(1, None), (None, "x")]
    assert Frame.of_rows([], SCHEMA).schema == SCHEMA and Frame.of_rows([], SCHEMA).groups("i") == []


def test_what_is_no_table_is_refused():
    whole = Frame({"a": np.arange(100)}).to_parquet()
    for content in (b"", b"PAR1PAR1", whole[:40], whole[:30] + b"\0" * 60 + whole[-8:]):
        with pytest.raises(DataError):
            Frame.from_parquet(content)
    for text in (b"a,b\n1\n", b"a\n\xff\n", b"a,a\n1,2\n"):
        with pytest.raises(DataError):
            Frame.from_csv(text)
    with pytest.raises(DataError):
        Frame({"a": [1, 2], "b": [1]})
    with pytest.raises(DataError):
        Frame.concat([Frame({"a": [1]}), Frame({"b": [1]})])
    with pytest.raises(DataError):
        Frame({"a": [[1], [2]]}).to_parquet()


def test_it_shows_itself():
    frame = Frame({"n": np.arange(30), "<b>": "x"})
    assert "30 rows" in repr(frame) and len(repr(frame).splitlines()) == 23
    assert "&lt;b&gt;" in frame._repr_html_() and frame._repr_html_().count("<tr>") == 22
