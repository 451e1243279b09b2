"""A user's own text collection: what is written is read, and faults are named with file and line."""

import gzip
import json
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrank.core.errors import DataError, FormatError, MissingDataError
from fedrank.data import load
from fedrank.texts.data.reader import is_text_path, read_texts

IDS = st.lists(st.text("abc-:/é0123", min_size=1, max_size=4), min_size=1, max_size=5, unique=True)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@st.composite
def collections(draw):
    documents, queries = draw(IDS), draw(IDS)
    pairs = [(q, d) for q in range(len(queries)) for d in range(len(documents))]
    judged = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    grades = [1, *draw(st.lists(st.integers(0, 4), min_size=len(judged) - 1, max_size=len(judged) - 1))]
    texts = {one: (draw(WORDS), draw(WORDS)) for one in documents}
    asked = {one: draw(WORDS) for one in queries}
    return texts, asked, [(*pair, grade) for pair, grade in zip(judged, grades, strict=True)]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])  # of a machine that has other work
@given(collections(), st.booleans())
def test_what_is_written_is_read(tmp_path_factory, collection, beir):
    documents, queries, judged = collection
    folder = tmp_path_factory.mktemp("mine")
    d, q = list(documents), list(queries)
    key = "_id" if beir else "id"
    rows = [{key: one, "title": title, "text" if beir else "body": body} for one, (title, body) in documents.items()]
    (folder / ("corpus.jsonl" if beir else "documents.jsonl")).write_text(lines(rows), encoding="utf-8")
    (folder / "queries.jsonl").write_text(lines({key: one, "text": text} for one, text in queries.items()), "utf-8")
    if beir:
        (folder / "qrels").mkdir()
        table = "".join(f"{q[a]}\t{d[b]}\t{grade}\n" for a, b, grade in judged)
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + table, encoding="utf-8")
    else:
        table = "".join(f"{q[a]} 0 {d[b]} {grade}\n" for a, b, grade in judged)
        (folder / "qrels").write_text(table, encoding="utf-8")
    texts = read_texts(folder)
    assert texts.name == folder.name
    assert not texts.notes or set(documents) & set(queries)  # a query that is one of the documents, by chance
    assert texts.document_ids == tuple(d) and texts.query_ids == tuple(q)
    assert list(zip(texts.titles, texts.bodies, strict=True)) == list(documents.values())
    assert texts.queries == tuple(queries.values())
    np.testing.assert_array_equal(
        np.stack([texts.judged_queries, texts.judged_documents, texts.grades], axis=1), judged
    )


@pytest.fixture
def folder(tmp_path):
    files = {
        "documents.jsonl": '{"id": 1, "text": "wings"}\n\n{"id": "b", "title": "heat"}\n',
        "queries.jsonl": '{"id": "q", "text": "heat"}\n',
        "qrels.txt": "q 0 b 2\nq 0 1 -2\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def test_a_path_is_a_collection_by_its_folder_or_its_documents(folder):
    for path in (folder, folder / "documents.jsonl"):
        texts = load(path, "texts")
        assert texts.document_ids == ("1", "b") and texts.titles == ("", "heat") and texts.bodies == ("wings", "")
        assert texts.grades.tolist() == [2, 0] and texts.notes == ("Negative grades that became 0: 1.",)
        assert is_text_path(path)
    assert not is_text_path(folder / "qrels.txt") and not is_text_path(folder.parent / "none")


def test_what_a_collection_lacks_or_has_twice_is_counted_and_noted(folder):
    """Judgements of what is not there, and lines that stand there again, are left out; the rest is as without them."""
    before = read_texts(folder)
    for name, more in (
        (
            "documents.jsonl",
            '{"id": "b", "title": "heat"}\n{"id": 1, "text": "wings"}\n{"_id": "1", "text": "wings"}\n',
        ),
        ("queries.jsonl", '{"id": "q", "text": "heat"}\n'),
        ("qrels.txt", "q 0 GONE 1\nq 0 GONE2 1\nGONE 0 b 1\nGONE 0 GONE 0\nq 0 b 2\n"),
    ):
        with (folder / name).open("a") as out:
            out.write(more)
    texts = read_texts(folder)
    for part in ("document_ids", "titles", "bodies", "query_ids", "queries"):
        assert getattr(texts, part) == getattr(before, part)
    for part in ("judged_queries", "judged_documents", "grades"):
        np.testing.assert_array_equal(getattr(texts, part), getattr(before, part))
    said = [[int(number) for number in re.findall(r"\d+", note)] for note in texts.notes]
    assert said == [[3], [1], [4, 7, 2, 1], [1], [0, 1]]  # the last: negative grades, that became 0


def test_a_document_that_is_a_query_itself_is_said(folder):
    (folder / "documents.jsonl").write_text(
        '{"id": "q", "title": "Heat", "text": " and flow"}\n{"id": "b", "text": "heat and flow"}\n'
    )
    (folder / "queries.jsonl").write_text('{"id": "q", "text": "heat  and Flow"}\n{"id": "b", "text": "flow"}\n')
    (folder / "qrels.txt").write_text("q 0 b 1\n")
    (note,) = read_texts(folder).notes
    assert re.findall(r"\d+", note) == ["1"]


def test_packed_files_and_several_files_of_judgements_are_read(folder):
    packed = folder / "documents.jsonl.gz"
    packed.write_bytes(gzip.compress((folder / "documents.jsonl").read_bytes()))
    (folder / "documents.jsonl").unlink()
    (folder / "qrels.txt").unlink()
    (folder / "qrels").mkdir()
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq\tb\t1\n")
    (folder / "qrels" / "test.tsv").write_text("q\t1\t1\n")
    texts = read_texts(folder)
    assert sorted(zip(texts.judged_documents.tolist(), texts.grades.tolist(), strict=True)) == [(0, 1), (1, 1)]
    assert texts.notes == ("Judgements of test.tsv, train.tsv were put together.",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("documents.jsonl", '{"id": 1, "text": "a"}\n{"id": 1', r"documents.jsonl:2: this is no JSON .*cut off here"),
        (
            "documents.jsonl",
            '{"id": 1, "text": "a"}\n{"id": "1", "text": "b"}\n',
            r"jsonl:2: document '1' stands twice",
        ),
        ("documents.jsonl", "[1]\n", r"jsonl:1: expected an object with id and text, got \[1\]"),
        ("documents.jsonl", '{"text": "a"}\n', r"jsonl:1: expected an id .*got None"),
        ("documents.jsonl", '{"id": "a b", "text": "a"}\n', r"jsonl:1: an id must .*no spaces"),
        ("documents.jsonl", '{"id": 1, "words": "a"}\n', r"jsonl:1: there is no text or body; found id, words"),
        ("documents.jsonl", '{"id": 1, "text": ["a"]}\n', r"jsonl:1: text must be text"),
        ("queries.jsonl", '{"id": "q"}\n', r"queries.jsonl:1: there is no text or query"),
        (
            "queries.jsonl",
            '{"id": "q", "text": ""}\n{"id": "q", "text": "x"}\n',
            r"queries.jsonl:2: query 'q' stands twice",
        ),
        ("qrels.txt", "p 0 b 1\nq 0 z 1\n", r"qrels.txt:1: no judgement .* 'p' and 'b'"),
        (
            "qrels.txt",
            "q 0 b 1\nq 0 b 2\n",
            r"qrels.txt:2: document 'b' was judged for query 'q' before, at qrels.txt:1",
        ),
        ("qrels.txt", "q b 1\n", r"qrels.txt:1: expected four columns .*got 3"),
        ("qrels.txt", "q 0 b 9999999999\n", r"qrels.txt:1: the grade 9999999999 is too large"),
        (
            "qrels.txt",
            "query\tdoc\tscore\nq\tb\t1\n",
            r"qrels.txt:1: the score must be .*The header must be query-id corpus-id",
        ),
        ("qrels.txt", "q\tb\t1\nq\tb\n", r"qrels.txt:2: expected three columns between tabs"),
    ],
)
def test_faults_are_named_with_file_and_line(folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises(FormatError, match=message):
        read_texts(folder)


def test_what_is_missing_is_named(folder):
    (folder / "documents.jsonl").write_bytes(b'{"id": 1, "text": "caf\xe9"}\n')
    with pytest.raises(FormatError, match=r"documents.jsonl:1: the text is not UTF-8"):
        read_texts(folder)
    (folder / "documents.jsonl").write_text('{"id": "b", "text": "heat"}\n')
    (folder / "qrels.txt").write_text("q 0 b 0\n")
    with pytest.raises(DataError, match="no document is relevant for any query"):
        read_texts(folder)
    (folder / "qrels.txt").unlink()
    with pytest.raises(MissingDataError, match=r"no judgements: looked for qrels, qrels.txt"):
        read_texts(folder)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(MissingDataError, match=r"there is no queries.jsonl, plain or as"):
        read_texts(folder)
    (folder / "documents.jsonl").unlink()
    with pytest.raises(MissingDataError, match=r"there is no documents.jsonl or corpus.jsonl"):
        read_texts(folder)
