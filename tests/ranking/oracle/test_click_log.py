"""Click logs as they are read: one small log in every form, its oddities counted, and what cannot be read refused."""

import json
import lzma

import numpy as np
import polars as pl
import pytest

from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError
from fedrank.ranking.logs.columns import LogFormat
from fedrank.ranking.logs.read import ClickLog, _tells_clicks, read_log
from fedrank_zoo.click_fit.models import Sessions

#: Two queries; the document a of the first is shown with other features the second time.
ROWS = [
    ("s1", "shoes", "a", 1, 0, 0.5, 2.0),
    ("s1", "shoes", "b", 2, 1, 0.25, 0.0),
    ("s2", "boots", "a", 1, 1, 0.125, 1.0),
    ("s3", "shoes", "b", 1, 0, 0.25, 0.0),
    ("s3", "shoes", "a", 2, 1, 0.75, 2.0),
    ("s3", "shoes", "c", 3, 1, 1.0, 1.0),
]
COLUMNS = ["session", "query", "document", "position", "click", "bm25", "clicks_before"]
FRAME = pl.DataFrame(ROWS, schema=COLUMNS, orient="row")


def told(log: ClickLog):
    """A log in words that do not depend on the numbers of pairs and queries."""
    sessions = []
    for first, last in zip(log.offsets[:-1], log.offsets[1:], strict=True):
        rows = range(first, last)
        sessions.append(
            [(int(log.position[r]), bool(log.clicked[r]), log.features[log.pair[r]].tolist()) for r in rows]
        )
    return sessions


EXPECTED = [
    [(1, False, [0.5, 2.0]), (2, True, [0.25, 0.0])],
    [(1, True, [0.125, 1.0])],
    [(1, False, [0.25, 0.0]), (2, True, [0.75, 2.0]), (3, True, [1.0, 1.0])],
]


@pytest.mark.parametrize("kind", ["csv", "semicolons.csv", "tsv", "parquet", "jsonl", "csv.gz", "tsv.xz", "frame"])
def test_one_log_in_every_form(kind, tmp_path):
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        FRAME.write_parquet(path)
    elif kind == "jsonl":
        FRAME.write_ndjson(path)
    elif kind == "tsv.xz":
        path.write_bytes(lzma.compress(FRAME.write_csv(separator="\t").encode()))
    elif kind == "csv.gz":
        import gzip

        path.write_bytes(gzip.compress(FRAME.write_csv().encode()))
    elif kind == "semicolons.csv":  # as spreadsheets write it where the decimal sign is a comma
        FRAME.write_csv(path, separator=";", decimal_comma=True, include_bom=True)
    elif kind != "frame":
        FRAME.write_csv(path, separator="\t" if kind == "tsv" else ",")
    log = read_log(FRAME if kind == "frame" else path)
    assert told(log) == EXPECTED and log.left_out == {}
    assert log.names == ("bm25", "clicks_before") and log.depth == 3
    assert len(log.features) == 5  # b of shoes came twice with the same features
    assert log.query[log.pair].tolist() == [0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    "clicks",
    [
        ["false", "true", "TRUE", "False", "true", "true"],
        ["no", "yes", "y", "n", "Yes", "yes"],
        [0, 3, 1, None, 1, 2],
        [0.0, 1.0, 1.0, 0.0, 1.0, 1.0],
        [False, True, True, False, True, True],
        ["", "1", "1", "0", "1.0", "1"],
        ["nein", "ja", "Ja", "nein", "ja", "ja"],
    ],
)
def test_clicks_of_every_kind(clicks):
    assert told(read_log(FRAME.with_columns(pl.Series("click", clicks)))) == EXPECTED


def test_sessions_and_positions_that_the_log_does_not_name():
    assert told(read_log(FRAME.drop("session"))) == EXPECTED
    assert told(read_log(FRAME.drop("position"))) == EXPECTED
    with pytest.raises(DataError, match="neither sessions nor positions"):
        read_log(FRAME.drop("session", "position"))


def test_rows_of_a_session_may_stand_apart():
    apart = FRAME[[0, 3, 2, 1, 4, 5]]
    found = {len(session): session for session in told(read_log(apart))}
    assert sorted(found) == [1, 2, 3]
    assert [found[n] for n in (2, 1, 3)] == EXPECTED


def test_what_is_left_out_is_counted():
    extra = pl.DataFrame(
        [
            ("s3", "shoes", "c", 4, 0, 1.0, 1.0),  # shown a second time
            ("s3", "shoes", "d", 1, 0, 9.0, 1.0),  # at a place that is taken
            ("s4", "shoes", "e", None, 1, 9.0, 1.0),
            ("s4", "shoes", "f", 2, 0, None, 1.0),
            ("s4", "shoes", "g", 51, 0, 1.0, 1.0),
            *(("bot", "boots", f"x{i}", i + 1, 1, 1.0, 1.0) for i in range(5)),
            ("s5", None, "e", 1, 1, 9.0, 1.0),
        ],
        schema=FRAME.schema,
        orient="row",
    )
    log = read_log(pl.concat([FRAME, extra]))
    assert told(log) == [*EXPECTED, [(2, False, [0.0, 1.0])]]
    assert sorted(log.left_out.values()) == [1, 1, 1, 1, 1, 1, 1]
    kept = read_log(pl.concat([FRAME, extra]), LogFormat(all_clicked=False))
    assert [len(session) for session in told(kept)] == [2, 1, 3, 1, 5]


def test_a_user_with_too_many_searches_is_a_bot():
    users = FRAME.with_columns(user=pl.Series(["u", "u", "v", "u", "u", "u"]))
    assert told(read_log(users, LogFormat(most_searches=1))) == EXPECTED[1:2]
    by_user = read_log(users)
    assert by_user.draw[0] == by_user.draw[2] != by_user.draw[1]


def test_pages():
    paged = FRAME.with_columns(page=pl.Series([1, 1, 3, 1, 1, 2]), position=pl.Series([1, 2, 1, 1, 2, 1]))
    assert read_log(paged, LogFormat(page_size=10)).position.tolist() == [1, 2, 21, 1, 2, 11]
    with pytest.raises(ConfigError, match="page-size"):
        read_log(paged)


def test_columns_of_other_names_and_features_that_are_chosen():
    renamed = FRAME.rename({"query": "q", "click": "clicked", "session": "search"})
    form = LogFormat(query="q", click="clicked", session="search", features=("clicks_before",))
    log = read_log(renamed, form)
    assert log.names == ("clicks_before",) and log.features[log.pair].ravel().tolist() == [2, 0, 1, 0, 2, 1]
    with pytest.raises(DataError, match=r"no column query, click; it has search, q"):
        read_log(renamed)


def test_positions_under_another_name_are_no_feature():
    renamed = FRAME.rename({"position": "Rang"})
    with pytest.raises(DataError, match=r"--format\.position Rang"):
        read_log(renamed)
    assert told(read_log(renamed, LogFormat(position="Rang"))) == EXPECTED


def test_features_in_a_table_beside_the_log():
    bare = FRAME.drop("bm25", "clicks_before")
    by_session = FRAME.select("session", "document", "bm25", "clicks_before")
    assert told(read_log(bare, features=by_session)) == EXPECTED
    table = pl.DataFrame({"query": ["shoes", "boots", "shoes"], "document": ["b", "a", "a"], "bm25": [1.0, 2.0, 3.0]})
    log = read_log(bare, features=table)
    assert log.features[log.pair].ravel().tolist() == [3, 1, 2, 1, 3, 0] and list(log.left_out.values()) == [1]


def test_user_behavior_insights(tmp_path):
    """Two searches as the schema of UBI 1.3 has them; one in a dump of an index."""
    queries = [
        {"query_id": "1", "client_id": "c", "user_query": "shoes", "query_response_hit_ids": ["a", "b"]},
        {"query_id": "2", "client_id": "c", "user_query": "shoes", "query_response_hit_ids": ["b", "c", "a"]},
        {"query_id": "3", "client_id": "d", "user_query": "nothing", "query_response_hit_ids": []},
    ]
    click = {"object": {"object_id": "b", "object_id_field": "id"}, "position": {"ordinal": 2}}
    events = [
        {"action_name": "click", "query_id": "1", "event_attributes": click},
        {"action_name": "click", "query_id": "1", "event_attributes": click},
        {"action_name": "product_hover", "query_id": "2", "event_attributes": click},
        {"action_name": "click", "query_id": "2", "event_attributes": {**click, "object": {"object_id": "a"}}},
    ]
    write = lambda name, rows: (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))  # noqa: E731
    for wrapped in (False, True):
        write("ubi_queries.jsonl", [{"_source": row} for row in queries] if wrapped else queries)
        write("ubi_events.jsonl", events)
        log = read_log(tmp_path)
        assert log.position.tolist() == [1, 2, 1, 2, 3] and log.clicked.tolist() == [False, True, False, False, True]
        assert log.pair.tolist() == [0, 1, 1, 2, 0] and log.draw[0] == log.draw[1]


def test_logs_of_lists(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("query_id\turl_ids\tclicks\n1\t2 3 4\t1 0 1\n2\t5\t1\n1\t3\t0\n")
    sessions = Sessions.of_log(read_log(path))
    assert sessions.lengths.tolist() == [3, 1, 1] and sessions.clicked[0].tolist() == [True, False, True]
    assert sessions.pair[2, 0] == sessions.pair[0, 1]
    path.write_text("query_id\turl_ids\tclicks\n1\t2 3\t1 0\n1\t2 3\t1 0 0\n")
    with pytest.raises(FormatError, match=r"log.tsv:3: 2 results and 3 clicks"):
        read_log(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"click": ["0", "1", "maybe", "0", "1", "1"]}, "row 3: click must be .* got 'maybe'"),
        ({"click": [0, 1, -1, 0, 1, 1]}, "row 3: click must be a number of clicks"),
        ({"position": [0, 1, 0, 0, 1, 2]}, "row 1: position must be a whole number of at least 1"),
        ({"position": ["1", "2", "1", "top", "2", "3"]}, "row 4: position must be a number, got 'top'"),
        ({"propensity": [1.0, 0.5, 1.0, 1.0, 0.0, 0.2]}, "row 5: propensity must be above 0"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_row(change, said):
    with pytest.raises(FormatError, match=said):
        read_log(FRAME.with_columns(**{name: pl.Series(values) for name, values in change.items()}))


def test_files_that_are_none(tmp_path):
    with pytest.raises(MissingDataError):
        read_log(tmp_path / "none.csv")
    with pytest.raises(MissingDataError, match="'queries'"):
        read_log(tmp_path)
    (tmp_path / "log.docx").write_text("x")
    with pytest.raises(FormatError, match="parquet"):
        read_log(tmp_path / "log.docx")
    with pytest.raises(DataError, match="no row that can be used"):
        read_log(FRAME[:0])


def test_batches_do_not_matter(monkeypatch):
    rng = np.random.default_rng(1)
    n = 500
    frame = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n // 5), 5),
            "query": np.repeat(rng.integers(0, 9, n // 5), 5),
            "document": rng.integers(0, 40, n),
            "position": np.tile(np.arange(1, 6), n // 5),
            "click": rng.random(n) < 0.2,
            "f": rng.integers(0, 3, n).astype(float),
        }
    )
    whole = told(read_log(frame))
    monkeypatch.setattr("fedrank.ranking.logs.read._BATCH", 7)
    assert told(read_log(frame)) == whole


@pytest.mark.parametrize("price", ["1,234", '"0,5"', "1,5"])
def test_numbers_with_commas_are_decimal_or_refused(tmp_path, price):
    """1,234 may be a thousand or a decimal number; 0,5 and 1,5 are decimal numbers, also in quotes."""
    log = tmp_path / "log.csv"
    rows = [f"{session};q;d{rank};{rank};{rank == 1:d};{price}" for session in range(3) for rank in (1, 2)]
    log.write_text("session;query;document;position;click;price\n" + "\n".join(rows) + "\n")
    if price == "1,234":
        with pytest.raises(FormatError, match="1,234"):
            read_log(log)
    else:
        features = read_log(log).features
        assert features.shape[-1] == 1 and float(features.max()) == float(price.strip('"').replace(",", "."))


def log_with_odd_columns(rows: int = 4000) -> pl.DataFrame:
    """Searches of four results, a tenth clicked at random, with columns that no ranker should learn from."""
    rng = np.random.default_rng(0)
    session = np.arange(rows) // 4
    document = (np.arange(rows) % 4 + rng.integers(0, 8, rows)[session]) % 8
    click = rng.random(rows) < 0.1
    return pl.DataFrame({
        "session": session, "query": [("Shoes ", "shoes", "bo  ots", "BO ots")[s % 4] for s in session],
        "document": document, "position": np.arange(rows) % 4 + 1, "click": click,
        "price": np.array([3.0, 9, 1, 4, 4, 2, 7, 5])[document], "kind": (session // 2 % 2).astype(float),
        "promoted": (np.arange(rows) % 4 == 0) & (rng.random(rows) < 0.1), "new": rng.random(rows) < 0.02,
        "basket": click & (rng.random(rows) < 0.3), "seconds": np.where(click, rng.exponential(40, rows), np.nan),
        "ms": 1.7e12 + 3e5 * session, "age": rng.exponential(1, rows), "euros": ["19,90 €"] * rows,
    })  # fmt: skip


def test_columns_that_no_ranker_should_learn_from_are_none_and_are_named():
    """Of the query one value is a feature; what changes from one showing to the next stays, with a word."""
    frame = log_with_odd_columns()
    log = read_log(frame)
    assert log.names == ("price", "kind", "promoted", "new", "age") and log.features.shape[1] == 5
    assert set(log.odd_columns) == {"basket", "seconds", "ms", "age", "euros"}
    assert not any("taken as 0" in why for why in log.left_out)  # seconds is no feature
    named = read_log(frame, LogFormat(features=("seconds", "price")))
    assert named.names == ("seconds", "price") and set(named.odd_columns) == {"seconds"}
    assert list(named.left_out.values()) == [int((~frame["click"]).sum())]


def test_queries_that_differ_in_capitals_and_spaces_are_one():
    log = read_log(log_with_odd_columns(), LogFormat(features=("price",)))
    assert log.facts()["queries"] == 2 and log.facts()["pairs of query and document"] == 16


@pytest.mark.parametrize("name", ["log.parquet", "log.csv.gz", "log.jsonl", "latin-1.csv"])
def test_a_cut_file_and_one_that_is_no_utf_8_are_one_error(name, tmp_path):
    import gzip

    whole, path = tmp_path / "whole", tmp_path / name
    if "latin" in name:
        path.write_bytes(FRAME.write_csv().replace("shoes", "Röcke").encode("latin-1"))
    else:
        if "parquet" in name:
            log_with_odd_columns().write_parquet(whole)
        elif "jsonl" in name:
            log_with_odd_columns().write_ndjson(whole)
        else:
            whole.write_bytes(gzip.compress(log_with_odd_columns().write_csv().encode()))
        path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(FormatError, match=r"cannot be read|UTF-8"):
        read_log(path)


def test_text_that_was_named_as_a_feature_is_one_error():
    with pytest.raises(FormatError, match=r"euros.*19,90"):
        read_log(log_with_odd_columns(), LogFormat(features=("price", "euros")))


def test_a_score_that_lists_are_sorted_by_is_a_feature_however_much_the_top_is_clicked():
    """Lists of 40 in the order of a score, clicked with probability 0.9 / position² where a result is relevant."""
    random = np.random.default_rng(5)
    lists, length = 1500, 40
    score = -np.sort(-random.normal(size=(lists, length)), axis=1)
    place = np.broadcast_to(np.arange(1, length + 1), score.shape)
    relevant = random.random(score.shape) < 1 / (1 + np.exp(-2 * score))
    clicked = relevant & (random.random(score.shape) < 0.9 / place**2)
    seconds = np.where(clicked, random.exponential(size=score.shape), 0.0)
    values, clicks, places = score.ravel(), clicked.ravel(), place.ravel()
    from sklearn.metrics import roc_auc_score

    assert roc_auc_score(clicks, values) > 0.95  # over all positions together
    assert not _tells_clicks(values, clicks, places)
    assert _tells_clicks(seconds.ravel(), clicks, places)
