"""Text collections against files written by hand, the sets' own counts, and words counted one by one."""

import os
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedrank.core.errors import ChecksumError, DataError, FormatError, MissingDataError, UnknownNameError
from fedrank.data import fetch as fetching
from fedrank.data import load
from fedrank.data.catalogue import CATALOGUE, DataSet, Download
from fedrank.data.lines import verify
from fedrank.texts.data.collection import Texts
from fedrank.texts.data.corpus import corpus_of, tokenise
from fedrank.texts.data.reader import LAYOUTS, read_npl, read_smart, read_trec

DOCUMENTS = b""".I 1
.T
wings in a
slipstream .
.A
brenckman,m.
.W
wings in a
slipstream .
  an experimental study of caf\xe9 wings .
.I 2
.T \r
heat .\r
.A\r
inger\r
.A\r
.T\r
heat .\r
.W\r
flow of heat .\r
.X\r
1\t5\t1\r
.W\r
and more of it .\r
.I 3
.T
.W
"""
QUERIES = b""".I 007
.W
lift of
wings
.I 365
.T
left out
.W
heat ?
"""


def written(folder, **contents):
    paths = []
    for name, content in contents.items():
        path = folder / name
        path.write_bytes(content)
        paths.append(path)
    return paths


def judged(texts):
    """(query id, document id) → grade."""
    rows = zip(texts.judged_queries, texts.judged_documents, texts.grades, strict=True)
    return {(texts.query_ids[q], texts.document_ids[d]): int(grade) for q, d, grade in rows}


def test_smart_records_are_read_with_all_their_traps(tmp_path):
    paths = written(tmp_path, documents=DOCUMENTS, queries=QUERIES, judgements=b"1 1 1 \n1 3 -1\n2 2 4\r\n\n2 1 3\n")
    texts = read_smart("cranfield", *paths, LAYOUTS["cranfield"])
    assert texts.document_ids == ("1", "2", "3") and texts.query_ids == ("1", "2")
    assert texts.titles == ("wings in a slipstream .", "heat .", "")
    # Without the title at its beginning; latin-1; both pieces of a text; no cross references.
    assert texts.bodies == ("an experimental study of café wings .", "flow of heat . and more of it .", "")
    assert texts.queries == ("lift of wings", "heat ?")
    # 1 is best and 4 is least; -1 is relevant to an unknown degree.
    assert judged(texts) == {("1", "1"): 4, ("1", "3"): 1, ("2", "2"): 1, ("2", "1"): 2}


def test_smart_layouts_differ_in_their_columns(tmp_path):
    documents, queries = written(tmp_path, documents=DOCUMENTS, queries=QUERIES)
    (cisi,) = written(tmp_path, cisi=b"     7      2\t0\t0.000000\n  365\t1\t0\t0.000000\n")
    (med,) = written(tmp_path, med=b"7 0 2 1\n365 0 1 1\n")
    (cacm,) = written(tmp_path, cacm=b"07 0002  0 0\n365 0001 0 0\n")
    for name, path in (("cisi", cisi), ("med", med), ("cacm", cacm), ("adi", cisi)):
        texts = read_smart(name, documents, queries, path, LAYOUTS[name])
        assert judged(texts) == {("7", "2"): 1, ("365", "1"): 1}
        assert texts.bodies[0].startswith("wings in a slipstream . an experimental")


def test_smart_faults_are_named_with_file_and_line(tmp_path):
    for changed, content, message in [
        (
            "judgements",
            b"1 1 1\n1 1 2\n",
            r"judgements:2: document '1' was judged for query '1' before, at judgements:1",
        ),
        ("judgements", b"1 1 5\n", r"judgements:1: the code of a judgement must be one of 1, 2, 3, 4, -1, got 5"),
        ("judgements", b"1 1\n", r"judgements:1: expected 3 numbers"),
        ("judgements", b"1 one 1\n", r"judgements:1: expected whole numbers"),
        ("documents", b".I 1\n.W\na\n.I 1\n.W\nb\n", r"documents:4: document '1' stands twice"),
        ("documents", b"<DOC>\n", r"documents:1: expected a record"),
        ("documents", b".I 1\nhello\n", r"documents:2: expected a section"),
        ("queries", b"\n\n", r"queries: there is no record"),
    ]:
        contents = {"documents": DOCUMENTS, "queries": QUERIES, "judgements": b"1 1 1\n", changed: content}
        with pytest.raises(FormatError, match=message):
            read_smart("x", *written(tmp_path, **contents), LAYOUTS["cranfield"])


TREC = {
    "documents": b"<DOC>\n<DOCNO>1</DOCNO>\ncompact memories\nare small\n</DOC>\n<DOC>\n<DOCNO>20</DOCNO>\n</DOC>\n",
    "queries": b"<top>\n<num>1</num><title>\nSMALL MEMORIES\n</title>\n</top>\n",
    "judgements": b"1 0 20 1\n1 0 1 2\n",
}
NPL = {
    "documents": b"1\ncompact memories\nare small\n   /\n20\n   /\n   /\n",
    "queries": b"1\nSMALL MEMORIES\n/\n",
    "judgements": b"1\n 20\n  1\n   /\n   /\n",
}


def test_trec_and_the_original_files_of_npl_say_the_same(tmp_path):
    trec = read_trec("vaswani", *written(tmp_path, **TREC))
    assert trec.document_ids == ("1", "20") and trec.titles == ("", "")
    assert trec.bodies == ("compact memories are small", "") and trec.queries == ("SMALL MEMORIES",)
    assert judged(trec) == {("1", "20"): 1, ("1", "1"): 2}
    npl = read_npl("vaswani", *written(tmp_path, **NPL))
    assert (npl.document_ids, npl.bodies, npl.query_ids, npl.queries) == (
        trec.document_ids,
        trec.bodies,
        trec.query_ids,
        trec.queries,
    )
    assert judged(npl) == {("1", "20"): 1, ("1", "1"): 1}


def test_faults_of_trec_and_npl_are_named_with_file_and_line(tmp_path):
    for reader, changed, content, message in [
        (read_trec, "documents", b"<DOC>\n<DOCNO>1</DOCNO>\na\n", r"documents:1: .*not closed"),
        (read_trec, "documents", b"<DOC>\na\n</DOC>\n", r"documents:3: .*closes nothing that has a number"),
        (
            read_trec,
            "documents",
            b"<DOC>\n<DOCNO>1</DOCNO>\n<DOC>\n",
            r"documents:3: <doc> begins inside the <doc> of line 1",
        ),
        (read_trec, "documents", b"text\n", r"documents:1: expected <doc>"),
        (read_trec, "judgements", b"1 0 20\n", r"judgements:1: expected four columns"),
        (read_trec, "judgements", b"1 0 20 yes\n", r"judgements:1: the grade must be a whole number, got 'yes'"),
        (read_npl, "documents", b"1\na\n/\n1\nb\n/\n", r"documents:4: document '1' stands twice"),
        (read_npl, "documents", b"1\na\n", r"documents:1: .*not closed"),
        (read_npl, "documents", b"a\n1\n", r"documents:1: expected a number"),
    ]:
        contents = {**(TREC if reader is read_trec else NPL), changed: content}
        with pytest.raises(FormatError, match=message):
            reader("x", *written(tmp_path, **contents))


def test_words_are_lower_case_stemmed_and_without_stop_words():
    texts = ["The Wings of the aeroplanes, FLYING at mach-2.5!", "", "a . of", "x y2 café"]
    assert tokenise(texts) == [["wing", "aeroplan", "fli", "mach"], [], [], ["y2", "café"]]
    assert tokenise(texts[:1], stem=False) == [["wings", "aeroplanes", "flying", "mach"]]
    assert tokenise(["of the wings"], stopwords=False) == [["of", "the", "wing"]]
    assert tokenise([]) == []


def tiny():
    return Texts(
        "tiny",
        ("a", "b", "c"),
        ("heat", "", "wings wings"),
        ("heat flows, heat stays", "", "the wings of heat"),
        ("p", "q", "r"),
        ("heat and heat of shock", "the", "wings"),
        np.array([0, 0, 2], np.int32),
        np.array([0, 2, 1], np.int32),
        np.array([2, 0, 1], np.int32),
    )


def test_a_corpus_counts_what_a_person_counts():
    corpus = corpus_of(tiny())
    assert corpus.vocabulary == ("flow", "heat", "shock", "stay", "wing")
    assert corpus.counts[0].toarray().tolist() == [[1, 2, 0, 1, 0], [0] * 5, [0, 1, 0, 0, 1]]
    assert corpus.counts[1].toarray().tolist() == [[0, 1, 0, 0, 0], [0] * 5, [0, 0, 0, 0, 2]]
    assert corpus.lengths.tolist() == [[4, 1], [0, 0], [2, 2]] and corpus.distinct.tolist() == [[3, 1], [0, 0], [2, 1]]
    assert [query.tolist() for query in corpus.queries] == [[1, 1, 2], [], [4]]
    assert [corpus.labels(query).tolist() for query in range(3)] == [[2, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert corpus.max_grade == 2 and corpus.answerable_queries().tolist() == [0, 2]
    assert corpus.notes == ("Documents without a word: 1.", "Queries without a word: 1.")


def test_texts_that_do_not_fit_are_refused():
    for changes, message in [
        ({"document_ids": ("a", "b", "b")}, "document id 'b' stands twice"),
        ({"titles": ("heat",)}, "one title and one body a document"),
        ({"queries": ("heat",)}, "3 query ids and 1 queries"),
        ({"judged_documents": np.array([0, 3, 1], np.int32)}, "names document number 3, but there are 3"),
        ({"judged_queries": np.array([0, -1, 1], np.int32)}, "names query number -1"),
        ({"judged_documents": np.array([0, 0, 1], np.int32)}, "document 'a' is judged twice for query 'p'"),
        ({"grades": np.array([1, -1, 1], np.int32)}, "must be 0 or more, got -1"),
        ({"grades": np.array([1, 1, 1], np.int64)}, "must be int32"),
        ({"topics": np.zeros(2, np.int32)}, r"topics of 'tiny' must be \[3\]"),
        ({"query_ids": (), "queries": ()}, "has no query"),
    ]:
        good = tiny()
        with pytest.raises(DataError, match=message):
            Texts(**{**{name: getattr(good, name) for name in good.__dataclass_fields__}, **changes})


def test_an_edited_or_absent_collection_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRANK_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match="fedrank data get cranfield"):
        load("cranfield", "texts")
    with pytest.raises(UnknownNameError, match="Did you mean 'cranfield'"):
        load("cranfeld", "texts")
    with pytest.raises(MissingDataError, match="no such file or folder"):
        load(tmp_path / "nowhere", "texts")
    folder = tmp_path / "text" / "adi"
    folder.mkdir(parents=True)
    written(folder, **{"adi.all": DOCUMENTS, "ADI.QRY": QUERIES})
    with pytest.raises(MissingDataError, match=r"there is no ADI.REL"):
        load("ADI", "texts")
    written(folder, **{"ADI.REL": b"1 1\n"})
    with pytest.raises(ChecksumError, match="not the published file"):
        load("adi", "texts")


def test_a_collection_without_known_checksums_is_read_with_a_note(tmp_path):
    inside = tmp_path / "med"
    inside.mkdir()
    written(inside, **{"MED.ALL": DOCUMENTS, "MED.QRY": QUERIES, "MED.REL": b"7 0 2 1\n"})
    texts = load("med", "texts", folder=tmp_path)
    assert judged(texts) == {("7", "2"): 1} and texts.citation == "salton1971smart"
    assert texts.notes[-1] == "No checksum is known for MED.ALL, MED.QRY, MED.REL; what was read was not verified."


def test_an_archive_of_a_collection_is_kept_only_if_its_files_are_the_published_ones(tmp_path, monkeypatch):
    entry = DataSet(
        name="tiny",
        title="Tiny",
        home="https://example.org",
        terms="Anybody's.",
        queries=2,
        documents=3,
        features=0,
        grades=2,
        folds=1,
        folders=("tiny",),
        downloads=(Download("https://example.org/tiny.tar.gz"),),
        # By the program md5sum.
        checksums={"TINY.ALL": ("md5:e4a1be018dbbc9be4e1490dffd4131ca",)},
        judged=2,
        judgements=2,
    )

    def packed(content):
        (file,) = written(tmp_path, **{"TINY.ALL": content})
        archive = tmp_path / "tiny.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(file, "inside/TINY.ALL")
        monkeypatch.setattr(fetching, "_retrieve", lambda *_: archive)

    packed(b"wigs\n")
    with pytest.raises(ChecksumError, match=r"TINY.ALL: this is not the published file"):
        fetching.fetch(entry, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    packed(b"wings\n")
    place = fetching.fetch(entry, tmp_path / "cache")
    assert (place / "inside" / "TINY.ALL").read_bytes() == b"wings\n"


@pytest.fixture(scope="module")
def real():
    """Loads a collection of the real data once."""
    root = os.environ.get("FEDRANK_DATA", "")
    loaded = {}

    def once(name):
        folder = Path(root, "text", name)
        if not root or not folder.is_dir():
            pytest.skip(f"needs text/{name} of the real data sets: set FEDRANK_DATA")
        if name not in loaded:
            loaded[name] = load(name, "texts", folder=folder.parent)
        return loaded[name]

    return once


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["cranfield", "cisi", "vaswani", "adi"])
def test_real_collections_have_their_published_counts(real, name):
    texts = real(name)
    counts = {"cranfield": (1400, 225, 225, 1837), "cisi": (1460, 112, 76, 3114)}
    counts |= {"vaswani": (11_429, 93, 93, 2083), "adi": (82, 35, 35, 170)}
    assert (texts.n_documents, texts.n_queries, texts.n_judged, len(texts.grades)) == counts[name]
    entry = CATALOGUE.get(name)
    assert (entry.documents, entry.queries, entry.judged, entry.judgements) == counts[name]
    assert texts.grades.max() == entry.grades - 1 and not texts.generated and texts.citation


@pytest.mark.realdata
def test_cranfield_is_read_as_its_readme_says(real):
    texts = real("cranfield")
    # 128 complete answers, 387 and 734 of the codes 2 and 3; 363 of code 4 and the 225 of -1 have the least grade.
    assert Counter(texts.grades.tolist()) == {4: 128, 3: 387, 2: 734, 1: 363 + 225}
    # The third query has .I 004 in the file; its judgements are those of "3".
    assert texts.query_ids[2] == "3" and texts.queries[2].startswith(
        "what problems of heat conduction in composite slabs"
    )
    grades = judged(texts)
    assert grades["3", "485"] == 1 and texts.titles[484] == "linear heat flow in a composite slab ."
    assert grades["1", "184"] == 3 and grades["2", "12"] == 4
    titled = [(title, body) for title, body in zip(texts.titles, texts.bodies, strict=True) if title]
    assert len(titled) == 1398 and not any(body.startswith(title) for title, body in titled)
    assert texts.bodies[0].startswith("an experimental study of a wing in a propeller slipstream was made")


@pytest.mark.realdata
def test_cisi_and_adi_and_vaswani_have_their_first_records(real):
    cisi, adi, vaswani = real("cisi"), real("adi"), real("vaswani")
    assert cisi.titles[0] == "18 Editions of the Dewey Decimal Classifications"
    assert cisi.bodies[0].startswith("The present study is a history") and cisi.bodies[0].endswith(
        "in this country and abroad."
    )
    assert judged(cisi)["1", "28"] == 1 and cisi.query_ids == tuple(map(str, range(1, 113)))
    assert adi.titles[66] == "a national plan for science abstracting and indexing services ."
    assert vaswani.bodies[0].startswith("compact memories have flexible capacities a digital data storage system")
    assert vaswani.queries[0].startswith("MEASUREMENT OF DIELECTRIC") and not any(vaswani.titles)


@pytest.mark.realdata
def test_a_changed_letter_in_a_real_file_is_noticed(real, tmp_path):
    real("adi")
    content = Path(os.environ["FEDRANK_DATA"], "text", "adi", "ADI.QRY").read_bytes()
    (path,) = written(tmp_path, **{"ADI.QRY": content})
    known = CATALOGUE.get("adi").checksums["ADI.QRY"]
    assert verify(path, known)
    path.write_bytes(content.replace(b"titles", b"tytles", 1))
    with pytest.raises(ChecksumError):
        verify(path, known)
