"""Files of documents: what is read, and which line is to blame for what is not."""

import json

import pytest

from fedrank.core.errors import FormatError, MissingDataError
from fedrank.texts.served.documents import LONGEST_TITLE, Document, read_documents
from fedrank.texts.served.engines.foreign import document_of_row


def test_a_folder_has_a_document_a_file(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.md").write_text("# Title\n\nthe body\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("\ufeffonly a line", encoding="utf-8")
    (tmp_path / "c.png").write_bytes(b"\x89PNG")
    first, second = Document("a.txt", "", "only a line"), Document("deep/b.md", "Title", "the body")
    assert list(read_documents(tmp_path)) == [first, second]


def test_what_is_too_long_for_a_title_is_text(tmp_path):
    for length, there in [(1, True), (LONGEST_TITLE, True), (LONGEST_TITLE + 1, False)]:
        line = "x" * length
        (tmp_path / "a.txt").write_text(f"{line}\nthe body\n")
        (tmp_path / "b.jsonl").write_text(json.dumps({"id": "a.txt", "title": line, "text": "the body"}))
        expected = Document("a.txt", line, "the body") if there else Document("a.txt", "", f"{line}\nthe body")
        assert list(read_documents(tmp_path)) == list(read_documents(tmp_path / "b.jsonl")) == [expected]
        assert document_of_row("a.txt", line, "the body") == expected


def test_a_file_of_one_line_has_a_text_and_no_title(tmp_path):
    for length in [3, 3000]:
        for name in ["a.txt", "a.md"]:
            folder = tmp_path / f"{length}{name}"
            folder.mkdir()
            (folder / name).write_text("\ufeff\n" + "x" * length + "\n\n", encoding="utf-8")
            assert list(read_documents(folder)) == [Document(name, "", "x" * length)]


def test_lines_may_be_those_of_beir(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [
        {"_id": "1", "title": "T", "text": "x"},
        {"id": 2, "body": "y"},
        {"id": "3", "title": None, "text": "z", "more": 1},
    ]
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    assert list(read_documents(path)) == [Document("1", "T", "x"), Document("2", "", "y"), Document("3", "", "z")]


def test_a_line_that_is_no_document_is_named(tmp_path):
    for line in [
        "{",
        "[]",
        "3",
        '{"id": "a"}',
        '{"text": "x"}',
        '{"id": "", "text": "x"}',
        '{"id": "a", "text": 3}',
        '{"id": true, "text": "x"}',
        json.dumps({"id": "é" * 65, "text": "x"}),
        '{"id": "\\ud800", "text": "x"}',
        "[" * 100_000,
    ]:
        path = tmp_path / "d.jsonl"
        path.write_text('{"id": "first", "text": "x"}\n' + line)
        with pytest.raises(FormatError, match=r"d\.jsonl:2: "):
            list(read_documents(path))


def test_what_is_not_there_or_no_text_is_named(tmp_path):
    with pytest.raises(MissingDataError, match="nowhere"):
        list(read_documents(tmp_path / "nowhere"))
    with pytest.raises(MissingDataError, match=r"\.txt"):
        list(read_documents(tmp_path))
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="UTF-8"):
        list(read_documents(tmp_path))
