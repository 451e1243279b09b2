"""Loading by name and path, on small files in every layout."""

import hashlib
import lzma

import numpy as np
import pytest

from fedrank.core.errors import (
    ChecksumError,
    ConfigError,
    DataError,
    FormatError,
    MissingDataError,
    UnknownNameError,
)
from fedrank.data import load
from fedrank.data.catalogue import CATALOGUE, DataSet
from fedrank.data.folders import find


def row(qid, features=2, label=1):
    return f"{label} qid:{qid} " + " ".join(f"{i}:0.{qid}" for i in range(1, features + 1)) + "\n"


@pytest.fixture
def parts(tmp_path):
    """S1 .. S4; the query of part k is called k."""
    folder = tmp_path / "five"
    folder.mkdir()
    for k in range(1, 5):
        (folder / f"S{k}.txt.xz").write_bytes(lzma.compress(row(k).encode()))
    (folder / "query_text.tsv").write_text("1\ttrain of thought\n")
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRANK_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_one_file(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text(row(1) + row(2))
    splits = load(path, "ranking")
    assert splits.name == "mine" and splits.train.name == "mine/train" and not splits.generated
    assert splits.train.qids.tolist() == ["1", "2"] and splits.vali is None and splits.test is None
    assert any("no validation and no test" in note for note in splits.notes)
    with pytest.raises(ConfigError, match="no folds"):
        load(path, "ranking", fold=2)


def test_parts_make_folds(parts):
    first, second = load(parts, "ranking"), load(str(parts), "ranking", fold=2)
    assert first.train.qids.tolist() == ["1", "2", "3"] and first.vali.qids.tolist() == ["4"]
    assert first.test is None and any("test part of fold 1 (S5)" in note for note in first.notes)
    assert second.train.qids.tolist() == ["2", "3", "4"] and second.test.qids.tolist() == ["1"]
    assert second.vali is None and any("validation part of fold 2 (S5)" in note for note in second.notes)
    assert (second.name, second.train.name, second.test.name) == ("five/fold2", "five/fold2/train", "five/fold2/test")
    with pytest.raises(MissingDataError, match=r"fold 3 trains on S3, S4, S5, but S5 is not here.*trained: 1, 2\."):
        load(parts, "ranking", fold=3)
    with pytest.raises(ConfigError, match=r"1\.\.5"):
        load(parts, "ranking", fold=6)


def test_a_query_in_two_parts_is_refused(parts):
    (parts / "S2.txt.xz").write_bytes(lzma.compress(row(1).encode()))
    with pytest.raises(DataError, match="query 1 occurs in two parts"):
        load(parts, "ranking")


def test_fold_folders_win_over_parts(parts):
    for k, qid in ((1, 7), (4, 8)):
        fold = parts / f"Fold{k}"
        fold.mkdir()
        for split in ("train", "vali", "test"):
            (fold / f"{split}.txt").write_text(row(qid))
    assert load(parts, "ranking").train.qids.tolist() == ["7"]
    fourth = load(parts, "ranking", fold=4)
    assert list(fourth.parts()) == ["train", "vali", "test"] and fourth.name == "five/fold4"
    with pytest.raises(MissingDataError, match="no folder Fold2, only Fold1, Fold4"):
        load(parts, "ranking", fold=2)
    assert load(parts / "Fold4", "ranking").train.qids.tolist() == ["8"]
    (parts / "Fold4" / "train.txt").unlink()
    with pytest.raises(MissingDataError, match="no file to train on"):
        load(parts, "ranking", fold=4)


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "valid.txt", "test.txt"),
        ("rank.train", "rank.dev", "rank.test"),
        ("a.train.gz", "x-vali", "test.dat"),
    ],
)
def test_one_division(tmp_path, names):
    for qid, name in enumerate(names, start=1):
        (tmp_path / name).write_text(row(qid))
    (tmp_path / "train.json").write_text("{}")
    splits = load(tmp_path, "ranking")
    assert [q.qids.tolist() for q in splits.parts().values()] == [["1"], ["2"], ["3"]] and splits.name == tmp_path.name
    with pytest.raises(ConfigError, match="one division"):
        load(tmp_path, "ranking", fold=2)


def test_two_candidates_are_refused(tmp_path):
    (tmp_path / "train.txt").write_text(row(1))
    (tmp_path / "train2.txt").write_text(row(1))
    assert load(tmp_path, "ranking").train.n_queries == 1
    (tmp_path / "old.train.txt").write_text(row(1))
    with pytest.raises(DataError, match=r"several files could be train: old.train.txt, train.txt"):
        load(tmp_path, "ranking")


def test_group_sizes_next_to_the_file(tmp_path):
    (tmp_path / "rank.train.xz").write_bytes(lzma.compress(b"1 1:0.5\n0 1:0.25\n0 1:0.75\n"))
    (tmp_path / "rank.train.query").write_text("2\n1\n")
    assert load(tmp_path, "ranking").train.offsets.tolist() == [0, 2, 3]
    assert load(tmp_path / "rank.train.xz", "ranking").train.offsets.tolist() == [0, 2, 3]


def test_parts_agree_on_features(tmp_path):
    (tmp_path / "train.txt").write_text(row(1, features=2))
    (tmp_path / "test.txt").write_text(row(2, features=4))
    splits = load(tmp_path, "ranking")
    assert splits.train.n_features == splits.test.n_features == 4
    assert splits.train.features.tolist() == [[np.float32(0.1)] * 2 + [0, 0]]


def test_normalisation_is_the_same_for_all_parts(tmp_path):
    (tmp_path / "train.txt").write_text("1 qid:1 1:0.25\n0 qid:1 1:0.5\n")
    (tmp_path / "test.txt").write_text("1 qid:2 1:100\n0 qid:2 1:300\n")
    splits = load(tmp_path, "ranking")
    assert splits.train.features.tolist() == [[0], [1]] and splits.test.features.tolist() == [[0], [1]]
    assert any("normalised" in note for note in splits.notes)
    raw = load(tmp_path, "ranking", normalise="none")
    assert raw.train.features.tolist() == [[0.25], [0.5]] and not any("normalised" in note for note in raw.notes)
    with pytest.raises(UnknownNameError, match="normalisation"):
        load(tmp_path, "ranking", normalise="zscore")


def test_archive_with_a_folder_around(tmp_path):
    inner = tmp_path / "outer" / "Whatever"
    inner.mkdir(parents=True)
    (inner / "train.txt").write_text(row(1))
    assert load(tmp_path / "outer", "ranking").train.n_queries == 1


def test_empty_folder(tmp_path):
    with pytest.raises(MissingDataError, match="no data files"):
        load(tmp_path, "ranking")


def test_generated():
    splits = load("generated", "ranking", seed=5)
    assert splits.generated and splits.train.generated and splits.train.features.max() <= 1
    assert "seed 5" in splits.notes[0]
    with pytest.raises(ConfigError, match="seed"):
        load("generated", "ranking", fold=2)


def test_absent_set_says_where_and_how(cache):
    with pytest.raises(MissingDataError) as caught:
        load("mq2008", "ranking")
    message = str(caught.value)
    for part in (str(cache / "mq2008"), str(cache / "ltr" / "MQ2008"), "microsoft.com", "fedrank data get mq2008"):
        assert part in message
    with pytest.raises(MissingDataError, match="Ask Yahoo"):
        load("yahoo-set1", "ranking")
    (cache / "mq2008").mkdir(parents=True)
    with pytest.raises(MissingDataError, match=r"(?s)no data files.*fedrank data get mq2008"):
        load("mq2008", "ranking")
    with pytest.raises(UnknownNameError, match="Did you mean 'mq2008'"):
        load("mq2oo8", "ranking")
    with pytest.raises(MissingDataError, match="no such file"):
        load("somewhere/else.txt", "ranking")


def test_a_wrong_file_of_a_named_set_is_refused(cache):
    folder = cache / "ltr" / "mq2008"
    folder.mkdir(parents=True)
    for k in range(1, 6):
        (folder / f"S{k}.txt").write_text(row(k))
    with pytest.raises(ChecksumError, match=r"S1.txt: .*expected md5:3282f8739013bee5b50c34ceb61aa709 .*got md5:"):
        load("mq2008", "ranking")
    assert load(folder, "ranking").train.n_queries == 3  # by its path it is any set


@pytest.fixture
def tiny():
    """A set of the catalogue that is small enough to write down; taken out again afterwards."""
    text = row(1, features=3, label=2).encode()
    entry = DataSet(
        name="tiny",
        title="Tiny",
        home="https://example.org",
        terms="None.",
        queries=1,
        documents=1,
        features=3,
        grades=3,
        folds=1,
        folders=("tiny",),
        checksums={"train": (f"sha256:{hashlib.sha256(text).hexdigest()}",)},
    )
    CATALOGUE.register("tiny", summary="Tiny.", citation="qin2013letor4")(entry)
    yield entry, text
    del CATALOGUE._entries["tiny"]


def test_named_set(cache, tiny, tmp_path):
    _, text = tiny
    elsewhere = tmp_path / "elsewhere"
    for folder in (cache / "tiny", elsewhere):
        folder.mkdir(parents=True)
        (folder / "train.txt").write_bytes(text.replace(b"\n", b"\r\n"))
        (folder / "test.txt").write_text(row(2, features=1, label=0))
    for splits in (
        load("tiny", "ranking"),
        load("TINY", "ranking", folder=elsewhere),
        load("tiny", "ranking", folder=cache),
    ):
        assert splits.name == "tiny" and splits.citation == "qin2013letor4"
        assert splits.train.n_features == splits.test.n_features == 3
        assert any("No checksum is known for test" in note for note in splits.notes)
    with pytest.raises(ConfigError, match=r"1\.\.1"):
        load("tiny", "ranking", fold=2)
    (cache / "tiny" / "test.txt").write_text(row(2, features=4))
    with pytest.raises(FormatError, match=r"index 4 is outside 1\.\.3"):
        load("tiny", "ranking")
    (cache / "tiny" / "test.txt").write_text(row(2, label=3))
    with pytest.raises(FormatError, match="at most 2"):
        load("tiny", "ranking")


def test_find_looks_in_the_platforms_cache_by_default(monkeypatch, tiny):
    monkeypatch.delenv("FEDRANK_DATA", raising=False)
    with pytest.raises(MissingDataError, match=r"fedrank.*tiny"):
        find(tiny[0])


def test_several_sets_in_one_folder(cache):
    folder = cache / "yahoo"
    folder.mkdir(parents=True)
    for number in (1, 2):
        for qid, split in enumerate(("train", "valid", "test"), start=1):
            (folder / f"set{number}.{split}.txt").write_text(row(qid + 3 * (number - 1)))
    first, second = load("yahoo-set1", "ranking"), load("yahoo-set2", "ranking")
    assert [q.qids.tolist() for q in first.parts().values()] == [["1"], ["2"], ["3"]]
    assert [q.qids.tolist() for q in second.parts().values()] == [["4"], ["5"], ["6"]]
    assert first.train.n_features == 700
