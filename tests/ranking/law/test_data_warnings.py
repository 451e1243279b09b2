"""Data that can be read and from which little can be learned: who says so."""

import numpy as np
import pytest
from short_settings import run_of

from fedrank.core.errors import FedrankWarning
from fedrank.data import load
from fedrank.engine.run import run_experiment
from fedrank.report import describe
from fedrank.report.load import load as read_run

QUERIES = np.repeat(np.arange(4), 3)
INSIDE = np.linspace(0, 1, 24).reshape(12, 2)
GRADES = np.tile([0, 1, 2], 4)


def test_labels_of_0_are_told_part_by_part():
    good, empty = (INSIDE, GRADES, QUERIES), (INSIDE, 0 * GRADES, QUERIES)
    assert load(good, "ranking").warnings == []
    (train,) = load(empty, "ranking").warnings
    assert "'train'" in train and "12 labels" in train and "learned" in train
    (test,) = load({"train": good, "test": (INSIDE, 0 * GRADES, QUERIES + 10)}, "ranking").warnings
    assert "'test'" in test and "measure" in test


@pytest.mark.parametrize(
    ("labels", "queries"), [(np.arange(12) % 3, np.arange(12)), (np.repeat([0, 1, 2, 2], 3), QUERIES)]
)
def test_queries_without_a_better_and_a_worse_document_are_told(labels, queries):
    """A document alone, or all documents of a query alike: whatever the order, every reward is the same."""
    (said,) = load((INSIDE, labels, queries), "ranking").warnings
    assert "'train'" in said and "learned" in said
    labels = labels.copy()
    labels[1], queries = 1 - labels[0], np.repeat(np.arange(4), 3)
    assert load((INSIDE, labels, queries), "ranking").warnings == []


def test_raw_features_are_told_only_where_they_stay_raw():
    raw = (100 * INSIDE - 1, GRADES, QUERIES)
    assert load(raw, "ranking").warnings == [] == load(raw, "ranking", normalise="query-minmax").warnings
    (said,) = load(raw, "ranking", normalise="none").warnings
    assert "-1 to 99" in said and "query-minmax" in said


def test_a_run_warns_once_and_its_page_repeats_it(tmp_path):
    settings = {"clients": 4, "rounds": 1, "seeds": 1}
    with pytest.warns(FedrankWarning, match="no relevant document") as told:
        folder = run_experiment(run_of("foltr-es", **settings), tmp_path / "run", data=(INSIDE, 0 * GRADES, QUERIES))
    assert len([one for one in told if issubclass(one.category, FedrankWarning)]) == 1
    assert any("no relevant document" in caveat for caveat in describe.caveats(read_run(folder)))


def test_a_name_that_is_a_folder_here_is_told(tmp_path, monkeypatch):
    from fedrank.core.errors import MissingDataError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDRANK_DATA", str(tmp_path / "cache"))
    rows = "".join(f"{d % 2} qid:{q} 1:{d / 4}\n" for q in range(2) for d in range(4))
    for folder in (tmp_path / "cache" / "mslr-sample", tmp_path / "mslr-sample"):
        folder.mkdir(parents=True)
    (tmp_path / "mslr-sample" / "train.txt").write_text(rows)
    assert load("./mslr-sample", "ranking").train.n_queries == 2
    with pytest.raises(MissingDataError, match=r"write './mslr-sample'"):
        load("mslr-sample", "ranking")
