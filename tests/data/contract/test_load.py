"""One entry for data: every form of source gives what hand-made arrays say, and everything else one clear error."""

import types

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_matrix

from fedrank.core import registry
from fedrank.core.errors import ConfigError, DataError, MissingDataError, UnknownNameError
from fedrank.core.frame import Frame
from fedrank.data import load
from fedrank.data.sources import is_known, reader_of
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.data.splits import Splits
from fedrank.silos.data.tables import SiloTable
from fedrank.texts.data.collection import Texts

# Three documents of query 7, two of query 3.
FEATURES = np.array([[0.0, 1.0], [0.5, 0.25], [1.0, 0.0], [0.75, 0.5], [0.25, 1.0]])
LABELS = np.array([2, 0, 1, 0, 1])
QIDS = np.array([7, 7, 7, 3, 3])
FRAME = pl.DataFrame({"qid": QIDS, "a": FEATURES[:, 0], "label": LABELS, "b": FEATURES[:, 1]})
LETOR = "".join(
    f"{y} qid:{q} 1:{row[0]} 2:{row[1]}\n" for row, y, q in zip(FEATURES, LABELS, QIDS, strict=True)
)  # fmt: skip


class Pandas:
    """What fedrank uses of a frame of pandas; missing text is NaN there."""

    def __init__(self, columns):
        self.columns, self._values = list(columns), list(columns.values())

    @property
    def iloc(self):
        return self

    def __getitem__(self, place):
        return types.SimpleNamespace(to_numpy=lambda: np.asarray(self._values[place[1]]))


class Arrow:
    """A table of another library, known by its stream only."""

    def __init__(self, frame):
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema=None):
        return self._frame.__arrow_c_stream__(requested_schema)


def pandas(frame):
    return Pandas({name: frame[name].to_numpy() for name in frame.columns})


def same_queries(queries):
    assert queries.qids.tolist() == ["7", "3"] and queries.offsets.tolist() == [0, 3, 5]
    np.testing.assert_array_equal(queries.labels, LABELS)
    np.testing.assert_array_equal(queries.features, FEATURES.astype(np.float32))


def test_queries_are_the_same_in_every_form():
    for source in [
        (FEATURES, LABELS, QIDS),
        (FEATURES.tolist(), LABELS.astype(float), QIDS.astype(float)),
        (FEATURES, LABELS, ["7", "7", "7", "3", "3"]),
        FRAME,
        FRAME.lazy(),
        FRAME.with_columns(pl.col("qid").cast(pl.String)),
        pandas(FRAME),
        Arrow(FRAME),
        {"train": FRAME},
        (csr_matrix(FEATURES), LABELS, QIDS),
        (FRAME.select("a", "b"), LABELS, QIDS.tolist()),
        (FRAME.with_columns(qid=pl.lit("of none")), None, pl.Series(QIDS)),
        {"train": (pd.DataFrame(FRAME.to_dict(as_series=False)).astype({"qid": "Int64", "a": "Float64"}), None, None)},
    ]:
        splits = load(source, "ranking")
        same_queries(splits.train)
        assert splits.vali is None and splits.test is None and not splits.generated


def test_a_path_and_arrays_hold_the_same_queries(tmp_path):
    (tmp_path / "mine.txt").write_text(LETOR)
    for source in (tmp_path / "mine.txt", str(tmp_path / "mine.txt")):
        same_queries(load(source, "ranking").train)


def test_parts_that_are_handed_over_are_the_splits():
    one = (FEATURES[3:], LABELS[3:], QIDS[3:])
    splits = load({"train": (FEATURES[:3], LABELS[:3], QIDS[:3]), "test": one, "vali": FRAME[3:]}, "ranking")
    assert [queries.labels.tolist() for queries in splits.parts().values()] == [[2, 0, 1], [0, 1], [0, 1]]
    assert list(splits.parts()) == ["train", "vali", "test"]


def test_settings_of_the_reader_hold_for_arrays_and_frames():
    raw = load((FEATURES * 10, LABELS, QIDS), "ranking", normalise="none").train
    assert raw.features.max() == 10
    scaled = load((FEATURES * 10, LABELS, QIDS), "ranking").train
    # By hand: of query 7 the first feature runs from 0 to 10, of query 3 from 2.5 to 7.5.
    np.testing.assert_allclose(scaled.features[:, 0], [0, 0.5, 1, 1, 0])
    held = load(FRAME, "ranking", holdout=0.5)
    assert held.train.n_queries == held.test.n_queries == 1
    named = FRAME.rename({"qid": "search", "label": "grade"})
    assert load(named, "ranking", query="search", label="grade", drop=("a",)).train.n_features == 1


def test_a_division_tests_every_query_once_and_learns_from_none_that_it_tests():
    rng = np.random.default_rng(0)
    of = {"train": np.repeat(np.arange(9), 3), "test": np.repeat(np.arange(4), 3)}  # each part numbers its own
    parts = {name: (rng.random((len(q), 2)), rng.integers(0, 3, len(q)), q) for name, q in of.items()}
    made = [load(parts, "ranking", normalise="none", divide=3, fold=fold) for fold in range(1, 6)]
    tested = [qid for one in made for qid in one.test.qids.tolist()]
    assert sorted(tested) == sorted([f"train/{q}" for q in range(9)] + [f"test/{q}" for q in range(4)])
    for one in made:
        sets = [set(part.qids.tolist()) for part in one.parts().values()]
        assert sum(map(len, sets)) == len(set.union(*sets)) == 13 and {len(s) for s in sets[1:]} <= {2, 3}
    assert made[0].vali.qids.tolist() == made[1].test.qids.tolist()
    row = {qid: i for i, qid in enumerate([f"train/{q}" for q in range(9)])}
    of_test = made[0].test.select([made[0].test.qids.tolist().index(q) for q in made[0].test.qids if q in row][:1])
    first = row[of_test.qids[0]]
    np.testing.assert_allclose(of_test.features, parts["train"][0][3 * first : 3 * first + 3], rtol=1e-6)
    other = load(parts, "ranking", normalise="none", divide=4)
    assert other.test.qids.tolist() != made[0].test.qids.tolist()
    with pytest.raises(DataError, match="5 parts need one each"):
        load(FRAME, "ranking", divide=1)


def test_what_was_loaded_is_returned_as_it_is():
    splits = load((FEATURES * 10, LABELS, QIDS), "ranking", normalise="none")
    assert load(splits, "ranking") is splits  # although it is not within [0, 1]
    again = load(splits.train, "ranking", holdout=0.5)
    assert isinstance(again, Splits) and again.train is splits.train and again.test is None
    table, texts = load("generated", "silos"), load("generated", "texts")
    assert isinstance(table, SiloTable) and load(table, "silos") is table
    assert isinstance(texts, Texts) and load(texts, "texts") is texts


def test_queries_that_do_not_fit_are_refused():
    for source, message in [
        ((FEATURES, LABELS), r"\(features, labels, query ids\).*got 2 parts"),
        ((FEATURES, LABELS, QIDS[:4]), r"one query id a document.*5 labels and query ids of shape \(4,\)"),
        ((FEATURES[:4], LABELS, QIDS), "5 labels for 4 rows"),
        ((FEATURES, LABELS, [7, 3, 7, 3, 3]), "query '7' .* begins again in row 2"),
        ((FEATURES, LABELS, [7, 7, 7, 3, np.nan]), "query ids .* must be whole numbers or text"),
        ((FEATURES, LABELS, ["7", "7", "7", "3", None]), "query ids .* must be whole numbers or text"),
        ((FEATURES, LABELS - 1, QIDS), "grades of at least 0, got -1 in row 1"),
        ((FEATURES, LABELS + 0.5, QIDS), "labels .* must be whole numbers"),
        ((np.where(FEATURES == 0.5, np.nan, FEATURES), LABELS, QIDS), "must be finite.* row 1, feature 1"),
        (FRAME.with_columns(title=pl.lit("x")), "'title' .* str; a feature is a number. Drop it"),
        (FRAME.with_columns(label=pl.lit(None)), "must have a value in every row"),
        ({"test": FRAME}, "must have 'train'"),
        ((FRAME, LABELS[:4], QIDS), "label must have one value in each of 5 rows"),
        (FRAME.with_columns(docid=pl.Series(["a", None, "b", "c", "d"])), "'docid' must be .* in every row"),
        (FRAME.with_columns(docid=pl.Series([1.0, float("nan"), 2, 3, 4])), "'docid' must be .* in every row"),
        ({"qid": [1], "label": [1]}, "Make a data frame of a mapping of columns"),
        ({"train": 3}, "must be .*; got int"),
        (Pandas({"qid": [1], 0: [1.0], "0": [2.0]}), "two columns .* named '0'"),
    ]:
        with pytest.raises(DataError, match=message):
            load(source, "ranking")


def test_a_label_that_no_click_model_has_is_refused():
    with pytest.raises(DataError, match="at most 1, got 2 in row 0"):
        load((FEATURES, LABELS, QIDS), "ranking", max_label=1)


ROWS = np.array([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0], [4.0, 50.0]])
ILL = np.array([0, 1, 1, 0])
OWNERS = np.array(["north", "south", "north", "south"])
TABLE = pl.DataFrame({"age": ROWS[:, 0], "silo": OWNERS, "dose": ROWS[:, 1], "label": ILL})


def test_silos_are_the_same_in_every_form():
    for source in [
        (ROWS, ILL, OWNERS),
        (csr_matrix(ROWS), ILL, OWNERS),
        (TABLE.select("age", "dose"), pd.Series(ILL, dtype="Int64"), OWNERS),
        (TABLE, None, None),
        {"north": (ROWS[[0, 2]], ILL[[0, 2]] == 1), "south": (ROWS[[1, 3]], ILL[[1, 3]])},
        TABLE,
        TABLE.lazy(),
        Arrow(TABLE),
        pandas(TABLE),
        pandas(TABLE.with_columns(label=pl.Series(["no", "yes", "yes", "no"]))),
    ]:
        table = load(source, "silos")
        assert table.names == ("north", "south") and table.n_features == 2
        np.testing.assert_array_equal(table.silos[0].features, [[1, 10], [3, 30]])
        np.testing.assert_array_equal(table.silos[1].features, [[2, np.nan], [4, 50]])
        assert [silo.labels.tolist() for silo in table.silos] == [[0, 1], [1, 0]]


def test_a_frame_is_read_as_the_file_of_the_same_table(tmp_path):
    frame = TABLE.with_columns(ward=pl.Series(["A", None, "B", "C"]), id=pl.Series([1, 2, 3, 4]))
    frame.write_csv(tmp_path / "mine.csv")
    settings = {"silo": "silo", "label": "label", "drop": ("id",), "categorical": ("age",)}
    read, given = load(tmp_path / "mine.csv", "silos", **settings), load(frame, "silos", **settings)
    assert read.feature_names == given.feature_names and len(given.feature_names) == 8
    for a, b in zip(read.silos, given.silos, strict=True):
        np.testing.assert_array_equal(a.features, b.features)
        np.testing.assert_array_equal(a.labels, b.labels)
    # Text that pandas marks as missing by NaN is missing.
    other = Pandas({name: frame[name].to_list() for name in frame.columns})
    other._values[frame.columns.index("ward")] = np.array(["A", np.nan, "B", "C"], object)
    assert load(other, "silos", **settings).feature_names == given.feature_names


def test_silos_that_do_not_fit_are_refused():
    for source, message in [
        ((ROWS, ILL), r"\(features, labels, silos\).*got 2 parts"),
        ((ROWS, ILL, OWNERS[:3]), r"\[4, 2\], \[4\] and \[3\]"),
        ((ROWS, ILL + 1, OWNERS), "labels that are 0 or 1"),
        ((ROWS.astype(str), ILL, OWNERS), "features that are numbers"),
        ((ROWS, ILL, ["north"] * 4), "1 silos; a federation needs two"),
        ({"north": (ROWS, ILL), "south": ROWS}, "silo 'south' must be .features, labels.*got ndarray"),
        ({"north": (ROWS, ILL), "south": (ROWS[:, :1], ILL)}, "'south' .* has 1 columns"),
        (TABLE[:0], "no rows"),
        (TABLE.with_columns(label=1), "one value only"),
    ]:
        with pytest.raises(DataError, match=message):
            load(source, "silos")


DOCUMENTS = {"d1": "a wing in a slipstream", "d2": "heat of a plate"}
QUERIES = {"q1": "lift of a wing", "q2": "hot plates"}
JUDGED = {"q1": {"d1": 2}, "q2": {"d2": 1, "d1": 0}}
AS_FRAMES = (
    pl.DataFrame({"_id": list(DOCUMENTS), "text": list(DOCUMENTS.values()), "title": ["Wings", None]}),
    pl.DataFrame({"id": list(QUERIES), "query": list(QUERIES.values())}),
    pl.DataFrame({"query-id": ["q1", "q2", "q2"], "corpus-id": ["d1", "d2", "d1"], "score": [2, 1, 0]}),
)
OTHERWISE = AS_FRAMES[0].with_columns(text=pl.lit("another text"))


def test_texts_are_the_same_in_every_form():
    for source in [
        (DOCUMENTS, QUERIES, JUDGED),
        {"judgements": JUDGED, "documents": DOCUMENTS, "queries": QUERIES},
        AS_FRAMES,
        (pl.concat([AS_FRAMES[0]] * 2), *AS_FRAMES[1:]),  # all documents twice, alike
        tuple(map(pandas, AS_FRAMES)),
    ]:
        texts = load(source, "texts")
        assert texts.document_ids == ("d1", "d2") and texts.bodies == tuple(DOCUMENTS.values())
        assert texts.query_ids == ("q1", "q2") and texts.queries == tuple(QUERIES.values())
        rows = zip(texts.judged_queries.tolist(), texts.judged_documents.tolist(), texts.grades.tolist(), strict=True)
        assert list(rows) == [(0, 0, 2), (1, 1, 1), (1, 0, 0)]
        assert texts.titles in (("", ""), ("Wings", ""))


def test_texts_that_do_not_fit_are_refused():
    for source, message in [
        ((DOCUMENTS, QUERIES), r"\(documents, queries, judgements\).*got 2 parts"),
        ({"documents": DOCUMENTS, "queries": QUERIES, "qrels": JUDGED}, "got 3 parts"),
        (AS_FRAMES[0], "one data frame is no text collection"),
        ((list(DOCUMENTS), QUERIES, JUDGED), "documents must be a mapping or a data frame.*got list"),
        ((DOCUMENTS, QUERIES, [("q1", "d1", 2)]), "judgements must be .* got list"),
        ((DOCUMENTS, QUERIES, {"q1": {"d9": 1}}), "judgements:1: no judgement .* 'q1' and 'd9'"),
        ((DOCUMENTS, QUERIES, {"q1": {"d1": 0.5}}), "judgements:1: a grade must be a whole number, got 0.5"),
        ((DOCUMENTS, {"q1": 3}, JUDGED), "queries: the text of 'q1' must be text, got int"),
        ((pl.concat([AS_FRAMES[0], OTHERWISE]), QUERIES, JUDGED), "documents:3: document 'd1' stands twice"),
    ]:
        with pytest.raises(DataError, match=message):
            load(source, "texts")


def test_what_is_no_source_is_refused_in_the_same_words_for_every_kind():
    for source in [None, 3, FEATURES, [FEATURES, LABELS, QIDS], open]:
        for kind in ["ranking", "silos", "texts"]:
            with pytest.raises(DataError) as error:
                load(source, kind)
            text = str(error.value)
            assert text.startswith(f"data of {kind} must be a name of the catalogue, a path, a data frame, or arrays")
            assert reader_of(kind).arrays_form in text and text.endswith(
                f"got {type(source).__module__}.{type(source).__name__}."
            )


def test_names_and_paths_that_are_not_there(tmp_path):
    for kind in ["ranking", "silos", "texts"]:
        for path in (tmp_path / "generated", "./generated.csv", "~/nowhere/at/all"):
            with pytest.raises(MissingDataError, match="no such file or folder"):
                load(path, kind)  # a path object is never a name
        with pytest.raises(UnknownNameError, match="Did you mean 'generated'"):
            load("generatet", kind)
        with pytest.raises(ConfigError, match="handed over as an object"):
            load("own", kind)


def test_a_set_of_another_kind_says_of_which_it_is():
    with pytest.raises(ConfigError, match=r"'cranfield' is data of texts, where data of silos .*heart-disease"):
        load("cranfield", "silos")


def test_kinds_and_settings_that_are_not_there():
    with pytest.raises(UnknownNameError, match="no task named 'rankings'"):
        load(FRAME, "rankings")
    with pytest.raises(ConfigError, match="'slates' makes its data up"):
        load(FRAME, "slates")
    with pytest.raises(UnknownNameError, match=r"no setting of reading data of ranking named 'folds'.*'fold'"):
        load(FRAME, "ranking", folds=2)
    with pytest.raises(UnknownNameError, match="no column of the data frame named 'qid'"):
        load(FRAME.drop("qid"), "ranking")
    with pytest.raises(UnknownNameError, match="column of the data frame named 'silo'"):
        load(TABLE.drop("silo"), "silos")
    with pytest.raises(UnknownNameError, match="column of the data frame of queries named 'id'"):
        load((DOCUMENTS, AS_FRAMES[2], JUDGED), "texts")


def test_an_entry_point_may_lead_to_a_function(tmp_path, monkeypatch):
    (tmp_path / "my_shop.py").write_text(
        "import numpy as np\n\n\ndef clicks():\n"
        '    """Searches of my shop."""\n'
        "    return np.eye(4)[:, :3], np.array([1, 0, 0, 2]), np.array([5, 5, 6, 6])\n"
    )
    about = tmp_path / "my_shop-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-shop\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[fedrank.data]\nmy-shop = my_shop:clicks\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._points.cache_clear()
    try:
        queries = load("my-shop", "ranking").train
        assert isinstance(queries, QuerySet) and queries.qids.tolist() == ["5", "6"]
        assert queries.labels.tolist() == [1, 0, 0, 2]
        assert is_known("My-Shop", "ranking") and not is_known("my-shop.txt", "ranking")
    finally:
        monkeypatch.undo()
        registry._points.cache_clear()


def test_frames_hold_what_floats_and_numbers_do_not():
    """Whole numbers with a gap, dates of any unit, nested columns that are dropped, lazy frames, tables of Arrow."""
    large = [2**53 + 1] * 2 + [2**53] * 2 + [5, 5, None]
    label, dose = [0, 1] * 3 + [1], [1.0, 2, 3, 4, 5, 6, 7]
    silos = pl.DataFrame({"silo": large, "dose": dose, "label": label})
    for frame in (silos, silos.lazy(), Frame(dict(silos.to_dict(as_series=False)))):
        assert load(frame, "silos").names == ("5", str(2**53), str(2**53 + 1))
    pandas_silos = pd.DataFrame({"silo": pd.array(large, "Int64"), "dose": dose, "label": label})
    assert load(pandas_silos, "silos").names == ("5", str(2**53), str(2**53 + 1))
    dates = pd.date_range("2020-01-01", periods=4)
    for column in (dates, dates - dates[0], pl.Series(dates.tolist()).cast(pl.Datetime("ns"))):
        with pytest.raises(DataError, match="column 'day' is of type"):
            load(pd.DataFrame({**TABLE.to_dict(as_series=False), "day": list(column)}), "silos")
    with_struct = TABLE.with_columns(inner=pl.struct("age", "dose"), wide=pl.Series([1, 2, 3, 4], dtype=pl.Int128))
    assert load(with_struct, "silos", drop=("inner", "wide")).names == load(TABLE, "silos").names
    with pytest.raises(DataError, match="column 'inner'"):
        load(with_struct, "silos")
    for ids in ([1.5, 1.5, 2, 2, 2], [1, "1", 1, 1, 2], [[1], [1], [2], [2], [2]]):
        with pytest.raises(DataError):
            load((FEATURES, LABELS, np.array([*ids, None], object)[:-1]), "ranking")
