"""Every entry of the catalogue keeps the same promises."""

import re

import pytest

from fedrank.core import registry
from fedrank.core.errors import UnknownNameError
from fedrank.core.registry import bibtex
from fedrank.data.catalogue import CATALOGUE, list_data_sets, names_of, read_sets, rotation

KINDS = ("ranking", "silos", "texts")
LENGTHS = {"md5": 32, "git": 40, "sha256": 64}


def test_entry():
    for name in names_of("ranking"):
        entry = CATALOGUE.entry(name)
        dataset = entry.obj
        assert dataset.name == name == name.lower()
        assert entry.summary.endswith(".") and dataset.terms.endswith(".")
        assert bibtex([entry.citation]).startswith("@") and "year" in bibtex([entry.citation])
        assert re.match(r"https?://", dataset.home)
        assert dataset.queries < dataset.documents and dataset.features > 1 and dataset.grades in (2, 3, 5)
        assert dataset.folds in (1, 5) and dataset.folders
        assert dataset.downloads or dataset.by_hand
        for download in dataset.downloads:
            assert download.url.startswith(("https://", "http://"))
            # What cannot be checked as an archive must be checkable file by file.
            assert download.checksum or dataset.checksums
        known = [value for values in dataset.checksums.values() for value in values]
        for checksum in [*known, *(d.checksum for d in dataset.downloads if d.checksum)]:
            kind, _, value = checksum.partition(":")
            assert re.fullmatch(f"[0-9a-f]{{{LENGTHS[kind]}}}", value)
        assert len(known) == len(set(known))
        parts = {f"S{k}" for k in range(1, 6)} | {f"train{k}" for k in range(1, 6)} if dataset.folds > 1 else set()
        assert set(dataset.checksums) <= (parts or {"train", "vali", "test"})


def test_entry_of_a_text_collection():
    for name in names_of("texts"):
        entry = CATALOGUE.entry(name)
        texts = entry.obj
        assert texts.name == name == name.lower() and texts.kind == "texts"
        assert entry.summary.endswith(".") and texts.terms.endswith(".") and texts.by_hand.endswith(".")
        assert bibtex([entry.citation]).startswith("@") and "year" in bibtex([entry.citation])
        assert re.match(r"https?://", texts.home)
        # Each judged query has a judgement at least, and no pair is judged twice.
        assert texts.judged <= texts.queries < texts.documents
        assert texts.judged <= texts.judgements < texts.judged * texts.documents
        assert texts.features == texts.silos == texts.rows == 0 and texts.grades in (2, 5)
        assert texts.folders[:2] == (name, f"text/{name}")
        # The first names of its files are proved, or nothing is; all are named for those who fetch them by hand.
        assert len(texts.checksums) in (0, 3) and all(file in texts.by_hand for file in texts.checksums)
        known = [value for values in texts.checksums.values() for value in values]
        for checksum in [*known, *(download.checksum for download in texts.downloads)]:
            kind, _, value = checksum.partition(":")
            assert re.fullmatch(f"[0-9a-f]{{{LENGTHS[kind]}}}", value)
        assert len(known) == len(set(known))


def test_every_set_is_of_one_kind_and_none_is_lost():
    assert {"heart-disease", "health-insurance"} <= set(names_of("silos")) and "cranfield" in names_of("texts")
    assert sorted(CATALOGUE.names()) == sorted(name for kind in KINDS for name in names_of(kind))
    assert all(
        entry.obj.kind == kind and entry.obj.name == entry.name for kind in KINDS for entry in list_data_sets(kind)
    )


def test_a_package_names_its_sets_by_one_entry_point(tmp_path, monkeypatch):
    table = """
[{name}]
summary = "Mine."
title = "Mine"
home = "https://example.org"
terms = "None."
queries = 3
documents = 30
features = 4
grades = 2
{more}
"""
    sets = table.format(name="mine", more="") + table.format(name="my-texts", more="judgements = 9")
    (tmp_path / "my_sets.py").write_text(
        f"from fedrank.data.catalogue import read_sets\nSETS = read_sets({sets!r})\nONE = SETS[0].obj\n"
    )
    about = tmp_path / "my_sets-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-sets\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[fedrank.data]\nmine-all = my_sets:SETS\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._points.cache_clear()
    try:
        assert CATALOGUE.entry("mine").obj == read_sets(sets)[0].obj and CATALOGUE.entry("mine").summary == "Mine."
        assert "my-texts" in names_of("texts") and "my-texts" not in names_of("ranking")
        assert "mine" in names_of("ranking") and "mine-all" not in CATALOGUE
        assert CATALOGUE.get("mq2008").folds == 5  # those of fedrank are still there
    finally:
        monkeypatch.undo()
        registry._points.cache_clear()


def test_the_sets_of_the_papers_are_there():
    assert {"mq2007", "mq2008", "mslr-web10k", "mslr-web30k", "istella", "istella-s", "yahoo-set1", "yahoo-set2"} < set(
        CATALOGUE.names()
    )
    with pytest.raises(UnknownNameError, match="Did you mean 'mq2008'"):
        CATALOGUE.get("mq-2008")


def test_rotation_is_that_of_the_letor_readme():
    for fold, train, vali, test in [
        (1, "123", "4", "5"),
        (2, "234", "5", "1"),
        (3, "345", "1", "2"),
        (4, "451", "2", "3"),
        (5, "512", "3", "4"),
    ]:
        numbers = {split: "".join(part[1] for part in parts) for split, parts in rotation(fold).items()}
        assert numbers == {"train": train, "vali": vali, "test": test}


def test_checksums_of_folds_follow_the_rotation():
    """MSLR-WEB10K's publisher's list: vali of Fold1 is test of Fold5, test of Fold1 is vali of Fold2."""
    web = CATALOGUE.get("mslr-web10k")
    assert web.checksums_of("vali", 1) == web.checksums_of("test", 5)
    assert web.checksums_of("vali", 1)[0].startswith("sha256:e86fb3fe")
    assert web.checksums_of("test", 1)[0].startswith("sha256:33fe0023")
    assert web.checksums_of("train", 4)[0].startswith("sha256:6c1677cf")
    assert CATALOGUE.get("istella-s").checksums_of("vali")[0].startswith("sha256:f225dd95")
    assert CATALOGUE.get("ohsumed").checksums_of("test", 3) == ()
